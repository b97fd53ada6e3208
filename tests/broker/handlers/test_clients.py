"""Requests of clients about themselves: heartbeats, members, locks, checks, lists; and what the real broker answered to them."""

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest
from tests.broker.handlers.client_talk import ALL, Client, Room, consuming, producing, served, settled
from tests.golden import GOLDEN, Captured, captured, needs_golden
from tests.net.talk import until

from pocketmq.broker.handlers.clients import MAX_SHOWN
from pocketmq.codes import Language, RequestCode, ResponseCode
from pocketmq.model.flags import TopicFlag
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.api.clients import (
    GetConsumerConnections,
    GetConsumerList,
    GetProducerConnections,
    UnregisterClient,
)
from pocketmq.protocol.bodies.connections import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from pocketmq.protocol.bodies.groups import CheckClientConfig, ConsumerIdList, SubscriptionGroupConfig
from pocketmq.protocol.bodies.heartbeat import HeartbeatData, MessageModel
from pocketmq.protocol.bodies.locks import LockedQueues, QueueLocks
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.java_json import read_body, read_json, write_body
from pocketmq.testing import run

CHANGED = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
UNCHANGED = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}


async def members_of(client: Client, group: str) -> tuple[str, ...]:
    answer = await client.done(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerList(group))
    return read_body(ConsumerIdList, answer.body).consumer_id_list


def groups_told(client: Client) -> list[str]:
    """The groups of which the client was told that they changed, since it was asked last."""
    told = client.take_told()
    assert {one.code for one in told} <= {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}
    return [(one.ext or {})["consumerGroup"] for one in told]


def sql(text: str) -> bytes:
    return write_body(CheckClientConfig("c1", "g", Subscription("T", text, expression_type="SQL92")))


# heartbeats


def test_a_heartbeat_makes_a_member_its_group_and_its_retry_topic() -> None:
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


def test_a_heartbeat_that_brings_nothing_new_changes_and_announces_nothing() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1", consuming("g"))
            await settled()
            client.take_told()
            versions = room.topics.version, room.groups.version

            answer = await client.beat(consuming("g"))
            await settled()

            assert answer.ext == CHANGED
            assert (room.topics.version, room.groups.version) == versions
            assert room.announced == 1
            assert client.told == []

    run(main())


def test_a_heartbeat_of_version_2_may_leave_its_subscriptions_out_once_they_are_known() -> None:
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


def test_a_heartbeat_without_groups_is_heard() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")

            answer = await client.done(RequestCode.HEART_BEAT, body=b"{}")

            assert answer.ext == CHANGED
            assert not len(room.members)

    run(main())


@pytest.mark.parametrize("body", [b"", b"{", b'{"consumerDataSet":[{}]}'])
def test_a_body_that_is_no_heartbeat_is_answered_with_what_is_wrong(body: bytes) -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")

            answer = await client.ask(RequestCode.HEART_BEAT, body=body)

            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (answer.remark or "").startswith("HeartbeatData: ")

    run(main())


def test_a_heartbeat_that_is_refused_leaves_nothing_behind() -> None:
    many = tuple(Subscription(f"T{number}") for number in range(21))

    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")
            versions = room.topics.version, room.groups.version

            nameless = await client.ask(RequestCode.HEART_BEAT, body=write_body(consuming("g")))
            greedy = await client.ask(
                RequestCode.HEART_BEAT,
                body=write_body(HeartbeatData("c1", (), consuming("g", subscriptions=many).consumer_data_set)),
            )

            assert [nameless.code, greedy.code] == [ResponseCode.INVALID_PARAMETER] * 2
            assert (room.topics.version, room.groups.version) == versions
            assert not len(room.members)

    run(main())


def test_a_group_that_may_not_be_made_is_left_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
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


def test_the_groups_that_were_told_to_be_refused_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served(auto_create_group=False) as room:
            client = await room.connect("c1")

            await client.beat(consuming(*(f"g{number}" for number in range(1001)), subscriptions=()))
            caplog.clear()
            await client.beat(consuming("g1000", subscriptions=()))
            await client.beat(consuming("g0", subscriptions=()))

            assert [line.message.split("group ")[1].split()[0] for line in caplog.records] == ["g0"]

    run(main())


def test_a_name_that_no_group_can_have_does_no_harm_to_the_others() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1", consuming("../up", "", "g"))

            assert await members_of(client, "g") == ("c1",)
            assert len(room.members) == 1

    run(main())


