"""Producer loads: each sends for some time or a number of messages, and waits for the last response."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from bench.client.measured import SAMPLE_EVERY, Measured, Tally
from pocketmq import AsyncProducer, Message, Producer
from pocketmq.net.loops import new_loop

TIMEOUT_MS = 30_000
"""Send timeout, long enough for a busy machine."""

Until = Callable[[], bool]
"""Whether to stop sending."""
NewBody = Callable[[], bytes]


def run_on_loop(work: Coroutine[Any, Any, Measured]) -> Measured:
    """Run on PocketMQ's default event loop: uvloop where installed."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)


def after(seconds: float) -> Until:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def by_threads(name_server: str, topic: str, body: bytes, threads: int, seconds: float, warm_s: float) -> Measured:
    """Each thread sends and waits for the result."""
    with Producer(name_server, group="bench", send_timeout_ms=TIMEOUT_MS) as producer:

        def work(until: Until, counts: list[int], samples_ns: list[int]) -> None:
            sent = 0
            while not until():
                began = time.monotonic_ns()
                producer.send(topic, body)
                samples_ns.append(time.monotonic_ns() - began)
                sent += 1
            counts.append(sent)

        def run(until: Until, tally: Tally) -> None:
            counts: list[int] = []
            running = [threading.Thread(target=work, args=(until, counts, tally.samples_ns)) for _ in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            tally.messages = sum(counts)

        run(after(warm_s), Tally())
        tally = Tally()
        run(after(seconds), tally)
        return tally.end()


async def by_tasks(name_server: str, topic: str, body: bytes, tasks: int, seconds: float, warm_s: float) -> Measured:
    """Each task sends and awaits the result."""

    async def run(producer: AsyncProducer, until: Until, tally: Tally) -> None:
        async def work() -> None:
            # Only samples read the clock: reading it for each message would cost a tenth of the result.
            while not until():
                began = time.monotonic_ns()
                await producer.send(topic, body)
                tally.samples_ns.append(time.monotonic_ns() - began)
                for _ in range(SAMPLE_EVERY - 1):
                    await producer.send(topic, body)
                tally.messages += SAMPLE_EVERY

        await asyncio.gather(*(work() for _ in range(tasks)))

    return await _warm_and_run(name_server, seconds, warm_s, run)


async def by_window(name_server: str, topic: str, body: bytes, window: int, seconds: float, warm_s: float) -> Measured:
    """One task submits messages, with at most `window` in flight."""
    return await _warm_and_run(
        name_server,
        seconds,
        warm_s,
        lambda producer, until, tally: pipeline(producer, topic, lambda: body, window, until, tally),
    )


async def by_linger(name_server: str, topic: str, body: bytes, window: int, seconds: float, warm_s: float) -> Measured:
    """One task submits messages to a producer with `linger_ms`."""
    return await _warm_and_run(
        name_server,
        seconds,
        warm_s,
        lambda producer, until, tally: pipeline(producer, topic, lambda: body, window, until, tally),
        linger_ms=1,
    )


async def by_many(name_server: str, topic: str, body: bytes, count: int, seconds: float, warm_s: float) -> Measured:
    """`send_many` with lists of `count` messages, one after the other."""
    return await _warm_and_run(
        name_server,
        seconds,
        warm_s,
        lambda producer, until, tally: lists(producer, topic, lambda: body, count, until, tally),
    )


async def pipeline(
    producer: AsyncProducer, topic: str, new_body: NewBody, window: int, until: Until, tally: Tally
) -> None:
    """Submit while the window is not full, then wait for half of it, so that waits are few."""
    in_flight = submitted = 0
    wanted = window // 2
    submit, room = producer.submit, asyncio.Event()

    def done(future: asyncio.Future[Any]) -> None:
        nonlocal in_flight
        in_flight -= 1
        if future.exception() is not None:
            tally.errors += 1
        if in_flight <= wanted:
            room.set()

    while not until():
        for _ in range(window - in_flight):
            submit(topic, new_body()).add_done_callback(done)
        submitted += window - in_flight
        in_flight = window
        room.clear()
        await room.wait()
        tally.messages = submitted - in_flight - tally.errors
    wanted = 0
    while in_flight:
        room.clear()
        await room.wait()
    tally.messages = submitted - tally.errors


async def lists(producer: AsyncProducer, topic: str, new_body: NewBody, count: int, until: Until, tally: Tally) -> None:
    while not until():
        tally.messages += len(await producer.send_many([Message(topic, new_body()) for _ in range(count)]))


async def send_count(
    name_server: str, topic: str, new_body: NewBody, count: int, *, window: int, batch: int
) -> Measured:
    """Send a number of messages, for end-to-end rows and to fill a topic; in lists when `batch` is above 1."""
    tally = Tally()

    def is_enough() -> bool:
        return tally.messages >= count

    async with AsyncProducer(name_server, group="bench", send_timeout_ms=TIMEOUT_MS) as producer:
        tally.begin()
        if batch > 1:
            await lists(producer, topic, new_body, batch, is_enough, tally)
        else:
            await pipeline(producer, topic, new_body, window, is_enough, tally)
        return tally.end()


async def _warm_and_run(
    name_server: str,
    seconds: float,
    warm_s: float,
    run: Callable[[AsyncProducer, Until, Tally], Awaitable[None]],
    *,
    linger_ms: int = 0,
) -> Measured:
    options: dict[str, Any] = {"group": "bench", "send_timeout_ms": TIMEOUT_MS, "linger_ms": linger_ms}
    async with AsyncProducer(name_server, **options) as producer:
        await run(producer, after(warm_s), Tally())
        tally = Tally()
        await run(producer, after(seconds), tally)
        return tally.end()
