"""New progress is published. A failure is logged, does not stop the query, and is repeated at the end."""

import logging
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq.errors import ConnectionLost
from pocketmq.model.queue import MessageQueue
from pocketmq.spark.read.stream_driver import OffsetPublisher

Q0, Q1 = (MessageQueue("orders", "broker-a", number) for number in range(2))


class Brokers:
    """Takes commits, or fails."""

    def __init__(self) -> None:
        self.commits: list[tuple[str, dict[MessageQueue, int]]] = []
        self.is_away = False

    def commit(self, group: str, places: dict[MessageQueue, int]) -> None:
        if self.is_away:
            raise ConnectionLost("away")
        self.commits.append((group, places))


def test_only_changed_offsets_are_published() -> None:
    brokers: Any = Brokers()
    progress = OffsetPublisher("watched")

    for places in ({Q0: 1, Q1: 1}, {Q0: 2, Q1: 1}, {Q0: 2, Q1: 1}):
        progress.record(places)
        progress.publish(brokers)

    assert brokers.commits == [("watched", {Q0: 1, Q1: 1}), ("watched", {Q0: 2})]


def test_without_a_group_nothing_is_published() -> None:
    brokers: Any = Brokers()
    progress = OffsetPublisher(None)
    progress.record({Q0: 1})

    progress.publish(brokers)

    assert brokers.commits == []


def test_a_missing_queue_is_published_when_it_returns() -> None:
    brokers: Any = Brokers()
    progress = OffsetPublisher("watched")
    progress.record({Q0: 1, Q1: 1})

    progress.publish(brokers, {Q0})
    progress.publish(brokers, {Q0, Q1})

    assert brokers.commits == [("watched", {Q0: 1}), ("watched", {Q1: 1})]


def test_a_failed_commit_is_logged_and_repeated_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    brokers: Any = Brokers()
    progress = OffsetPublisher("watched")
    brokers.is_away = True
    progress.record({Q0: 1})

    with caplog.at_level(logging.WARNING):
        progress.publish(brokers)
    brokers.is_away = False
    progress.publish(brokers)
    progress.publish(brokers)

    assert "Publishing the offsets of the query to group watched failed" in caplog.text
    assert brokers.commits == [("watched", {Q0: 1})]
