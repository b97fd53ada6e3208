"""Every typed call: the code and the fields that it sends, and the result of the answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from tests.client.kit import CLIENT_IP, NAME_SERVER, Cluster, cluster, ignore, refuse

from pocketmq.client.cluster.calls import Brokers
from pocketmq.client.cluster.instance import Instance
from pocketmq.client.settings import ClientSettings
from pocketmq.codes import BoundaryType, RequestCode
from pocketmq.errors import (
    CallTimedOut,
    ConsumerNotOnline,
    GroupNotFound,
    NotFound,
    ServerFailed,
    SubscriptionUnparsable,
    TopicNotFound,
)
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.protocol.api.messages import (
    ConsumeMessageDirectly,
    EndTransaction,
    PullMessage,
    QueryMessage,
    RecallMessage,
    ResetOffset,
    ResumeCheckHalfMessage,
    SendMessageBack,
)
from pocketmq.protocol.bodies.clients import (
    CheckClientConfig,
    ConsumerConnection,
    ConsumerIdList,
    ConsumerRunningInfo,
    DirectConsumption,
    GroupConfigList,
    GroupList,
    GroupTable,
    LockedQueues,
    ProducerConnection,
    ProducerTable,
    QueueLocks,
    SubscriptionGroupConfig,
)
from pocketmq.protocol.bodies.topics import (
    BrokerStatsData,
    ConsumerOffsets,
    ConsumerStatus,
    ConsumeStats,
    ConsumeStatsList,
    DelayOffsets,
    KVTable,
    MappedTopicConfig,
    MappedTopicTable,
    ResetOffsets,
    TopicConfig,
    TopicConfigList,
    TopicStatsTable,
)
from pocketmq.protocol.command import Command
from pocketmq.protocol.java_json import read_body
from pocketmq.protocol.record import decode_records, encode_record
from pocketmq.testing import run

A = "broker-a"
QUEUE = MessageQueue("T", A, 1)
HOST = bytes([10, 0, 0, 2, 0, 0, 42, 159])
RECORD = encode_record(b"T", 1, 7, 5000, b"body", b"", 0, 0, 1, HOST, 2, HOST)
PULL = PullMessage("CG", "T", 1, 5, 32, 2, 0, 15_000, 1)
PULLED = {"suggestWhichBrokerId": "0", "nextBeginOffset": "6", "minOffset": "0", "maxOffset": "6"}

Call = Callable[[Brokers], Awaitable[Any]]


class Row(NamedTuple):
    """A call, the expected request, the answer, and the expected result."""

    call: Call
    code: int
    sent: dict[str, str] | None
    answer: dict[str, str] | None = None
    body: bytes = b""
    outcome: Any = None
    oneway: bool = False
    sent_body: bytes | None = None


def body_row(call: Call, code: int, sent: dict[str, str] | None, body: Any) -> Row:
    """A call whose outcome is the body of the answer."""
    return Row(call, code, sent, None, body.encode(), body)


OF_QUEUE = {"topic": "T", "queueId": "1", "bname": A}
ROWS = [
    # offsets
    Row(lambda b: b.offsets.largest(QUEUE), 30, {**OF_QUEUE, "committed": "true"}, {"offset": "9"}, outcome=9),
    Row(lambda b: b.offsets.smallest(QUEUE), 31, OF_QUEUE, {"offset": "3"}, outcome=3),
    Row(
        lambda b: b.offsets.at_time(QUEUE, 1000, BoundaryType.UPPER),
        29,
        {**OF_QUEUE, "timestamp": "1000", "boundaryType": "UPPER"},
        {"offset": "4"},
        outcome=4,
    ),
    Row(lambda b: b.offsets.earliest_store_ms(QUEUE), 32, OF_QUEUE, {"timestamp": "-1"}, outcome=-1),
    Row(
        lambda b: b.offsets.of_group("CG", QUEUE),
        14,
        {**OF_QUEUE, "consumerGroup": "CG", "setZeroIfNotFound": "false"},
        {"offset": "7"},
        outcome=7,
    ),
    Row(lambda b: b.offsets.commit("CG", QUEUE, 8), 15, {**OF_QUEUE, "consumerGroup": "CG", "commitOffset": "8"}),
    Row(
        lambda b: b.offsets.commit_one_way("CG", QUEUE, 8),
        15,
        {**OF_QUEUE, "consumerGroup": "CG", "commitOffset": "8"},
        oneway=True,
    ),
    body_row(
        lambda b: b.offsets.reset(A, ResetOffset("CG", "T", -1, True)),
        222,
        {"group": "CG", "topic": "T", "timestamp": "-1", "isForce": "true"},
        ResetOffsets({QUEUE: 5}),
    ),
    Row(
        lambda b: b.offsets.reset(A, ResetOffset("CG", "T", -1, True)),
        222,
        {"group": "CG", "topic": "T", "timestamp": "-1", "isForce": "true"},
        outcome=ResetOffsets(),
    ),
    body_row(
        lambda b: b.offsets.of_members(A, "T", "CG", "id"),
        223,
        {"topic": "T", "group": "CG", "clientAddr": "id"},
        ConsumerStatus({}, {"id": {QUEUE: 5}}),
    ),
    # messages
    Row(
        lambda b: b.messages.by_key(A, QueryMessage("T", "k", 10, 0, 9, False)),
        12,
        {
            "topic": "T",
            "key": "k",
            "maxNum": "10",
            "beginTimestamp": "0",
            "endTimestamp": "9",
            "_UNIQUE_KEY_QUERY": "false",
        },
        {"indexLastUpdateTimestamp": "1", "indexLastUpdatePhyoffset": "2"},
        RECORD,
    ),
    Row(
        lambda b: b.messages.at_log_offset(A, 5000, "T"),
        33,
        {"offset": "5000", "topic": "T"},
        body=RECORD,
        outcome=decode_records(RECORD)[0],
    ),
    Row(
        lambda b: b.messages.send_back(A, SendMessageBack(5000, "CG", 3)),
        36,
        {"offset": "5000", "group": "CG", "delayLevel": "3", "bname": A},
    ),
    Row(
        lambda b: b.messages.recall(A, RecallMessage("T", "handle")),
        370,
        {"topic": "T", "recallHandle": "handle", "bname": A},
        {"msgId": "id"},
        outcome="id",
    ),
    Row(
        lambda b: b.messages.end_transaction(A, A, EndTransaction("PG", 1, 2, 8, "id")),
        37,
        {
            "producerGroup": "PG",
            "tranStateTableOffset": "1",
            "commitLogOffset": "2",
            "commitOrRollback": "8",
            "msgId": "id",
            "bname": A,
        },
        oneway=True,
    ),
    Row(lambda b: b.messages.check_again(A, ResumeCheckHalfMessage("T", "id")), 323, {"topic": "T", "msgId": "id"}),
    # members
    Row(lambda b: b.members.leave(A, "id", consumer_group="CG"), 35, {"clientID": "id", "consumerGroup": "CG"}),
    Row(
        lambda b: b.members.of_group(A, "CG"),
        38,
        {"consumerGroup": "CG"},
        body=ConsumerIdList(("a", "b")).encode(),
        outcome=["a", "b"],
    ),
    Row(
        lambda b: b.members.lock(A, "CG", "id", [QUEUE]),
        41,
        None,
        body=LockedQueues((QUEUE,)).encode(),
        outcome=frozenset({QUEUE}),
        sent_body=QueueLocks("CG", "id", (QUEUE,)).encode(),
    ),
    Row(lambda b: b.members.unlock(A, "CG", "id", [QUEUE], wait=True), 42, None),
    Row(lambda b: b.members.unlock(A, "CG", "id", [QUEUE], wait=False), 42, None, oneway=True),
    Row(lambda b: b.members.check_config(A, CheckClientConfig("id", "CG")), 46, None),
    body_row(lambda b: b.members.consumers(A, "CG"), 203, {"consumerGroup": "CG"}, ConsumerConnection()),
    body_row(lambda b: b.members.producers(A, "PG"), 204, {"producerGroup": "PG"}, ProducerConnection()),
    body_row(lambda b: b.members.all_producers(A), 328, None, ProducerTable()),
    body_row(
        lambda b: b.members.running_info(A, "CG", "id", stacks=True),
        307,
        {"consumerGroup": "CG", "clientId": "id", "jstackEnable": "true"},
        ConsumerRunningInfo(),
    ),
    body_row(
        lambda b: b.members.consume_directly(A, ConsumeMessageDirectly("CG", "id", "msg")),
        309,
        {"consumerGroup": "CG", "clientId": "id", "msgId": "msg"},
        DirectConsumption(),
    ),
    # topics
    Row(
        lambda b: b.topics.create(A, "T", "TBW102", 4, 4, 6, "SINGLE_TAG", False),
        17,
        {
            "topic": "T",
            "defaultTopic": "TBW102",
            "readQueueNums": "4",
            "writeQueueNums": "4",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        },
    ),
    Row(
        lambda b: b.topics.create_all(A, TopicConfigList((TopicConfig("T"),))),
        18,
        None,
        sent_body=TopicConfigList((TopicConfig("T"),)).encode(),
    ),
    Row(lambda b: b.topics.delete(A, "T"), 215, {"topic": "T"}),
    body_row(lambda b: b.topics.config(A, "T"), 351, {"topic": "T"}, MappedTopicConfig("T")),
    body_row(lambda b: b.topics.all_configs(A), 21, None, MappedTopicTable()),
    body_row(lambda b: b.topics.stats(A, "T"), 202, {"topic": "T"}, TopicStatsTable()),
    Row(lambda b: b.topics.clean_unused(A), 316, None),
    # groups
    Row(lambda b: b.groups.create(A, SubscriptionGroupConfig("CG")), 200, None),
    Row(lambda b: b.groups.create_all(A, GroupConfigList((SubscriptionGroupConfig("CG"),))), 225, None),
    Row(
        lambda b: b.groups.delete(A, "CG", with_offsets=True),
        207,
        {"groupName": "CG", "cleanOffset": "true", "removeOffset": "true"},
    ),
    body_row(lambda b: b.groups.all_configs(A), 201, None, GroupTable()),
    body_row(lambda b: b.groups.progress(A, "CG", "T"), 208, {"consumerGroup": "CG", "topic": "T"}, ConsumeStats()),
    body_row(lambda b: b.groups.reading(A, "T"), 300, {"topic": "T"}, GroupList(("CG",))),
    # the broker itself
    Row(lambda b: b.state.runtime_info(A), 28, None, body=KVTable({"a": "b"}).encode(), outcome={"a": "b"}),
    Row(lambda b: b.state.settings(A), 26, None, {"version": "{}"}, b"a=b\n", {"a": "b"}),
    Row(lambda b: b.state.change_settings(A, {"a": "b"}), 25, None),
    body_row(
        lambda b: b.state.stats(A, "TOPIC_PUT_NUMS", "T"),
        315,
        {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"},
        BrokerStatsData(),
    ),
    body_row(lambda b: b.state.consume_stats(A, is_order=False), 317, {"isOrder": "false"}, ConsumeStatsList()),
    body_row(lambda b: b.state.consumer_offsets(A), 43, None, ConsumerOffsets()),
    body_row(lambda b: b.state.delay_offsets(A), 45, None, DelayOffsets()),
    Row(lambda b: b.state.clean_queues(A), 306, None),
    Row(lambda b: b.state.delete_expired_log(A), 329, None),
]


def with_brokers(test: Callable[[Cluster, Brokers], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with cluster() as c:
            settings = ClientSettings(name_servers=NAME_SERVER, client_ip=CLIENT_IP)
            instance = Instance.join(settings, c.dependencies, **options)
            await instance.routes.find("T")
            await test(c, instance.brokers)
            await instance.leave()

    run(main())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.code}")
def test_a_call_has_the_fields_of_java_and_returns_the_answer(row: Row) -> None:
    async def test(c: Cluster, brokers: Brokers) -> None:
        c.broker.answers[row.code] = ignore if row.oneway else lambda cmd: cmd.reply(ext=row.answer, body=row.body)

        outcome = await row.call(brokers)
        await asyncio.sleep(0.01)

        (command,) = c.broker.requests(row.code)
        assert command.ext == row.sent
        assert command.is_oneway is row.oneway
        if row.outcome is not None:
            assert outcome == row.outcome
        if row.sent_body is not None:
            assert command.body == row.sent_body

    with_brokers(test)


@pytest.mark.parametrize("code", [0, 19, 20, 21])
def test_a_pull_has_four_results(code: int) -> None:
    async def test(c: Cluster, brokers: Brokers) -> None:
        c.broker.answers[RequestCode.PULL_MESSAGE] = lambda cmd: cmd.reply(code, "FOUND", PULLED, RECORD)

        pulled = await brokers.messages.pull(brokers.reader(A), A, PULL, timeout_s=30)

        assert (pulled.code, pulled.header.next_begin_offset, pulled.records) == (code, 6, RECORD)
        (command,) = c.broker.requests(RequestCode.PULL_MESSAGE)
        assert (command.ext or {})["bname"] == A

    with_brokers(test)


def test_a_failed_pull_raises_and_a_held_pull_may_wait_longer() -> None:
    async def test(c: Cluster, brokers: Brokers) -> None:
        c.broker.answers[RequestCode.LITE_PULL_MESSAGE] = refuse(26)
        with pytest.raises(GroupNotFound):
            await brokers.messages.pull(brokers.reader(A), A, PULL, timeout_s=30, code=RequestCode.LITE_PULL_MESSAGE)
        c.broker.answers[RequestCode.PULL_MESSAGE] = ignore
        with pytest.raises(CallTimedOut, match="within 30 s"):
            await brokers.messages.pull(brokers.reader(A), A, PULL, timeout_s=30)

    with_brokers(test)


@pytest.mark.parametrize(
    ("call", "code", "refusal", "error"),
    [
        (lambda b: b.topics.config(A, "T"), 351, 17, TopicNotFound),
        (lambda b: b.groups.progress(A, "CG"), 208, 26, GroupNotFound),
        (lambda b: b.members.consumers(A, "CG"), 203, 206, ConsumerNotOnline),
        (lambda b: b.members.check_config(A, CheckClientConfig()), 46, 23, SubscriptionUnparsable),
        (lambda b: b.messages.by_key(A, QueryMessage("T", "k", 1, 0, 1)), 12, 22, NotFound),
        (lambda b: b.state.settings(A), 26, 1, ServerFailed),
    ],
)
def test_a_response_code_is_raised_as_its_error(call: Call, code: int, refusal: int, error: type[Exception]) -> None:
    async def test(c: Cluster, brokers: Brokers) -> None:
        c.broker.answers[code] = refuse(refusal)

        with pytest.raises(error, match="refused"):
            await call(brokers)

    with_brokers(test)


def test_only_two_codes_mean_that_an_object_is_missing() -> None:
    async def test(c: Cluster, brokers: Brokers) -> None:
        c.broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = refuse(1, "no consumer for this group")
        c.broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = refuse(22)

        assert await brokers.members.of_group(A, "CG") == []
        assert await brokers.offsets.of_group("CG", QUEUE) is None

    with_brokers(test)


def test_a_target_may_be_an_address() -> None:
    async def test(c: Cluster, brokers: Brokers) -> None:
        c.broker.answers[RequestCode.DELETE_TOPIC_IN_BROKER] = lambda command: command.reply()

        await brokers.topics.delete(Address("10.0.0.2", 10911), "T")

        assert c.broker.requests(RequestCode.DELETE_TOPIC_IN_BROKER)

    with_brokers(test)


def test_lite_pull_and_pull_clients_mark_every_request() -> None:
    async def test(c: Cluster, brokers: Brokers) -> None:
        c.broker.answers[RequestCode.GET_MAX_OFFSET] = lambda command: command.reply(ext={"offset": "1"})
        await brokers.offsets.largest(QUEUE)

        everything: list[Command] = [*c.name_server.heard, *c.broker.heard]
        assert all((command.ext or {})["ReqT"] == "0" for command in everything)
        assert read_body(dict[str, Any], c.broker.heard[0].body)["clientID"].endswith("@STREAM")

    with_brokers(test, stream=True)
