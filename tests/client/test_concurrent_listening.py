"""Concurrent listening: who gets a worker when. Real servers, virtual time."""

import asyncio
from collections import Counter

from tests.client.real_cluster import real_cluster, until

from pocketmq.model.message import StoredMessage
from pocketmq.testing import run


def test_what_waits_behind_a_call_that_hangs_gets_another_worker() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            seen: list[bytes] = []
            consumer = c.push_consumer(start_at="first", workers=2, stop_timeout_ms=100)

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                if message.body == b"hang":
                    await asyncio.sleep(3600)
                seen.append(message.body)

            async with consumer:
                await c.send("T", *(b"%d" % number for number in range(100)))
                await until(lambda: len(seen) == 100)
                consumer.pause()
                await asyncio.sleep(20)
                await c.send("T", b"hang", *(b"%d" % number for number in range(100, 130)))
                consumer.resume()
                await until(lambda: len(seen) == 130, timeout_s=5)

            assert c.committed("G", "T", 0) == 100

    run(main())


def test_queues_take_turns() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            await c.send("T", *(b"many" for _ in range(100)), queue=0)
            await c.send("T", *(b"few" for _ in range(5)), queue=1)
            seen: Counter[bytes] = Counter()
            consumer = c.push_consumer(start_at="first", workers=1)

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                await asyncio.sleep(0.1)
                seen[message.body] += 1

            async with consumer:
                await until(lambda: seen[b"few"] == 5)
                assert seen[b"many"] < 12

    run(main())


def test_no_more_calls_are_under_way_than_there_are_workers() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", *(b"%d" % number for number in range(60)))
            busy = most = done = 0
            consumer = c.push_consumer(start_at="first", workers=3)

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                nonlocal busy, most, done
                busy += 1
                most = max(most, busy)
                await asyncio.sleep(0.05)
                busy -= 1
                done += 1

            async with consumer:
                await until(lambda: done == 60)
            assert most == 3

    run(main())


def test_the_smallest_offset_in_work_is_what_is_committed() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            gate = asyncio.Event()
            done: list[int] = []
            consumer = c.push_consumer(start_at="first", workers=4)

            @consumer.on("T")
            async def handle(message: StoredMessage) -> None:
                if message.queue_offset == 3:
                    await gate.wait()
                done.append(message.queue_offset)

            async with consumer:
                await c.send("T", *(b"%d" % number for number in range(10)))
                await until(lambda: len(done) == 9)
                await asyncio.sleep(15)
                assert c.committed("G", "T", 0) == 3
                gate.set()
                await asyncio.sleep(6)
                assert c.committed("G", "T", 0) == 10

    run(main())
