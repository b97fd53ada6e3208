"""A run of pulls: each leaves in the turn that brought the answer to the one before.

    send ──► answer ── taken in, and the next sent ──► answer ── taken in … ──► ended: nothing more could leave at once
                           │                 ▲
                           └── held back ────┘  listeners have enough: until they have done some of it, 5 ms at most

A task that waits for each answer would be woken for each, which costs more than to send the pull. It waits for the end of the run.

Pulls are faster than listeners, or soon would be: without the holding back a queue runs into its limit, waits 50 ms, and quick
listeners have nothing to do before that is over. And messages that were just decoded are still in the cache of the processor. Slow listeners
are not waited for: the queue fills up to its limit.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.client.pulling import PullResult
from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.command import Command
from pocketmq.protocol.stored_answers import StoredAnswer

CATCH_UP_S: Final = 0.005
"""How long the next pull is held back for listeners."""

TakeIn = Callable[["PullRun", Command], bool]
"""Takes in an answer; whether the run may go on. May raise."""
SendNext = Callable[["PullRun"], bool]
"""Sends the next pull; whether it is under way. May raise."""


class PullRun:
    """Who hears the answers. `ended` comes to None, to the answer that calls for another beginning of the queue, or to what failed."""

    __slots__ = (
        "_held",
        "_send_next",
        "_take_in",
        "ended",
        "illegal",
        "loop",
        "owned",
        "sent_at",
        "subscription",
        "timeout_s",
    )

    code: Final = int(RequestCode.PULL_MESSAGE)

    def __init__(
        self, owned: OwnedQueue, subscription: Subscription, take_in: TakeIn, send_next: SendNext, timeout_s: float
    ) -> None:
        self.owned = owned
        self.subscription = subscription
        """Of the pull that is under way."""
        self._take_in = take_in
        self._send_next = send_next
        self._held: asyncio.TimerHandle | None = None
        self.timeout_s = timeout_s
        self.sent_at = 0.0
        self.illegal: PullResult | None = None
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[PullResult | None] = self.loop.create_future()

    def answered(self, response: Command) -> None:
        if self.ended.done():
            return  # nobody pulls this queue any more
        try:
            if not self._take_in(self, response):
                self._end()
            elif self.owned.has_enough:
                self._hold()
            elif not self._send_next(self):
                self._end()
        except Exception as error:
            self._end(error)

    def _hold(self) -> None:
        self._held = self.loop.call_later(CATCH_UP_S, self._go_on)
        self.owned.done_heard = self._look

    def _look(self) -> None:
        """Listeners have done something."""
        if not self.owned.has_enough:
            self._go_on()

    def _go_on(self) -> None:
        self.owned.done_heard = None
        if self._held is not None:
            self._held.cancel()
        if self.ended.done():
            return  # nobody pulls this queue any more
        try:
            if not self._send_next(self):
                self._end()
        except Exception as error:
            self._end(error)

    def stored(self, answer: StoredAnswer) -> bool:
        return False

    def failed(self, error: PocketMQError) -> None:
        self._end(error)

    def _end(self, error: Exception | None = None) -> None:
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(self.illegal)
        else:
            self.ended.set_exception(error)
