"""Registrations: plain, packed, of old brokers, and damaged ones."""

import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.codes import Version
from pocketmq.errors import BodyError, UsageError
from pocketmq.protocol.bodies.registration import RegisterBrokerBody, read_registration, write_registration
from pocketmq.protocol.bodies.topics import (
    DataVersion,
    MappedTopicTable,
    QueueMappingInfo,
    TopicConfig,
    TopicFilterType,
    TopicTable,
)

TOPICS = {
    "T": TopicConfig("T", 4, 8, 6, attributes={"message.type": "FIFO"}),
    "U": TopicConfig("U", 1, 1, 2, TopicFilterType.MULTI_TAG),
}
VERSION = DataVersion(3, 0, 1_700_000_000_000)
PLAIN = RegisterBrokerBody(MappedTopicTable(VERSION, TOPICS), ("10.0.0.9:1",))
MAPPED = RegisterBrokerBody(
    MappedTopicTable(
        VERSION,
        TOPICS,
        topic_queue_mapping_info_map={"S": QueueMappingInfo("S", "broker-a", 2, 7, curr_id_map={0: 0, 1: 1})},
    )
)


def sized(piece: bytes) -> bytes:
    return struct.pack(">i", len(piece)) + piece


def packed(*pieces: bytes) -> bytes:
    return zlib.compress(b"".join(pieces), 9)


def count(number: int) -> bytes:
    return struct.pack(">i", number)


def test_a_plain_registration_is_json_as_java_writes_it() -> None:
    body = RegisterBrokerBody(MappedTopicTable(VERSION, {"T": TOPICS["T"]}))

    assert write_registration(body) == (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":0,'
        b'"timestamp":1700000000000},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"topicConfigTable":'
        b'{"T":{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":4,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}},'
        b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
    )
    assert read_registration(write_registration(body)) == body


@pytest.mark.parametrize("body", [RegisterBrokerBody(), PLAIN, MAPPED])
@pytest.mark.parametrize("compressed", [False, True])
def test_registrations_are_preserved_in_both_forms(body: RegisterBrokerBody, compressed: bool) -> None:
    data = write_registration(body, compressed=compressed)

    assert read_registration(data, compressed=compressed) == body


def test_packed_bytes_have_the_specified_form() -> None:
    data = write_registration(PLAIN, compressed=True)

    assert zlib.decompress(data) == b"".join(
        (
            sized(b'{"counter":3,"stateVersion":0,"timestamp":1700000000000}'),
            count(2),
            sized(b'T 4 8 6 SINGLE_TAG {"message.type":"FIFO"}'),
            sized(b"U 1 1 2 MULTI_TAG {}"),
            sized(b'["10.0.0.9:1"]'),
            count(0),
        )
    )


def test_mappings_are_only_contained_from_release_5_on() -> None:
    old = write_registration(MAPPED, compressed=True, version=Version.V4_9_7)

    assert read_registration(old, compressed=True, version=Version.V4_9_7).topics.topic_config_table == TOPICS
    assert not zlib.decompress(old).endswith(count(0))
    with pytest.raises(BodyError, match="is truncated"):
        read_registration(old, compressed=True, version=Version.V5_0_0)


@pytest.mark.parametrize("text", [b"T 1 2 6 SINGLE_TAG", b"T 1 2 6 SINGLE_TAG ", b"T 1 2 6 SINGLE_TAG {}"])
def test_a_packed_topic_may_lack_attributes(text: bytes) -> None:
    data = packed(sized(b"{}"), count(1), sized(text), sized(b"[]"), count(0))

    read = read_registration(data, compressed=True)

    assert read.topics.topic_config_table == {"T": TopicConfig("T", 1, 2)}


def test_brokers_before_3_0_11_send_a_bare_table() -> None:
    table = TopicTable(VERSION, TOPICS)

    assert read_registration(table.encode(), version=Version.V3_0_11 - 1) == RegisterBrokerBody(
        MappedTopicTable(VERSION, TOPICS)
    )


def test_a_missing_body_registers_no_topics() -> None:
    assert read_registration(b"") == RegisterBrokerBody()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"not zlib", "RegisterBrokerBody: Error"),
        (write_registration(PLAIN, compressed=True)[:-9], "not a complete zlib stream"),
        (packed(), "is truncated"),
        (packed(sized(b"{}")), "is truncated"),
        (packed(count(-1)), "cannot be a size"),
        (packed(count(2**31 - 1), b"{}"), "cannot be a size"),
        (packed(sized(b"{}"), count(2**30)), "cannot be a size"),
        (packed(sized(b"")), "DataVersion: the body is missing"),
        (packed(sized(b"{}"), count(1), sized(b"T 1 2"), sized(b"[]"), count(0)), "packed topic b'T 1 2'"),
        (packed(sized(b"{}"), count(1), sized(b"T x 2 6 SINGLE_TAG"), sized(b"[]"), count(0)), "readQueueNums"),
        (packed(sized(b"{}"), count(1), sized(b"T 1 2 6 NO_TAG"), sized(b"[]"), count(0)), "topicFilterType"),
        (packed(sized(b"{}"), count(1), sized(b"\xff 1 2 6 SINGLE_TAG"), sized(b"[]"), count(0)), "utf-8"),
    ],
)
def test_damaged_registrations_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(BodyError, match=said):
        read_registration(data, compressed=True)


def test_inflating_stops_at_the_limit() -> None:
    data = write_registration(PLAIN, compressed=True)
    size = len(zlib.decompress(data))

    assert read_registration(data, compressed=True, inflated_bytes=size) == PLAIN
    with pytest.raises(BodyError, match=f"limit of {size - 1} bytes"):
        read_registration(data, compressed=True, inflated_bytes=size - 1)


def test_a_topic_with_a_blank_cannot_be_packed() -> None:
    body = RegisterBrokerBody(MappedTopicTable(topic_config_table={"a b": TopicConfig("a b")}))

    with pytest.raises(UsageError, match="blank"):
        write_registration(body, compressed=True)


@given(st.binary(), st.booleans())
def test_any_bytes_are_a_registration_or_refused(data: bytes, deflated: bool) -> None:
    with suppress(BodyError):
        read_registration(zlib.compress(data) if deflated else data, compressed=True)
    with suppress(BodyError):
        read_registration(data)
