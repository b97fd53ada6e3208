"""Retry-after: written by a broker, read by a client."""

import pytest

from pocketmq.model.retries import retry_after_ms


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
def test_the_end_of_a_remark_has_the_retry_time(remark: str | None, wait_ms: int | None) -> None:
    assert retry_after_ms(remark) == wait_ms
