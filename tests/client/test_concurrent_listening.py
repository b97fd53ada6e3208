"""Concurrent listening: who gets a worker when. Real servers, virtual time."""

import asyncio
from collections import Counter
from typing import cast

from tests.client.messages import run_of
from tests.client.real_cluster import real_cluster, until

from pocketmq.client.calls.offsets import OffsetCalls
from pocketmq.client.concurrent_listening import ConcurrentListening
from pocketmq.client.consume_events import ConsumeEvents
from pocketmq.client.consume_stats import ConsumeStats
from pocketmq.client.hooks import HookList
from pocketmq.client.jobs import Job
from pocketmq.client.listener import Listener
from pocketmq.client.listeners import Listeners
from pocketmq.client.offsets import Offsets, RemoteOffsets
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.client.process_queue import ProcessQueue
from pocketmq.client.send_backs import LOCAL_RETRY_SECONDS
from pocketmq.client.sending_back import SendBacks
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import FakeClock, run


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


def test_jobs_behind_one_that_hangs_in_the_same_thread_give_their_places_to_others() -> None:
    async def main() -> None:
        queues = [OwnedQueue(MessageQueue("T", "b", number), ProcessQueue(0.0), 0) for number in range(4)]
        submitted: list[Job] = []
        listening = listening_to(queues, submitted, workers=3)
        for owned in queues:
            owned.flight.put(run_of(0, 2))
            listening.arrived(owned)
        hanging, behind, done = submitted
        hanging.is_running = hanging.shares_worker = behind.shares_worker = True
        done.run(lambda: 0.0)
        listening.finished(done)
        assert len(submitted) == 4, "the third place was free again"

        await asyncio.sleep(2.5)

        assert not behind.todo, "its messages were taken back"
        assert len(submitted) > 4, "and its place was given to another"
        last = submitted[-1]
        last.run(lambda: 0.0)
        listening.finished(last)
        behind.run(lambda: 0.0)
        listening.finished(behind)
        assert behind.collect(0.0).calls == 0
        await listening.stop()

    run(main())


def test_of_a_queue_that_is_left_no_call_is_made_that_was_not_begun() -> None:
    async def main() -> None:
        owned = OwnedQueue(MessageQueue("T", "b", 0), ProcessQueue(0.0), 0)
        submitted: list[Job] = []
        listening = listening_to([owned], submitted, workers=1)
        owned.flight.put(run_of(0, 20))
        listening.arrived(owned)
        submitted[0].run(lambda: 0.0)
        listening.finished(submitted[0])
        assert owned.flight.consuming == 19, "short calls travel together"

        owned.leave()

        assert (owned.flight.consuming, owned.flight.waiting) == (0, 19)
        submitted[1].run(lambda: 0.0)
        listening.finished(submitted[1])
        assert owned.flight.commit_offset == 1
        assert len(submitted) == 2
        await listening.stop()

    run(main())


def test_listeners_have_enough_when_some_pulls_wait_behind_what_they_are_at() -> None:
    async def main() -> None:
        owned = OwnedQueue(MessageQueue("T", "b", 0), ProcessQueue(0.0), 0)
        listening = listening_to([owned], [], workers=3)
        owned.flight.put(run_of(0, 67))
        listening.arrived(owned)
        before = owned.has_enough

        owned.flight.put(run_of(67, 68))

        assert (before, owned.has_enough) == (False, True)
        await listening.stop()

    run(main())


def test_a_message_that_cannot_be_sent_back_as_nobody_foresaw_is_tried_again_here() -> None:
    class Broken:
        async def send(self, *_: object) -> bool:
            raise ValueError("nobody foresaw it")

    async def main() -> None:
        owned = OwnedQueue(MessageQueue("T", "b", 0), ProcessQueue(0.0), 0)
        submitted: list[Job] = []
        listening = listening_to([owned], submitted, workers=1, send_backs=cast("SendBacks", Broken()))
        owned.flight.put(run_of(0, 1))
        listening.arrived(owned)
        submitted[0].note(submitted[0].todo.popleft(), ValueError("of the listener"))
        listening.finished(submitted[0])

        await asyncio.sleep(LOCAL_RETRY_SECONDS + 1)

        assert [message.reconsume_times for message in submitted[1].take_back()] == [1]
        await listening.stop()

    run(main())


def test_of_overdue_messages_what_is_done_while_others_are_sent_back_is_not_sent_back() -> None:
    class Slow:
        def __init__(self) -> None:
            self.sent: list[int] = []

        async def send(self, message: StoredMessage, *_: object) -> bool:
            self.sent.append(message.queue_offset)
            await asyncio.sleep(3)
            return True

    async def main() -> None:
        owned = OwnedQueue(MessageQueue("T", "b", 0), ProcessQueue(0.0), 0)
        submitted: list[Job] = []
        slow = Slow()
        listening = listening_to([owned], submitted, workers=3, send_backs=cast("SendBacks", slow))
        owned.flight.put(run_of(0, 3))
        listening.arrived(owned)

        begun = [job.todo.popleft() for job in submitted]
        await until(lambda: slow.sent, timeout_s=2000)
        submitted[1].note(begun[1], None)
        listening.finished(submitted[1])
        await until(lambda: not owned.flight.count)

        assert slow.sent == [0, 2]
        await listening.stop()

    run(main(), timeout_s=10_000)


def listening_to(
    queues: list[OwnedQueue], submitted: list[Job], *, workers: int, send_backs: SendBacks | None = None
) -> ConcurrentListening:
    """Started, with a listener of topic T; whoever submits a job to it is told nothing until the test says so."""
    listeners = Listeners()
    listeners.put("T", Listener(lambda _: None))
    clock = FakeClock(asyncio.get_running_loop())
    listening = ConcurrentListening(
        clock,
        listeners,
        submitted.append,
        Offsets(RemoteOffsets(cast("OffsetCalls", None), "G")),  # nothing is saved here
        send_backs,
        ConsumeEvents(HookList(()), "G", None, clock, timeout_ms=1),
        ConsumeStats(0.0),
        lambda: queues,
        workers=workers,
        timeout_s=900,
        ahead=64,
    )
    listening.start()
    return listening
