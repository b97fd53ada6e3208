"""Results of sends from responses."""

import pytest

from pocketmq.client.producer.results import SendResult, SendStatus, result_of, split_result
from pocketmq.errors import HeaderError, TopicNotFound
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.command import Command

QUEUE = MessageQueue("T", "b", 1)
ANSWER = {"msgId": "O1", "queueId": "1", "queueOffset": "9"}


def test_an_answer_of_rocketmq_4_is_sufficient() -> None:
    assert result_of(Command(0, ANSWER), "U1", QUEUE) == SendResult(SendStatus.SEND_OK, "U1", "O1", QUEUE, 9)


def test_all_fields_of_an_answer_of_rocketmq_5_are_kept() -> None:
    more = {"transactionId": "U1", "recallHandle": "R", "MSG_REGION": "here", "TRACE_ON": "false"}

    result = result_of(Command(0, ANSWER | more), "U1", QUEUE)

    assert (result.transaction_id, result.recall_handle, result.region, result.trace_on) == ("U1", "R", "here", False)


@pytest.mark.parametrize("code", [0, 10, 11, 12])
def test_four_codes_mean_stored(code: int) -> None:
    assert result_of(Command(code, ANSWER), "U1", QUEUE).is_ok is (code == 0)


def test_other_codes_are_raised() -> None:
    with pytest.raises(TopicNotFound, match="no such thing"):
        result_of(Command(17, remark="no such thing"), "U1", QUEUE)


@pytest.mark.parametrize("ext", [None, {}, {**ANSWER, "queueId": "x"}, {**ANSWER, "queueOffset": ""}])
def test_an_answer_without_its_fields_is_an_error(ext: dict[str, str] | None) -> None:
    with pytest.raises(HeaderError):
        result_of(Command(0, ext), "U1", QUEUE)


def test_a_batch_is_a_result_for_each_message() -> None:
    whole = SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "batch", "O1,O2", QUEUE, 9, region="r", trace_on=False)

    assert split_result(whole, ["U1", "U2"]) == [
        SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "U1", "O1", QUEUE, 9, region="r", trace_on=False),
        SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "U2", "O2", QUEUE, 10, region="r", trace_on=False),
    ]


def test_a_batch_stored_as_one_record_has_one_offset_id() -> None:
    whole = SendResult(SendStatus.SEND_OK, "batch", "O1", QUEUE, 9)

    assert [result.offset_id for result in split_result(whole, ["U1", "U2"])] == ["O1", "O1"]
