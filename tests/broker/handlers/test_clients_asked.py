"""Requests about clients by clients and administrators, compared with the answers of Apache's broker."""

import logging
from collections import Counter
from typing import Any

import pytest
from tests.broker.handlers.client_talk import ALL, Client, Room, consuming, producing, served, settled
from tests.golden import GOLDEN, Captured, captured, needs_golden

from pocketmq.broker.handlers.clients import MAX_SHOWN
from pocketmq.codes import Language, RequestCode, ResponseCode
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.api.administration import ForProducerGroup
from pocketmq.protocol.api.messages import ForConsumerGroup
from pocketmq.protocol.bodies.clients import (
    CheckClientConfig,
    ClientConnection,
    ConsumerConnection,
    HeartbeatData,
    LockedQueues,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    QueueLocks,
)
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.java_json import read_json
from pocketmq.testing import run


def sql(text: str) -> bytes:
    return CheckClientConfig("c1", "g", Subscription("T", text, expression_type="SQL92")).encode()


# what clients ask


def test_a_group_without_members_has_no_list_in_rocketmqs_words() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")

            answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ForConsumerGroup("none"))

            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, none")

    run(main())


async def lock(client: Client, client_id: str, *queues: MessageQueue) -> tuple[MessageQueue, ...]:
    answer = await client.done(RequestCode.LOCK_BATCH_MQ, body=QueueLocks("g", client_id, queues).encode())
    return LockedQueues.decode(answer.body).locked


def test_a_queue_is_locked_by_one_client_at_a_time_until_it_is_unlocked() -> None:
    queues = tuple(MessageQueue("T", "broker-a", number) for number in range(2))

    async def main() -> None:
        async with served() as room:
            room.make_topic("T")
            client = await room.connect("c1")

            mine = await lock(client, "c1", queues[0])
            yours = await lock(client, "c2", *queues)
            for owner in ("c2", "c1"):
                body = QueueLocks("g", owner, queues[:1]).encode()
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
def test_a_queue_of_another_broker_is_not_locked(queue: MessageQueue) -> None:
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
        (CheckClientConfig("c1", "g", Subscription.parse("T", "a || b")).encode(), ResponseCode.SUCCESS),
        (CheckClientConfig("c1", "g").encode(), ResponseCode.SUCCESS),
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


def test_a_broker_without_sql_filters_refuses_sql_subscriptions() -> None:
    async def main() -> None:
        async with served(property_filter=False) as room:
            client = await room.connect("c1")

            answer = await client.ask(RequestCode.CHECK_CLIENT_CONFIG, body=sql("a > 1"))
            tags = CheckClientConfig("c1", "g", Subscription.parse("T", "a"))

            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "does not support consumer to filter message by SQL92" in (answer.remark or "")
            await client.done(RequestCode.CHECK_CLIENT_CONFIG, body=tags.encode())

    run(main())


# what administrators ask


def test_an_administrator_sees_connected_clients() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect(
                "c1", HeartbeatData("", producing("p").producer_data_set, consuming("g").consumer_data_set)
            )
            (peer,) = room.server.peers
            shown = ClientConnection("c1", str(peer.address), "JAVA", 479)

            consumers = await client.done(RequestCode.GET_CONSUMER_CONNECTION_LIST, ForConsumerGroup("g"))
            producers = await client.done(RequestCode.GET_PRODUCER_CONNECTION_LIST, ForProducerGroup("p"))
            everybody = await client.done(RequestCode.GET_ALL_PRODUCER_INFO)

            found = ConsumerConnection.decode(consumers.body)
            assert found.connection_set == (shown,)
            assert found.subscription_table == {one.topic: one for one in ALL}
            assert ProducerConnection.decode(producers.body).connection_set == (shown,)
            (info,) = ProducerTable.decode(everybody.body).data["p"]
            assert info == ProducerInfo("c1", f"/{peer.address}", "JAVA", 479, info.last_update_timestamp)
            assert room.clock.now_ms() - info.last_update_timestamp < 1000

    run(main())


def test_groups_without_members_are_not_online_in_rocketmqs_words() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")

            consumers = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, ForConsumerGroup("g"))
            producers = await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, ForProducerGroup("p"))

            assert (consumers.code, consumers.remark) == (206, "the consumer group[g] not online")
            assert (producers.code, producers.remark) == (1, "the producer group[p] not exist")

    run(main())


def test_conflicting_members_are_logged_once_and_listed_until_the_end(
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
            assert "T: * (c1), a (c2)" in while_it_lasts["subscriptionConflict_g"]
            assert room.clients.runtime_info() == before
            levels = [line.levelname for line in caplog.records if "embers of group g have" in line.message]
            assert levels == ["WARNING", "INFO"]
            assert room.notices.counters.conflicts == 1

    run(main())


def test_only_some_of_many_conflicts_are_listed_and_all_are_counted() -> None:
    async def main() -> None:
        async with served() as room:
            names = [f"g{number}" for number in range(MAX_SHOWN + 5)]
            await room.connect("c1", consuming(*names))
            await room.connect("c2", consuming(*names, subscriptions=(Subscription("U"),)))

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
    """An answer without intended differences: our text for invalid SQL, and the fields that 4.9 does not add for
    heartbeats.
    """
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
            for queue in QueueLocks.decode(command.body).mq_set:
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
def test_clients_get_the_answers_and_notifications_of_the_captured_broker(release: str, name: str) -> None:
    frames = [one for one in captured(f"wire/{release}/json/{name}.jsonl") if one.link == "broker"]

    async def main() -> None:
        async with served() as room:
            count, expected, sent = await _replay(room, release, frames)

            assert count > 5
            if (release, name) == ("4.9.7", "broadcast"):
                expected.clear()  # it notified a broadcasting group when a member left, but not when one joined
            assert sent == expected

    run(main())


@needs_golden
def test_an_administrator_gets_members_in_the_form_of_the_captured_broker() -> None:
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
                (RequestCode.GET_CONSUMER_CONNECTION_LIST, ForConsumerGroup("g")),
                (RequestCode.GET_PRODUCER_CONNECTION_LIST, ForProducerGroup("p")),
            ):
                shown = read_json((await client.done(code, header)).body)["connectionSet"][0]
                assert shown["language"] == "GO"
                ours.add((int(code), tuple(sorted(shown))))

            assert ours == forms

    assert GOLDEN.is_dir()
    run(main())
