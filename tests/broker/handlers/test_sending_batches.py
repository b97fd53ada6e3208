"""Batches that are sent, and messages that go another way than they were sent."""

import asyncio

import pytest
from tests.broker.running import RunningBroker, in_virtual_time, running, sending

from pocketmq.codes import RequestCode, ResponseCode, SysFlag
from pocketmq.model.message_id import RecallHandle, UniqueId
from pocketmq.protocol.api.messages import SendMessageV2
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.command import Command

pytestmark = pytest.mark.usefixtures("twin")
ADDED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
"""Properties that every stored message has."""
IN_EVERY_ANSWER = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def batch(*bodies: bytes, properties: str = "UNIQ_KEY\x01I\x02") -> bytes:
    return encode_batch((0, body, properties.encode()) for body in bodies)


def fields_of(answer: Command) -> dict[str, str]:
    return answer.ext or {}


V1, V2 = RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2


def nothing(_: RunningBroker) -> None:
    """The broker is as it is."""


LONG = "x" * 32_700


# batches


@pytest.mark.parametrize("binary", [False, True])
@in_virtual_time
async def test_messages_of_a_batch_have_consecutive_offsets_and_separate_ids(binary: bool) -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent(b"before")
        items = [(number, b"%d" % number, b"UNIQ_KEY\x01I%d\x02TAGS\x01t%d" % (number, number)) for number in range(3)]

        answer = await client.ask(
            RequestCode.SEND_BATCH_MESSAGE, sending(key="WHOLE", batch=True), encode_batch(items), binary=binary
        )

        messages = broker.stored()[1:]
        assert [message.body for message in messages] == [b"0", b"1", b"2"]
        assert [message.flag for message in messages] == [0, 1, 2]
        assert [message.queue_offset for message in messages] == [1, 2, 3]
        assert messages[2].properties == {"UNIQ_KEY": "I2", "TAGS": "t2"} | ADDED
        assert fields_of(answer) == IN_EVERY_ANSWER | {
            "msgId": ",".join(message.offset_id for message in messages),
            "queueId": "0",
            "queueOffset": "1",
            "transactionId": "WHOLE",
        }


@in_virtual_time
async def test_a_batch_without_a_unique_key_of_its_own_gets_one() -> None:
    async with running() as broker:
        client = await broker.connect()

        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, sending(properties=""), batch(b"1"))

        assert UniqueId.parse(fields_of(answer)["transactionId"])


@in_virtual_time
async def test_a_batch_without_a_queue_is_stored_in_one_queue() -> None:
    async with running() as broker:
        client = await broker.connect()
        broker.make_topic("T", 4)

        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, sending("T", -1), batch(b"1", b"2", b"3"))

        assert broker.bodies("T", int(fields_of(answer)["queueId"])) == [b"1", b"2", b"3"]


GOOD = batch(b"first", b"second")
BROKEN = {
    "cut off": GOOD[:-1],
    "cut off in a head": GOOD[:45],
    "a size that lies": b"\x00\x00\xff\xff" + GOOD[4:],
    "a negative size": b"\xff\xff\xff\xff" + GOOD[4:],
    "a size of zero": bytes(4) + GOOD[4:],
    "a body that lies": GOOD[:16] + b"\x00\x00\xff\xff" + GOOD[20:],
    "a negative body": GOOD[:16] + b"\xff\xff\xff\xff" + GOOD[20:],
    "something behind it": GOOD + b"\x00",
    "no batch": b"just a body",
    "nothing": b"",
    "properties that leave no bytes for ours": batch(b"first") + batch(b"second", properties="a\x01" + LONG),
    "too large": batch(*[b"x" * 1000] * 9),
}