@pytest.mark.parametrize(("queues", "made"), [(3, 3), (0, 1)])
def test_a_retry_topic_has_as_many_queues_as_its_group_says(queues: int, made: int) -> None:
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


def test_a_retry_topic_of_a_unit_says_so() -> None:
    async def main() -> None:
        async with served() as room:
            await room.connect("c1", consuming("g", unit_mode=True))

            assert room.topics.require("%RETRY%g").topic_sys_flag == TopicFlag.UNIT_SUB

    run(main())


def test_a_group_whose_members_do_not_want_notices_gets_none() -> None:
    async def main() -> None:
        async with served() as room:
            room.groups.put([SubscriptionGroupConfig("quiet", notify_consumer_ids_changed_enable=False)], 0)
            client = await room.connect("c1", consuming("quiet", "g"))
            await room.connect("c2", consuming("quiet"))
            await settled()

            assert groups_told(client) == ["g"]

    run(main())


def test_a_broadcasting_group_gets_no_notices() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1", consuming("g", model=MessageModel.BROADCASTING))
            await settled()

            assert client.told == []

    run(main())


def test_the_heartbeat_of_a_line_that_is_gone_makes_no_member() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")
            (peer,) = room.server.peers
            client.peer.line.abort()
            await until(lambda: not room.server.peers)

            changed = room.clients.heard(peer, "JAVA", 479, write_body(consuming("g")))

            assert changed
            assert not len(room.members)

    run(main())


# coming and going


def test_members_hear_of_one_who_comes_one_who_leaves_and_one_who_is_lost() -> None:
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


def test_whoever_leaves_a_group_gives_its_locks_of_that_group_back() -> None:
    queue = MessageQueue("T", "broker-a", 0)

    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1", consuming("g", "h"))
            for group, owner in (("g", "c1"), ("h", "c1"), ("i", "c2")):
                room.locks.lock(group, owner, [queue], 0)

            await client.done(RequestCode.UNREGISTER_CLIENT, UnregisterClient("c2", consumer_group="g"))
            await client.done(RequestCode.UNREGISTER_CLIENT, UnregisterClient("c2", consumer_group="i"))

            now = room.clock.monotonic()
            assert [room.locks.holder(group, queue, now) for group in "ghi"] == [None, "c1", "c2"]

    run(main())


def test_a_client_that_is_still_there_by_another_connection_keeps_its_locks() -> None:
    queue = MessageQueue("T", "broker-a", 0)

    async def main() -> None:
        async with served() as room:
            old = await room.connect("c1", consuming("g"))
            await room.connect("c1", consuming("g"))
            room.locks.lock("g", "c1", [queue], 0)

            await old.done(RequestCode.UNREGISTER_CLIENT, UnregisterClient("c1", consumer_group="g"))

            assert room.locks.holder("g", queue, room.clock.monotonic()) == "c1"

    run(main())


def test_a_producer_leaves_its_group_and_leaving_what_one_is_not_in_is_harmless() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1", producing("p", "q"))

            await client.done(RequestCode.UNREGISTER_CLIENT, UnregisterClient("c1", producer_group="p"))
            await client.done(RequestCode.UNREGISTER_CLIENT, UnregisterClient("c1", "nothing", "nothing"))

            (peer,) = room.server.peers
            assert room.members.producers.groups_of(peer) == {"q"}

    run(main())


def test_what_nobody_was_heard_of_is_forgotten_in_the_scan() -> None:
    queue = MessageQueue("T", "broker-a", 0)

    async def main() -> None:
        async with served() as room:
            silent = await room.connect("c1", consuming("g"))
            lively = await room.connect("c2", consuming("g"))
            room.locks.lock("g", "c1", [queue], room.clock.monotonic())
            room.carried.note("h", ALL[0], -480)
            await asyncio.sleep(100)
            await lively.beat(consuming("g"))
            room.clients.expire()
            before = room.members.client_ids("g"), len(room.locks), len(room.carried)
            lively.take_told()

            await asyncio.sleep(30)
            room.clients.expire()
            await settled()

            assert before == (("c1", "c2"), 0, 1)
            assert await members_of(lively, "g") == ("c2",)
            assert groups_told(lively) == ["g"]
            assert not silent.peer.is_open
            assert not len(room.carried)
            assert room.notices.counters.silent == 1

    run(main())


# what clients ask


def test_a_group_without_members_has_no_list_in_rocketmqs_words() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")

            answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerList("none"))

            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, none")

    run(main())


async def lock(client: Client, client_id: str, *queues: MessageQueue) -> tuple[MessageQueue, ...]:
    answer = await client.done(RequestCode.LOCK_BATCH_MQ, body=write_body(QueueLocks("g", client_id, queues)))
    return read_body(LockedQueues, answer.body).locked


