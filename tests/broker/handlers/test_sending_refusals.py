"""Refused sends, and topics that are created by sends."""

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.broker.running import (
    RunningBroker,
    in_virtual_time,
    long_names,
    request,
    running,
    sending,
)

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.protocol.api.messages import SendMessageV2
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.command import Command

pytestmark = pytest.mark.usefixtures("twin")
IN_EVERY_ANSWER = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def batch(*bodies: bytes, properties: str = "UNIQ_KEY\x01I\x02") -> bytes:
    return encode_batch((0, body, properties.encode()) for body in bodies)


def fields_of(answer: Command) -> dict[str, str]:
    return answer.ext or {}


V1, V2 = RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2


# refusals


Prepare = Callable[[RunningBroker], None]


def nothing(_: RunningBroker) -> None:
    """The broker is as it is."""


def make_ordered_and_take_nothing(broker: RunningBroker) -> None:
    broker.make_topic("T", order=True)
    broker.change(permission=4)


def refusing(
    code: ResponseCode, words: str, header: SendMessageV2, body: bytes = b"body", prepare: Prepare = nothing
) -> tuple[ResponseCode, str, SendMessageV2, bytes, Prepare]:
    return code, words, header, body, prepare


LONG = "x" * 32_700
REFUSALS = {
    "no body": refusing(ResponseCode.SYSTEM_ERROR, "no body", sending(), b""),
    "an invalid name": refusing(ResponseCode.INVALID_PARAMETER, r"contains '\*'", sending("bad*topic")),
    "no name": refusing(ResponseCode.INVALID_PARAMETER, "is empty", sending("")),
    "a name too long": refusing(ResponseCode.INVALID_PARAMETER, "128 characters", sending("x" * 128)),
    "a path": refusing(ResponseCode.INVALID_PARAMETER, r"contains '\.'", sending("../x")),
    "the schedule": refusing(
        ResponseCode.NO_PERMISSION, r"topic\[SCHEDULE_TOPIC_XXXX\] is forbidden", sending("SCHEDULE_TOPIC_XXXX", 99)
    ),
    "half messages": refusing(ResponseCode.NO_PERMISSION, "forbidden", sending("RMQ_SYS_TRANS_HALF_TOPIC")),
    "a queue too far": refusing(
        ResponseCode.INVALID_PARAMETER,
        r"request queueId\[4\] is illegal.*4 queues.*Producer: 10\.1\.0\.1:\d+",
        sending("T", 4),
        prepare=lambda broker: broker.make_topic("T", 4),
    ),
    "no template": refusing(
        ResponseCode.TOPIC_NOT_EXIST, "'None' does not exist either", sending("New", template="None")
    ),
    "a template that passes nothing on": refusing(
        ResponseCode.TOPIC_NOT_EXIST,
        "has no inherit permission",
        sending("New", template="T"),
        prepare=lambda broker: broker.make_topic(),
    ),
    "a new topic without queues": refusing(ResponseCode.INVALID_PARAMETER, "0 queues", sending("New", queues=0)),
    "no queue to write to": refusing(
        ResponseCode.INVALID_PARAMETER,
        "no queue to write to|0 queues",
        sending("T", -1),
        prepare=lambda broker: broker.make_topic("T", 0),
    ),
    "an ordered topic of a broker that takes nothing": refusing(
        ResponseCode.NO_PERMISSION,
        r"the broker\[broker-a\] sending message is forbidden",
        sending("T", 99),
        prepare=make_ordered_and_take_nothing,
    ),
    "a body too large": refusing(ResponseCode.MESSAGE_ILLEGAL, "limit is max_message_bytes", sending(), b"x" * 8_193),
    "properties too long": refusing(
        ResponseCode.MESSAGE_ILLEGAL, "at most 32767", sending(properties={"a": LONG, "KEYS": "k"})
    ),
    "transactions rejected": refusing(
        ResponseCode.NO_PERMISSION,
        "rejectTransactionMessage",
        sending(properties={"TRAN_MSG": "true", "PGROUP": "PG"}),
        prepare=lambda broker: broker.change(transactions_rejected=True),
    ),
    "a level that is no number": refusing(ResponseCode.MESSAGE_ILLEGAL, "DELAY", sending(properties={"DELAY": "x"})),
    "due in five days": refusing(
        ResponseCode.MESSAGE_ILLEGAL, "the limit is", sending(properties={"TIMER_DELAY_SEC": "432000"})
    ),
    "a separator in a value": refusing(
        ResponseCode.MESSAGE_ILLEGAL, "0x01", sending(properties="UNIQ_KEY\x01K\x02DELAY\x010\x02a\x01b\x01c")
    ),
}


