"""The driver's part of a streaming read against a real broker: what it reports about the query, and its end."""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, delete_old_messages, fill, new_topic, old_broker_settings, options, queue

from pocketmq import Admin, Server
from pocketmq.errors import ConnectionLost, DataLost
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.read.stream_driver import StreamDriver
from pocketmq.spark.read.stream_reader import TopicStreamReader


@pytest.fixture(scope="module")
def forgetful() -> Iterator[Broker]:
    """A broker that keeps messages as short as can be."""
    with Server(flush="sync", settings=old_broker_settings()) as server:
        yield Broker.of(server)


def driver(broker: Broker, topic: str, **given: str | int) -> StreamDriver:
    quick: dict[str, str | int] = {
        "latestOffset_minIntervalMs": 0,
        "partition_metadata_cache_ttl_ms": 0,
        "startingOffsets": "earliest",
        "retentionWarning": "1ms",
        "rocketmqConsumer_idleTimeoutMs": 0,
    }
    read = options(broker, subscribe=topic, **{**quick, **given})
    return StreamDriver(parse_read_options(read, streaming=True, environ={}))


def test_a_query_gets_a_warning_and_then_loses_the_exact_range(
    forgetful: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(forgetful, queues=1)
    fill(forgetful, topic, ["x" * 3000] * 100)
    slow = driver(forgetful, topic, maxOffsetsPerTrigger=5, groupId="slow")

    with caplog.at_level(logging.WARNING):
        first = slow.next(None, everything=False)
        second = slow.next(first, everything=False)

    told = slow.latest_seen()
    assert told is not None
    assert [(one["queueId"], one["offset"], one["minOffset"]) for one in told["endangered"]] == [(0, 5, 0)]
    assert told["groupId"] == "slow"
    assert "message 5, the next to read, will be deleted at any moment; the queue now begins at 0" in caplog.text

    low = delete_old_messages(forgetful, topic)
    with pytest.raises(DataLost, match=rf"{topic}@.*:0 from 10 to {low} \(retention\)"):
        slow.next(second, everything=False)

    patient = driver(forgetful, topic, onDataLoss="skip")
    third = patient.next(second, everything=False)
    assert [(lost.range.start, lost.range.end) for lost in third.lost] == [(10, low)]
    assert third.first == {queue(forgetful, topic, 0): low}
    for each in (slow, patient):
        each.close()


def test_removed_queues_are_logged_and_continue_when_they_return(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(broker, queues=2)
    fill(broker, topic, ["a", "b"], number=1)
    reading = driver(broker, topic, maxOffsetsPerTrigger=1)
    first = reading.next(None, everything=False)

    with Admin(broker.name_server) as admin:
        admin.topics.alter(topic, queues=1)
        with caplog.at_level(logging.WARNING):
            assert reading.next(first, everything=False) is first
        told = reading.latest_seen()
        admin.topics.alter(topic, queues=2)
    second = reading.next(first, everything=False)

    assert told is not None
    assert [(one["queueId"], one["start"], one["end"]) for one in told["missing"]] == [(1, 1, 2)]
    assert "messages from 1 to 2 are unread" in caplog.text
    assert second.queues[queue(broker, topic, 1)] == 2
    assert "missing" not in (reading.latest_seen() or {})


def test_failed_commits_are_repeated_at_the_end(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a"])
    reading = driver(broker, topic, groupId=f"late-{topic}")
    end = reading.next(None, everything=False)

    def away(*_: object) -> None:
        raise ConnectionLost("away")

    with monkeypatch.context() as broken:
        broken.setattr(ClientMetadata, "commit", away)
        reading.next(end, everything=False)
    reading.close()

    with Admin(broker.name_server) as admin:
        assert admin.offsets.committed(f"late-{topic}", topic) == {queue(broker, topic, 0): 1}


def test_the_first_stop_signal_exits_and_later_ones_have_no_effect(broker: Broker) -> None:
    given = parse_read_options(options(broker, subscribe="any"), streaming=True, environ={})
    reader = TopicStreamReader(given, ())

    with pytest.raises(SystemExit):
        reader._terminate()
    reader._terminate()


def test_a_stop_signal_after_the_stop_ends_the_process_without_an_exception(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    reader = TopicStreamReader(parse_read_options(options(broker, subscribe="any"), streaming=True, environ={}), ())
    reader.stop()

    with monkeypatch.context() as patched, suppress(SystemExit):
        patched.setattr(os, "_exit", codes.append)
        reader._terminate()

    assert codes == [0]
