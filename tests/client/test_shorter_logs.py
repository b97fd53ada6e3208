"""Logs become shorter while consumers run: new messages are consumed. Real servers, virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.consumer.test_offsets import Shelf
from tests.client.real_cluster import Basket, RealCluster, real_cluster, until

from pocketmq.client.consumer.lite_pull_consumer import AsyncLitePullConsumer
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run

KEPT, LOST = [b"kept %d" % number for number in range(5)], [b"lost %d" % number for number in range(5)]
SYNC_S = 11
"""After this time all that was sent is on the disk, and offsets are kept."""
PUSHED = ["concurrent", "ordered", "broadcast"]
kinds = pytest.mark.parametrize("kind", ["concurrent", "ordered", "lite", "broadcast"])


@asynccontextmanager
async def consuming(c: RealCluster, kind: str, start_at: str = "first", **options: Any) -> AsyncIterator[Basket]:
    """A consumer of this kind, and the messages that it has handled."""
    basket = Basket()
    tags = options.pop("tags", None)
    if kind == "lite":
        async with c.lite_consumer(start_at=start_at, **options) as lite:
            await lite.subscribe("T", tags=tags)
            polling = asyncio.create_task(_poll(lite, basket))
            yield basket
            polling.cancel()
        return
    consumer = c.push_consumer(start_at=start_at, ordered=kind == "ordered", broadcast=kind == "broadcast", **options)
    consumer.on("T", tags=tags)(basket)
    async with consumer:
        yield basket


async def _poll(consumer: AsyncLitePullConsumer, basket: Basket) -> None:
    while True:
        for message in await consumer.poll(timeout_s=1):
            await basket(message)


def keep(c: RealCluster, bodies: list[bytes]) -> None:
    for body in bodies:
        c.keep("T", body)


@kinds
@pytest.mark.parametrize("new_end", [0, 7, 10, 11, 25])
def test_messages_sent_after_a_power_loss_are_handled_below_and_above_the_old_offset(kind: str, new_end: int) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, consuming(c, kind) as basket:
            await c.send("T", *KEPT)
            await asyncio.sleep(SYNC_S)
            await c.send("T", *LOST)
            await basket.wait(10)

            await c.lose_power()
            end = c.broker.parts.state.store.max_offset("T", 0)
            assert end < 10
            new = [b"new %d" % number for number in range(end, new_end)]
            keep(c, new)
            await until(lambda: set(new) <= set(basket.bodies), 600)
            await asyncio.sleep(SYNC_S)
            await c.send("T", b"last")
            await until(lambda: b"last" in basket.bodies, 600)
            await asyncio.sleep(SYNC_S)

            assert set(basket.bodies) == {*KEPT, *LOST, *new, b"last"}
            assert basket.bodies[:10] == [*KEPT, *LOST]
            if kind != "broadcast":
                assert c.committed("G", "T", 0) == end + len(new) + 1

    run(main())


@kinds
@pytest.mark.parametrize("kept", [0, 5], ids=["nothing wanted before", "some wanted before"])
def test_new_messages_are_handled_at_offsets_that_a_filter_had_skipped(kind: str, kept: int) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", *KEPT[:kept], tags="A")
            await asyncio.sleep(SYNC_S)
            await c.send("T", *LOST, tags="B")
            async with consuming(c, kind, tags="A") as basket:
                await asyncio.sleep(1)

                await c.lose_power()
                assert c.broker.parts.state.store.max_offset("T", 0) == kept
                c.broker.parts.state.offsets._recovered = None  # Apache's brokers do not know who is ahead of the log
                new = [b"new %d" % number for number in range(7)]
                for body in new:
                    c.keep("T", body, tags="A")
                await until(lambda: set(new) <= set(basket.bodies), 600)
                await asyncio.sleep(SYNC_S)

            assert basket.bodies == [*KEPT[:kept], *new]

    run(main())


def test_messages_that_a_filter_skipped_long_ago_are_not_pulled_again() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            consumer = c.push_consumer(start_at="first")
            consumer.on("T", tags="A")(Basket())
            async with consumer:
                for _ in range(4):
                    await c.send("T", *LOST, tags="B")
                    await asyncio.sleep(70)
                (owned,) = [one for one in consumer._member._owned.all() if one.queue.topic == "T"]

                assert owned.pulls.next_offset == 20
                assert owned.pulls.synced_to >= 10

    run(main())


def test_a_consumer_that_was_sent_elsewhere_in_its_queue_still_knows_the_log() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, c.lite_consumer(start_at="first") as consumer:
            await consumer.subscribe("T")
            await c.send("T", *LOST)
            basket, queue = Basket(), MessageQueue("T", "broker-a", 0)
            while len(basket.bodies) < 5:
                for message in await consumer.poll(timeout_s=1):
                    await basket(message)
            await consumer.seek(queue, 5)

            await c.lose_power()
            if "T" not in c.broker.parts.state.topics:
                c.add_topic("T", 1)
            new = [b"new %d" % number for number in range(c.broker.parts.state.store.max_offset("T", 0), 5)]
            keep(c, new)
            async with asyncio.timeout(60):
                while not set(new) <= set(basket.bodies):
                    for message in await consumer.poll(timeout_s=1):
                        await basket(message)

            assert new

    run(main())


@kinds
@pytest.mark.parametrize("more", [3, 5, 8])
@pytest.mark.parametrize("pause_s", [0, 40], ids=["at once", "later"])
@pytest.mark.parametrize("start_at", ["first", "last"])
def test_a_topic_that_is_created_again_is_read_from_its_beginning(
    kind: str, more: int, pause_s: float, start_at: str
) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, consuming(c, kind, start_at) as basket:
            await c.send("T", *KEPT)
            await basket.wait(5)
            await asyncio.sleep(SYNC_S)
            new = [b"new %d" % number for number in range(more)]

            await c.delete_topic("T")
            await asyncio.sleep(pause_s)
            c.add_topic("T", 1)
            keep(c, new)
            await until(lambda: set(new) <= set(basket.bodies), 600)
            await asyncio.sleep(SYNC_S)

            assert basket.bodies == [*KEPT, *new]
            if kind != "broadcast":
                assert c.committed("G", "T", 0) == more

    run(main())


def test_a_stopped_group_reads_a_recreated_topic_from_its_start() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            async with consuming(c, "concurrent", "last") as basket:
                await c.send("T", *KEPT)
                await basket.wait(5)
            await c.delete_topic("T")
            c.add_topic("T", 2)
            keep(c, [b"new"])
            c.keep("T", b"other", queue=1)

            async with consuming(c, "concurrent", "last") as basket:
                await basket.wait(2)

            assert sorted(basket.bodies) == [b"new", b"other"]

    run(main())


@pytest.mark.parametrize("more", [3, 5, 8])
def test_a_stopped_broadcasting_member_reads_a_recreated_topic_from_its_start(
    more: int,
) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            async with consuming(c, "broadcast") as basket:
                await c.send("T", *KEPT)
                await basket.wait(5)
            await c.delete_topic("T")
            c.add_topic("T", 1)
            new = [b"new %d" % number for number in range(more)]
            keep(c, new)

            async with consuming(c, "broadcast", "last") as basket:
                await until(lambda: set(new) <= set(basket.bodies), 60)
            async with consuming(c, "broadcast", "last") as again:
                await c.send("T", b"newest")
                await again.wait(1)

            assert basket.bodies == new
            assert again.bodies == [b"newest"]

    run(main())


@pytest.mark.parametrize("new_end", [0, 7, 10, 11, 25])
def test_a_broadcasting_member_stopped_during_a_power_loss_handles_new_messages(new_end: int) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            async with consuming(c, "broadcast") as basket:
                await c.send("T", *KEPT)
                await asyncio.sleep(SYNC_S)
                await c.send("T", *LOST)
                await basket.wait(10)
            await c.lose_power()
            end = c.broker.parts.state.store.max_offset("T", 0)
            new = [b"new %d" % number for number in range(end, max(new_end, end + 1))]
            keep(c, new)

            async with consuming(c, "broadcast") as basket:
                await until(lambda: set(new) <= set(basket.bodies), 60)

            assert basket.bodies == new

    run(main())


@pytest.mark.parametrize("kind", PUSHED)
def test_a_filter_does_not_hide_that_the_log_became_shorter(kind: str) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, consuming(c, kind, tags="a") as basket:
            await c.send("T", *KEPT, tags="a")
            await asyncio.sleep(SYNC_S)
            await c.send("T", *LOST, tags="a")
            await basket.wait(10)

            await c.lose_power()
            end = c.broker.parts.state.store.max_offset("T", 0)
            new = [b"new %d" % number for number in range(end, 15)]
            for number, body in enumerate(new, end):
                c.keep("T", body, tags="b" if number == 9 else "a")  # 9 is where the last message was that is gone
            wanted = {body for body in new if body != b"new 9"}

            await until(lambda: wanted <= set(basket.bodies), 600)

    run(main())


@pytest.mark.parametrize("kind", PUSHED)
def test_a_power_loss_between_two_pulls_is_noticed_too(kind: str) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, consuming(c, kind, pull_interval_ms=20_000) as basket:
            await c.send("T", *KEPT)
            await basket.wait(5)
            await asyncio.sleep(SYNC_S)
            await c.send("T", *LOST)
            await basket.wait(10)

            await c.lose_power()
            end = c.broker.parts.state.store.max_offset("T", 0)
            assert end < 10
            new = [b"new %d" % number for number in range(end, 15)]
            keep(c, new)

            await until(lambda: set(new) <= set(basket.bodies), 600)

    run(main())


@pytest.mark.parametrize("more", [3, 8])
def test_a_store_of_the_user_starts_again_with_a_topic_that_is_created_again(more: int) -> None:
    async def main() -> None:
        shelf = Shelf()
        async with real_cluster(queues=1) as c, consuming(c, "concurrent", offset_store=shelf) as basket:
            await c.send("T", *KEPT)
            await basket.wait(5)
            await asyncio.sleep(SYNC_S)
            new = [b"new %d" % number for number in range(more)]

            await c.delete_topic("T")
            await asyncio.sleep(5)
            assert shelf.kept[MessageQueue("T", "broker-a", 0)] == 0
            c.add_topic("T", 1)
            keep(c, new)
            await until(lambda: set(new) <= set(basket.bodies), 60)

            assert basket.bodies == [*KEPT, *new]

    run(main())


def test_a_failing_store_of_the_user_does_not_end_the_pulls_of_a_deleted_topic() -> None:
    async def main() -> None:
        shelf = Shelf()
        async with real_cluster(queues=1) as c, consuming(c, "concurrent", offset_store=shelf) as basket:
            await c.send("T", *KEPT)
            await basket.wait(5)
            await asyncio.sleep(SYNC_S)
            shelf.fails = True
            await c.delete_topic("T")
            await asyncio.sleep(5)
            shelf.fails = False
            c.add_topic("T", 1)
            keep(c, [b"new"])

            await until(lambda: b"new" in basket.bodies, 60)

    run(main())
