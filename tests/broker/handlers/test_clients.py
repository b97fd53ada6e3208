"""Heartbeats of clients: joining and leaving."""

import asyncio

import pytest
from tests.broker.handlers.client_talk import ALL, Client, consuming, producing, served, settled
from tests.net.talk import until

from pocketmq.codes import RequestCode, ResponseCode, TopicFlag
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.api.messages import ForConsumerGroup, UnregisterClient
from pocketmq.protocol.bodies.clients import ConsumerIdList, HeartbeatData, MessageModel, SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.testing import run

CHANGED = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
UNCHANGED = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}


async def members_of(client: Client, group: str) -> tuple[str, ...]:
    answer = await client.done(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ForConsumerGroup(group))
    return ConsumerIdList.decode(answer.body).consumer_id_list


def groups_told(client: Client) -> list[str]:
    """The groups whose change was notified to the client since the last call."""
    told = client.take_covered()
    assert {one.code for one in told} <= {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}
    return [(one.ext or {})["consumerGroup"] for one in told]


# heartbeats


def test_a_heartbeat_creates_the_member_its_group_and_its_retry_topic() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")

            answer = await client.beat(consuming("g"))

            assert answer.ext == CHANGED
            assert await members_of(client, "g") == ("c1",)
            assert room.groups.get("g") == SubscriptionGroupConfig("g")
            assert room.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1)
            assert room.announced == 1
            assert groups_told(client) == ["g"]

    run(main())


def test_an_unchanged_heartbeat_changes_and_announces_nothing() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1", consuming("g"))
            await settled()
            client.take_covered()
            versions = room.topics.version, room.groups.version

            answer = await client.beat(consuming("g"))
            await settled()

            assert answer.ext == CHANGED
            assert (room.topics.version, room.groups.version) == versions
            assert room.announced == 1
            assert client.told == []

    run(main())


def test_a_heartbeat_of_version_2_may_omit_known_subscriptions() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")

            first = await client.beat(consuming("g", subscriptions=(), fingerprint=7, without_sub=True))
            full = await client.beat(consuming("g", fingerprint=7))
            short = await client.beat(consuming("g", subscriptions=(), fingerprint=7, without_sub=True))
            other = await client.beat(consuming("g", subscriptions=(), fingerprint=8, without_sub=True))

            assert [one.ext for one in (first, full, short, other)] == [CHANGED, UNCHANGED, UNCHANGED, CHANGED]
            assert room.members.subscription("g", "T", 1) == ALL[0]

    run(main())


def test_a_heartbeat_without_groups_is_accepted() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")

            answer = await client.done(RequestCode.HEART_BEAT, body=b"{}")

            assert answer.ext == CHANGED
            assert not len(room.members)

    run(main())


@pytest.mark.parametrize("body", [b"", b"{", b'{"consumerDataSet":[{}]}'])
def test_an_invalid_heartbeat_body_gets_an_error_with_the_problem(body: bytes) -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")

            answer = await client.ask(RequestCode.HEART_BEAT, body=body)

            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (answer.remark or "").startswith("HeartbeatData: ")

    run(main())


def test_a_refused_heartbeat_changes_nothing() -> None:
    many = tuple(Subscription(f"T{number}") for number in range(21))

    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")
            versions = room.topics.version, room.groups.version

            nameless = await client.ask(RequestCode.HEART_BEAT, body=consuming("g").encode())
            greedy = await client.ask(
                RequestCode.HEART_BEAT,
                body=HeartbeatData("c1", (), consuming("g", subscriptions=many).consumer_data_set).encode(),
            )

            assert [nameless.code, greedy.code] == [ResponseCode.INVALID_PARAMETER] * 2
            assert (room.topics.version, room.groups.version) == versions
            assert not len(room.members)

    run(main())


def test_a_group_that_may_not_be_created_is_skipped_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served(auto_create_group=False) as room:
            room.groups.put([SubscriptionGroupConfig("known")], 0)
            client = await room.connect("c1")

            for _ in range(2):
                answer = await client.beat(consuming("unknown", "known"))

            assert answer.ext == CHANGED
            assert await members_of(client, "known") == ("c1",)
            assert room.members.group("unknown") is None
            assert "%RETRY%unknown" not in room.topics
            assert room.clients.groups_refused == 2
            assert [line.levelname for line in caplog.records if "unknown" in line.message] == ["WARNING"]

    run(main())


def test_the_list_of_logged_refusals_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served(auto_create_group=False) as room:
            client = await room.connect("c1")

            await client.beat(consuming(*(f"g{number}" for number in range(1001)), subscriptions=()))
            caplog.clear()
            await client.beat(consuming("g1000", subscriptions=()))
            await client.beat(consuming("g0", subscriptions=()))

            assert [line.message.split("group ")[1].split()[0] for line in caplog.records] == ["g0"]

    run(main())


def test_an_invalid_group_name_does_not_affect_the_other_groups() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1", consuming("../up", "", "g"))

            assert await members_of(client, "g") == ("c1",)
            assert len(room.members) == 1

    run(main())


@pytest.mark.parametrize(("queues", "made"), [(3, 3), (0, 1)])
def test_a_retry_topic_has_the_number_of_queues_that_its_group_sets(queues: int, made: int) -> None:
    async def main() -> None:
        async with served() as room:
            room.groups.put([SubscriptionGroupConfig("g", retry_queue_nums=queues)], 0)

            await room.connect("c1", consuming("g"))

            assert room.topics.require("%RETRY%g").read_queue_nums == made

    run(main())


