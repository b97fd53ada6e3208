"""Offset tables, for Java and for C++."""

from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.topics import (
    ConsumerOffsets,
    CorrectionOffsets,
    CppQueueOffset,
    CppResetOffsets,
    LocalOffsets,
    ResetOffsets,
)
from pocketmq.protocol.java_json import write_pretty_json

RESET = ResetOffsets({MessageQueue("T", "b", 0): 4, MessageQueue("T", "b", 1): 7})


def test_java_gets_a_map_with_queues_as_keys() -> None:
    assert RESET.encode() == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:4,{"brokerName":"b","queueId":1,"topic":"T"}:7}}'
    )


def test_cpp_gets_an_equivalent_list() -> None:
    listed = CppResetOffsets.of(RESET)

    assert listed.encode() == (
        b'{"offsetTable":[{"brokerName":"b","offset":4,"queueId":0,"topic":"T"},'
        b'{"brokerName":"b","offset":7,"queueId":1,"topic":"T"}]}'
    )
    assert CppResetOffsets.decode(listed.encode()) == listed
    assert listed.offset_table[0] == CppQueueOffset("T", "b", 0, 4)
    assert listed.offsets() == RESET


def test_derived_tables_in_the_file_are_ignored() -> None:
    data = b'{"groupTopicMap":{"g":["T"]},"offsetTable":{"T@g":{0:12,1:7}}}'

    assert ConsumerOffsets.decode(data) == ConsumerOffsets(offset_table={"T@g": {0: 12, 1: 7}})


def test_a_file_with_bare_numbers_is_written_and_read() -> None:
    offsets = ConsumerOffsets(offset_table={"T@g": {0: 12, 10: 7}})

    assert b'"T@g":{0:12,10:7\n\t\t}' in write_pretty_json(offsets)
    assert ConsumerOffsets.decode(write_pretty_json(offsets)) == offsets


def test_a_broadcasting_client_reads_its_own_file_back() -> None:
    local = LocalOffsets(RESET.offset_table)

    assert LocalOffsets.decode(write_pretty_json(local)) == local


def test_corrections_have_numbers_as_keys() -> None:
    assert CorrectionOffsets({0: 5}).encode() == b'{"correctionOffsets":{0:5}}'
