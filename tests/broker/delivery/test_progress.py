"""Progress of timers in files: ours, and Apache's."""

import pytest
from tests.golden import GOLDEN, needs_golden

from pocketmq.broker.delivery.timer_progress import Frontier, Step, TimerCheck, TimerProgress
from pocketmq.errors import ProtocolError


def test_progress_is_restored_from_its_file() -> None:
    progress = TimerProgress.of(100, 500, Frontier((Step(80, 7000, 90), Step(300, 4000, 310))))

    data = progress.json()

    assert TimerProgress.parse(data) == progress
    assert b'"readTo":500' in data


def test_messages_not_read_before_the_save_are_not_done() -> None:
    frontier = TimerProgress.of(0, 500, Frontier((Step(0, 7000, 90),))).frontier()

    assert frontier.is_done(1000, 499)
    assert not frontier.is_done(1000, 500)


def test_empty_progress_means_that_nothing_is_done() -> None:
    assert not TimerProgress.parse(b"{}").frontier().is_done(0, 0)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"readTo":"x"}', b'{"done":[{}]}', b"null"])
def test_invalid_progress_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        TimerProgress.parse(data)


@needs_golden
def test_the_progress_of_an_apache_broker_can_be_read() -> None:
    data = (GOLDEN / "store/5.3.3/clean/config/timercheck").read_bytes()

    assert TimerCheck.parse(data) == TimerCheck(out_ms=1794735318000, queue_offset=1)


@pytest.mark.parametrize("data", [b"", bytes(23), b"\xff" * 56])
def test_an_invalid_timercheck_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="timercheck"):
        TimerCheck.parse(data)
