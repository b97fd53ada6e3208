"""A real broker whose writes to the log really stall: what still works, and what is stored afterwards."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.broker_line import BrokerLine
from tests.assault.injector import Injector, unavailable
from tests.broker.flood import DEADLINE_S, QUEUES, Flood
from tests.broker.test_real_processes import assert_all_there, until
from tests.cli.program import Start, ended, programs, ready

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=unavailable() or "")
ALWAYS = ("--set", "slowWriteMillis=0")


@pytest.fixture
def injector(tmp_path: Path) -> Iterator[Injector]:
    with Injector(tmp_path / "injector") as made:
        yield made


@pytest.fixture
def start(tmp_path: Path, injector: Injector) -> Iterator[Start]:
    with programs(tmp_path, "broker", "--json", "--port", "0", "--data", "data") as starter:
        yield lambda *args, **variables: starter(
            *("--set", "autoCreateTopicEnable=true", "--set", "vipChannelEnable=false", *args),
            **injector.environment,
            **variables,
        )


def slowest_answer(line: BrokerLine, seconds: float) -> float:
    """Query the end of a queue repeatedly; returns the duration of the slowest answer."""
    slowest = 0.0
    until_s = time.monotonic() + seconds
    while (began := time.monotonic()) < until_s:
        line.max_offset("T", 0)
        slowest = max(slowest, time.monotonic() - began)
    return slowest


@pytest.mark.parametrize(
    ("settings", "is_announced", "flush"), [(ALWAYS, False, "async"), ((), True, "async"), (ALWAYS, False, "sync")]
)
def test_a_stalled_log_write_stops_only_sends(
    start: Start, injector: Injector, settings: tuple[str, ...], is_announced: bool, flush: str
) -> None:
    process = start("--flush", flush, *settings)
    port = ready(process)["port"]
    flood, other = Flood(port, "flood"), Flood(port, "other")
    until(lambda: len(flood.acknowledged) > 200)
    with BrokerLine(port) as line:
        if is_announced:
            with injector.fault("write", "stall", 500, path="commitlog", times=1) as sign:
                until(lambda: sign.hits)
        with injector.fault("write", "stall", 3_000, path="commitlog", times=1) as stall:
            until(lambda: stall.hits)
            slowest = slowest_answer(line, 2.5)
        before = len(flood.acknowledged)
        until(lambda: len(flood.acknowledged) > before + 200)
    process.terminate()
    ended(process)
    acknowledged = flood.end() + other.end()

    assert slowest < 1.0
    assert (flood.words | other.words) & {"TIMEOUT_CLEAN_QUEUE", "REJECTREQUEST"}
    with BrokerLine(ready(start("--flush", flush))["port"]) as line:
        assert_all_there(line, acknowledged)


def test_a_stalled_write_to_consume_queues_stops_nothing(start: Start, injector: Injector) -> None:
    process = start()
    port = ready(process)["port"]
    flood, other = Flood(port, "flood"), Flood(port, "other")
    until(lambda: len(flood.acknowledged) > 200)
    with BrokerLine(port) as line, injector.fault("write", "stall", 3_000, path="consumequeue", times=1) as stall:
        until(lambda: stall.hits)
        before = len(flood.acknowledged)
        slowest = slowest_answer(line, 2.5)
        during = len(flood.acknowledged) - before
    process.terminate()
    ended(process)
    acknowledged = flood.end() + other.end()

    assert slowest < 1.0
    assert during > 200
    with BrokerLine(ready(start())["port"]) as line:
        assert_all_there(line, acknowledged)


def test_a_kill_during_a_stalled_write_loses_no_acknowledged_message(start: Start, injector: Injector) -> None:
    process = start(*ALWAYS)
    flood = Flood(ready(process)["port"], "flood")
    until(lambda: len(flood.acknowledged) > 200)
    with injector.fault("write", "stall", 5_000, path="commitlog", times=1) as stall:
        until(lambda: stall.hits)
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE_S)
    acknowledged = flood.end()

    with BrokerLine(ready(start())["port"]) as line:
        assert_all_there(line, acknowledged)


def test_a_stop_during_a_stalled_write_waits_for_it(start: Start, injector: Injector) -> None:
    process = start(*ALWAYS)
    flood = Flood(ready(process)["port"], "flood")
    until(lambda: len(flood.acknowledged) > 200)
    with injector.fault("write", "stall", 2_000, path="commitlog", times=1) as stall:
        until(lambda: stall.hits)
        process.terminate()
        ended(process)
    acknowledged = flood.end()

    assert process.returncode == 0
    with BrokerLine(ready(start())["port"]) as line:
        assert_all_there(line, acknowledged)
        found = sum(line.max_offset("T", queue_id) for queue_id in range(QUEUES))
    assert len(acknowledged) <= found <= len(acknowledged) + 64
