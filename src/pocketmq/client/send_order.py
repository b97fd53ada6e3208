"""Send order: messages to a queue that was chosen, while they cannot be written. Each waits for those that came before it.

    send ── cannot be written at once ──► turn(queue) ── the first one ──► waits for its broker ──► written ──► the next one
    send ── others wait for their turn ──► turn(queue), behind them

A turn ends when the request is written, not when it is answered. Without anything to wait for there are no turns.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from pocketmq.errors import ConnectFailed
from pocketmq.model.queue import MessageQueue


class SendOrder:
    """The turns of one producer."""

    def __init__(self) -> None:
        self._turns: dict[MessageQueue, deque[Turn]] = {}

    def is_waited_for(self, queue: MessageQueue) -> bool:
        """Whether a message to `queue` would overtake others. Any thread may ask."""
        return queue in self._turns

    def turn(self, queue: MessageQueue) -> "Turn":
        """The place behind all that wait; for `with`."""
        turn = Turn(self, queue)
        self._turns.setdefault(queue, deque()).append(turn)
        return turn

    def is_first(self, turn: "Turn") -> bool:
        return self._turns[turn.queue][0] is turn

    def end(self, turn: "Turn") -> None:
        """Let the next one go on."""
        turns = self._turns[turn.queue]
        turns.remove(turn)
        if not turns:
            del self._turns[turn.queue]
        elif not turns[0].came.done():
            turns[0].came.set_result(None)


class Turn:
    """The turn of one message. It ends once."""

    __slots__ = ("_has_ended", "_order", "came", "queue")

    def __init__(self, order: SendOrder, queue: MessageQueue) -> None:
        self._order = order
        self._has_ended = False
        self.queue = queue
        self.came: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, deadline: float) -> None:
        """Return when all before it are written or given up; ConnectFailed when the loop's time is `deadline` before that."""
        if self._order.is_first(self):
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self.came
        except TimeoutError:
            raise ConnectFailed(
                f"{self.queue.broker_name} was not connected in the time of this send, and nothing was sent: messages "
                f"before it wait for {self.queue}"
            ) from None

    def end(self) -> None:
        """The message is written, or given up. Harmless when done twice."""
        if not self._has_ended:
            self._has_ended = True
            self._order.end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
