"""Sends over the wire: what is stored, what is answered, and what is refused, whichever way a message comes."""

import asyncio
import errno
import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.running import (
    STALLING,
    Client,
    RunningBroker,
    in_virtual_time,
    long_names,
    request,
    running,
    sending,
    settled,
)

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import UniqueId
from pocketmq.model.properties import parse_properties
from pocketmq.protocol.api.sending import SendMessageV2
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.command import Command
from pocketmq.protocol.recall_handle import RecallHandle
from pocketmq.store.settings import FlushMode
from pocketmq.testing import FaultyFiles

pytestmark = pytest.mark.usefixtures("twin")

ADDED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
"""Properties that every stored message has."""
IN_EVERY_ANSWER = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def batch(*bodies: bytes, properties: str = "UNIQ_KEY\x01I\x02") -> bytes:
    return encode_batch((0, body, properties.encode()) for body in bodies)


def fields_of(answer: Command) -> dict[str, str]:
    return answer.ext or {}


def kept(message: StoredMessage) -> tuple[object, ...]:
    """All of a record but where and when it was stored."""
    return (
        message.topic,
        message.queue_id,
        message.body,
        message.raw_properties,
        message.flag,
        message.sys_flag,
        message.born_ms,
        message.born_host,
        message.store_host,
        message.reconsume_times,
        message.prepared_offset,
    )


# the same message on every road

HEADER = sending(
    "T",
    1,
    {"TAGS": "a", "KEYS": "k1 k2", "text": "中文 ü 😀"},
    key="7F00000139D24E0E2F2A4A1F7A7C0000",
    flag=7,
    sys_flag=SysFlag.COMPRESSED | 0x300,
    reconsume_times=0,
)
BODY = b"a body\x00\x01\x02"
V1, V2 = RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2

ROADS = {
    "code 10": request(V1, long_names(HEADER), BODY),
    "code 310": request(V2, HEADER, BODY),
    "code 10, binary": request(V1, long_names(HEADER), BODY, binary=True),
    "code 310, binary": request(V2, HEADER, BODY, binary=True),
    "code 310, fields that we do not know": request(V2, HEADER, BODY, ns="x", nsd="true", lo="1"),
}


@pytest.mark.parametrize("first", [True, False], ids=["new topic", "known topic"])
@pytest.mark.parametrize("road", ROADS)
@in_virtual_time
async def test_every_road_stores_the_same_record_and_is_answered_the_same(road: str, first: bool) -> None:
    async with running() as broker:
        client = await broker.connect()
        if not first:
            await client.sent(topic="T", queue_id=1)

        answer = await client.peer.call(replace(ROADS[road]))

        message = broker.stored("T", 1)[-1]
        assert (message.topic, message.queue_id, message.body) == ("T", 1, BODY)
        assert message.properties == parse_properties(HEADER.properties or "") | ADDED
        assert (message.flag, message.sys_flag) == (7, SysFlag.COMPRESSED | 0x300)
        assert message.born_ms == HEADER.born_timestamp
        assert str(message.born_host).startswith("10.1.0.1:")
        assert str(message.store_host) == "127.0.0.1:10911"
        assert answer.code == ResponseCode.SUCCESS
        assert fields_of(answer) == IN_EVERY_ANSWER | {
            "msgId": message.offset_id,
            "queueId": "1",
            "queueOffset": "0" if first else "1",
            "transactionId": "7F00000139D24E0E2F2A4A1F7A7C0000",
        }


@in_virtual_time
async def test_the_roads_agree_to_the_byte_batches_and_one_way_sends_included() -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent(topic="T", queue_id=1)
        single = replace(HEADER, sys_flag=0)
        whole = encode_batch([(7, BODY, (HEADER.properties or "").encode())])

        for road in ROADS.values():
            await client.peer.call(replace(road, ext=(road.ext or {}) | {"f": "0", "sysFlag": "0"}))
        client.peer.oneway(request(V2, single, BODY))
        client.peer.oneway(request(V1, long_names(single), BODY))
        await client.ask(RequestCode.SEND_BATCH_MESSAGE, replace(single, batch=True), whole)
        await client.ask(RequestCode.SEND_BATCH_MESSAGE, replace(single, batch=True), whole, binary=True)

        records = broker.stored("T", 1)[1:]
        assert len(records) == len(ROADS) + 4
        assert len({kept(record) for record in records}) == 1
        assert [record.queue_offset for record in records] == list(range(1, len(records) + 1))