@pytest.mark.parametrize("case", BROKEN)
@in_virtual_time
async def test_an_invalid_batch_stores_nothing_and_does_not_affect_other_sends(case: str) -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent(b"0")
        ask = client.ask

        before, broken, after, whole, last = await asyncio.gather(
            ask(V2, sending(), b"1"),
            ask(RequestCode.SEND_BATCH_MESSAGE, sending(), BROKEN[case]),
            ask(V2, sending(), b"2"),
            ask(RequestCode.SEND_BATCH_MESSAGE, sending(), batch(b"3", b"4")),
            ask(V2, sending(), b"5"),
        )

        assert broken.code == ResponseCode.MESSAGE_ILLEGAL
        assert fields_of(broken) == IN_EVERY_ANSWER
        assert broker.bodies() == [b"0", b"1", b"2", b"3", b"4", b"5"]
        told = [fields_of(answer)["queueOffset"] for answer in (before, after, whole, last)]
        assert told == ["1", "2", "3", "5"]
        assert [message.queue_offset for message in broker.stored()] == list(range(6))


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (sending("%RETRY%G"), "cannot be sent in a batch"),
        (sending(properties={"DELAY": "3"}), "cannot be delayed"),
        (sending("SCHEDULE_TOPIC_XXXX"), "forbidden"),
        (sending("T", 99), "illegal"),
    ],
)
@in_virtual_time
async def test_unsupported_properties_of_a_batch_are_refused(header: SendMessageV2, words: str) -> None:
    async with running() as broker:
        client = await broker.connect()
        broker.make_topic()

        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, header, GOOD)

        assert answer.code in (
            ResponseCode.MESSAGE_ILLEGAL,
            ResponseCode.NO_PERMISSION,
            ResponseCode.INVALID_PARAMETER,
        )
        assert words in (answer.remark or "")
        assert fields_of(answer) == IN_EVERY_ANSWER
        assert broker.store.end == 0


# detours


@in_virtual_time
async def test_a_delayed_message_is_answered_with_its_requested_queue_and_is_not_visible() -> None:
    async with running() as broker:
        client = await broker.connect()

        answer = await client.sent(b"later", queue_id=3, properties={"DELAY": "2"})

        assert (fields_of(answer)["queueId"], fields_of(answer)["queueOffset"]) == ("3", "0")
        assert fields_of(answer)["msgId"] == broker.stored("SCHEDULE_TOPIC_XXXX", 1)[0].offset_id
        assert broker.bodies("T", 3) == []
        await asyncio.sleep(6)
        assert broker.bodies("T", 3) == [b"later"]


@in_virtual_time
async def test_a_timed_message_is_answered_with_the_handle_to_recall_it() -> None:
    async with running() as broker:
        client = await broker.connect()

        answer = await client.sent(properties={"TIMER_DELAY_SEC": "10"}, key="K7")

        handle = RecallHandle.parse(fields_of(answer)["recallHandle"])
        assert (handle.topic, handle.broker_name, handle.unique_id) == ("T", "broker-a", "K7")


@in_virtual_time
async def test_a_half_message_is_answered_with_its_stored_position() -> None:
    async with running() as broker:
        client = await broker.connect()

        answer = await client.sent(
            b"half",
            queue_id=2,
            properties={"TRAN_MSG": "true", "PGROUP": "PG"},
            sys_flag=SysFlag.TRANSACTION_PREPARED,
            key="K7",
        )

        (half,) = broker.stored("RMQ_SYS_TRANS_HALF_TOPIC")
        assert half.sys_flag & SysFlag.TRANSACTION_MASK == 0
        assert fields_of(answer)["msgId"] == half.offset_id
        assert (fields_of(answer)["queueId"], fields_of(answer)["queueOffset"]) == ("2", "0")
        assert fields_of(answer)["transactionId"] == "K7"
        assert broker.bodies("T", 2) == []


@in_virtual_time
async def test_a_retry_without_attempts_becomes_a_dead_letter() -> None:
    async with running() as broker:
        client = await broker.connect()
        header = sending("%RETRY%G", reconsume_times=3, max_reconsume_times=2)

        answer = await client.ask(V2, header, b"dead")

        assert answer.code == ResponseCode.SUCCESS
        assert broker.bodies("%DLQ%G") == [b"dead"]
        assert broker.bodies("%RETRY%G") == []
        assert broker.stored("%DLQ%G")[0].reconsume_times == 3
