"""Records of the timer topic: their requests, and the properties that are added to them."""

import pytest
from tests.store.kit import HOST

from pocketmq.broker.delivery.timer_progress import (
    TimerRequest,
    delivered_properties,
    read_timer_request,
    recall_key,
    recalls,
    rolled_properties,
)
from pocketmq.errors import InvalidMessage
from pocketmq.model.properties import MAX_BYTES, parse_properties
from pocketmq.protocol.record import decode_record, encode_record


def record_with(properties: str, store_ms: int = 1_700_000_000_999) -> bytes:
    return encode_record(b"T", 0, 0, 0, b"body", properties.encode(), 0, 0, 0, HOST, store_ms, HOST)


def test_a_record_requests_a_time() -> None:
    assert read_timer_request(record_with("TIMER_OUT_MS\x017000\x02")) == TimerRequest(7000, None)


def test_a_recall_requests_that_another_message_is_not_delivered() -> None:
    record = record_with("TIMER_OUT_MS\x017000\x02TIMER_DEL_UNIQKEY\x01T+U\x02")

    assert read_timer_request(record) == TimerRequest(7000, b"T+U")
    assert recalls(decode_record(record).raw_properties)
    assert not recalls(b"UNIQ_KEY\x01U\x02")
    assert recall_key("T", b"UNIQ_KEY\x01U\x02") == b"T+U"


@pytest.mark.parametrize("time", ["", "-1", "soon", "1" * 19, "1.5"])
def test_an_invalid_time_is_refused(time: str) -> None:
    with pytest.raises(InvalidMessage, match="is not a time"):
        read_timer_request(record_with(f"TIMER_OUT_MS\x01{time}\x02"))


def test_a_truncated_record_is_refused() -> None:
    with pytest.raises(InvalidMessage):
        read_timer_request(record_with("TIMER_OUT_MS\x017000\x02")[:60])


@pytest.mark.parametrize("end", ["", "\x02"])
def test_a_delivered_message_contains_the_times_of_its_wait(end: str) -> None:
    message = decode_record(record_with("TIMER_OUT_MS\x017000" + end))

    properties = parse_properties(delivered_properties(message, 9876, 1000).decode())

    assert properties == {
        "TIMER_OUT_MS": "7000",
        "TIMER_ENQUEUE_MS": "1700000000000",
        "TIMER_DEQUEUE_MS": "9876",
    }


def test_a_rolled_message_keeps_its_first_time_and_counts_its_rolls() -> None:
    message = decode_record(record_with("TIMER_OUT_MS\x017000\x02"))
    once = rolled_properties(message, 1000)
    again = decode_record(record_with(once.decode(), store_ms=1_800_000_000_000))

    assert parse_properties(once.decode())["TIMER_ROLL_TIMES"] == "1"
    twice = parse_properties(rolled_properties(again, 1000).decode())
    assert (twice["TIMER_ROLL_TIMES"], twice["TIMER_ENQUEUE_MS"]) == ("2", "1700000000000")


def test_properties_without_space_for_more_stay_unchanged() -> None:
    full = "TIMER_OUT_MS\x017000\x02A\x01" + "x" * (MAX_BYTES - 21) + "\x02"
    message = decode_record(record_with(full))

    assert delivered_properties(message, 9876, 1000) == full.encode()
    assert rolled_properties(message, 1000) == full.encode()
