"""Concurrent listening: which messages get a worker, and when. Real servers, virtual time."""

import asyncio
from collections import Counter
from typing import cast

from tests.client.messages import process_queue, run_of
from tests.client.real_cluster import real_cluster, until

from pocketmq.client.cluster.calls import OffsetCalls
from pocketmq.client.consumer.assignment import OwnedQueues
from pocketmq.client.consumer.concurrent_listening import ConcurrentListening
from pocketmq.client.consumer.consume_stats import ConsumeStats
from pocketmq.client.consumer.dispatch import Dispatch
from pocketmq.client.consumer.jobs import Job
from pocketmq.client.consumer.listener import Listener, ListenerTable
from pocketmq.client.consumer.listening import ConsumeEvents, ListeningParts
from pocketmq.client.consumer.offsets import Offsets, RemoteOffsets
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.retry_sender import LOCAL_RETRY_SECONDS, RetrySender
from pocketmq.client.consumer.settling import OffsetSettling
from pocketmq.client.hooks import HookList
from pocketmq.model.message import StoredMessage
from pocketmq.testing import FakeClock, run


def test_calls_that_wait_for_a_hanging_call_get_another_worker() -> None:
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


def test_the_number_of_running_calls_is_limited_by_the_workers() -> None:
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


def test_the_smallest_offset_in_work_is_committed() -> None:
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


def test_jobs_after_a_hanging_one_in_the_same_thread_leave_it_to_others() -> None:
    async def main() -> None:
        submitted = Submitted()
        listening, queues = listening_to(submitted, queues=4, workers=3)
        for owned in queues:
            owned.put(run_of(0, 2))
        hanging, behind, done = submitted
        hanging.is_running = hanging.shares_worker = behind.shares_worker = True
        finish(done)
        assert len(submitted) == 4, "the third slot was free again"

        await asyncio.sleep(2.5)

        assert not behind.todo, "its messages were taken back"
        assert len(submitted) > 4, "and its slot was used by another"
        last = submitted[-1]
        finish(last)
        finish(behind)
        assert behind.collect(0.0).calls == 0
        await listening.stop()

    run(main())


def test_a_released_queue_starts_no_more_calls() -> None:
    async def main() -> None:
        submitted = Submitted()
        listening, (owned,) = listening_to(submitted, workers=1)
        owned.put(run_of(0, 20))
        finish(submitted[0])
        assert owned.consuming == 19, "short calls travel together"

        owned.deactivate()

        assert (owned.consuming, owned.waiting) == (0, 19)
        finish(submitted[1])
        assert owned.commit_offset == 1
        assert len(submitted) == 2
        await listening.stop()

    run(main())


def test_pulls_pause_when_enough_messages_wait_for_listeners() -> None:
    async def main() -> None:
        listening, (owned,) = listening_to(Submitted(), workers=3)
        owned.put(run_of(0, 67))
        before = owned.hold_back(lambda: None)

        owned.put(run_of(67, 68))

        assert (before, owned.hold_back(lambda: None)) == (False, True)
        await listening.stop()

    run(main())


def test_a_message_is_retried_locally_after_an_unexpected_error_of_its_send_back() -> None:
    class Broken:
        max_times = 16

        async def send(self, *_: object) -> bool:
            raise ValueError("nobody foresaw it")

    async def main() -> None:
        submitted = Submitted()
        listening, (owned,) = listening_to(submitted, workers=1, retry_sender=cast("RetrySender", Broken()))
        owned.put(run_of(0, 1))
        submitted[0].record(submitted[0].todo.popleft(), ValueError("of the listener"))
        submitted[0].finished(submitted[0])

        await asyncio.sleep(LOCAL_RETRY_SECONDS + 1)

        assert [message.reconsume_times for message in submitted[1].withdraw()] == [1]
        await listening.stop()

    run(main())


def test_an_overdue_message_that_completes_is_not_sent_back() -> None:
    class Slow:
        max_times = 16

        def __init__(self) -> None:
            self.sent: list[int] = []

        async def send(self, message: StoredMessage, *_: object) -> bool:
            self.sent.append(message.queue_offset)
            await asyncio.sleep(3)
            return True

    async def main() -> None:
        submitted = Submitted()
        slow = Slow()
        listening, (owned,) = listening_to(submitted, workers=3, retry_sender=cast("RetrySender", slow))
        owned.put(run_of(0, 3))

        begun = [job.todo.popleft() for job in submitted]
        await until(lambda: slow.sent, timeout_s=2000)
        submitted[1].record(begun[1], None)
        submitted[1].finished(submitted[1])
        await until(lambda: not owned.count)

        assert slow.sent == [0, 2]
        await listening.stop()

    run(main(), timeout_s=10_000)


class Submitted(list[Job]):
    """A dispatch that calls no listener: the test decides when a job is done."""

    def submit(self, job: Job) -> bool:
        self.append(job)
        return True


def finish(job: Job) -> None:
    job.run(lambda: 0.0)
    job.finished(job)


def listening_to(
    submitted: Submitted, *, queues: int = 1, workers: int, retry_sender: RetrySender | None = None
) -> tuple[ConcurrentListening, list[ProcessQueue]]:
    """Started, with a listener of topic T, and its queues."""
    listeners = ListenerTable("G")
    listeners.put("T", Listener(lambda _: None))
    clock = FakeClock(asyncio.get_running_loop())
    all_owned = OwnedQueues()
    parts = ListeningParts(
        clock,
        listeners,
        cast("Dispatch", submitted),
        OffsetSettling(Offsets(RemoteOffsets(cast("OffsetCalls", None), "G")), retry_sender, is_ordered=False),
        None,
        ConsumeEvents(HookList(()), "G", None, clock, timeout_ms=1),
        ConsumeStats(0.0),
    )
    listening = ConcurrentListening(parts, all_owned.all, workers=workers, timeout_s=900, ahead=64)
    for number in range(queues):
        all_owned.add(process_queue(queue_id=number, observer=listening))
    listening.start()
    return listening, all_owned.all()