@pytest.mark.parametrize("code", [V1, V2, RequestCode.SEND_BATCH_MESSAGE])
@pytest.mark.parametrize("works", [True, False])
@in_virtual_time
async def test_a_one_way_send_is_never_answered(code: RequestCode, works: bool) -> None:
    async with running() as broker:
        client = await broker.connect()
        header = sending() if works else sending("bad*topic")
        body = batch(b"body") if code is RequestCode.SEND_BATCH_MESSAGE else b"body"

        client.tell(code, long_names(header) if code is V1 else header, body)
        await client.sent(topic="Other")

        assert broker.bodies() == ([b"body"] if works else [])
        assert client.peer.unmatched == 0


@in_virtual_time
async def test_numbers_and_switches_may_be_json_numbers_and_switches() -> None:
    async with running() as broker:
        client = await broker.connect()
        header = b'{"code":310,"flag":0,"opaque":5,"extFields":{"a":"P","b":"T","c":"TBW102","d":1,"e":0,"f":0,"g":17,"h":0,"i":"","m":false}}'
        client.peer.line.write(
            (4 + len(header) + 2).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + b"hi"
        )
        await settled()

        assert broker.bodies() == [b"hi"]


# what the broker adds, and what it takes away


@pytest.mark.parametrize("properties", [None, "", "KEYS\x01k\x02", "UNIQ_KEY\x01\x02", "MY_UNIQ_KEY\x01mine\x02"])
@pytest.mark.parametrize("code", [V1, V2])
@in_virtual_time
async def test_a_message_without_a_unique_key_gets_one(code: RequestCode, properties: str | None) -> None:
    async with running() as broker:
        client = await broker.connect()
        header = replace(sending(), properties=properties)
        await client.sent(topic="T")  # so that the queue is known

        answers = [await client.ask(code, long_names(header) if code is V1 else header, b"x") for _ in range(2)]

        given = [message.properties["UNIQ_KEY"] for message in broker.stored()[1:]]
        assert given == [fields_of(answer)["transactionId"] for answer in answers]
        assert len(set(given)) == 2
        assert all(UniqueId.parse(key) for key in given)
        wanted = parse_properties(properties or "")
        assert all(wanted.items() <= message.properties.items() for message in broker.stored()[1:])


@pytest.mark.parametrize("end", ["\x02", ""])
@pytest.mark.parametrize("first", [True, False], ids=["new topic", "known topic"])
@in_virtual_time
async def test_the_last_separator_of_the_properties_may_be_missing(first: bool, end: str) -> None:
    async with running() as broker:
        client = await broker.connect()
        if not first:
            await client.sent()

        await client.sent(properties="TAGS\x01a\x02UNIQ_KEY\x01K7" + end)

        assert broker.stored()[-1].raw_properties == (
            b"TAGS\x01a\x02UNIQ_KEY\x01K7\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
        )


@pytest.mark.parametrize("first", [True, False], ids=["new topic", "known topic"])
@pytest.mark.parametrize(
    "user",
    [
        {"MODEL": "T"},
        {"car": "MODEL"},
        {"DELETED": "1"},
        {"MY_DELAY": "3"},
        {"DELAYED": "3"},
        {"what": "DELAY"},
        {"NO_TIMER_DELAY_SEC": "9"},
        {"TRAN_MSGS": "true"},
        {"kind": "TRAN_MSG"},
        {"POP_CKS": "1"},
        {"why": "POP_CK"},
        {"__custom": "x"},
        {"UNIQ_KEYS": "other"},
    ],
    ids=str,
)
@in_virtual_time
async def test_properties_of_users_mean_nothing_to_the_broker(user: dict[str, str], first: bool) -> None:
    async with running() as broker:
        client = await broker.connect()
        if not first:
            await client.sent()

        answer = await client.sent(b"mine", properties=user, key="K9")

        message = broker.stored()[-1]
        assert message.body == b"mine"
        assert message.properties == {"UNIQ_KEY": "K9"} | user | ADDED
        assert fields_of(answer)["transactionId"] == "K9"


@in_virtual_time
async def test_a_receipt_of_a_popped_message_is_taken_away() -> None:
    async with running() as broker:
        client = await broker.connect()

        for _ in range(2):
            await client.sent(properties={"POP_CK": "0 1 2 3", "left": "yes"})

        assert [message.properties for message in broker.stored()] == [{"UNIQ_KEY": "K", "left": "yes"} | ADDED] * 2


