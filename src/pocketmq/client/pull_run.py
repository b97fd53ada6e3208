"""A run of pulls: each leaves in the turn that brought the answer to the one before.

    send ──► answer ── taken in, and the next sent ──► answer ── taken in … ──► ended: nothing more could leave at once

A task that waits for each answer would be woken for each, which costs more than to send the pull. It waits for the end of the run.
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

GoesOn = Callable[["PullRun", Command], bool]
"""Takes in an answer; whether the next pull of the run is under way. May raise."""


class PullRun:
    """Who hears the answers. `ended` comes to None, to the answer that calls for another beginning of the queue, or to what failed."""

    __slots__ = ("_goes_on", "ended", "illegal", "loop", "owned", "sent_at", "subscription", "timeout_s")

    code: Final = int(RequestCode.PULL_MESSAGE)

    def __init__(self, owned: OwnedQueue, subscription: Subscription, goes_on: GoesOn, timeout_s: float) -> None:
        self.owned = owned
        self.subscription = subscription
        """Of the pull that is under way."""
        self._goes_on = goes_on
        self.timeout_s = timeout_s
        self.sent_at = 0.0
        self.illegal: PullResult | None = None
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[PullResult | None] = self.loop.create_future()

    def answered(self, response: Command) -> None:
        if self.ended.done():
            return  # nobody pulls this queue any more
        try:
            goes_on = self._goes_on(self, response)
        except Exception as error:
            self._end(error)
        else:
            if not goes_on:
                self._end()

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
