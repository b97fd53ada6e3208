"""Typed bodies: accepted values, and the errors for others."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import BodyError, ProtocolError
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.clients import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionGroupConfig,
)
from pocketmq.protocol.bodies.topics import (
    BrokerData,
    ClusterInfo,
    ConsumerOffsets,
    ConsumeStats,
    KVTable,
    OffsetProgress,
    ResetOffsets,
    TopicConfig,
    TopicRouteData,
    TopicTable,
)
from pocketmq.protocol.java_json import Body, JsonLimits, read_body, read_json, write_json, write_pretty_json

QUEUE = MessageQueue("T", "b", 0)


@pytest.mark.parametrize(
    "data",
    [b'{"brokerAddrs":{0:"a:1"}}', b'{"brokerAddrs":{"0":"a:1"}}', b'{"brokerAddrs":{\n\t0 : "a:1"\n}}'],
)
def test_numbers_as_keys_are_equal_in_every_spelling(data: bytes) -> None:
    assert BrokerData.decode(data) == BrokerData(broker_addrs={0: "a:1"})


@pytest.mark.parametrize(
    "data",
    [
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"brokerOffset":4}}}',
        b'{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}":{"brokerOffset":"4"}}}',
    ],
)
def test_queues_as_keys_are_equal_in_every_spelling(data: bytes) -> None:
    assert ConsumeStats.decode(data) == ConsumeStats({QUEUE: OffsetProgress(4)})


def test_tolerated_syntax_is_also_tolerated_beside_unusual_keys() -> None:
    data = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"brokerOffset":null,"pullOffset":"4"}},"consumeTps":null}'

    assert ConsumeStats.decode(data) == ConsumeStats({QUEUE: OffsetProgress(pull_offset=4)})
    assert BrokerData.decode(b'{"brokerAddrs":{0:null,1:7},"brokerName":5}') == BrokerData(
        broker_name="5", broker_addrs={1: "7"}
    )


def test_unknown_properties_are_ignored_and_missing_ones_keep_their_defaults() -> None:
    read = SubscriptionGroupConfig.decode(b'{"groupName":"g","someday":{"x":[1]},"retryMaxTimes":3}')

    assert read == SubscriptionGroupConfig("g", retry_max_times=3)
    assert read.which_broker_when_consume_slowly == 1


def test_the_last_of_two_values_is_used() -> None:
    assert TopicConfig.decode(b'{"topicName":"a","topicName":"b"}') == TopicConfig("b")


def test_numbers_may_be_texts_and_texts_numbers() -> None:
    assert TopicConfig.decode(b'{"topicName":"T","perm":"2","order":"true"}') == TopicConfig("T", perm=2, order=True)
    assert KVTable.decode(b'{"table":{"a":7,"b":true,"c":1.5}}') == KVTable({"a": "7", "b": "true", "c": "1.5"})


def test_null_counts_as_absent() -> None:
    assert HeartbeatData.decode(b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"g"}]}') == (
        HeartbeatData("c", consumer_data_set=(ConsumerData("g"),))
    )
    assert KVTable.decode(b'{"table":{"a":null,"b":"c"}}') == KVTable({"b": "c"})
    assert TopicRouteData.decode(b'{"orderTopicConf":null}') == TopicRouteData()


def test_enums_may_be_numbers_as_from_cpp_clients() -> None:
    data = b'{"groupName":"g","consumeType":0,"messageModel":0,"consumeFromWhere":4}'

    assert ConsumerData.decode(data) == ConsumerData(
        "g", ConsumeType.CONSUME_ACTIVELY, MessageModel.BROADCASTING, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )


def test_an_unknown_enum_name_counts_as_absent() -> None:
    assert ConsumerData.decode(b'{"groupName":"g","messageModel":"TELEPATHY"}') == ConsumerData("g")
    assert ConsumerData.decode(b'{"groupName":"g","messageModel":99}') == ConsumerData("g")


def test_a_reference_is_followed_though_the_document_is_plain_json() -> None:
    data = b'{"brokerAddrTable":{"x":{"brokerName":"n","brokerAddrs":{"0":"a"}},"y":{"$ref":"$.brokerAddrTable.x"}}}'

    one = BrokerData(broker_name="n", broker_addrs={0: "a"})
    assert ClusterInfo.decode(data) == ClusterInfo({"x": one, "y": one})


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (TopicConfig, b"{}", r"TopicConfig: .*missing required field `topicName`"),
        (TopicConfig, b'{"topicName":"T","perm":"six"}', r"TopicConfig: .*\$\.perm"),
        (TopicConfig, b'{"topicName":"T","perm":99999999999}', r"TopicConfig: .*<= 2147483647.*\$\.perm"),
        (TopicTable, b'{"topicConfigTable":{"T":[]}}', r"TopicTable: .*topicConfigTable"),
        (ConsumerOffsets, b'{"offsetTable":{"T@g":{"zero":1}}}', r"ConsumerOffsets: .*key"),
        (ResetOffsets, b'{"offsetTable":{"T@b:0":1}}', r"ResetOffsets: .*key"),
        (ResetOffsets, b'{"offsetTable":{{"topic":"T"}:1}}', r"ResetOffsets: .*key"),
        (KVTable, b'{"table":{{"brokerName":"b","queueId":0,"topic":"T"}:"x"}}', r"KVTable: .*key"),
        (KVTable, b"[]", r"KVTable: Expected `object`, got `array`"),
        (KVTable, b"null", r"KVTable: Expected `object`, got `null`"),
        (KVTable, b'{"table":', r"KVTable: JSON"),
        (tuple[str, ...], b"{}", r"tuple\[str, \.\.\.\]: Expected `array`"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_type_and_property(kind: Any, data: bytes, said: str) -> None:
    with pytest.raises(BodyError, match=said):
        read_body(kind, data)


def test_a_refused_body_is_a_protocol_error() -> None:
    assert issubclass(BodyError, ProtocolError)


def test_the_smallest_body_is_an_empty_object() -> None:
    assert KVTable.decode(b"{}") == KVTable()
    assert KVTable().encode() == b'{"table":{}}'
    with pytest.raises(BodyError, match="KVTable: the body is missing"):
        KVTable.decode(b"")


def test_a_body_without_properties_has_two_bytes() -> None:
    class Nothing(Body, frozen=True):
        pass

    assert Nothing().encode() == b"{}"
    assert Nothing.decode(b"{}") == Nothing()


def test_limits_apply_to_plain_bodies_too() -> None:
    with pytest.raises(BodyError, match="exceeds the limit of 10"):
        KVTable.decode(b'{"table":{}}', JsonLimits(document_bytes=10))
    with pytest.raises(BodyError, match="nested"):
        KVTable.decode(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_strict_and_pretty_bodies_are_read_again() -> None:
    stats = ConsumeStats({QUEUE: OffsetProgress(1, 2, 3, 4)}, 0.25)

    assert ConsumeStats.decode(stats.encode(strict=True)) == stats
    assert ConsumeStats.decode(write_pretty_json(stats)) == stats
    assert read_json(write_json(stats)) == {
        "consumeTps": 0.25,
        "offsetTable": {QUEUE: {"brokerOffset": 1, "consumerOffset": 2, "lastTimestamp": 4, "pullOffset": 3}},
    }


PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b",",
    b'"table"',
    b'"offsetTable"',
    b'"a"',
    b"0",
    b"null",
    b'{"$ref":"$"}',
]


@given(st.binary() | st.lists(st.sampled_from(PIECES)).map(b"".join))
def test_any_bytes_are_a_body_or_refused(data: bytes) -> None:
    for kind in (KVTable, ConsumerOffsets, HeartbeatData, ResetOffsets):
        with suppress(BodyError):
            kind.decode(data)
