"""The stored record: RocketMQ's own bytes, every limit of the layout, and bytes that are no record."""

import hashlib
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import GOLDEN, captured, needs_golden, store_file

from pocketmq.codes import RequestCode, SysFlag
from pocketmq.errors import ProtocolError
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import Host
from pocketmq.model.properties import format_properties
from pocketmq.protocol.compression import decompress
from pocketmq.protocol.record import (
    BLANK_SIZE,
    FIELD_AT,
    LOG_OFFSET_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTY_CRC_SIZE,
    SMALLEST_RECORD,
    SYS_FLAG_AT,
    crc_of,
    decode_record,
    decode_records,
    encode_blank,
    encode_message,
    encode_record,
    host_flags,
    properties_start,
    property_crc,
    property_crc_matches,
    record_size,
)

VECTOR = bytes.fromhex(
    "0000007BDAA320A73610A6860000000300000007000000000000002A000000000012D687000000000000018BCFE5687B0A0000010000162E"
    "0000018BCFE569C80A00000200002A9F0000000000000000000000000000000568656C6C6F09546F706963546573740012544147530154616741"
    "024B455953016B3102"
)
"""Written by RocketMQ itself."""

V4 = Host.parse("10.0.0.1:5678").packed()
V6 = Host.parse("[2001:db8::7]:10911").packed()
RECORD_ANSWERS = {
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.QUERY_MESSAGE,
    RequestCode.POP_MESSAGE,
}
STORES = [f"{version}/{state}" for version in ("4.9.7", "5.3.3") for state in ("clean", "live")]

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
topics = st.text("abcXYZ019_-%|", min_size=1, max_size=255)