def test_a_queue_is_locked_by_one_client_at_a_time_until_it_is_unlocked() -> None:
    queues = tuple(MessageQueue("T", "broker-a", number) for number in range(2))

    async def main() -> None:
        async with served() as room:
            room.make_topic("T")
            client = await room.connect("c1")

            mine = await lock(client, "c1", queues[0])
            yours = await lock(client, "c2", *queues)
            for owner in ("c2", "c1"):
                body = write_body(QueueLocks("g", owner, queues[:1]))
                answer = await client.done(RequestCode.UNLOCK_BATCH_MQ, body=body)
                assert answer.body == b""

            assert (mine, yours) == (queues[:1], queues[1:])
            assert await lock(client, "c2", *queues) == queues

    run(main())


@pytest.mark.parametrize(
    "queue",
    [
        MessageQueue("Unknown", "broker-a", 0),
        MessageQueue("T", "broker-a", 2),
        MessageQueue("T", "broker-a", -1),
        MessageQueue("T", "broker-b", 0),
    ],
    ids=str,
)
def test_a_queue_that_is_not_here_is_not_locked(queue: MessageQueue) -> None:
    async def main() -> None:
        async with served() as room:
            room.make_topic("T")
            client = await room.connect("c1")

            assert await lock(client, "c1", queue) == ()
            assert not len(room.locks)

    run(main())


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (write_body(CheckClientConfig("c1", "g", Subscription.parse("T", "a || b"))), ResponseCode.SUCCESS),
        (write_body(CheckClientConfig("c1", "g")), ResponseCode.SUCCESS),
        (sql("a > 1"), ResponseCode.SUCCESS),
        (sql("a >>> 1"), ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
    ids=["tags", "nothing", "good", "bad"],
)
def test_a_subscription_is_checked_before_its_consumer_starts(body: bytes, code: ResponseCode) -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")

            answer = await client.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)

            assert answer.code == code
            assert (code == ResponseCode.SUCCESS) == (answer.remark is None)

    run(main())


def test_a_broker_that_does_not_filter_by_sql_says_so() -> None:
    async def main() -> None:
        async with served(property_filter=False) as room:
            client = await room.connect("c1")

            answer = await client.ask(RequestCode.CHECK_CLIENT_CONFIG, body=sql("a > 1"))
            tags = CheckClientConfig("c1", "g", Subscription.parse("T", "a"))

            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "does not support consumer to filter message by SQL92" in (answer.remark or "")
            await client.done(RequestCode.CHECK_CLIENT_CONFIG, body=write_body(tags))

    run(main())


# what administrators ask


def test_an_administrator_sees_who_is_connected() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect(
                "c1", HeartbeatData("", producing("p").producer_data_set, consuming("g").consumer_data_set)
            )
            (peer,) = room.server.peers
            shown = ClientConnection("c1", str(peer.address), "JAVA", 479)

            consumers = await client.done(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnections("g"))
            producers = await client.done(RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnections("p"))
            everybody = await client.done(RequestCode.GET_ALL_PRODUCER_INFO)

            found = read_body(ConsumerConnection, consumers.body)
            assert found.connection_set == (shown,)
            assert found.subscription_table == {one.topic: one for one in ALL}
            assert read_body(ProducerConnection, producers.body).connection_set == (shown,)
            (info,) = read_body(ProducerTable, everybody.body).data["p"]
            assert info == ProducerInfo("c1", f"/{peer.address}", "JAVA", 479, info.last_update_timestamp)
            assert room.clock.now_ms() - info.last_update_timestamp < 1000

    run(main())


def test_groups_without_members_are_not_online_in_rocketmqs_words() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")

            consumers = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnections("g"))
            producers = await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnections("p"))

            assert (consumers.code, consumers.remark) == (206, "the consumer group[g] not online")
            assert (producers.code, producers.remark) == (1, "the producer group[p] not exist")

    run(main())


def test_members_that_want_different_things_are_warned_of_once_and_shown_while_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "pocketmq.broker")
    other = (Subscription.parse("T", "a", sub_version=1), ALL[1])

    async def main() -> None:
        async with served() as room:
            first = await room.connect("c1", consuming("g"))
            before = room.clients.runtime_info()
            await room.connect("c2", consuming("g", subscriptions=other))
            await first.beat(consuming("g"))
            while_it_lasts = room.clients.runtime_info()

            await first.beat(consuming("g", subscriptions=other))

            assert before == {"subscriptionConflicts": "0"}
            assert while_it_lasts["subscriptionConflicts"] == "1"
            assert "of T * (c1), a (c2)" in while_it_lasts["subscriptionConflict_g"]
            assert room.clients.runtime_info() == before
            levels = [line.levelname for line in caplog.records if line.message.startswith("the members of group g")]
            assert levels == ["WARNING", "INFO"]
            assert room.notices.counters.conflicts == 1

    run(main())


