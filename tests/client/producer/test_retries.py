"""The retry rules of a send, as a table."""

import pytest

from pocketmq.client.producer.fault_strategy import RETRIED_CODES, SendKind, SendRetries
from pocketmq.codes import ResponseCode
from pocketmq.errors import (
    CallTimedOut,
    ConnectionLost,
    InvalidMessage,
    PocketMQError,
    ProtocolError,
    TooManyCalls,
    WrongState,
    error_for,
)

AWAITED, CALLBACK, ONE_WAY = SendKind.AWAITED, SendKind.CALLBACK, SendKind.ONE_WAY
EAGER = SendRetries(when_not_stored=True, when_busy=True)

TABLE: list[tuple[PocketMQError, int | None, int | None, int | None, int | None]] = [
    # failure, awaited, callback, and both with the option to retry all errors that may be retried
    (ConnectionLost("cut"), 0, 0, 0, 0),
    (CallTimedOut("late"), 0, 0, 0, 0),
    (TooManyCalls("full"), 0, None, 0, None),
    (error_for(ResponseCode.SYSTEM_ERROR), 0, None, 0, None),
    (error_for(ResponseCode.SERVICE_NOT_AVAILABLE), 0, None, 0, None),
    (error_for(ResponseCode.NO_PERMISSION), 0, None, 0, None),
    (error_for(ResponseCode.TOPIC_NOT_EXIST), 0, None, 0, None),
    (error_for(ResponseCode.NO_BUYER_ID), 0, None, 0, None),
    (error_for(ResponseCode.NOT_IN_CURRENT_UNIT), 0, None, 0, None),
    (error_for(ResponseCode.GO_AWAY), 0, None, 0, None),
    (error_for(ResponseCode.FLUSH_DISK_TIMEOUT), None, None, 0, None),
    (error_for(ResponseCode.SLAVE_NOT_AVAILABLE), None, None, 0, None),
    (error_for(ResponseCode.FLUSH_SLAVE_TIMEOUT), None, None, 0, None),
    (error_for(ResponseCode.SYSTEM_BUSY), None, None, 100, 100),
    (error_for(ResponseCode.FLOW_CONTROL, "slow down, retry after: 30ms"), None, None, 30, 30),
    (error_for(ResponseCode.MESSAGE_ILLEGAL), None, None, None, None),
    (error_for(ResponseCode.INVALID_PARAMETER), None, None, None, None),
    (error_for(4711), None, None, None, None),
    (InvalidMessage("empty"), None, None, None, None),
    (ProtocolError("what?"), None, None, None, None),
    (WrongState("closed"), None, None, None, None),
]


@pytest.mark.parametrize(
    ("failure", "awaited", "callback", "eager", "eager_callback"), TABLE, ids=lambda it: str(it)[:30]
)
def test_failures_are_retried_where_rocketmq_retries(
    failure: PocketMQError, awaited: int | None, callback: int | None, eager: int | None, eager_callback: int | None
) -> None:
    def wait(retries: SendRetries, kind: SendKind, *, is_pinned: bool = False) -> int | None:
        return retries.wait_ms(failure, attempts=1, left_ms=3000, kind=kind, is_pinned=is_pinned)

    assert wait(SendRetries(), AWAITED) == awaited
    assert wait(SendRetries(), CALLBACK) == callback
    assert wait(EAGER, AWAITED) == eager
    assert wait(EAGER, CALLBACK) == eager_callback
    assert wait(EAGER, ONE_WAY) is None
    assert wait(EAGER, AWAITED, is_pinned=True) is None
    assert wait(EAGER, CALLBACK, is_pinned=True) is None


def test_the_retried_codes_are_those_of_rocketmq_except_busy() -> None:
    assert {int(code) for code in RETRIED_CODES} == {17, 14, 1, 16, 204, 205, 1500}


@pytest.mark.parametrize(("attempts", "wait_ms"), [(1, 0), (2, 0), (3, None), (4, None)])
def test_two_retries_follow_the_first_attempt(attempts: int, wait_ms: int | None) -> None:
    assert SendRetries().wait_ms(ConnectionLost(), attempts=attempts, left_ms=1) == wait_ms


def test_without_retries_one_attempt_is_made() -> None:
    assert SendRetries(retries=0).wait_ms(ConnectionLost(), attempts=1, left_ms=3000) is None


@pytest.mark.parametrize(("left_ms", "wait_ms"), [(1, 0), (0.5, 0), (0, None), (-1, None)])
def test_all_attempts_share_one_timeout(left_ms: float, wait_ms: int | None) -> None:
    assert SendRetries().wait_ms(CallTimedOut(), attempts=1, left_ms=left_ms) == wait_ms


@pytest.mark.parametrize(("left_ms", "wait_ms"), [(121, 120), (120, None), (119, None)])
def test_a_broker_with_a_retry_time_after_the_deadline_is_not_retried(left_ms: int, wait_ms: int | None) -> None:
    busy = error_for(ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy retry after: 120ms")

    assert EAGER.wait_ms(busy, attempts=1, left_ms=left_ms) == wait_ms


@pytest.mark.parametrize(("attempts", "wait_ms"), [(1, 100), (2, 200), (3, 400)])
def test_without_a_retry_time_the_wait_doubles(attempts: int, wait_ms: int) -> None:
    busy = error_for(ResponseCode.SYSTEM_BUSY, "[PCBUSY_CLEAN_QUEUE]broker busy")

    assert SendRetries(retries=5, when_busy=True).wait_ms(busy, attempts=attempts, left_ms=3000) == wait_ms


@pytest.mark.parametrize(("chance", "wait_ms"), [(0.0, 200), (0.5, 250), (0.999, 299)])
def test_retries_of_refused_producers_are_spread(chance: float, wait_ms: int) -> None:
    busy = error_for(ResponseCode.SYSTEM_BUSY, "retry after: 200ms")

    assert EAGER.wait_ms(busy, attempts=1, left_ms=3000, chance=chance) == wait_ms