@pytest.mark.parametrize("first", [True, False], ids=["new topic", "known topic"])
@in_virtual_time
async def test_what_an_earlier_broker_added_is_replaced(first: bool) -> None:
    async with running(region="Here", trace_on=False, cluster="C1") as broker:
        client = await broker.connect()
        if not first:
            await client.sent()

        answer = await client.sent(properties={"MSG_REGION": "There", "TRACE_ON": "true", "CLUSTER": "C2"})

        told = {name: broker.stored()[-1].properties[name] for name in ADDED}
        assert told == {"MSG_REGION": "Here", "TRACE_ON": "false", "CLUSTER": "C1"}
        assert (fields_of(answer)["MSG_REGION"], fields_of(answer)["TRACE_ON"]) == ("Here", "false")


@in_virtual_time
async def test_a_setting_that_changes_counts_from_the_next_send_on() -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent()

        broker.change(region="Elsewhere", trace_on=False)
        answer = await client.sent()
        refusal = await client.send(topic="bad*topic")

        assert broker.stored()[-1].properties["MSG_REGION"] == "Elsewhere"
        told = {"MSG_REGION": "Elsewhere", "TRACE_ON": "false"}
        assert told.items() <= fields_of(answer).items()
        assert told == fields_of(refusal)


@in_virtual_time
async def test_a_unique_key_with_anything_in_it_comes_back_as_it_was() -> None:
    async with running() as broker:
        client = await broker.connect()
        key = '"quoted" \\ 中文 % {} \t'

        answers = [await client.sent(key=key) for _ in range(2)]

        assert [fields_of(answer)["transactionId"] for answer in answers] == [key, key]
        assert [message.message_id for message in broker.stored()] == [key, key]


# queues


@in_virtual_time
async def test_a_send_that_names_no_queue_gets_any() -> None:
    async with running() as broker:
        client = await broker.connect()
        broker.make_topic("T", 4)

        answers = [await client.sent(b"%d" % number, queue_id=-1) for number in range(60)]

        queues = [int(fields_of(answer)["queueId"]) for answer in answers]
        assert set(queues) == {0, 1, 2, 3}
        for queue_id in range(4):
            expected = [b"%d" % number for number in range(60) if queues[number] == queue_id]
            assert broker.bodies("T", queue_id) == expected


