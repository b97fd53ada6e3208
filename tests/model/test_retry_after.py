"""Retry-after: written by a broker, read by a client."""

import pytest

from pocketmq.model.retries import retry_after_ms, with_retry_after


@pytest.mark.parametrize(
    ("remark", "wait_ms"),
    [
        ("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, retry after: 120ms", 120),
        ("retry after: 0ms", 0),
        ("retry after: 30ms\n", 30),
        ("first retry after: 1ms, then retry after: 70ms", 70),
        ("retry after: 999999999ms", 999_999_999),
        ("retry after: 1000000000ms", None),
        ("retry after: 120ms or so", None),
        ("retry after: -5ms", None),
        ("retry after: 5s", None),
        ("[PCBUSY_CLEAN_QUEUE]broker busy", None),
        ("", None),
        (None, None),
    ],
)
def test_the_end_of_a_remark_says_when_to_come_back(remark: str | None, wait_ms: int | None) -> None:
    assert retry_after_ms(remark) == wait_ms


@pytest.mark.parametrize(("wait_ms", "read"), [(0, 0), (120, 120), (-7, 0)])
def test_what_a_broker_writes_is_read(wait_ms: int, read: int) -> None:
    remark = with_retry_after("[REJECTREQUEST]the log has not taken writes for 1200 ms.", wait_ms)

    assert remark.startswith("[REJECTREQUEST]the log has not taken writes for 1200 ms. ")
    assert retry_after_ms(remark) == read
