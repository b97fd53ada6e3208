"""Loads of a push consumer: it gets a given number of messages, and the clock runs from the first one to the last."""

import asyncio
import threading
import time
from collections.abc import Callable

from bench.client.measured import SAMPLE_EVERY, Measured, Tally
from pocketmq import AsyncPushConsumer, PushConsumer, StoredMessage

MOST_S = 60.0
"""After that a shot is over, however many messages came."""


class Counter:
    """A listener: counts, and says when all have come. With `stamped`, bodies begin with when they were sent."""

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
    """An `async def` listener, on the loop of the program."""
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
    """A plain function, in the threads of the consumer."""
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
