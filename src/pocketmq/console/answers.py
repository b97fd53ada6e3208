"""Answers that are shared: what one page asked is good for a moment for everybody, and is asked once however many want it now.

    ask(key) ─┬─ known and fresh ──────────────► the same answer
              ├─ somebody is asking already ───► wait for that
              └─ otherwise ── the question ────► remembered for `good_s`

So ten browsers on a page cost the brokers what one does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

from pocketmq.clock import Clock
from pocketmq.errors import CallTimedOut

T = TypeVar("T")

MAX_ANSWERS: Final = 1_000


class Answers:
    """By key. A failure is told to all who wait, and not remembered."""

    def __init__(self, clock: Clock, good_s: float, timeout_s: float) -> None:
        self._clock = clock
        self._good_s = good_s
        self._timeout_s = timeout_s
        self._known: dict[Hashable, tuple[float, Any]] = {}
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def ask(
        self,
        key: Hashable,
        question: Callable[[], Awaitable[T]],
        *,
        good_s: float | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """CallTimedOut when the answer takes longer than a page waits."""
        known = self._known.get(key)
        if known is not None and known[0] > self._clock.monotonic():
            answer: T = known[1]
            return answer
        task = self._asked.get(key)
        if task is None:
            asking = self._ask(key, question, good_s or self._good_s, timeout_s or self._timeout_s)
            task = self._asked[key] = asyncio.create_task(asking)
            task.add_done_callback(lambda done: self._over(key, done))
        found: T = await asyncio.shield(task)
        return found

    def forget(self) -> None:
        """Somebody changed something: what was known may be wrong now."""
        self._known.clear()

    async def _ask(self, key: Hashable, question: Callable[[], Awaitable[T]], good_s: float, timeout_s: float) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                answer = await question()
        except TimeoutError as error:
            if isinstance(error, CallTimedOut):
                raise
            raise CallTimedOut(f"brokers did not answer within {timeout_s:g} s") from None
        self._known.pop(key, None)
        self._make_room()
        self._known[key] = self._clock.monotonic() + good_s, answer
        return answer

    def _make_room(self) -> None:
        """The oldest go first: those that are not good any more, and one more if there are too many."""
        now = self._clock.monotonic()
        while self._known:
            first = next(iter(self._known))
            if self._known[first][0] > now and len(self._known) < MAX_ANSWERS:
                return
            del self._known[first]

    def _over(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._asked.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever waited was told; if all of them left, nobody needs to be