def test_a_retry_topic_is_ordered_while_a_topic_of_the_group_is() -> None:
    async def main() -> None:
        async with served() as room:
            room.make_topic("T", order=True)
            client = await room.connect("c1", consuming("g", fingerprint=1))
            was_ordered = room.topics.is_order("%RETRY%g")

            room.make_topic("T", order=False)
            await client.beat(consuming("g", subscriptions=(), fingerprint=1, without_sub=True))
            stays_ordered = room.topics.is_order("%RETRY%g")
            await client.beat(consuming("g", fingerprint=1))

            assert (was_ordered, stays_ordered, room.topics.is_order("%RETRY%g")) == (True, True, False)

    run(main())


def test_a_retry_topic_of_a_unit_is_marked() -> None:
    async def main() -> None:
        async with served() as room:
            await room.connect("c1", consuming("g", unit_mode=True))

            assert room.topics.require("%RETRY%g").topic_sys_flag == TopicFlag.UNIT_SUB

    run(main())


def test_a_group_with_notifications_off_gets_none() -> None:
    async def main() -> None:
        async with served() as room:
            room.groups.put([SubscriptionGroupConfig("quiet", notify_consumer_ids_changed_enable=False)], 0)
            client = await room.connect("c1", consuming("quiet", "g"))
            await room.connect("c2", consuming("quiet"))
            await settled()

            assert groups_told(client) == ["g"]

    run(main())


def test_a_broadcasting_group_gets_no_notifications() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1", consuming("g", model=MessageModel.BROADCASTING))
            await settled()

            assert client.told == []

    run(main())


def test_a_heartbeat_of_a_closed_connection_adds_no_member() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")
            (peer,) = room.server.peers
            client.peer.connection.abort()
            await until(lambda: not room.server.peers)

            changed = room.clients.process_heartbeat(peer, "JAVA", 479, consuming("g").encode())

            assert changed
            assert not len(room.members)

    run(main())


# coming and going


def test_members_are_notified_of_new_leaving_and_lost_members() -> None:
    async def main() -> None:
        async with served() as room:
            first = await room.connect("c1", consuming("g"))
            second = await room.connect("c2", consuming("g"))
            third = await room.connect("c3", consuming("g"))
            await settled()
            came = groups_told(first)

            await second.done(RequestCode.UNREGISTER_CLIENT, UnregisterClient("c2", consumer_group="g"))
            await settled()
            left = groups_told(first)
            third.peer.close()
            await until(lambda: len(room.server.peers) == 2)
            await settled()

            assert (came, left, groups_told(first)) == (["g"] * 3, ["g"], ["g"])
            assert await members_of(first, "g") == ("c1",)

    run(main())


def test_a_client_that_leaves_a_group_releases_its_locks_of_that_group() -> None:
    queue = MessageQueue("T", "broker-a", 0)

    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1", consuming("g", "h"))
            for group, owner in (("g", "c1"), ("h", "c1"), ("i", "c2")):
                room.locks.lock(group, owner, [queue], 0)

            await client.done(RequestCode.UNREGISTER_CLIENT, UnregisterClient("c2", consumer_group="g"))
            await client.done(RequestCode.UNREGISTER_CLIENT, UnregisterClient("c2", consumer_group="i"))

            now = room.clock.monotonic()
            assert [room.locks.owner(group, queue, now) for group in "ghi"] == [None, "c1", "c2"]

    run(main())


def test_a_client_with_another_open_connection_keeps_its_locks() -> None:
    queue = MessageQueue("T", "broker-a", 0)

    async def main() -> None:
        async with served() as room:
            old = await room.connect("c1", consuming("g"))
            await room.connect("c1", consuming("g"))
            room.locks.lock("g", "c1", [queue], 0)

            await old.done(RequestCode.UNREGISTER_CLIENT, UnregisterClient("c1", consumer_group="g"))

            assert room.locks.owner("g", queue, room.clock.monotonic()) == "c1"

    run(main())


def test_a_producer_leaves_its_group_and_leaving_twice_is_harmless() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1", producing("p", "q"))

            await client.done(RequestCode.UNREGISTER_CLIENT, UnregisterClient("c1", producer_group="p"))
            await client.done(RequestCode.UNREGISTER_CLIENT, UnregisterClient("c1", "nothing", "nothing"))

            (peer,) = room.server.peers
            assert room.members.producers.groups_of(peer) == {"q"}

    run(main())


def test_a_scan_removes_silent_members() -> None:
    queue = MessageQueue("T", "broker-a", 0)

    async def main() -> None:
        async with served() as room:
            silent = await room.connect("c1", consuming("g"))
            lively = await room.connect("c2", consuming("g"))
            room.locks.lock("g", "c1", [queue], room.clock.monotonic())
            room.subscriptions.record("h", ALL[0], -480)
            await asyncio.sleep(100)
            await lively.beat(consuming("g"))
            room.clients.expire()
            before = room.members.client_ids("g"), len(room.locks), len(room.subscriptions)
            lively.take_covered()

            await asyncio.sleep(30)
            room.clients.expire()
            await settled()

            assert before == (("c1", "c2"), 0, 1)
            assert await members_of(lively, "g") == ("c2",)
            assert groups_told(lively) == ["g"]
            assert not silent.peer.is_open
            assert not len(room.subscriptions)
            assert room.notices.counters.silent == 1

    run(main())
