"""Refusals: they are counted, logged once, and use bounded memory."""

import logging

import pytest

from pocketmq.access.authentication import MAX_LOGGED, Cause, Refusals
from pocketmq.access.settings import AuthenticationSettings
from pocketmq.errors import InvalidSetting


def refusals(**settings: int) -> Refusals:
    return Refusals(AuthenticationSettings(**settings))


def record(
    box: Refusals, host: str = "10.0.0.1", cause: Cause = Cause.SIGNATURE, who: str = "a", now: float = 0
) -> bool:
    return box.record(host, cause, who, f"request 310 by {who}: no", now)


def test_too_many_failures_close_the_connection_until_the_time_window_ends() -> None:
    box = refusals(max_failures=3, window_s=60)

    assert [record(box, now=second) for second in range(5)] == [False, False, False, True, True]
    assert not record(box, host="10.0.0.2", now=5)
    assert record(box, now=59.9)
    assert not record(box, now=60)
    assert box.connections_closed == 3


def test_a_known_account_without_permission_keeps_its_connection() -> None:
    box = refusals(max_failures=1)

    assert not any(record(box, cause=Cause.RIGHT) for _ in range(100))
    assert box.counts[Cause.RIGHT] == 100


def test_each_cause_of_an_address_is_logged_once_per_time_window(caplog: pytest.LogCaptureFixture) -> None:
    box = refusals(window_s=60)

    for now in (0, 1, 59):
        record(box, now=now)
        record(box, cause=Cause.UNSIGNED, who="", now=now)
        record(box, host="10.0.0.2", now=now)
    told = len(caplog.records)
    record(box, now=61)

    assert told == 3
    assert len(caplog.records) == 4
    assert caplog.records[0].getMessage() == (
        "Rejected 10.0.0.1: request 310 by a: no; further rejections with this cause are not logged for 60 s"
    )


def test_invented_names_fill_neither_memory_nor_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    box = refusals(max_addresses=10)

    for number in range(10_000):
        record(box, cause=Cause.UNKNOWN, who=str(number))
    for number in range(1_000):
        record(box, host=f"10.0.{number // 256}.{number % 256}", now=1)

    assert len([record for record in caplog.records if "10.0.0.1," in record.getMessage()]) <= MAX_LOGGED + 1
    assert len(box) == 10
    assert box.counts == {Cause.UNKNOWN: 10_000, Cause.SIGNATURE: 1_000}


def test_everything_is_counted_for_administrators() -> None:
    box = refusals(max_failures=1)
    record(box, cause=Cause.UNSIGNED)
    record(box)
    record(box)

    assert box.runtime_info() == {
        "refusedUnsigned": "1",
        "refusedUnknownAccessKey": "0",
        "refusedWrongSource": "0",
        "refusedWrongSignature": "2",
        "refusedNoRight": "0",
        "connectionsClosedByFailures": "2",
    }


@pytest.mark.parametrize("name", ["max_failures", "window_s", "max_addresses"])
def test_every_limit_must_be_above_zero(name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} = 0 must be above 0"):
        AuthenticationSettings(**{name: 0})
