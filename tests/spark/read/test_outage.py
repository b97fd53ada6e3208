"""Temporarily unavailable brokers: how long a streaming query waits for them, and what it reports."""

import logging
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options, queue
from tests.spark.read.test_stream_driver import driver

from pocketmq.errors import CallTimedOut, ConnectFailed, ConnectionLost, InvalidSetting
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.read import metadata
from pocketmq.spark.read import stream_health as outage
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.read.stream_driver import StreamDriver
from pocketmq.spark.read.stream_health import Outage
from pocketmq.testing import FakeClock

AWAY = ConnectFailed("127.0.0.1:10911 refused")


def outage_of(clock: FakeClock, **given: str | int) -> Outage:
    read = options(Broker("127.0.0.1:9876", "broker-a"), subscribe="any", **given)
    return Outage(
        parse_read_options(read, streaming=True, environ={}),
        clock,
        lambda seconds: clock.advance_ms(round(seconds * 1000)),
    )


def waited_s(one: Outage, clock: FakeClock, *, is_new: bool = False) -> float:
    """How long an outage that does not end is survived."""
    began = clock.monotonic()
    try:
        for _ in range(1_000):
            one.record_failure(AWAY, is_new=is_new)
            one.pause()
    except (ConnectFailed, CallTimedOut):
        return clock.monotonic() - began
    pytest.fail("it is survived without a limit")


def test_a_query_waits_for_minutes_and_a_new_one_for_seconds() -> None:
    clock = FakeClock()

    assert 300 <= waited_s(outage_of(clock), clock) <= 305
    assert 60 <= waited_s(outage_of(clock, fetchOffset_retryTimeout="1m"), clock) <= 65
    assert waited_s(outage_of(clock), clock, is_new=True) == 7
    assert waited_s(outage_of(clock, fetchOffset_numRetries=0), clock, is_new=True) == 0


def test_the_last_error_has_the_duration_and_advice() -> None:
    clock = FakeClock()
    one = outage_of(clock, fetchOffset_retryTimeout="10s")
    one.record_failure(AWAY, is_new=False)
    clock.advance_ms(10_000)

    with pytest.raises(CallTimedOut, match=r"not responded for 10 s \(fetchOffset.retryTimeout is 10 s\).* refused"):
        one.record_failure(AWAY, is_new=False)


def test_a_permanent_failure_is_raised_at_once() -> None:
    with pytest.raises(InvalidSetting, match="no such thing"):
        outage_of(FakeClock()).record_failure(InvalidSetting("no such thing"), is_new=False)


def test_the_log_has_the_start_and_the_end_of_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    one = outage_of(clock)

    with caplog.at_level(logging.WARNING):
        for _ in range(12):
            one.record_failure(AWAY, is_new=False)
            one.pause()
        one.end()
        one.end()

    assert caplog.text.count("No response from brokers for") == 3
    assert caplog.text.count("Brokers respond again") == 1


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Brokers answer no question about queues until it is called."""

    def bounds(*_: object) -> None:
        raise ConnectionLost("away")

    monkeypatch.setattr(outage, "MAX_PAUSE_S", 0.0)
    with monkeypatch.context() as broken:
        broken.setattr(ClientMetadata, "bounds", bounds)
        yield broken.undo


def begun(broker: Broker, topic: str, **given: str | int) -> tuple[StreamDriver, Any]:
    reading = driver(broker, topic, fetchOffset_retryIntervalMs=0, groupId=f"of-{topic}", **given)
    return reading, reading.next(None, everything=False)


def test_a_query_survives_an_outage_of_its_brokers_and_reports_it(
    broker: Broker, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a"])
    reading, first = begun(broker, topic)
    come_back = request.getfixturevalue("away")

    assert [reading.next(first, everything=False) for _ in range(20)] == [first] * 20
    told = reading.latest_seen()
    come_back()
    fill(broker, topic, ["b"])
    second = reading.next(first, everything=False)

    assert told is not None
    assert (told["outage"]["failures"], told["outage"]["error"]) == (20, "ConnectionLost: away")
    assert second.queues == {queue(broker, topic, 0): 2}
    assert "outage" not in (reading.latest_seen() or {})


def test_a_query_with_available_now_does_not_end_during_an_outage(
    broker: Broker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a", "b"])
    reading, first = begun(broker, topic, maxOffsetsPerTrigger=1)
    reading.fix_target()
    come_back = request.getfixturevalue("away")
    monkeypatch.setattr(Outage, "pause", lambda one: come_back() if one.is_on else None)

    assert reading.next(first, everything=False).queues == {queue(broker, topic, 0): 2}


def test_a_new_query_fails_after_its_retries(broker: Broker, away: object) -> None:
    reading = driver(broker, new_topic(broker), fetchOffset_retryIntervalMs=0)

    with pytest.raises(ConnectionLost, match="away"):
        reading.next(None, everything=False)


def test_a_query_stopped_in_an_outage_sends_no_further_query(
    broker: Broker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, first = begun(broker, new_topic(broker))
    request.getfixturevalue("away")
    reading.next(first, everything=False)
    monkeypatch.setattr(ClientMetadata, "commit", lambda *_: pytest.fail("brokers are asked"))

    reading.publish(first.queues)
    reading.close()


def test_without_name_servers_the_queues_that_are_known_are_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a"])
    reading, first = begun(broker, topic)

    async def no_route(*_: object) -> None:
        raise AWAY

    with monkeypatch.context() as broken:
        broken.setattr(metadata, "_readable", no_route)
        fill(broker, topic, ["b"])
        second = reading.next(first, everything=False)
        reading.next(second, everything=False)
        told = reading.latest_seen()
    reading.next(second, everything=False)

    assert second.queues == {queue(broker, topic, 0): 2}
    assert told is not None
    assert "refused" in told["nameServersProblem"]
    assert caplog.text.count("No name server responds") == 1
    assert "nameServersProblem" not in (reading.latest_seen() or {})