@in_virtual_time
async def test_queues_count_their_messages_apart() -> None:
    async with running() as broker:
        client = await broker.connect()

        answers = await asyncio.gather(*(client.sent(queue_id=number % 3) for number in range(9)))

        told = [(fields_of(answer)["queueId"], fields_of(answer)["queueOffset"]) for answer in answers]
        assert told == [(str(number % 3), str(number // 3)) for number in range(9)]
        ids = [fields_of(answer)["msgId"] for answer in answers]
        assert ids == sorted(ids)
        assert len(set(ids)) == 9


@in_virtual_time
async def test_a_topic_that_was_deleted_and_made_again_begins_at_offset_zero() -> None:
    async with running() as broker:
        client = await broker.connect()
        broker.make_topic("T")
        await client.sent(b"old")

        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")).code == ResponseCode.SUCCESS
        broker.make_topic("T")
        answer = await client.sent(b"new")

        assert fields_of(answer)["queueOffset"] == "0"
        assert broker.bodies() == [b"new"]


# addresses


@pytest.mark.parametrize(
    ("host", "stored"),
    [("fd00::17", "[fd00::17]"), ("fe80::1%eth0", "[fe80::1]"), ("::ffff:10.9.8.7", "10.9.8.7"), ("", "0.0.0.0")],
)
@in_virtual_time
async def test_a_message_knows_the_address_that_it_was_born_at(host: str, stored: str) -> None:
    async with running() as broker:
        client = await broker.connect(host)

        for _ in range(2):
            await client.sent(properties={"TAGS": "a"})
        await client.ask(RequestCode.SEND_BATCH_MESSAGE, sending(), batch(b"x"))

        assert {str(message.born_host).rpartition(":")[0] for message in broker.stored()} == {stored}
        assert [message.tags for message in broker.stored()] == ["a", "a", None]


@in_virtual_time
async def test_a_broker_at_an_ipv6_address_gives_long_message_ids() -> None:
    async with running(host="::1") as broker:
        near, far = await broker.connect("fd00::1"), await broker.connect("10.1.0.1")

        answers = [await near.sent(b"near"), await far.sent(b"far")]

        assert [message.offset_id for message in broker.stored()] == [fields_of(one)["msgId"] for one in answers]
        assert [len(fields_of(one)["msgId"]) for one in answers] == [56, 56]
        assert broker.bodies() == [b"near", b"far"]


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
    "a name that is none": refusing(ResponseCode.INVALID_PARAMETER, r"holds '\*'", sending("bad*topic")),
    "no name": refusing(ResponseCode.INVALID_PARAMETER, "is empty", sending("")),
    "a name too long": refusing(ResponseCode.INVALID_PARAMETER, "128 characters", sending("x" * 128)),
    "a path": refusing(ResponseCode.INVALID_PARAMETER, r"holds '\.'", sending("../x")),
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
    "no template": refusing(ResponseCode.TOPIC_NOT_EXIST, "'None' is not there", sending("New", template="None")),
    "a template that passes nothing on": refusing(
        ResponseCode.TOPIC_NOT_EXIST,
        "does not pass",
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
        ResponseCode.MESSAGE_ILLEGAL, "at most", sending(properties={"TIMER_DELAY_SEC": "432000"})
    ),
    "a separator in a value": refusing(
        ResponseCode.MESSAGE_ILLEGAL, "0x01", sending(properties="UNIQ_KEY\x01K\x02DELAY\x010\x02a\x01b\x01c")
    ),
}


@pytest.mark.parametrize("known", [False, True], ids=["at once", "after a good one"])
@pytest.mark.parametrize("case", REFUSALS)
@in_virtual_time
async def test_what_cannot_be_sent_is_refused_as_apache_does_and_nothing_is_stored(case: str, known: bool) -> None:
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
async def test_a_header_with_a_value_of_the_wrong_kind_is_answered(field: str, value: str) -> None:
    async with running() as broker:
        client = await broker.connect()

        command = request(V2, sending(), b"body")
        answer = await client.peer.call(replace(command, ext=(command.ext or {}) | {field: value}))

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert field in (answer.remark or "")
        await client.sent()


@in_virtual_time
async def test_a_broker_that_takes_nothing_still_takes_what_is_not_ordered() -> None:
    async with running(permission=4) as broker:
        client = await broker.connect()

        await client.sent()

        assert broker.bodies() == [b"body"]


# topics that are made by sending to them


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (8, 8), (9, 8), (1, 1)])
@in_virtual_time
async def test_a_new_topic_is_made_like_its_template(asked: int, made: int) -> None:
    async with running() as broker:
        client = await broker.connect()

        await client.sent(topic="New", queues=asked)

        topic = broker.parts.topics.get("New")
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.order) == (made, made, 6, False)


@in_virtual_time
async def test_a_batch_makes_its_topic_too() -> None:
    async with running() as broker:
        client = await broker.connect()

        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, sending("New"), batch(b"1", b"2"))

        assert answer.code == ResponseCode.SUCCESS
        assert broker.bodies("New") == [b"1", b"2"]


@in_virtual_time
async def test_no_topic_is_made_when_that_is_switched_off_or_there_are_enough() -> None:
    for settings in ({"auto_create_topic": False}, {"max_topics": 1}):
        async with running(**settings) as broker:
            client = await broker.connect()

            answer = await client.send(topic="New")

            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            assert "New" not in broker.parts.topics


@in_virtual_time
async def test_a_retry_topic_needs_no_template_and_makes_its_group() -> None:
    async with running() as broker:
        client = await broker.connect()

        answer = await client.sent(topic="%RETRY%NoSuchGroup", template="NoTemplate")

        assert fields_of(answer)["queueId"] == "0"
        assert "NoSuchGroup" in broker.parts.groups
        assert broker.bodies("%RETRY%NoSuchGroup") == [b"body"]


@in_virtual_time
async def test_a_retry_of_a_group_that_may_not_be_made_is_refused() -> None:
    async with running(auto_create_group=False) as broker:
        client = await broker.connect()

        answer = await client.send(topic="%RETRY%NoSuchGroup")

        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert fields_of(answer) == IN_EVERY_ANSWER


# batches