@pytest.mark.parametrize("known", [False, True], ids=["at once", "after a good one"])
@pytest.mark.parametrize("case", REFUSALS)
@in_virtual_time
async def test_an_invalid_send_is_refused_as_by_apache_and_nothing_is_stored(case: str, known: bool) -> None:
    code, words, header, body, prepare = REFUSALS[case]
    async with running() as broker:
        client = await broker.connect()
        if known:
            await client.sent(topic="T")
        prepare(broker)
        end = broker.store.end

        answer = await client.ask(V2, header, body)
        old = await client.ask(V1, long_names(header), body)

        assert answer.code == old.code == code
        assert answer.remark is not None
        assert re.search(words, answer.remark)
        assert fields_of(answer) == fields_of(old) == IN_EVERY_ANSWER
        assert broker.store.end == end
        broker.change(permission=6, transactions_rejected=False)
        await client.sent(topic="Other")


@pytest.mark.parametrize("missing", ["a", "b", "c", "d", "e", "f", "g", "h"])
@in_virtual_time
async def test_a_header_without_a_field_is_answered_with_its_name(missing: str) -> None:
    async with running() as broker:
        client = await broker.connect()
        command = request(V2, sending(), b"body")
        assert command.ext is not None
        del command.ext[missing]

        answers = [await client.peer.call(replace(command)), await client.peer.call(replace(command, encoding=1))]

        assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR] * 2
        assert all(f"`{missing}`" in (answer.remark or "") for answer in answers)
        await client.sent()


@pytest.mark.parametrize(
    ("field", "value"), [("e", "x"), ("e", str(2**31)), ("g", str(2**63)), ("h", "1.5"), ("k", "?")]
)
@in_virtual_time
async def test_a_header_with_a_value_of_the_wrong_type_is_answered(field: str, value: str) -> None:
    async with running() as broker:
        client = await broker.connect()

        command = request(V2, sending(), b"body")
        answer = await client.peer.call(replace(command, ext=(command.ext or {}) | {field: value}))

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert field in (answer.remark or "")
        await client.sent()


@in_virtual_time
async def test_a_broker_without_write_permission_refuses_ordered_topics_only() -> None:
    async with running(permission=4) as broker:
        client = await broker.connect()

        await client.sent()

        assert broker.bodies() == [b"body"]


# topics that are made by sending to them


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (8, 8), (9, 8), (1, 1)])
@in_virtual_time
async def test_a_new_topic_gets_the_settings_of_its_template(asked: int, made: int) -> None:
    async with running() as broker:
        client = await broker.connect()

        await client.sent(topic="New", queues=asked)

        topic = broker.parts.state.topics.get("New")
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.order) == (made, made, 6, False)


@in_virtual_time
async def test_a_batch_creates_its_topic() -> None:
    async with running() as broker:
        client = await broker.connect()

        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, sending("New"), batch(b"1", b"2"))

        assert answer.code == ResponseCode.SUCCESS
        assert broker.bodies("New") == [b"1", b"2"]


@in_virtual_time
async def test_no_topic_is_created_if_creation_is_off_or_the_limit_is_reached() -> None:
    for settings in ({"auto_create_topic": False}, {"max_topics": 1}):
        async with running(**settings) as broker:
            client = await broker.connect()

            answer = await client.send(topic="New")

            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            assert "New" not in broker.parts.state.topics


@in_virtual_time
async def test_a_retry_topic_needs_no_template_and_creates_its_group() -> None:
    async with running() as broker:
        client = await broker.connect()

        answer = await client.sent(topic="%RETRY%NoSuchGroup", template="NoTemplate")

        assert fields_of(answer)["queueId"] == "0"
        assert "NoSuchGroup" in broker.parts.state.groups
        assert broker.bodies("%RETRY%NoSuchGroup") == [b"body"]


@in_virtual_time
async def test_a_retry_of_a_group_that_may_not_be_created_is_refused() -> None:
    async with running(auto_create_group=False) as broker:
        client = await broker.connect()

        answer = await client.send(topic="%RETRY%NoSuchGroup")

        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert fields_of(answer) == IN_EVERY_ANSWER