def test_of_many_conflicts_some_are_shown_and_all_are_counted() -> None:
    async def main() -> None:
        async with served() as room:
            names = [f"g{number}" for number in range(MAX_SHOWN + 5)]
            await room.connect("c1", consuming(*names))
            await room.connect("c2", consuming(*names, subscriptions=ALL[:1]))

            info = room.clients.runtime_info()

            assert info["subscriptionConflicts"] == str(len(names))
            assert len(info) == 1 + MAX_SHOWN

    run(main())


# the real broker

_REPLAYED = (
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.CHECK_CLIENT_CONFIG,
)
_CONVERSATIONS = ("push", "members", "orderly", "requestReply", "broadcast", "sql", "raw")


def _normal(answers: int, release: str, answer: Command) -> tuple[Any, ...]:
    """An answer without what differs on purpose: our words for bad SQL, and what RocketMQ 4.9 does not say to heartbeats."""
    body = read_json(answer.body) if answer.body else None
    for name in ("consumerIdList", "lockOKMQSet"):
        if body and name in body:
            body[name].sort(key=repr)
    ext = {} if release == "4.9.7" and answers == RequestCode.HEART_BEAT else answer.ext or {}
    remark = None if answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED else answer.remark
    return answer.code, remark, ext, body


async def _replay(room: Room, release: str, frames: list[Captured]) -> tuple[int, Counter[str], Counter[str]]:
    """How many requests were answered the same; notices by connection, as they were captured and as we sent them."""
    answers = {(one.conn, one.command.opaque): one.command for one in frames if one.answers in _REPLAYED}
    clients: dict[str, Client] = {}
    count, expected = 0, Counter[str]()
    for frame in frames:
        command = frame.command
        if not frame.forward and command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and frame.answers is None:
            expected[frame.conn] += 1
        if not frame.forward or frame.answers is not None or command.code not in _REPLAYED:
            continue
        if command.code == RequestCode.LOCK_BATCH_MQ:
            for queue in read_body(QueueLocks, command.body).mq_set:
                room.topics.ensure(TopicConfig(queue.topic, 16, 16), 0)
        if frame.conn not in clients:
            clients[frame.conn] = await room.connect(frame.conn)
        theirs = answers[frame.conn, command.opaque]
        ours = await clients[frame.conn].peer.call(command, 600)
        assert _normal(command.code, release, ours) == _normal(command.code, release, theirs), frame.name
        count += 1
    await settled()
    sent = Counter({conn: len(client.told) for conn, client in clients.items() if client.told})
    return count, expected, sent


@needs_golden
@pytest.mark.parametrize("name", _CONVERSATIONS)
@pytest.mark.parametrize("release", ["5.3.3", "4.9.7"])
def test_clients_are_answered_and_told_what_the_real_broker_answered_and_told_them(release: str, name: str) -> None:
    frames = [one for one in captured(f"wire/{release}/json/{name}.jsonl") if one.link == "broker"]

    async def main() -> None:
        async with served() as room:
            count, expected, sent = await _replay(room, release, frames)

            assert count > 5
            if (release, name) == ("4.9.7", "broadcast"):
                expected.clear()  # it told a broadcasting group when a member left, and not when one came
            assert sent == expected

    run(main())


@needs_golden
def test_an_administrator_is_shown_members_in_the_form_of_the_real_broker() -> None:
    forms = {
        (one.answers, tuple(sorted(read_json(one.command.body)["connectionSet"][0])))
        for one in captured("mqadmin/*/wire/*Connection.jsonl")
        if one.answers in (203, 204) and one.command.code == ResponseCode.SUCCESS
    }

    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1", producing("p"), language=Language.GO)
            await client.beat(consuming("g"))

            ours = set()
            for code, header in (
                (RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnections("g")),
                (RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnections("p")),
            ):
                shown = read_json((await client.done(code, header)).body)["connectionSet"][0]
                assert shown["language"] == "GO"
                ours.add((int(code), tuple(sorted(shown))))

            assert ours == forms

    assert GOLDEN.is_dir()
    run(main())
