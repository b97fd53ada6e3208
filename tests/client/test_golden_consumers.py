"""The requests of our consumers, compared with those of Java's in the same situation: equal field by field.

Values that differ in each run are removed first: client ids, times, versions of subscriptions, log offsets. Each request counts once,
however often it was made: pulls and heartbeats come round. Where we differ on purpose, the test says so.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.real_cluster import Basket, RealCluster, real_cluster
from tests.golden import captured, needs_golden

from pocketmq.client.cluster.rpc import RpcClient
from pocketmq.client.consumer.consume_result import DeadLetter, RetryLater, Suspend
from pocketmq.client.consumer.pulling import PullWriter, pull_writer
from pocketmq.client.producer.send_frames import SendFrames
from pocketmq.client.received import DEAD_LETTER_REASON
from pocketmq.codes import RequestCode
from pocketmq.errors import InvalidExpression, RemoteError
from pocketmq.model.message import StoredMessage
from pocketmq.model.properties import parse_properties
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.command import Command, decode_command
from pocketmq.protocol.frames import split_frames
from pocketmq.protocol.java_json_reader import read_json
from pocketmq.protocol.trace_text import SubAfter, SubBefore, decode_trace
from pocketmq.testing import run

pytestmark = needs_golden

COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
ASKED = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        COMMIT,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.SEND_MESSAGE_V2,
    }
)
"""What is compared; producers have a test of their own."""
VOLATILE = frozenset({"subVersion", "clientID", "clientId", "offset", "originMsgId", "timestamp"})
VOLATILE_PROPERTIES = frozenset({"UNIQ_KEY", "ORIGIN_MESSAGE_ID", "KEYS"})
OTHER_PROPERTIES = frozenset(
    {"MIN_OFFSET", "MAX_OFFSET", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "DELAY", DEAD_LETTER_REASON}
)
"""Java's client adds the first two for its users and sends them on; the counts stand in the header, too; a dead letter of ours says
why it is one, instead of when it should come again."""


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """Every request that clients of a test make."""
    made: list[Command] = []
    signed = RpcClient.signed

    def noted(self: RpcClient, command: Command) -> Command:
        made.append(signed(self, command))
        return made[-1]

    def noting_writer(*request: Any) -> PullWriter:
        write = pull_writer(*request)

        def noted_bytes(*numbers: int) -> bytes:
            made.extend(map(decode_command, split_frames(write(*numbers))))
            return write(*numbers)

        return noted_bytes

    encode = SendFrames.encode

    def noted_send(self: SendFrames, *request: Any) -> bytes:
        frame = encode(self, *request)
        made.extend(map(decode_command, split_frames(frame)))
        return frame

    monkeypatch.setattr(SendFrames, "encode", noted_send)
    monkeypatch.setattr(RpcClient, "signed", noted)
    monkeypatch.setattr("pocketmq.client.consumer.pulling.pull_writer", noting_writer)
    return made


def java(name: str) -> list[Command]:
    """The requests of Java's clients to brokers."""
    frames = captured(f"wire/5.3.3/json/{name}.jsonl")
    return [
        frame.command for frame in frames if frame.forward and frame.link == "broker" and not frame.command.is_response
    ]


def meanings(commands: Iterable[Command], *groups: str) -> set[str]:
    """What requests of consumers of these groups mean, each once, as sorted JSON."""
    return {json.dumps(meaning, sort_keys=True) for command in commands for meaning in _meanings(command, groups)}


