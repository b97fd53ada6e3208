"""The lite pull consumer against real servers, in memory and in virtual time."""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.client.real_cluster import real_cluster, until

from pocketmq import Server
from pocketmq.client import AsyncLitePullConsumer, Producer
from pocketmq.client.consumer.flow_limits import PauseCause
from pocketmq.errors import InvalidExpression, UsageError, WrongState
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run

DEADLINE_S = 20.0
QUEUE = MessageQueue("T", "broker-a", 0)


def test_the_next_poll_commits_the_messages_of_the_last_one() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, c.lite_consumer(start_at="first") as consumer:
            await consumer.subscribe("T")
            await c.send("T", b"0", b"1", b"2")

            first = await consumer.poll()
            await asyncio.sleep(60)
            assert not c.committed("G", "T", 0)

            assert await consumer.poll(timeout_s=1) == []
            assert [message.body for message in first] == [b"0", b"1", b"2"]
            assert c.committed("G", "T", 0) == 3

    run(main())


def test_a_user_that_stops_cleanly_has_committed_the_returned_messages() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"0", b"1", b"2", b"3")
            async with c.lite_consumer(start_at="first", pull_batch=2) as consumer:
                await consumer.subscribe("T")
                assert len(await consumer.poll()) == 2

            assert c.committed("G", "T", 0) == 2

    run(main())


def test_a_user_that_fails_gets_the_last_messages_again() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"0", b"1", b"2", b"3")
            bodies: list[bytes] = []

            async def fail_at_the_third() -> None:
                async with c.lite_consumer(start_at="first") as consumer:
                    await consumer.subscribe("T")
                    async for message in consumer:
                        bodies.append(message.body)
                        if len(bodies) == 3:
                            raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail_at_the_third()
            assert c.committed("G", "T", 0) == 2

            async with c.lite_consumer(start_at="first") as consumer:
                await consumer.subscribe("T")
                async for message in consumer:
                    bodies.append(message.body)
                    if message.body == b"3":
                        break

            assert bodies == [b"0", b"1", b"2", b"2", b"3"]
            assert c.committed("G", "T", 0) == 4

    run(main())


def test_without_auto_commit_only_commit_commits() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"0", b"1", b"2", b"3")
            async with c.lite_consumer(start_at="first", auto_commit=False, pull_batch=2) as consumer:
                await consumer.subscribe("T")
                await consumer.poll()
                await consumer.commit()
                assert (c.committed("G", "T", 0), await consumer.committed(QUEUE)) == (2, 2)
                await consumer.poll()
                await asyncio.sleep(60)
                assert await consumer.poll(timeout_s=1) == []

            assert c.committed("G", "T", 0) == 2

    run(main())


def test_a_commit_during_an_iteration_covers_the_returned_messages() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"0", b"1", b"2", b"3")
            async with c.lite_consumer(start_at="first", auto_commit=False) as consumer:
                await consumer.subscribe("T")
                committed = []
                async for message in consumer:
                    await consumer.commit()
                    committed.append((message.body, c.committed("G", "T", 0)))
                    if len(committed) == 3:
                        break

            assert committed == [(b"0", 1), (b"1", 2), (b"2", 3)]
            assert c.committed("G", "T", 0) == 3

    run(main())


@pytest.mark.parametrize("again", ["iterate", "poll"])
def test_messages_left_by_an_interrupted_iteration_are_returned_by_the_next(again: str) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"0", b"1", b"2", b"3")
            async with c.lite_consumer(start_at="first") as consumer:
                await consumer.subscribe("T")
                bodies = [await anext(message.body async for message in consumer)]
                assert bodies == [b"0"]

                if again == "poll":
                    bodies += [message.body for message in await consumer.poll()]
                while len(bodies) < 4:
                    bodies.append(await anext(message.body async for message in consumer))

            assert bodies == [b"0", b"1", b"2", b"3"]
            assert c.committed("G", "T", 0) == 4

    run(main())