@pytest.mark.parametrize("binary", [False, True])
@in_virtual_time
async def test_the_messages_of_a_batch_have_neighbouring_offsets_and_an_id_each(binary: bool) -> None:
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
async def test_a_batch_that_names_no_queue_lies_in_one_queue() -> None:
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
    "properties with no room for ours": batch(b"first") + batch(b"second", properties="a\x01" + LONG),
    "too large": batch(*[b"x" * 1000] * 9),
}


@pytest.mark.parametrize("case", BROKEN)
@in_virtual_time
async def test_of_a_broken_batch_nothing_is_stored_and_of_its_neighbours_everything(case: str) -> None:
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
        (sending("%RETRY%G"), "one by one"),
        (sending(properties={"DELAY": "3"}), "cannot be delayed"),
        (sending("SCHEDULE_TOPIC_XXXX"), "forbidden"),
        (sending("T", 99), "illegal"),
    ],
)
@in_virtual_time
async def test_what_a_batch_cannot_do_is_refused(header: SendMessageV2, words: str) -> None:
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
async def test_a_delayed_message_is_answered_with_the_queue_that_it_asked_for_and_is_not_to_be_seen() -> None:
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
async def test_a_half_message_is_answered_with_where_it_waits() -> None:
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
async def test_a_retry_that_was_tried_often_enough_becomes_a_dead_letter() -> None:
    async with running() as broker:
        client = await broker.connect()
        header = sending("%RETRY%G", reconsume_times=3, max_reconsume_times=2)

        answer = await client.ask(V2, header, b"dead")

        assert answer.code == ResponseCode.SUCCESS
        assert broker.bodies("%DLQ%G") == [b"dead"]
        assert broker.bodies("%RETRY%G") == []
        assert broker.stored("%DLQ%G")[0].reconsume_times == 3


# a disk that does not take it


@in_virtual_time
async def test_a_write_that_fails_is_told_to_all_sends_of_its_turn_and_later_ones_work() -> None:
    async with running() as broker:
        client, other = await broker.connect(), await broker.connect()
        await client.sent(b"0")
        fault = broker.disk.fail("write", errno.EIO, "*commitlog*")

        lost = await asyncio.gather(
            client.send(b"lost"),
            client.send(b"lost", binary=True),
            client.send(b"lost", queue_id=1),
            client.ask(RequestCode.SEND_BATCH_MESSAGE, sending(), GOOD),
        )
        await asyncio.sleep(0.1)
        answers = await asyncio.gather(client.sent(b"1"), other.sent(b"2"))

        assert fault.hits == 1
        assert [answer.code for answer in lost] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 4
        assert all(fields_of(answer) == IN_EVERY_ANSWER for answer in lost)
        assert broker.bodies() == [b"0", b"1", b"2"]
        assert broker.bodies("T", 1) == []
        assert [fields_of(answer)["queueOffset"] for answer in answers] == ["1", "2"]
        assert broker.parts.stats.failed_puts >= 3


@in_virtual_time
async def test_one_way_sends_of_a_turn_that_fails_are_not_answered() -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent(b"0")
        broker.disk.fail("write", errno.EIO, "*commitlog*")

        client.tell(V2, sending(), b"lost")
        await asyncio.sleep(0.1)
        await client.sent(b"1")

        assert broker.bodies() == [b"0", b"1"]
        assert client.peer.unmatched == 0


@in_virtual_time
async def test_a_full_disk_refuses_until_there_is_room_again() -> None:
    disk = FaultyFiles()
    async with running(disk=disk) as broker:
        client = await broker.connect()
        await client.sent(b"0")
        fault = disk.fail("write", errno.ENOSPC, "*commitlog*", times=None)

        refused = await client.send(b"lost")
        fault.heal()
        await asyncio.sleep(1)
        await client.sent(b"1")

        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.bodies() == [b"0", b"1"]


@in_virtual_time
async def test_after_a_sync_that_failed_nothing_more_is_promised() -> None:
    async with running(store={"flush": FlushMode.SYNC}) as broker:
        client = await broker.connect()
        broker.disk.fail("sync", errno.EIO, "*commitlog*", times=None)

        doubtful = await client.send(b"0")
        refused = await client.send(b"1")

        assert doubtful.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "restart" in (refused.remark or "")
        with pytest.raises(Exception, match="sync"):
            broker.store.close()


# safe before it is answered


def synced(**settings: Any) -> dict[str, Any]:
    return {"flush": FlushMode.SYNC, **settings}


