"""Sends over the wire: what is stored and answered, by every kind of send."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.broker.running import in_virtual_time, long_names, request, running, sending, settled

from pocketmq.codes import RequestCode, ResponseCode, SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import UniqueId
from pocketmq.model.properties import parse_properties
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
async def test_all_code_paths_store_and_answer_the_same(road: str, first: bool) -> None:
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
async def test_all_code_paths_write_the_same_bytes_also_for_batches_and_one_way_sends() -> None:
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
@pytest.mark.parametrize("is_new", [True, False], ids=["new topic", "known topic"])
@pytest.mark.parametrize("flags", [4, 8, 12, 0x30, 0x40, 0x80, 0xC0, -1, 0x7FFFF800])
@in_virtual_time
async def test_only_the_flags_of_clients_are_kept(code: RequestCode, is_new: bool, flags: int) -> None:
    async with running() as broker:
        client = await broker.connect()
        if not is_new:
            await client.sent(topic="T", queue_id=1)
        header = replace(HEADER, sys_flag=flags)
        is_batch = code == RequestCode.SEND_BATCH_MESSAGE
        body = batch(BODY, BODY) if is_batch else BODY

        answer = await client.ask(code, long_names(header) if code == V1 else header, body)
        await client.sent(b"next", topic="T", queue_id=1)

        assert answer.code == ResponseCode.SUCCESS, answer.remark
        found = broker.stored("T", 1)[not is_new :]
        assert [one.body for one in found] == [BODY] * (1 + is_batch) + [b"next"]
        assert [one.queue_offset for one in found] == [*range(not is_new, len(found) + (not is_new))]
        assert {one.sys_flag for one in found[:-1]} == {flags & 0x703}


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
async def test_numbers_and_booleans_may_be_json_values() -> None:
    async with running() as broker:
        client = await broker.connect()
        header = b'{"code":310,"flag":0,"opaque":5,"extFields":{"a":"P","b":"T","c":"TBW102","d":1,"e":0,"f":0,"g":17,"h":0,"i":"","m":false}}'
        client.peer.connection.write(
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
async def test_the_broker_ignores_properties_of_users(user: dict[str, str], first: bool) -> None:
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
async def test_the_receipt_of_a_popped_message_is_removed() -> None:
    async with running() as broker:
        client = await broker.connect()

        for _ in range(2):
            await client.sent(properties={"POP_CK": "0 1 2 3", "left": "yes"})

        assert [message.properties for message in broker.stored()] == [{"UNIQ_KEY": "K", "left": "yes"} | ADDED] * 2


@pytest.mark.parametrize("first", [True, False], ids=["new topic", "known topic"])
@in_virtual_time
async def test_properties_of_an_earlier_broker_are_replaced(first: bool) -> None:
    async with running(region="Here", trace_on=False, cluster="C1") as broker:
        client = await broker.connect()
        if not first:
            await client.sent()

        answer = await client.sent(properties={"MSG_REGION": "There", "TRACE_ON": "true", "CLUSTER": "C2"})

        told = {name: broker.stored()[-1].properties[name] for name in ADDED}
        assert told == {"MSG_REGION": "Here", "TRACE_ON": "false", "CLUSTER": "C1"}
        assert (fields_of(answer)["MSG_REGION"], fields_of(answer)["TRACE_ON"]) == ("Here", "false")


@in_virtual_time
async def test_a_changed_setting_applies_from_the_next_send_on() -> None:
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
async def test_a_unique_key_with_any_characters_is_returned_unchanged() -> None:
    async with running() as broker:
        client = await broker.connect()
        key = '"quoted" \\ 中文 % {} \t'

        answers = [await client.sent(key=key) for _ in range(2)]

        assert [fields_of(answer)["transactionId"] for answer in answers] == [key, key]
        assert [message.message_id for message in broker.stored()] == [key, key]


# queues


@in_virtual_time
async def test_a_send_without_a_queue_gets_any() -> None:
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
async def test_each_queue_counts_its_own_messages() -> None:
    async with running() as broker:
        client = await broker.connect()

        answers = await asyncio.gather(*(client.sent(queue_id=number % 3) for number in range(9)))

        told = [(fields_of(answer)["queueId"], fields_of(answer)["queueOffset"]) for answer in answers]
        assert told == [(str(number % 3), str(number // 3)) for number in range(9)]
        ids = [fields_of(answer)["msgId"] for answer in answers]
        assert ids == sorted(ids)
        assert len(set(ids)) == 9


@in_virtual_time
async def test_a_recreated_topic_starts_at_offset_zero() -> None:
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
async def test_a_message_contains_the_address_of_its_sender(host: str, stored: str) -> None:
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


# what is remembered of a queue


@in_virtual_time
async def test_cached_queues_are_looked_up_again_only_when_their_topic_changes() -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent(queue_id=3)
        known = broker.parts.sending._queues["T", 3]

        await client.sent(topic="made_by_a_send")
        broker.make_topic("made_by_an_administrator")
        await client.sent(queue_id=3)
        still_known = broker.parts.sending._queues["T", 3]
        broker.make_topic("T", queues=2)
        refused = await client.send(queue_id=3)

        assert still_known is known
        assert refused.code != ResponseCode.SUCCESS
        assert "queue" in (refused.remark or "").lower()
