"""A message before it is sent, and after it was stored."""

import pickle
from typing import Any

import pytest

from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidMessage, InvalidName
from pocketmq.model import properties
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.message_id import Host
from pocketmq.protocol.record import decode_record, encode_record, host_flags


def stored(properties: str = "", topic: str = "TopicTest", **changes: Any) -> StoredMessage:
    parts: dict[str, Any] = {
        "queue_id": 3,
        "queue_offset": 42,
        "log_offset": 1234567,
        "body": b"hello",
        "properties": properties.encode(),
        "flag": 7,
        "sys_flag": 0,
        "born_ms": 1_700_000_000_123,
        "born_host": Host.parse("10.0.0.1:5678").packed(),
        "store_ms": 1_700_000_000_456,
        "store_host": Host.parse("10.0.0.2:10911").packed(),
        "reconsume_times": 2,
        "prepared_offset": 77,
    }
    return decode_record(encode_record(topic.encode(), **parts | changes))


def test_a_plain_message_has_no_properties() -> None:
    message = Message("T", b"hello")

    assert (message.topic, message.body, message.flag, message.properties) == ("T", b"hello", 0, {})
    assert (message.tags, message.keys, message.delay_level) == (None, [], 0)


def test_arguments_of_a_message_become_properties() -> None:
    message = Message(
        "T",
        b"hello",
        tags="TagA",
        keys=["k1", "k2"],
        properties={"colour": "blue"},
        flag=7,
        delay_level=3,
        sharding_key="order-1",
        wait_stored=False,
    )

    assert message.properties == {
        "colour": "blue",
        "TAGS": "TagA",
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "order-1",
        "WAIT": "false",
        "DELAY": "3",
    }
    assert (message.tags, message.keys, message.delay_level, message.flag) == ("TagA", ["k1", "k2"], 3, 7)


@pytest.mark.parametrize(("keys", "found"), [("k1", ["k1"]), ("k1 k2", ["k1", "k2"]), ((), []), ("", [])])
def test_keys_are_one_text_or_several(keys: str | list[str], found: list[str]) -> None:
    message = Message("T", b"", keys=keys)

    assert message.keys == found
    assert (properties.KEYS in message.properties) == bool(found)


def test_a_due_time_and_a_delay_are_in_milliseconds() -> None:
    assert Message("T", b"", deliver_at_ms=1_700_000_000_000).properties == {"TIMER_DELIVER_MS": "1700000000000"}
    assert Message("T", b"", delay_ms=0).properties == {"TIMER_DELAY_MS": "0"}


def test_only_one_kind_of_delay_may_be_given() -> None:
    with pytest.raises(InvalidMessage, match="only one of"):
        Message("T", b"", delay_level=1, deliver_at_ms=0)
    with pytest.raises(InvalidMessage, match="only one of"):
        Message("T", b"", deliver_at_ms=0, delay_ms=0)


@pytest.mark.parametrize("tag", ["", " ", "*", "a||b"])
def test_a_tag_that_cannot_be_subscribed_to_is_refused(tag: str) -> None:
    with pytest.raises(InvalidMessage, match="cannot be subscribed to"):
        Message("T", b"", tags=tag)


@pytest.mark.parametrize("name", ["TAGS", "UNIQ_KEY", "", "a\x01"])
def test_a_property_that_a_user_may_not_set_is_refused(name: str) -> None:
    with pytest.raises(InvalidMessage):
        Message("T", b"", properties={name: "1"})


def test_an_invalid_topic_is_refused_before_other_checks() -> None:
    with pytest.raises(InvalidName):
        Message("a b", b"", tags="*")


def test_a_message_has_no_other_attributes_and_its_repr_shows_the_size_of_the_body() -> None:
    message = Message("T", b"secret", tags="a")

    with pytest.raises(AttributeError):
        message.colour = "blue"  # type: ignore[attr-defined]
    assert repr(message) == "Message(topic='T', 6 bytes, {'TAGS': 'a'})"


def test_a_users_mapping_is_copied() -> None:
    own = {"colour": "blue"}

    Message("T", b"", properties=own, tags="a")

    assert own == {"colour": "blue"}


def test_a_stored_message_reads_its_properties_once() -> None:
    message = stored("TAGS\x01TagA\x02KEYS\x01k1 k2\x02DELAY\x013\x02")

    assert message.properties is message.properties
    assert (message.tags, message.keys, message.delay_level) == ("TagA", ["k1", "k2"], 3)


def test_a_stored_message_without_properties_has_neither_tag_nor_keys() -> None:
    message = stored()

    assert (message.tags, message.keys, message.delay_level, message.properties) == (None, [], 0, {})