async def answered_after(client: Client, **fields: Any) -> tuple[float, int]:
    """How long a send took, in seconds, and its code."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await client.send(**fields)
    return round(loop.time() - began, 2), answer.code


@in_virtual_time
async def test_a_send_is_answered_when_it_is_safe_unless_it_does_not_want_to_wait() -> None:
    async with running(store=synced()) as broker:
        client = await broker.connect()
        await client.sent()
        stall = broker.stall_syncs()

        sends = asyncio.gather(
            answered_after(client),
            answered_after(client, properties={"WAIT": "true"}),
            answered_after(client, properties={"WAIT": "false"}),
            answered_after(client, properties={"AWAIT": "false"}),
            answered_after(client, properties={"note": "WAIT"}),
            answered_after(client, topic="New", properties={"AWAIT": "false"}),
            answered_after(client, topic="Newer", properties={"WAIT": "false"}),
        )
        await asyncio.sleep(1)
        assert len(broker.stored()) == 6
        stall.release()

        assert await sends == [(1, 0), (1, 0), (0, 0), (1, 0), (1, 0), (1, 0), (0, 0)]


@in_virtual_time
async def test_a_batch_waits_for_the_disk_as_its_header_says() -> None:
    async with running(store=synced()) as broker:
        client = await broker.connect()
        await client.sent()
        stall = broker.stall_syncs()

        waits = asyncio.ensure_future(client.ask(RequestCode.SEND_BATCH_MESSAGE, sending(), GOOD))
        header = sending(properties={"WAIT": "false"})
        quick = await client.ask(RequestCode.SEND_BATCH_MESSAGE, header, GOOD)

        assert quick.code == ResponseCode.SUCCESS
        assert not waits.done()
        stall.release()
        assert (await waits).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_a_send_that_is_not_safe_in_time_is_told_so_with_everything_else() -> None:
    async with running(store=synced(sync_timeout_ms=5_000)) as broker:
        client = await broker.connect()
        await client.sent()
        stall = broker.stall_syncs()
        began = asyncio.get_running_loop().time()

        answer = await client.send(b"late", key="K7")
        took = asyncio.get_running_loop().time() - began
        stall.release()

        assert took == pytest.approx(5, abs=0.05)
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert fields_of(answer) == IN_EVERY_ANSWER | {
            "msgId": broker.stored()[1].offset_id,
            "queueId": "0",
            "queueOffset": "1",
            "transactionId": "K7",
        }
        assert (await client.sent(b"next")).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_one_sync_is_enough_for_all_turns_that_came_while_the_last_one_lasted() -> None:
    async with running(store=synced()) as broker:
        clients = [await broker.connect() for _ in range(5)]
        await clients[0].sent()
        stall = broker.stall_syncs()

        first = asyncio.ensure_future(clients[0].sent())
        await asyncio.sleep(0.1)
        rest = asyncio.gather(*(client.sent() for client in clients for _ in range(20)))
        await asyncio.sleep(0.1)
        stall.release()
        others = broker.stall_syncs()
        await first
        others.wait_until_reached(1)
        others.release()
        await rest

        assert others.hits == 1
        assert len(broker.stored()) == 102


@in_virtual_time
async def test_a_message_that_was_answered_as_safe_survives_a_power_loss() -> None:
    async with running(store=synced()) as broker:
        client = await broker.connect()
        for number in range(5):
            await client.sent(b"%d" % number)

        lost = broker.disk.crash(Random(1), survives="nothing")

    async with running(disk=lost) as again:
        assert again.bodies() == [b"0", b"1", b"2", b"3", b"4"]


# lines that are gone


@in_virtual_time
async def test_nothing_is_kept_of_a_line_that_is_gone_though_its_send_still_waited() -> None:
    async with running(store=STALLING) as broker:
        client, other = await broker.connect(), await broker.connect("10.2.0.2")
        await client.sent()
        with broker.stall_syncs():
            client.tell(V2, sending(), b"x" * 1_000)
            await asyncio.sleep(0.1)
            other.tell(V2, sending(), b"from one that is gone")
            await settled()
            other.peer.line.abort()
            await settled()
            assert len(broker.stored()) == 2
        await asyncio.sleep(0.1)

        assert broker.bodies()[2:] == [b"from one that is gone"]
        assert str(broker.stored()[-1].born_host).startswith("10.2.0.2:")
        assert list(map(str, broker.parts.sending._hosts)) == [f"<Peer {client.peer.line.own_address}>"]
