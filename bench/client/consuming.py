"""Push consumer loads: a consumer receives a given number of messages, timed from the first to the last."""

import asyncio
import threading
import time
from collections.abc import Callable

from bench.client.measured import SAMPLE_EVERY, Measured, Tally
from pocketmq import AsyncPushConsumer, PushConsumer, StoredMessage

MOST_S = 60.0
"""Time limit of a shot."""


class Counter:
    """A listener that counts messages and reports the last one. `stamped` bodies start with their send time."""

    def __init__(self, count: int, finished: Callable[[], object], *, stamped: bool = False) -> None:
        self.tally = Tally()
        self._count = count
        self._finished = finished
        self._stamped = stamped
        self._lock = threading.Lock()

    def one(self, message: StoredMessage) -> None:
        tally = self.tally
        if not tally.messages:
            tally.begin()
        tally.messages += 1
        if self._stamped and tally.messages % SAMPLE_EVERY == 0:
            tally.samples_ns.append(time.monotonic_ns() - int.from_bytes(message.body[:8], "big"))
        if tally.messages == self._count:
            self._finished()

    def one_of_many_threads(self, message: StoredMessage) -> None:
        with self._lock:
            self.one(message)


async def by_loop(
    name_server: str, topic: str, count: int, *, stamped: bool = False, ready: Callable[[], None] = lambda: None
) -> Measured:
    """An `async def` listener on the event loop."""
    done = asyncio.Event()
    counter = Counter(count, done.set, stamped=stamped)
    consumer = AsyncPushConsumer(name_server, group=_group(), start_at="first")

    @consumer.on(topic)
    async def handle(message: StoredMessage) -> None:
        counter.one(message)

    async with consumer:
        ready()
        try:
            async with asyncio.timeout(MOST_S):
                await done.wait()
        except TimeoutError:
            counter.tally.errors += 1
        return counter.tally.end()


def by_pool(name_server: str, topic: str, count: int) -> Measured:
    """A plain function in the consumer's thread pool."""
    done = threading.Event()
    counter = Counter(count, done.set)
    consumer = PushConsumer(name_server, group=_group(), start_at="first")
    consumer.on(topic)(counter.one_of_many_threads)
    with consumer:
        if not done.wait(MOST_S):
            counter.tally.errors += 1
        return counter.tally.end()


def _group() -> str:
    return f"bench-{time.monotonic_ns()}"
