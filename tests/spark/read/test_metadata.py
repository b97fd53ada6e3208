"""Queries to brokers about queues: with a real one, cached for some time, and repeated after failures."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options, queue

from pocketmq import Admin
from pocketmq.client.cluster.calls import OffsetCalls
from pocketmq.errors import CallTimedOut, PocketMQError, TopicNotFound
from pocketmq.model.queue import MessageQueue
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.read import metadata
from pocketmq.spark.read.metadata import RETENTION_TTL_S, ClientMetadata
from pocketmq.spark.shared_clients import READING, ReadingCore
from pocketmq.testing import FakeClock


@contextmanager
def asking(
    broker: Broker, clock: FakeClock | None = None, *, retries: int = 0, waits: list[float] | None = None
) -> Iterator[ClientMetadata]:
    connection = parse_read_options(options(broker, subscribe="any"), streaming=False, environ={}).connection
    slept = waits if waits is not None else []
    with READING.borrow(connection, 60_000) as client:
        yield ClientMetadata(
            client, retries=retries, retry_interval_ms=500, ttl_ms=10_000, clock=clock, sleep=slept.append
        )


def last_stored_ms(asked: ClientMetadata, place: MessageQueue, offset: int) -> int:
    """When the message there was stored; Apache enters it into its queue a moment after the send."""
    deadline = time.monotonic() + 10
    while not (stored := asked.stored_ms("looking", {place: offset})):
        assert time.monotonic() < deadline, f"{place} has nothing at {offset}"
    return stored[place]


def test_a_deleted_topic_does_not_decide_about_sql92(broker: Broker) -> None:
    topic, gone = new_topic(broker), new_topic(broker)
    with asking(broker) as asked:
        assert asked.queues(gone)
        with Admin(broker.name_server) as admin:
            admin.topics.delete(gone)

        assert asked.brokers_without_sql([queue(broker, gone, 0)]) == []
        assert asked.brokers_without_sql([queue(broker, gone, 0), queue(broker, topic, 0)]) == []


def test_queues_and_their_offsets_are_queried(broker: Broker) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b"], number=1)
    first, second = queue(broker, topic, 0), queue(broker, topic, 1)

    with asking(broker) as asked:
        assert topic in asked.topics()
        assert sorted(asked.queues(topic)) == [first, second]
        assert asked.bounds([first, second]) == {first: Bounds(0, 0), second: Bounds(0, 2)}
        assert asked.bounds([]) == {}
        stored = last_stored_ms(asked, second, 1)
        assert asked.earliest_store_ms([first, second])[first] == -1
        assert asked.offsets_at({second: stored + 60_000}) == {second: 2}
        assert asked.offsets_at({second: 0}) == {second: 0}
        assert set(asked.bytes_per_message("looking", {first: 0, second: 0})) == {second}


def test_a_broker_with_inexact_searches_by_time_is_corrected(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(broker, queues=1)
    place = queue(broker, topic, 0)
    fill(broker, topic, ["a", "b", "c", "d"])

    async def as_in_4_9(calls: OffsetCalls, wire_queue: MessageQueue, time_ms: int) -> int:
        return await calls.largest(wire_queue) - 1

    monkeypatch.setattr(OffsetCalls, "at_time", as_in_4_9)

    with asking(broker) as asked:
        stored = [last_stored_ms(asked, place, offset) for offset in range(4)]
        times = [0, stored[0], stored[3], stored[3] + 1, stored[3] + 60_000]
        found = [asked.offsets_at({place: time_ms})[place] for time_ms in times]

    assert found == [0, 0, stored.index(stored[3]), 4, 4]


def test_a_commit_creates_a_missing_group(broker: Broker) -> None:
    topic = new_topic(broker, queues=1)
    place = queue(broker, topic, 0)
    fill(broker, topic, ["a"])

    with asking(broker) as asked:
        assert asked.committed(f"new-{topic}", [place]) == {}
        asked.commit(f"new-{topic}", {place: 1})
        assert asked.committed(f"new-{topic}", [place]) == {place: 1}


def test_the_first_offsets_of_a_new_group_are_committed_one_broker_after_another(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker, queues=3)
    places = {queue(broker, topic, number): 0 for number in range(3)}
    commit = OffsetCalls.commit
    sent: list[MessageQueue] = []
    sent_before_an_answer: list[int] = []

    async def noted(calls: OffsetCalls, group: str, wire_queue: MessageQueue, offset: int) -> None:
        sent.append(wire_queue)
        await commit(calls, group, wire_queue, offset)
        sent_before_an_answer.append(len(set(sent)))

    monkeypatch.setattr(OffsetCalls, "commit", noted)

    with asking(broker) as asked:
        asked.commit(f"new-{topic}", places)
        assert asked.committed(f"new-{topic}", list(places)) == places

    assert sent_before_an_answer == [1, 3, 3]


def test_queues_are_cached_for_a_limited_time(broker: Broker) -> None:
    topic = new_topic(broker, queues=1)
    clock = FakeClock()

    with asking(broker, clock) as asked:
        assert len(asked.queues(topic)) == 1
        with Admin(broker.name_server) as admin:
            admin.topics.alter(topic, queues=3)
        clock.advance_ms(9_999)
        assert len(asked.queues(topic)) == 1
        clock.advance_ms(1)
        assert len(asked.queues(topic)) == 3


def test_topics_are_cached_for_a_limited_time(broker: Broker) -> None:
    clock = FakeClock()

    with asking(broker, clock) as asked:
        before = asked.topics()
        topic = new_topic(broker)
        clock.advance_ms(9_999)
        assert asked.topics() == before
        clock.advance_ms(1)
        assert topic in asked.topics()


def test_the_retention_time_of_a_broker_is_cached(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    names = frozenset({broker.name})

    with asking(broker, clock) as asked:
        kept = asked.retention_ms(names)
        monkeypatch.setattr(asked, "_query_retention_ms", lambda name: None)
        assert asked.retention_ms(names) == kept
        clock.advance_ms(int(RETENTION_TTL_S * 1000))
        assert asked.retention_ms(names) == {}

    assert kept[broker.name] % 3_600_000 == 0


def test_a_broker_that_does_not_report_is_omitted(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object) -> dict[str, str]:
        raise TopicNotFound("no right to ask")

    monkeypatch.setattr("pocketmq.client.cluster.calls.StateCalls.settings", refused)

    with asking(broker) as asked:
        assert asked.retention_ms(frozenset({broker.name})) == {}


def test_a_temporary_failure_is_logged_and_retried(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(broker)
    failures: list[PocketMQError] = [CallTimedOut("slow"), CallTimedOut("slow again")]
    real = metadata._readable

    async def readable(core: ReadingCore, topic: str) -> object:
        if failures:
            raise failures.pop()
        return await real(core, topic)

    monkeypatch.setattr(metadata, "_readable", readable)
    waits: list[float] = []
    with caplog.at_level(logging.WARNING), asking(broker, retries=2, waits=waits) as asked:
        assert len(asked.queues(topic)) == 2

    assert waits == [0.5, 0.5]
    assert caplog.text.count("; retrying in ") == 2


def test_a_permanent_failure_is_not_retried(broker: Broker) -> None:
    waits: list[float] = []

    with asking(broker, retries=5, waits=waits) as asked, pytest.raises(TopicNotFound):
        asked.queues("nobody-made-it")

    assert waits == []
