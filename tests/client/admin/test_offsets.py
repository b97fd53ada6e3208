"""Lag, reset and clone of groups, with real brokers."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.client.admin.admins import admin_of
from tests.client.real_cluster import Basket, RealCluster, real_cluster, until

from pocketmq.errors import GroupNotFound, ImpossibleRequest, NotFound, TopicNotFound, UsageError
from pocketmq.model.names import parse_group
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.testing import run

FIRST = MessageQueue("T", "broker-a", 0)


async def committed_at(c: RealCluster, offset: int, group: str = "G", queue: MessageQueue = FIRST) -> None:
    async with c.pull_consumer(group) as consumer:
        await consumer.commit({queue: offset})


def test_lag_is_reported_in_messages_and_in_time() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, admin_of(c) as admin:
            await c.send("T", b"1")
            c.clock.sleep_ms(5_000)
            await c.send("T", b"2", b"3")
            c.clock.sleep_ms(2_000)
            await committed_at(c, 1)

            lag = await admin.offsets.lag("G", "T")

            assert lag.messages == 2
            assert lag.time_ms is not None
            assert 2_000 <= lag.time_ms < 2_100
            assert [(one.min_offset, one.max_offset, one.committed) for one in lag.queues] == [(0, 3, 1)]

    run(main())


def test_the_lag_of_a_queue_without_a_committed_offset_is_unknown() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c, admin_of(c) as admin:
            await c.send("T", b"1", queue=1)
            await committed_at(c, 0)

            lag = await admin.offsets.lag("G", "T")

            assert [(one.committed, one.messages) for one in lag.queues] == [(0, 0), (None, None)]
            assert lag.messages is None
            assert lag.queues[1].problem == "the group has no offset in this queue"

    run(main())


def test_the_queues_of_an_unreachable_broker_are_unknown() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", queues=1) as c, admin_of(c) as admin:
            await committed_at(c, 0)
            await committed_at(c, 0, queue=MessageQueue("T", "broker-b", 0))
            c.network.refuse(Address(c.place("broker-b"), 10911))

            lag = await admin.offsets.lag("G")

            assert [(one.queue.broker_name, one.messages) for one in lag.queues] == [
                ("broker-a", 0),
                ("broker-b", None),
            ]
            assert "ConnectFailed" in lag.queues[1].problem

    run(main())


def test_an_offset_above_the_end_of_a_queue_is_reported() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, admin_of(c) as admin:
            await c.send("T", b"1")
            c.broker.parts.state.groups.ensure(parse_group("G"), c.clock.now_ms())
            c.broker.parts.state.offsets.commit("G", "T", 0, 9)

            [lag] = (await admin.offsets.lag("G")).queues

            assert lag.messages is None
            assert "9 is above the end of the queue, 1" in lag.problem

    run(main())


def test_the_lag_of_an_unknown_group_is_an_error() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            with pytest.raises(GroupNotFound):
                await admin.offsets.lag("nobody")

            await admin.groups.create("quiet")
            assert (await admin.offsets.lag("quiet")).messages is None

    run(main())


def test_subscribed_topics_have_a_lag_before_the_first_commit() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            consumer = c.push_consumer(broadcast=True)
            consumer.on("T")(Basket())
            async with consumer:
                lag = await admin.offsets.lag("G")

                assert {one.queue.topic for one in lag.queues} == {"T"}
                assert lag.messages is None

    run(main())


def test_a_dry_run_returns_the_plan_and_changes_nothing() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, admin_of(c) as admin:
            await c.send("T", b"1", b"2", b"3")
            await committed_at(c, 1)

            back = await admin.offsets.reset("G", "T", "earliest", dry_run=True)
            forth = await admin.offsets.reset("G", "T", "latest", dry_run=True)

            assert not back.is_done
            assert [(row.before, row.after, row.again, row.skipped) for row in back.queues] == [(1, 0, 1, 0)]
            assert [(row.before, row.after, row.again, row.skipped) for row in forth.queues] == [(1, 3, 0, 2)]
            assert c.committed("G", "T", 0) == 1

    run(main())


def test_a_group_continues_at_the_reset_offset() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, admin_of(c) as admin:
            await c.send("T", b"1")
            c.clock.sleep_ms(60_000)
            await c.send("T", b"2", b"3")
            await committed_at(c, 3)
            now = datetime.fromtimestamp(c.clock.now_ms() / 1000, UTC)
            wanted = [("earliest", 0), ("latest", 3), (timedelta(seconds=30), 1), (now - timedelta(hours=1), 0)]

            for to, offset in [*wanted, (c.clock.now_ms() - 30_000, 1), ({FIRST: 2}, 2)]:
                done = await admin.offsets.reset("G", "T", to)  # type: ignore[arg-type]

                assert done.is_done
                assert c.committed("G", "T", 0) == offset

    run(main())


@pytest.mark.parametrize("server_side", [True, False])
def test_running_members_continue_at_the_reset_offset(server_side: bool) -> None:
    async def main() -> None:
        async with real_cluster(queues=1, server_side_reset=server_side) as c, admin_of(c) as admin:
            await c.send("T", b"1", b"2")
            basket = Basket()
            consumer = c.push_consumer(start_at="first")
            consumer.on("T")(basket)
            async with consumer:
                await basket.wait(2)

                await admin.offsets.reset("G", "T", "earliest")
                await basket.wait(4)

            assert basket.bodies == [b"1", b"2", b"1", b"2"]

    run(main())


def test_a_client_side_reset_to_offsets_is_refused() -> None:
    async def main() -> None:
        async with real_cluster(queues=1, server_side_reset=False) as c, admin_of(c) as admin:
            await c.send("T", b"1", b"2")
            consumer = c.push_consumer()
            consumer.on("T")(Basket())
            async with consumer:
                with pytest.raises(ImpossibleRequest, match="stop them first, or give a time"):
                    await admin.offsets.reset("G", "T", {FIRST: 1})
            await until(lambda: not c.members("G"))

            await admin.offsets.reset("G", "T", {FIRST: 1})

            assert c.committed("G", "T", 0) == 1

    run(main())


def test_an_invalid_reset_is_refused_before_any_change() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, admin_of(c) as admin:
            await committed_at(c, 0)
            for nowhere in ({FIRST: 1}, {MessageQueue("T", "broker-a", 7): 0}, "sometime", -5, True):
                with pytest.raises(UsageError):
                    await admin.offsets.reset("G", "T", nowhere)  # type: ignore[arg-type]
            with pytest.raises(TopicNotFound):
                await admin.offsets.reset("G", "missing", "latest")
            with pytest.raises(GroupNotFound):
                await admin.offsets.reset("nobody", "T", "latest")
            with pytest.raises(GroupNotFound, match="broker-a does not have the group 'nobody'"):
                await admin.offsets.reset("nobody", "T", "latest", dry_run=True)

    run(main())


def test_offsets_are_cloned_from_another_group() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c, admin_of(c) as admin:
            await c.send("T", b"1", b"2", queue=0)
            await committed_at(c, 2)
            with pytest.raises(GroupNotFound):
                await admin.offsets.clone("G", "copy", "T")
            await admin.groups.create("copy")

            assert await admin.offsets.clone("G", "copy", "T", dry_run=True) == {FIRST: 2}
            assert await admin.offsets.committed("copy", "T") == {FIRST: None, MessageQueue("T", "broker-a", 1): None}
            await admin.offsets.clone("G", "copy", "T")

            assert (await admin.offsets.committed("copy", "T"))[FIRST] == 2
            with pytest.raises(NotFound, match="no offset in topic"):
                await admin.offsets.clone("nobody", "copy", "T")

    run(main())


def test_offsets_are_not_cloned_to_a_group_with_members() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, admin_of(c) as admin:
            await committed_at(c, 0, "other")
            consumer = c.push_consumer()
            consumer.on("T")(Basket())
            async with consumer:
                with pytest.raises(ImpossibleRequest, match="has members"):
                    await admin.offsets.clone("other", "G", "T")

    run(main())


def test_a_clone_that_an_earlier_reset_overrides_is_refused() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, admin_of(c) as admin:
            await c.send("T", b"1", b"2", b"3")
            await admin.groups.create("new")
            await committed_at(c, 2)
            await admin.offsets.reset("new", "T", "earliest")

            with pytest.raises(ImpossibleRequest, match=r"no member of group .* has applied its reset"):
                await admin.offsets.clone("G", "new", "T")

    run(main())


def test_the_lag_of_all_groups_is_reported_in_messages() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c, admin_of(c) as admin:
            await c.send("T", b"1", b"2", b"3", queue=0)
            await committed_at(c, 1, "G")
            await committed_at(c, 3, "H")
            await committed_at(c, 0, "H", MessageQueue("T", "broker-a", 1))

            lags = {lag.group: lag for lag in await admin.offsets.all_lags()}

            assert [(one.committed, one.messages) for one in lags["G"].queues] == [(1, 2), (None, None)]
            assert lags["G"].messages is None, "it never was in the second queue"
            assert lags["H"].messages == 0

    run(main())


def test_the_lag_in_a_missing_topic_is_an_error() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, admin_of(c) as admin:
            await admin.groups.create("G")

            with pytest.raises(TopicNotFound):
                await admin.offsets.lag("G", "misspelt")
            with pytest.raises(GroupNotFound):
                await admin.offsets.lag("nobody", "misspelt")

    run(main())