def test_messages_of_a_cancelled_poll_are_returned_again(tmp_path: Path) -> None:
    async def main(name_server: str) -> list[bytes]:
        async with AsyncLitePullConsumer(name_server, group="G", start_at="first") as consumer:
            await consumer.subscribe("T")
            polling = asyncio.ensure_future(consumer.poll(DEADLINE_S))
            await asyncio.sleep(0)
            # This loop is held up, so what the client's own thread hands out cannot reach it.
            await_handed(consumer)
            polling.cancel()
            await asyncio.wait((polling,))
            assert polling.cancelled()

            bodies: list[bytes] = []
            while len(bodies) < 3:
                bodies += [message.body for message in await consumer.poll(DEADLINE_S)]
            return bodies

    def await_handed(consumer: AsyncLitePullConsumer) -> None:
        end, pause = monotonic() + DEADLINE_S, threading.Event()
        while not consumer._member._polled:
            assert monotonic() < end, "no message was returned"
            pause.wait(0.01)

    with Server(tmp_path) as server, Producer(server.name_server) as producer:
        producer.send_many([Message("T", b"%d" % number) for number in range(3)])

        assert sorted(asyncio.run(main(server.name_server))) == [b"0", b"1", b"2"]


def test_members_share_queues_and_are_notified_of_changes() -> None:
    async def main() -> None:
        async with real_cluster(queues=4) as c:
            told: list[tuple[str, int, int]] = []

            def changed(topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
                told.append((topic, len(all_queues), len(mine)))

            seen: Counter[bytes] = Counter()
            async with c.lite_consumer(start_at="first", on_queues_changed=changed) as first:
                await first.subscribe("T")
                await until(lambda: told == [("T", 4, 4)])
                async with c.lite_consumer(host="10.0.2.2", start_at="first") as second:
                    await second.subscribe("T")
                    await until(lambda: told[-1] == ("T", 4, 2))
                    await asyncio.sleep(5)
                    await c.send("T", *(b"%d" % number for number in range(40)))
                    for consumer in (first, second):
                        while messages := await consumer.poll(timeout_s=1):
                            seen.update(message.body for message in messages)
                    assert len(await second.queues()) == 2

            assert len(seen) == 40
            assert set(seen.values()) == {1}

    run(main())


def test_queues_may_be_assigned_instead_of_subscribed() -> None:
    async def main() -> None:
        async with real_cluster(queues=3) as c:
            for queue in range(3):
                await c.send("T", b"%d" % queue, queue=queue)
            async with c.lite_consumer(start_at="first") as consumer:
                queues = await consumer.queues_of("T")
                await consumer.assign(queues[1:])
                bodies = {message.body for _ in range(2) for message in await consumer.poll()}
                assert bodies == {b"1", b"2"}

                await consumer.assign(queues[:1])
                assert [message.body for message in await consumer.poll()] == [b"0"]
                assert await consumer.queues() == queues[:1]

                with pytest.raises(WrongState, match="assign"):
                    await consumer.subscribe("T")
                with pytest.raises(UsageError, match="does not exist or is not readable"):
                    await consumer.assign([MessageQueue("T", "broker-a", 9)], tags="none")
                await c.send("T", b"without a tag", queue=0)
                assert [message.body for message in await consumer.poll()] == [b"without a tag"]
            async with c.lite_consumer(start_at="first") as consumer:
                with pytest.raises(UsageError, match="does not exist or is not readable"):
                    await consumer.assign([MessageQueue("T", "broker-a", 9)])
                await consumer.subscribe("T")
                with pytest.raises(WrongState, match="uses `subscribe`"):
                    await consumer.assign(queues)

    run(main())


def test_assigned_queues_may_be_filtered() -> None:
    async def main() -> None:
        async with real_cluster(queues=1, property_filter=True) as c:
            for tag in ("A", "B"):
                await c.send("T", tag.encode(), tags=tag, properties={"n": "1"})
            async with c.lite_consumer(start_at="first") as consumer:
                await consumer.assign([QUEUE], tags="B")
                assert [message.body for message in await consumer.poll()] == [b"B"]
            async with c.lite_consumer(start_at="first", group="H") as consumer:
                await consumer.assign([QUEUE], sql="TAGS = 'A' AND n = 1")
                assert [message.body for message in await consumer.poll()] == [b"A"]

    run(main())


def test_a_user_can_seek() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"0", b"1")
            await asyncio.sleep(60)
            middle_ms = c.clock.now_ms()
            await asyncio.sleep(60)
            await c.send("T", b"2", b"3")
            async with c.lite_consumer(start_at="first") as consumer:
                await consumer.subscribe("T")

                async def bodies() -> list[bytes]:
                    return [message.body for message in await consumer.poll(timeout_s=3)]

                assert await bodies() == [b"0", b"1", b"2", b"3"]
                await consumer.seek(QUEUE, 3)
                assert await bodies() == [b"3"]
                await consumer.seek_to_begin(QUEUE)
                assert await consumer.position(QUEUE) == 0
                assert await bodies() == [b"0", b"1", b"2", b"3"]
                await consumer.seek_to_end(QUEUE)
                assert await bodies() == []
                await consumer.seek_to_time(QUEUE, middle_ms)
                assert await bodies() == [b"2", b"3"]
                assert await consumer.offset_at(QUEUE, middle_ms) == 2
                with pytest.raises(UsageError, match="offsets 0 to 4"):
                    await consumer.seek(QUEUE, 5)
                with pytest.raises(UsageError, match="is not assigned to"):
                    await consumer.seek_to_begin(MessageQueue("T", "broker-a", 7))

    run(main())


