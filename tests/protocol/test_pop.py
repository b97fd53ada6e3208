"""Receipt handles, offset texts, check points and acks: RocketMQ's own bytes, and what a forged one does."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import BodyError, ImpossibleRequest
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.api.messages import PopMessage
from pocketmq.protocol.bodies.clients import QueueAssignment, QueueAssignments, RequestMode
from pocketmq.protocol.pop import (
    MAX_BITS,
    Ack,
    BatchAck,
    CheckPoint,
    Handle,
    PoppedQueues,
    QueuePart,
    encode_bits,
    flag_of,
    pop_retry_topic,
    retried_topic,
)

NOW = 1_700_000_000_000

HANDLES = {
    f"100 {NOW} 60000 5 0 b-a 3 102": Handle(100, NOW, 60_000, 5, 0, "b-a", 3, 102),
    f"0 {NOW} 60000 5 1 b-a 0 4": Handle(0, NOW, 60_000, 5, 1, "b-a", 0, 4),
    f"0 {NOW} 60000 5 2 b-a 0 4": Handle(0, NOW, 60_000, 5, 2, "b-a", 0, 4),
}


@pytest.mark.parametrize("text", HANDLES)
def test_handles_of_rocketmq(text: str) -> None:
    assert Handle.parse(text) == HANDLES[text]
    assert HANDLES[text].text() == text


def test_a_handle_of_a_proxy_has_the_log_offset_too() -> None:
    assert Handle.parse(f"100 {NOW} 60000 5 0 b-a 3 102 9876").offset == 102


@pytest.mark.parametrize("fields", [6, 7])
def test_queue_and_offset_may_be_missing(fields: int) -> None:
    words = f"100 {NOW} 60000 5 0 b-a 3 102".split(" ")

    assert Handle.parse(" ".join(words[:fields])).start == 100


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "100",
        f"100 {NOW} 60000 5 0",
        f"x {NOW} 60000 5 0 b-a 3 102",
        f"100 {NOW} 60000 5 0 b-a 3 1e2",
        f"{10**30} {NOW} 60000 5 0 b-a 3 102",
        f"{2**63} {NOW} 60000 5 0 b-a 3 102",
        "١٠٠ 1 1 5 0 b-a 3 102",
        "9" * 10_000,
    ],
)
def test_other_texts_are_no_handles(text: str) -> None:
    with pytest.raises(ImpossibleRequest, match="not valid"):
        Handle.parse(text)


@given(st.text(max_size=60))
def test_any_text_is_a_handle_or_refused(text: str) -> None:
    with suppress(ImpossibleRequest):
        assert Handle.parse(text).text()


@pytest.mark.parametrize(
    ("topic", "flag"), [("T", 0), ("%RETRY%G_T", 1), ("%RETRY%G+T", 2), ("%RETRY%G", 1), ("%DLQ%G", 0)]
)
def test_the_flag_of_a_topic(topic: str, flag: int) -> None:
    assert flag_of(topic) == flag


@pytest.mark.parametrize("v2", [False, True])
def test_a_retry_topic_has_the_messages_of_one_topic(v2: bool) -> None:
    assert retried_topic("G_x", pop_retry_topic("G_x", "T_y", v2=v2)) == "T_y"
    assert retried_topic("G", "T") == "T"
    assert retried_topic("G", "%RETRY%G") == "%RETRY%G"
    assert retried_topic("G", "%RETRY%H_T") == "%RETRY%H_T"


def test_the_texts_of_an_answer() -> None:
    part = QueuePart(0, 3, 100, [100, 102])

    assert part.start_text() == "0 3 100"
    assert part.offsets_text() == "0 3 100,102"
    assert list(part.counts_texts({100: 1})) == ["0 qo3%100 1", "0 3 0"]
    assert list(part.counts_texts({100: 1, 102: 2})) == ["0 qo3%100 1", "0 qo3%102 2", "0 3 1"]


CHECK_POINT = CheckPoint(100, NOW, 60_000, 3, "T", "G", 2, (0, 2), "b-a", revive_ms=NOW + 60_000)
CHECK_POINT_JSON = (
    b'{"bm":0,"bn":"b-a","c":"G","d":[0,2],"it":60000,"n":2,"pt":1700000000000,"q":3,"reviveTime":1700000060000,'
    b'"ro":0,"so":100,"t":"T"}'
)


def test_a_check_point_of_rocketmq() -> None:
    assert CHECK_POINT.encode() == CHECK_POINT_JSON
    assert CheckPoint.decode(CHECK_POINT_JSON) == CHECK_POINT
    assert CheckPoint.decode(CHECK_POINT_JSON[:-1] + b',"sp":false}').suspended is False
    assert CHECK_POINT.offsets() == [100, 102]
    assert CHECK_POINT.unique_key() == f"T@3@100@G@{NOW}@b-a@ck"


def test_a_check_point_without_distances_has_all_offsets() -> None:
    old = CheckPoint.decode(b'{"bm":0,"c":"G","it":60000,"n":3,"pt":1700000000000,"q":3,"ro":0,"so":100,"t":"T"}')

    assert old.offsets() == [100, 101, 102]
    assert old.key("b-a") == CHECK_POINT.key("b-x")


def test_a_forged_count_has_a_limit() -> None:
    assert len(CheckPoint(0, NOW, 1, 0, "T", "G", 2**31 - 1).offsets()) == MAX_BITS
    assert CheckPoint(0, NOW, 1, 0, "T", "G", -5).offsets() == []


ACK = Ack(102, 100, "G", "T", 3, NOW, "b-a")
ACK_JSON = b'{"ao":102,"bn":"b-a","c":"G","pt":1700000000000,"q":3,"so":100,"t":"T"}'


@pytest.mark.parametrize(
    "data",
    [
        ACK_JSON,
        b'{"ackOffset":102,"brokerName":"b-a","consumerGroup":"G","popTime":1700000000000,"queueId":3,"startOffset":100,"topic":"T"}',
    ],
)
def test_acks_of_rocketmq(data: bytes) -> None:
    assert Ack.read(data) == ACK


def test_an_ack_joins_its_check_point() -> None:
    assert ACK.encode() == ACK_JSON
    assert ACK.key("other") == CHECK_POINT.key("other")
    assert ACK.unique_key() == f"T@3@102@G@{NOW}@b-a@ack"
    assert ACK.acked() == (102,)


def test_one_ack_of_several_offsets() -> None:
    several = Ack(-1, 100, "G", "T", 3, NOW, "b-a", (100, 102))

    assert several.encode() == ACK_JSON.replace(b'"ao":102', b'"ao":-1,"aol":[100,102]')
    assert several.unique_key() == f"T@3@[100, 102]@G@{NOW}@b-a@bAck"
    assert several.acked() == (100, 102)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"ao":1}'])
def test_other_bytes_are_no_ack(data: bytes) -> None:
    with pytest.raises(BodyError):
        Ack.read(data)


BATCH_JSON = b'{"acks":[{"b":"BQI=","c":"G","it":60000,"pt":1700000000000,"q":3,"r":"0","rq":5,"so":100,"t":"T"}],"brokerName":"b-a"}'


def test_a_batch_ack_of_rocketmq() -> None:
    batch = BatchAck.decode(BATCH_JSON)
    (entry,) = batch.acks

    assert batch.encode() == BATCH_JSON
    assert entry.offsets() == [100, 102, 109]
    assert encode_bits(100, entry.offsets()) == entry.bits == "BQI="


@pytest.mark.parametrize(("flag", "topic"), [("0", "T"), ("1", "%RETRY%G_T"), ("2", "%RETRY%G+T"), ("7", "T")])
def test_a_batch_ack_names_the_topic_by_its_flag(flag: str, topic: str) -> None:
    (entry,) = BatchAck.decode(BATCH_JSON.replace(b'"r":"0"', f'"r":"{flag}"'.encode())).acks

    assert entry.real_topic() == topic


@pytest.mark.parametrize(("bits", "count"), [("", 0), ("AA==", 0), ("/" * 100_000, MAX_BITS)])
def test_the_bits_have_a_limit(bits: str, count: int) -> None:
    (entry,) = BatchAck.decode(BATCH_JSON.replace(b"BQI=", bits.encode())).acks

    assert len(entry.offsets()) == count


def test_bits_that_are_not_base64_are_refused() -> None:
    (entry,) = BatchAck.decode(BATCH_JSON.replace(b"BQI=", b"!!!")).acks

    with pytest.raises(BodyError, match="not base64"):
        entry.offsets()


@given(st.sets(st.integers(100, 100 + MAX_BITS - 1), max_size=40))
def test_any_offsets_survive_their_bits(offsets: set[int]) -> None:
    (entry,) = BatchAck.decode(BATCH_JSON.replace(b"BQI=", encode_bits(100, offsets).encode())).acks

    assert entry.offsets() == sorted(offsets)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (
            QueueAssignments((QueueAssignment(MessageQueue("T", "b-a", -1), "POP"),)),
            b'{"messageQueueAssignments":[{"messageQueue":{"brokerName":"b-a","queueId":-1,"topic":"T"},"mode":"POP"}]}',
        ),
        (QueueAssignments(), b"{}"),
        (QueueAssignments(()), b'{"messageQueueAssignments":[]}'),
        (RequestMode("T", "G", "POP", 8), b'{"consumerGroup":"G","mode":"POP","popShareQueueNum":8,"topic":"T"}'),
    ],
)
def test_assignments_and_modes_of_rocketmq(value: Any, data: bytes) -> None:
    assert value.encode() == data
    assert type(value).decode(data) == value


def test_the_order_of_a_pop_is_a_text() -> None:
    ext = {"consumerGroup": "G", "topic": "T", "queueId": "-1", "maxMsgNums": "32", "invisibleTime": "60000"}
    header = PopMessage.decode(ext | {"pollTime": "0", "initMode": "1", "order": "false"})

    assert (header.order, header.born_time, header.exp) == (False, 0, None)


def test_an_answer_says_where_the_leases_of_its_messages_start() -> None:
    queues = PoppedQueues.parse("0 3 100;1 0 7", "0 3 100,102;1 0 9")

    assert (queues.start(0, 3, 102), queues.start(1, 0, 9)) == (100, 7)
    for flag, queue_id, offset in ((0, 3, 101), (2, 0, 9), (0, 4, 100)):
        with pytest.raises(BodyError, match="without a lease"):
            queues.start(flag, queue_id, offset)
    assert PoppedQueues.parse(None, None).start(0, 1, 5) == 5


@pytest.mark.parametrize(("starts", "offsets"), [("0 3", ""), ("0 3 x", ""), ("", "0 3 1,,2"), ("0 1 2 3", "")])
def test_malformed_offsets_of_an_answer_are_refused(starts: str, offsets: str) -> None:
    with pytest.raises(BodyError, match="malformed"):
        PoppedQueues.parse(starts, offsets)


@pytest.mark.parametrize("group", ['G","c":"other', "back\\slash", "line\nend", "Gruppe ä"])
def test_a_group_that_a_client_sent_is_only_a_group_in_records(group: str) -> None:
    ack = Ack(3, 1, group, "T", 0, 7, "broker-a")
    point = CheckPoint(1, 7, 1000, 0, "T", group, 1, (2,), "broker-a")

    assert Ack.decode(ack.encode()) == ack
    assert CheckPoint.decode(point.encode()) == point