def _meanings(command: Command, groups: Sequence[str]) -> Iterator[dict[str, Any]]:
    if command.code not in ASKED:
        return
    ext = {name: _still(name, value) for name, value in (command.ext or {}).items()}
    ext.pop("setZeroIfNotFound", None)  # ours does not want 0 for "nothing is stored"
    code = RequestCode(command.code).name
    if command.code == RequestCode.HEART_BEAT:
        heartbeat = read_json(command.body)
        for consumer in heartbeat["consumerDataSet"]:
            if consumer["groupName"] in groups:
                yield {"code": code, "ext": ext, "consumer": _ordered(consumer)}
    elif command.code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        body = read_json(command.body)
        for queue in body.pop("mqSet"):
            yield {"code": code, "ext": ext, "body": _ordered(body), "queue": queue}
    elif command.code == RequestCode.CHECK_CLIENT_CONFIG:
        yield {"code": code, "ext": ext, "body": _ordered(read_json(command.body))}
    elif command.code == RequestCode.SEND_MESSAGE_V2:
        if ext["a"] == "CLIENT_INNER_PRODUCER":
            yield {"code": code, "ext": {**ext, "g": "", "i": ""}, "properties": _properties(ext["i"])}
    elif _is_of(groups, command.code, ext):
        flag = 0 if command.code == COMMIT else command.flag  # sent every few seconds, requested when needed
        yield {"code": code, "flag": flag, "ext": ext}


def _begins_queue(meaning: str) -> bool:
    """Java gets offset 0 for a new queue without a committed offset. Our client requests an error instead, queries the first offset, and commits it."""
    return '"GET_MIN_OFFSET"' in meaning or ('"UPDATE_CONSUMER_OFFSET"' in meaning and '"commitOffset": "0"' in meaning)


def _is_of(groups: Sequence[str], code: int, ext: dict[str, str]) -> bool:
    if code == RequestCode.UNREGISTER_CLIENT and "consumerGroup" not in ext:
        return False
    return ext.get("consumerGroup", ext.get("group", groups[0])) in groups


def _still(name: str, value: str) -> str:
    if name in VOLATILE and (value != "0" or name == "offset"):
        return "…"
    return "0" if name == "commitOffset" and value == "-1" else value


def _properties(text: str) -> dict[str, str]:
    found = parse_properties(text)
    return {name: value for name, value in found.items() if name not in VOLATILE_PROPERTIES | OTHER_PROPERTIES}


def _ordered(value: Any) -> Any:
    """Sets in an order, volatile fields still."""
    if isinstance(value, dict):
        return {name: "…" if name in VOLATILE else _ordered(each) for name, each in value.items()}
    if isinstance(value, list):
        return sorted((_ordered(each) for each in value), key=str)
    return value


def asked(code: RequestCode, topic: str, queue: int, **ext: str) -> str:
    """The meaning of one request about a queue."""
    place = {"topic": topic, "queueId": str(queue), "bname": "broker-a", **ext}
    return json.dumps({"code": code.name, "flag": 0, "ext": place}, sort_keys=True)


def assert_alike(
    name: str,
    ours: list[Command],
    *groups: str,
    with_retries: bool = False,
    more: Iterable[str] = (),
    less: Iterable[str] = (),
) -> None:
    """We ask what Java asks, without `less` and with `more`. Of its retry topic a member of ours knows at once, Java's after 20 s."""
    theirs, mine = meanings(java(name), *groups), meanings(ours, *groups)
    if not with_retries:
        theirs, mine = (
            {each for each in one if '"topic": "%RETRY%' not in each or "HEART" in each} for one in (theirs, mine)
        )
    assert theirs, "there is something to compare"
    missing, added = theirs - mine - set(less), mine - theirs - set(more)
    added = {each for each in added if not _begins_queue(each)}
    assert [f"- {each}" for each in sorted(missing)] + [f"+ {each}" for each in sorted(added)] == []


@asynccontextmanager
async def as_recorded(topic: str, queues: int, *messages: tuple[bytes, str]) -> AsyncIterator[RealCluster]:
    """A cluster with a topic and messages in it, one queue after the other, with tags."""
    async with real_cluster(topics=(topic,), queues=queues, property_filter=True, trace_topic=True) as c:
        for number, (body, tag) in enumerate(messages):
            await c.send(topic, body, queue=number % queues, tags=tag, keys=f"key{number}")
        yield c