def test_assigned_queues_can_be_moved_and_paused_at_once() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            await c.send("T", b"0", b"1", queue=0)
            await c.send("T", b"2", queue=1)
            async with c.lite_consumer(start_at="first") as consumer:
                first, second = await consumer.queues_of("T")
                await consumer.assign([first, second])
                await consumer.seek(first, 1)
                await consumer.pause([second])
                assert [message.body for message in await consumer.poll()] == [b"1"]
                assert await consumer.poll(timeout_s=3) == []

                await consumer.assign([second])
                await asyncio.sleep(1)
                with pytest.raises(UsageError, match="is not assigned to"):
                    await consumer.seek_to_begin(first)
            assigned_before = c.lite_consumer(start_at="first", group="H")
            await assigned_before.assign([first])
            async with assigned_before:
                await assigned_before.seek_to_end(first)
                assert await assigned_before.position(first) == 2

    run(main())


def test_messages_polled_before_a_seek_are_not_committed_after_it() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", *(b"%d" % number for number in range(10)))
            async with c.lite_consumer(start_at="first", auto_commit=False, pull_batch=4) as consumer:
                await consumer.subscribe("T")
                await consumer.poll()
                await consumer.seek(QUEUE, 1)
                await consumer.commit()

            assert c.committed("G", "T", 0) == 1

    run(main())


def test_a_paused_queue_returns_nothing_until_it_is_resumed() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c, c.lite_consumer(start_at="first") as consumer:
            await consumer.subscribe("T")
            await asyncio.sleep(1)
            await consumer.pause([QUEUE])
            await c.send("T", b"paused", queue=0)
            await c.send("T", b"goes on", queue=1)
            assert [message.body for message in await consumer.poll()] == [b"goes on"]
            assert await consumer.poll(timeout_s=30) == []
            await consumer.resume([QUEUE])
            assert [message.body for message in await consumer.poll()] == [b"paused"]

    run(main())