def test_a_stored_message_has_its_queue_and_offsets() -> None:
    assert stored().offset_id == "0A00000200002A9F000000000012D687"
    v6 = stored(store_host=Host.parse("[::1]:10911").packed(), sys_flag=SysFlag.STORE_HOST_V6)
    assert v6.offset_id == "00000000000000000000000000000001" + "00002A9F" + "000000000012D687"


def test_the_message_id_is_the_id_of_the_producer_if_there_is_one() -> None:
    assert stored("UNIQ_KEY\x010A000001\x02").message_id == "0A000001"
    assert stored().message_id == "0A00000200002A9F000000000012D687"


def test_reading_the_properties_of_a_message_keeps_it_equal() -> None:
    one, other = stored("TAGS\x01TagA\x02"), stored("TAGS\x01TagA\x02")

    assert one.tags == "TagA"

    assert one == other
    assert one != stored("TAGS\x01TagB\x02")
    assert one != stored("TAGS\x01TagA\x02", queue_offset=43)
    assert one.__eq__("TagA") is NotImplemented


def test_a_stored_message_knows_both_hosts() -> None:
    message = stored()

    assert str(message.born_host) == "10.0.0.1:5678"
    assert str(message.store_host) == "10.0.0.2:10911"


def test_properties_that_are_not_utf8_stay_readable() -> None:
    message = decode_record(
        encode_record(b"T", 0, 0, 0, b"", b"TAGS\x01TagA\x02name\x01\xff\x02", 0, 0, 0, bytes(8), 0, bytes(8))
    )

    assert message.properties == {"TAGS": "TagA", "name": "\ufffd"}


@pytest.mark.parametrize(
    ("text", "level"), [("3", 3), ("-1", -1), ("soon", 0), ("3.5", 0), ("0x3", 0), ("-", 0), ("9" * 5000, 0)]
)
def test_a_delay_level_that_is_not_a_number_counts_as_none(text: str, level: int) -> None:
    message = Message("T", b"")
    message.properties[properties.DELAY] = text

    assert message.delay_level == level
    assert stored(f"DELAY\x01{text}\x02").delay_level == level


@pytest.mark.parametrize("born", ["10.0.0.1:5678", "[2001:db8::1]:5678"])
@pytest.mark.parametrize("store", ["10.0.0.2:10911", "[::2]:10911"])
def test_fields_of_the_record_are_decoded_on_demand(born: str, store: str) -> None:
    born_host, store_host = Host.parse(born), Host.parse(store)

    message = stored(
        born_host=born_host.packed(),
        store_host=store_host.packed(),
        sys_flag=host_flags(born_host.packed(), store_host.packed()) | SysFlag.MULTI_TAGS,
        flag=-7,
    )

    assert (message.queue_id, message.queue_offset, message.log_offset, message.flag) == (3, 42, 1234567, -7)
    assert (message.born_ms, message.store_ms) == (1_700_000_000_123, 1_700_000_000_456)
    assert (message.born_host, message.store_host) == (born_host, store_host)
    assert (message.reconsume_times, message.prepared_offset, message.body_crc) == (2, 77, 907060870)
    assert message.size == len(message.head) + len(b"hello\x09TopicTest\0\0")


def test_the_number_of_attempts_is_always_valid() -> None:
    message = stored()
    message.reconsume_times += 1
    assert (message.reconsume_times, message.prepared_offset, message.store_ms) == (3, 77, 1_700_000_000_456)
    with pytest.raises(AttributeError):
        message.store_ms = 1  # type: ignore[misc]


def test_a_printed_message_is_short() -> None:
    message = stored("TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x010A000001\x02", body=b"x" * 1000)
    assert repr(message) == (
        "StoredMessage(topic='TopicTest', queue_id=3, queue_offset=42, message_id='0A000001', tags='TagA', "
        f"keys=['k1', 'k2'], body={b'x' * 100 + b'...'!r})"
    )


def test_a_message_can_be_pickled() -> None:
    message = stored("TAGS\x01TagA\x02")
    assert pickle.loads(pickle.dumps(message)) == message


@pytest.mark.parametrize(("level", "near"), [(19, 18), (-1, 0), ("3", 1), (2.0, 1), (True, 1)])
def test_a_delay_level_that_no_broker_has_is_refused_with_one_that_it_has(level: Any, near: int) -> None:
    with pytest.raises(
        InvalidMessage, match=rf"delay_level = {level!r} must be .* 0 to 18 .*delay_level={near}; delay_ms"
    ):
        Message("T", b"", delay_level=level)


@pytest.mark.parametrize("name", ["delay_ms", "deliver_at_ms"])
@pytest.mark.parametrize("value", [-1, 1.5, "5000", True, 2**63])
def test_a_delay_that_is_not_a_whole_number_of_milliseconds_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidMessage, match=f"{name} = .* must be a whole number of milliseconds, 0 or above"):
        Message("T", b"", **{name: value})