def test_a_push_consumer_sends_the_requests_of_javas(ours: list[Command]) -> None:
    async def main() -> None:
        async with as_recorded("PushTopic", 2, (b"push 0", "TagA"), (b"push 1", "TagB"), (b"push 2", "TagA")) as c:
            basket = Basket()
            consumer = c.push_consumer("CG_push", start_at="first")
            consumer.on("PushTopic", tags="TagA || TagC")(basket)
            async with consumer:
                await basket.wait(2)
                await asyncio.sleep(1)
                await c.send("PushTopic", b"wakes a held pull", queue=1, tags="TagC")
                await c.send("PushTopic", b"must not wake it", queue=0, tags="TagB")
                await basket.wait(3)
                await asyncio.sleep(11)

    run(main())
    assert_alike("push", ours, "CG_push")


def test_two_members_send_the_requests_of_javas(ours: list[Command]) -> None:
    async def main() -> None:
        async with as_recorded("MembersTopic", 2, (b"here is the topic", "TagA")) as c:
            basket = Basket()
            first, second = (
                c.push_consumer("CG_members", start_at="first", instance_name=name) for name in ("first", "second")
            )
            for consumer in (first, second):
                consumer.on("MembersTopic")(basket)
            async with first:
                await asyncio.sleep(1.5)
                async with second:
                    await asyncio.sleep(2.5)
                await asyncio.sleep(2)

    run(main())
    empty = asked(COMMIT, "MembersTopic", 1, consumerGroup="CG_members", commitOffset="0")
    assert_alike("members", ours, "CG_members", more={empty})


def test_an_orderly_consumer_sends_the_requests_of_javas(ours: list[Command]) -> None:
    async def main() -> None:
        messages = [(b"order %d" % number, "TagA") for number in range(4)]
        async with as_recorded("OrderlyTopic", 2, *messages) as c:
            basket = Basket()
            consumer = c.push_consumer("CG_orderly", start_at="first", ordered=True)
            consumer.on("OrderlyTopic")(basket)
            async with consumer:
                await basket.wait(4)
                await asyncio.sleep(6)

    run(main())
    assert_alike("orderly", ours, "CG_orderly")


def test_an_orderly_consumer_gives_up_like_javas(ours: list[Command]) -> None:
    async def main() -> None:
        async with as_recorded("OrderlyDeadTopic", 1, (b"never succeeds", "TagA")) as c:
            basket = Basket(lambda _: Suspend(wait_ms=100))
            consumer = c.push_consumer("CG_orderly_dlq", start_at="first", ordered=True, max_reconsume_times=1)
            consumer.on("OrderlyDeadTopic")(basket)
            async with consumer:
                await basket.wait(2)
                await asyncio.sleep(1.5)

    run(main())
    assert_alike("orderlyDeadLetter", ours, "CG_orderly_dlq")


def test_failed_messages_are_sent_back_as_by_javas(ours: list[Command]) -> None:
    def answer(message: StoredMessage) -> None:
        raise DeadLetter if message.keys == ["key1"] else RetryLater(delay_level=1)

    async def main() -> None:
        messages = (b"again and again", "TagA"), (b"straight to the dead letters", "TagA")
        async with as_recorded("RetryTopic", 1, *messages) as c:
            basket = Basket(answer)
            consumer = c.push_consumer("CG_retry", start_at="first", max_reconsume_times=2)
            consumer.on("RetryTopic")(basket)
            async with consumer:
                await basket.wait(4)
                await asyncio.sleep(30)
                assert len(c.stored("%DLQ%CG_retry")) == 2

    run(main())
    (later,) = [
        each
        for each in meanings(ours, "CG_retry")
        if '"commitOffset": "2"' in each and "PULL" in each and "%RETRY" in each
    ]
    assert_alike("retry", ours, "CG_retry", with_retries=True, more={later})