def test_pulling_ahead_has_a_limit() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            await c.send("T", *(b"%d" % number for number in range(300)))
            async with c.lite_consumer(start_at="first", max_messages=40) as consumer:
                await consumer.subscribe("T")
                await asyncio.sleep(10)
                info = await consumer.running_info()
                assert 40 < sum(one.cached_msg_count for one in info.mq_table.values()) <= 60
                assert int(info.properties[f"pauses: {PauseCause.ALL_MESSAGES}"]) > 100

                count = 0
                while messages := await consumer.poll(timeout_s=1):
                    count += len(messages)
                assert count == 300

    run(main())


def test_deleted_offsets_are_skipped() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"0", b"1")
            c.broker.parts.state.offsets.commit("G", "T", 0, 99)
            async with c.lite_consumer() as consumer:
                await consumer.subscribe("T")
                assert await consumer.poll(timeout_s=2) == []
                await c.send("T", b"2")
                assert [message.body for message in await consumer.poll()] == [b"2"]

    run(main())


def test_returned_names_contain_no_namespace() -> None:
    async def main() -> None:
        async with real_cluster(topics=("ns%T",), queues=1) as c:
            async with (
                c.lite_consumer(start_at="first", namespace="ns") as consumer,
                c.producer(namespace="ns") as producer,
            ):
                await producer.send("T", b"1")
                await consumer.subscribe("T")
                (message,) = await consumer.poll()
                assert message.topic == "T"
                assert await consumer.queues() == [QUEUE] == await consumer.queues_of("T")
                await consumer.seek_to_begin(QUEUE)
                assert len(await consumer.poll()) == 1

            assert c.committed("ns%G", "ns%T", 0) == 1

    run(main())


def test_an_invalid_filter_is_refused() -> None:
    async def main() -> None:
        async with real_cluster(property_filter=True) as c, c.lite_consumer() as consumer:
            with pytest.raises(InvalidExpression, match="a >>> 1"):
                await consumer.subscribe("T", sql="a >>> 1")
            await consumer.subscribe("T", sql="a > 1")

    run(main())


def test_an_argument_of_an_assignment_that_does_not_exist_is_refused() -> None:
    unknown: dict[str, Any] = {"tag": "B"}

    async def main() -> None:
        async with real_cluster() as c:
            with pytest.raises(UsageError, match="assign has no argument 'tag'; did you mean 'tags'"):
                await c.lite_consumer().assign([], **unknown)

    run(main())


def test_iteration_ends_when_the_consumer_is_stopped() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            consumer = c.lite_consumer(start_at="first")
            await consumer.subscribe("T")
            await consumer.start()
            asyncio.get_running_loop().call_later(30, lambda: asyncio.ensure_future(consumer.stop()))

            assert [message async for message in consumer] == []
            with pytest.raises(WrongState, match="was stopped"):
                await consumer.poll()

    run(main())


@pytest.mark.parametrize("not_a_queue", [3, "T", None])
def test_an_argument_that_is_not_a_queue_is_refused(not_a_queue: Any) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, c.lite_consumer() as consumer:
            for call in (
                partial(consumer.seek, not_a_queue, 0),
                partial(consumer.seek_to_end, not_a_queue),
                partial(consumer.position, not_a_queue),
                partial(consumer.assign, [not_a_queue]),
                partial(consumer.pause, [not_a_queue]),
            ):
                with pytest.raises(UsageError, match=rf"{not_a_queue!r} is .*, not a MessageQueue: give one"):
                    await call()

    run(main())


@pytest.mark.parametrize("timeout_s", ["3", float("nan"), float("inf")])
def test_a_timeout_that_is_not_a_number_of_seconds_is_refused(timeout_s: Any) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, c.lite_consumer() as lite, c.pull_consumer("G2") as pulling:
            for call in (
                partial(lite.poll, timeout_s=timeout_s),
                partial(lite.wait, timeout_s=timeout_s),
                partial(pulling.pull, QUEUE, 0, timeout_s=timeout_s),
                partial(pulling.pull_block_if_not_found, QUEUE, 0, timeout_s=timeout_s),
            ):
                with pytest.raises(UsageError, match=r"timeout_s = .* must be a number of seconds"):
                    await call()

    run(main())