def record_of(
    topic: str = "T",
    body: bytes = b"hello",
    properties: bytes = b"",
    sys_flag: int = 0,
    born_host: bytes = V4,
    store_host: bytes = V4,
) -> bytes:
    flags = sys_flag | host_flags(born_host, store_host)
    return encode_record(topic.encode(), 3, 42, 1234, body, properties, 7, flags, 1, born_host, 2, store_host)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    born_host, store_host = draw(hosts), draw(hosts)
    other_flags = draw(int32) & ~(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
    return encode_record(
        draw(topics).encode(),
        draw(int32),
        draw(int64),
        draw(int64),
        draw(st.binary(max_size=100)),
        draw(st.binary(max_size=100)),
        draw(int32),
        other_flags | host_flags(born_host, store_host),
        draw(int64),
        born_host,
        draw(int64),
        store_host,
        draw(int32),
        draw(int64),
    )


def test_the_reference_message_has_the_123_bytes_of_rocketmq() -> None:
    message = decode_record(VECTOR)

    assert message.topic == "TopicTest"
    assert (message.queue_id, message.flag, message.queue_offset, message.log_offset) == (3, 7, 42, 1234567)
    assert (message.born_ms, str(message.born_host)) == (1700000000123, "10.0.0.1:5678")
    assert (message.store_ms, str(message.store_host)) == (1700000000456, "10.0.0.2:10911")
    assert (message.sys_flag, message.reconsume_times, message.prepared_offset) == (0, 0, 0)
    assert (message.body, message.properties) == (b"hello", {"TAGS": "TagA", "KEYS": "k1"})
    assert (message.body_crc, message.size) == (907060870, 123)
    assert message.offset_id == "0A00000200002A9F000000000012D687"
    assert encode_message(message) == VECTOR


def test_the_reference_message_is_encoded_from_its_fields() -> None:
    written = encode_record(
        b"TopicTest",
        3,
        42,
        1234567,
        b"hello",
        format_properties({"TAGS": "TagA", "KEYS": "k1"}).encode(),
        7,
        0,
        1700000000123,
        Host.parse("10.0.0.1:5678").packed(),
        1700000000456,
        Host.parse("10.0.0.2:10911").packed(),
    )

    assert written == VECTOR


@needs_golden
def test_every_captured_answer_of_records_survives_decoding_and_encoding() -> None:
    bodies = [
        (frame.name, frame.command.body)
        for frame in captured()
        if frame.answers in RECORD_ANSWERS and frame.command.body and frame.command.code == 0
    ]

    assert len(bodies) > 100
    for name, body in bodies:
        messages = decode_records(body)
        assert b"".join(map(encode_message, messages)) == body, name
        assert all(message.properties for message in messages), name


@needs_golden
def test_every_captured_transaction_check_names_the_real_topic_in_its_body() -> None:
    checks = [
        frame.command
        for frame in captured("wire/*/*/transaction.jsonl")
        if frame.answers is None and frame.command.code == RequestCode.CHECK_TRANSACTION_STATE
    ]

    assert len(checks) >= 5
    for check in checks:
        message = decode_record(check.body)
        assert encode_message(message) == check.body
        assert not message.topic.startswith("RMQ_SYS_")
        assert message.properties["TRAN_MSG"] == "true"


@needs_golden
@pytest.mark.parametrize("store", STORES)
def test_every_record_of_a_captured_log_survives_decoding_and_encoding(store: str) -> None:
    found = list(_log(GOLDEN / "store" / store / "commitlog"))

    assert len(found) > 70
    for at, record, message in found:
        assert encode_message(message) == record
        assert message.log_offset == at
        assert property_crc_matches(record)


@needs_golden
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_captured_log_holds_every_message_that_the_java_client_read(version: str) -> None:
    store = GOLDEN / "store" / version
    found = {at: message for at, _, message in _log(store / "clean" / "commitlog")}

    for expected in json.loads((store / "expected.json").read_text()):
        message = found[expected["commitLogOffset"]]
        assert message.topic == expected["topic"]
        assert message.properties == expected["properties"]
        assert [message.queue_id, message.queue_offset] == [expected["queueId"], expected["queueOffset"]]
        assert [message.size, message.body_crc, message.flag] == [
            expected["storeSize"],
            expected["bodyCRC"],
            expected["flag"],
        ]
        assert [message.message_id, message.offset_id] == [expected["msgId"], expected["offsetMsgId"]]
        assert [message.tags, " ".join(message.keys)] == [expected["tags"], expected["keys"] or ""]
        assert [message.born_ms, str(message.born_host)] == [expected["bornTimestamp"], expected["bornHost"]]
        assert [message.store_ms, str(message.store_host)] == [expected["storeTimestamp"], expected["storeHost"]]
        assert [message.reconsume_times, message.prepared_offset] == [
            expected["reconsumeTimes"],
            expected["preparedTransactionOffset"],
        ]
        body = decompress(message.body, message.sys_flag)
        assert hashlib.sha256(body).hexdigest() == expected["bodySha256"]


def _log(folder: Path) -> Iterator[tuple[int, bytes, StoredMessage]]:
    """Offset, bytes and message of each record; the bytes between and after them are checked."""
    for path in sorted(folder.iterdir()):
        data = store_file(path)
        at = 0
        while at < len(data):
            size, magic = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big")
            if magic == MAGIC_BLANK:
                assert encode_blank(len(data) - at) == data[at : at + BLANK_SIZE]
                break
            if not size:
                assert not data[at:].strip(b"\0")
                break
            yield int(path.name) + at, data[at : at + size], decode_record(data, at)
            at += size


@pytest.mark.parametrize("born_host", [V4, V6])
@pytest.mark.parametrize("store_host", [V4, V6])
@pytest.mark.parametrize("topic", ["T", "t" * 127, "t" * 128, "t" * 255])
def test_hosts_of_both_kinds_and_long_topics_are_preserved(born_host: bytes, store_host: bytes, topic: str) -> None:
    record = record_of(topic, b"body", b"A\x011\x02", SysFlag.COMPRESSED, born_host, store_host)

    message = decode_record(record)

    assert (message.topic, message.body, message.properties) == (topic, b"body", {"A": "1"})
    assert (message.packed_born_host, message.packed_store_host) == (born_host, store_host)
    assert (message.born_host.is_v6, message.store_host.is_v6) == (born_host is V6, store_host is V6)
    assert message.sys_flag == SysFlag.COMPRESSED | host_flags(born_host, store_host)
    assert len(record) == message.size == record_size(len(topic), 4, 4, message.sys_flag)
    assert encode_message(message) == record


@pytest.mark.parametrize(("length", "magic"), [(1, MAGIC_V1), (127, MAGIC_V1), (128, MAGIC_V2), (255, MAGIC_V2)])
def test_a_topic_of_more_than_127_bytes_is_written_in_version_2(length: int, magic: int) -> None:
    record = record_of("t" * length)

    assert int.from_bytes(record[4:8], "big") == magic
    assert len(record) == record_size(length, 5, 0)


def test_a_topic_is_measured_in_bytes() -> None:
    record = record_of("中" * 43)

    assert record[4:8] == MAGIC_V2.to_bytes(4, "big")
    assert decode_record(record).topic == "中" * 43


def test_the_smallest_record_is_91_bytes() -> None:
    assert len(record_of("", b"")) == SMALLEST_RECORD == record_size(0, 0, 0)
    assert decode_record(record_of("", b"")).body == b""


def test_fields_to_patch_are_at_their_constant_positions() -> None:
    record = record_of(sys_flag=SysFlag.TRANSACTION_COMMIT)

    assert int.from_bytes(record[FIELD_AT["queue_offset"] : LOG_OFFSET_AT], "big") == 42
    assert int.from_bytes(record[LOG_OFFSET_AT : LOG_OFFSET_AT + 8], "big") == 1234
    assert int.from_bytes(record[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big") == SysFlag.TRANSACTION_COMMIT


def test_the_checksum_has_its_highest_bit_cleared_as_in_java() -> None:
    body = next(b"%d" % n for n in range(100) if crc32(b"%d" % n) >> 31)

    assert crc_of(b"hello") == 907060870
    assert crc_of(body) == crc32(body) & 0x7FFFFFFF != crc32(body)
    assert decode_record(record_of(body=body)).body_crc == crc_of(body)


def test_filler_has_its_size_and_is_not_a_record() -> None:
    blank = encode_blank(300)

    assert blank == bytes.fromhex("0000012C CBD43194")
    with pytest.raises(ProtocolError, match="only 8 bytes"):
        decode_record(blank)
    with pytest.raises(ProtocolError, match="magic 0xcbd43194"):
        decode_record(blank + bytes(292))


def test_zeros_and_other_magics_are_not_records() -> None:
    with pytest.raises(ProtocolError, match="magic 0x00000000"):
        decode_record(bytes(200))
    with pytest.raises(ProtocolError, match="magic 0xdaa320a8"):
        decode_record(VECTOR[:7] + b"\xa8" + VECTOR[8:])


def test_the_offset_of_a_bad_record_is_named() -> None:
    with pytest.raises(ProtocolError, match="record at 123 "):
        decode_records(VECTOR + VECTOR[:-1])
    with pytest.raises(ProtocolError, match="record at 246 has only 1 bytes"):
        decode_records(VECTOR + VECTOR + b"\0")


@given(st.lists(records(), max_size=5))
def test_arbitrary_messages_back_to_back_survive_decoding_and_encoding(several: list[bytes]) -> None:
    messages = decode_records(b"".join(several))

    assert [encode_message(message) for message in messages] == several
    assert [message.size for message in messages] == [len(record) for record in several]


def one_after_the_other(buffer: bytes, check_crc: bool) -> list[StoredMessage] | str:
    """The result of `decode_record` for adjacent records: the messages, or the fault of the first invalid one."""
    messages: list[StoredMessage] = []
    try:
        while (at := sum(message.size for message in messages)) < len(buffer):
            messages.append(decode_record(buffer, at, check_crc))
    except ProtocolError as error:
        return str(error)
    return messages


def all_at_once(buffer: bytes, check_crc: bool) -> list[StoredMessage] | str:
    try:
        return decode_records(buffer, check_crc=check_crc)
    except ProtocolError as error:
        return str(error)


@given(st.lists(records(), max_size=4), st.integers(0, 10_000), st.booleans(), st.binary(max_size=3))
def test_records_decoded_together_equal_those_decoded_one_by_one(
    several: list[bytes], bit: int, check_crc: bool, tail: bytes
) -> None:
    whole = b"".join(several)
    changed = _flipped(whole, bit % (8 * len(whole))) if whole else whole

    for buffer in (whole, changed, whole + tail, changed[:-1]):
        assert all_at_once(buffer, check_crc) == one_after_the_other(buffer, check_crc)


def test_records_of_all_kinds_may_follow_each_other() -> None:
    kinds = [VECTOR, record_of("t" * 200), record_of(born_host=V6), record_of("", b""), record_of("other"), VECTOR]
    kinds += [record_of(properties=b"A\x011\x02"), record_of(properties=b"A\x0112\x02"), record_of("t" * 127)]

    for first in kinds:
        for second in kinds:
            whole = first + second + first
            assert decode_records(whole) == one_after_the_other(whole, True)


@given(records(), st.binary(max_size=20), st.binary(max_size=20))
def test_a_record_is_found_in_the_middle_of_other_bytes(record: bytes, before: bytes, after: bytes) -> None:
    assert decode_record(before + record + after, len(before)) == decode_record(record)


@pytest.mark.parametrize(
    "record",
    [VECTOR, record_of("t" * 200, b"x" * 30, b"A\x011"), record_of(born_host=V6, store_host=V6), record_of("", b"")],
    ids=["v1", "v2", "v6", "empty"],
)
def test_a_record_truncated_at_any_byte_is_refused(record: bytes) -> None:
    for kept in range(len(record)):
        with pytest.raises(ProtocolError, match="record at 0"):
            decode_record(record[:kept])


def test_the_checksum_detects_every_changed_bit_of_a_body() -> None:
    body_at = VECTOR.index(b"hello")

    for bit in range(8 * body_at, 8 * (body_at + 5)):
        with pytest.raises(ProtocolError, match="a wrong body checksum"):
            decode_record(_flipped(VECTOR, bit))
        assert decode_record(_flipped(VECTOR, bit), check_crc=False).size == len(VECTOR)


def test_a_changed_bit_gives_a_message_of_the_same_size_or_a_protocol_error() -> None:
    for record in (VECTOR, record_of("t" * 200, b"x" * 9, b"A\x011"), record_of(born_host=V6)):
        for bit in range(8 * len(record)):
            with suppress(ProtocolError):
                assert decode_record(_flipped(record, bit)).size == len(record)


def _flipped(record: bytes, bit: int) -> bytes:
    changed = bytearray(record)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@given(st.binary(max_size=300), st.sampled_from([b"", VECTOR[:8], VECTOR[:80], VECTOR[:88], VECTOR]), st.booleans())
def test_arbitrary_bytes_raise_only_a_protocol_error(tail: bytes, head: bytes, check_crc: bool) -> None:
    with suppress(ProtocolError):
        decode_records(head + tail, check_crc=check_crc)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**16 - 1))
def test_impossible_lengths_raise_only_a_protocol_error(body_size: int, properties_size: int) -> None:
    body_at, properties_at = VECTOR.index(b"hello"), VECTOR.index(b"TAGS")
    record = bytearray(VECTOR)
    record[body_at - 4 : body_at] = body_size.to_bytes(4, "big", signed=True)
    record[properties_at - 2 : properties_at] = properties_size.to_bytes(2, "big")

    with suppress(ProtocolError):
        assert decode_record(bytes(record)) == decode_record(VECTOR)


@given(records())
def test_the_properties_are_found_without_decoding_the_rest(record: bytes) -> None:
    assert record[properties_start(record) :] == decode_record(record).raw_properties


@given(st.binary(max_size=300), st.sampled_from([b"", VECTOR[:80], VECTOR[:88], VECTOR[:-19]]))
def test_properties_of_an_invalid_record_are_not_read_beyond_its_end(tail: bytes, head: bytes) -> None:
    with suppress(ProtocolError):
        assert 0 < properties_start(head + tail) <= len(head + tail)


@pytest.mark.parametrize("size", [0, 39, 87, 88, 100])
def test_a_truncated_record_has_no_properties(size: int) -> None:
    with pytest.raises(ProtocolError, match="record at 0 has"):
        properties_start(VECTOR[:size])


def test_a_topic_that_is_not_utf_8_is_refused_and_properties_are_decoded_as_by_java() -> None:
    topic_at = VECTOR.index(b"TopicTest")
    with pytest.raises(ProtocolError, match="a topic that is not UTF-8"):
        decode_record(VECTOR[:topic_at] + b"\xff" + VECTOR[topic_at + 1 :])

    assert decode_record(VECTOR.replace(b"k1", b"k\xff")).properties["KEYS"] == "k\N{REPLACEMENT CHARACTER}"


def test_the_optional_checksum_covers_the_complete_record() -> None:
    reserved = record_of(properties=b"A\x011\x02" + bytes(PROPERTY_CRC_SIZE))

    sealed = reserved[:-PROPERTY_CRC_SIZE] + property_crc(reserved[:-PROPERTY_CRC_SIZE])

    assert len(sealed) == len(reserved) == decode_record(sealed).size
    assert property_crc_matches(sealed)
    assert property_crc_matches(memoryview(sealed))
    assert list(decode_record(sealed).properties) == ["A", "__CRC32#"]
    assert encode_message(decode_record(sealed)) == sealed
    for bit in random.Random(3).sample(range(8 * (len(sealed) - PROPERTY_CRC_SIZE)), 200):
        assert not property_crc_matches(_flipped(sealed, bit))


def test_the_digits_of_the_optional_checksum_start_with_the_least_significant() -> None:
    assert property_crc(b"hello") == b"__CRC32#\x010780607090\x02"
    assert len(property_crc(b"")) == PROPERTY_CRC_SIZE == 20


def test_a_record_without_the_optional_checksum_is_accepted() -> None:
    assert property_crc_matches(VECTOR)