def test_a_broadcasting_consumer_sends_the_requests_of_javas(ours: list[Command]) -> None:
    async def main() -> None:
        async with as_recorded("BroadcastTopic", 2, (b"to all", "TagA")) as c:
            basket = Basket()
            consumer = c.push_consumer(
                "CG_broadcast", start_at="first", broadcast=True, local_offsets="/home", host="127.0.0.1"
            )
            consumer.on("BroadcastTopic")(basket)
            async with consumer:
                await asyncio.sleep(1.5)
                await c.send("BroadcastTopic", b"to all, later", queue=1)
                await basket.wait(2)
                assert consumer.client_id == "127.0.0.1@DEFAULT"

    run(main())
    smallest = {asked(RequestCode.GET_MIN_OFFSET, "BroadcastTopic", queue) for queue in range(2)}
    assert_alike("broadcast", ours, "CG_broadcast", more=smallest)


def test_a_consumer_with_sql_sends_the_requests_of_javas(ours: list[Command]) -> None:
    async def main() -> None:
        async with as_recorded("SqlTopic", 1) as c:
            for number in range(5):
                properties = {"a": str(number), "colour": "blue" if number % 2 else "red"}
                await c.send("SqlTopic", b"sql %d" % number, tags="TagA", properties=properties)
            basket = Basket()
            consumer = c.push_consumer("CG_sql", start_at="first")
            consumer.on("SqlTopic", sql="a BETWEEN 1 AND 4 AND colour = 'red' AND TAGS IS NOT NULL")(basket)
            async with consumer:
                await basket.wait(2)
                await asyncio.sleep(0.5)

    run(main())
    broken = {
        each for each in meanings(java("sql"), "CG_sql") if "CG_sql_broken" in each
    }  # ours does not get as far as asking
    assert_alike("sql", ours, "CG_sql", less=broken)


def test_a_consumer_in_a_namespace_sends_the_requests_of_javas(ours: list[Command]) -> None:
    async def main() -> None:
        async with as_recorded("MQ_INST_1%NamespaceTopic", 1, (b"in a namespace", "TagA")) as c:
            basket = Basket()
            consumer = c.push_consumer("CG_ns", start_at="first", namespace="MQ_INST_1")
            consumer.on("NamespaceTopic")(basket)
            async with consumer:
                await basket.wait(1)
                await asyncio.sleep(0.5)

    run(main())
    assert_alike("namespace", ours, "MQ_INST_1%CG_ns")


def test_lite_pull_consumers_send_the_requests_of_javas(ours: list[Command]) -> None:
    async def main() -> None:
        messages = [(b"lite %d" % number, "TagB" if number % 2 else "TagA") for number in range(6)]
        async with as_recorded("LiteTopic", 2, *messages) as c:
            async with c.lite_consumer("CG_lite", start_at="first", auto_commit=False, pull_batch=2) as subscribed:
                await subscribed.subscribe("LiteTopic", tags="TagA")
                count = 0
                while count < 3:
                    count += len(await subscribed.poll(2))
                await asyncio.sleep(1)
                await subscribed.commit()
                await asyncio.sleep(6)
            async with c.lite_consumer("CG_lite_assigned", start_at="first") as assigned:
                queues = await assigned.queues_of("LiteTopic")
                await assigned.assign(queues)
                await asyncio.sleep(1)
                await assigned.seek(queues[1], 1)
                await assigned.offset_at(queues[1], c.clock.now_ms() - 60_000)
                await assigned.poll(2)
                await assigned.poll(2)
                await asyncio.sleep(1)

    def commit(group: str, queue: int, offset: int) -> str:
        return asked(COMMIT, "LiteTopic", queue, consumerGroup=group, commitOffset=str(offset), ReqT="0")

    run(main())
    passed_over = commit("CG_lite", 1, 3)
    polled = {commit("CG_lite_assigned", queue, 3) for queue in (0, 1)}
    not_polled = {commit("CG_lite", 1, 0), commit("CG_lite_assigned", 0, 0), commit("CG_lite_assigned", 1, 1)}
    assert_alike("litePull", ours, "CG_lite", "CG_lite_assigned", more={passed_over, *polled}, less=not_polled)


def test_a_pull_consumer_sends_the_requests_of_javas(ours: list[Command]) -> None:
    async def main() -> None:
        async with as_recorded("PullTopic", 1) as c:
            for number in range(5):
                await c.send("PullTopic", b"pull", tags="TagB" if number % 2 else "TagA", properties={"a": str(number)})
            async with c.pull_consumer("CG_pull", pull_wait_ms=3_000) as consumer:
                (queue,) = await consumer.queues("PullTopic")
                await consumer.pull(queue, 0)
                await consumer.pull(queue, 1, 2)
                await consumer.pull(queue, 0, tags="TagB")
                await consumer.pull(queue, 0, 1, tags="TagB || TagZ")
                await consumer.pull(queue, 0, tags="NoSuchTag")
                await consumer.pull(queue, 5)
                await consumer.pull(queue, 99)
                await consumer.pull(queue, 0, sql="a > 2")
                with pytest.raises(InvalidExpression):  # Java asks, and gets everything
                    await consumer.pull(queue, 0, sql="a >>> 2")
                for other in (MessageQueue("PullTopic", "broker-a", 9), MessageQueue("NoPullTopic", "broker-a", 0)):
                    with pytest.raises(RemoteError):
                        await consumer.pull(other, 0)
                held = asyncio.create_task(consumer.pull_block_if_not_found(queue, 5))
                await asyncio.sleep(1)
                await c.send("PullTopic", b"for the held pull")
                await held
                await consumer.pull_block_if_not_found(queue, 6)

    run(main())
    (unknown,) = [each for each in meanings(java("pull"), "CG_pull") if "NoPullTopic" in each]
    (members,) = [each for each in meanings(java("pull"), "CG_pull") if "GET_CONSUMER_LIST" in each]
    (wrong,) = [each for each in meanings(java("pull"), "CG_pull") if "a >>> 2" in each]
    assert_alike("pull", ours, "CG_pull", less={unknown, members, wrong})


def test_offsets_are_queried_as_by_javas(ours: list[Command]) -> None:
    async def main() -> None:
        async with as_recorded("OffsetsTopic", 2) as c:
            await c.send("OffsetsTopic", b"offsets 0", b"offsets 1", queue=0)
            async with c.pull_consumer("CG_offsets") as consumer:
                queue, empty = await consumer.queues("OffsetsTopic")
                for each in (queue, empty):
                    await consumer.max_offset(each)
                    await consumer.min_offset(each)
                    await consumer.offset_at(each, c.clock.now_ms())
                    await consumer.earliest_time_ms(each)
                    await consumer.committed(each)
                await consumer.offset_at(queue, 0)
                await consumer.commit({queue: 1})

    run(main())
    assert_alike("offsets", ours, "CG_offsets")


def test_consumption_is_traced_as_by_javas(ours: list[Command]) -> None:
    async def main() -> list[StoredMessage]:
        async with as_recorded("TraceTopic", 1, (b"traced", "TagA")) as c:
            basket = Basket()
            consumer = c.push_consumer("CG_trace", start_at="first", trace=True)
            consumer.on("TraceTopic")(basket)
            async with consumer:
                await basket.wait(1)
                await c.send("TraceTopic", b"traced too", keys="trace2")
                await basket.wait(2)
                await asyncio.sleep(6.5)
            return c.stored("RMQ_SYS_TRACE_TOPIC")

    traced = [record for message in run(main()) for record in decode_trace(message.body)]
    theirs = [
        record
        for command in java("trace")
        if command.code == RequestCode.SEND_MESSAGE_V2 and "CONSUME" in (command.ext or {})["a"]
        for record in decode_trace(command.body)
    ]
    assert [type(record) for record in traced] == [type(record) for record in theirs]
    assert traced[0].request_id == traced[1].request_id != traced[2].request_id  # type: ignore[union-attr]
    for mine, their in zip(traced, theirs, strict=True):
        if isinstance(mine, SubBefore) and isinstance(their, SubBefore):
            assert (mine.group, mine.region, mine.retry_times) == (their.group, their.region, their.retry_times)
        elif isinstance(mine, SubAfter) and isinstance(their, SubAfter):
            assert (mine.group, mine.success, mine.outcome) == (their.group, their.success, their.outcome)
    assert_alike("trace", ours, "CG_trace")
