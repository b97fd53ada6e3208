"""A task of a mirror, without Spark: copies of an earlier attempt are found, also if the broker does not show them
yet.
"""

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.pipelines.sent_kit import values_in
from tests.spark.broker_kit import Broker, new_topic, options, queue

from pocketmq import Server
from pocketmq.model.queue import MessageQueue
from pocketmq.pipelines.mirror import copying
from pocketmq.pipelines.mirror.copying import Order, mirror_rows
from pocketmq.spark.arrow import pa
from pocketmq.spark.broker_facts import LogState
from pocketmq.spark.options.write_options import parse_write_options
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.write.sink_offsets import IN_FLIGHT_S
from pocketmq.store.log.transient_pool import TransientPool

BORN = datetime(2026, 3, 1, tzinfo=UTC)


class Killed(Exception):
    """Something outside ended the task."""


def rows(topic: str, count: int, *, killed: bool = False) -> Iterator[Any]:
    """Of one queue of the source, each so large that it is sent alone."""
    for number in range(count):
        yield pa.record_batch(
            {
                "topic": [topic],
                "brokerName": ["broker-of-the-source"],
                "queueId": pa.array([0], pa.int32()),
                "queueOffset": pa.array([number], pa.int64()),
                "msgId": [f"id {number}"],
                "value": [b"%d" % number * 2000],
                "properties": pa.array([[]], pa.map_(pa.string(), pa.string())),
                "bornTimestamp": pa.array([BORN], pa.timestamp("us", tz="UTC")),
            }
        )
    if killed:
        raise Killed


@pytest.mark.parametrize("attempt", [0, 1])
def test_copies_that_are_stored_but_not_visible_are_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, attempt: int
) -> None:
    is_quick, write = threading.Event(), TransientPool._write
    is_quick.set()

    def written(pool: TransientPool, portions: Any) -> Any:
        is_quick.wait(30)
        return write(pool, portions)

    ask = ClientMetadata.log_states

    def watched(metadata: ClientMetadata, brokers: Collection[str]) -> dict[str, LogState]:
        """The disk is fast again once a query has shown that the broker is behind."""
        told = ask(metadata, brokers)
        is_quick.set()
        return told

    monkeypatch.setattr(TransientPool, "_write", written)
    waits: list[float] = []
    monkeypatch.setattr(copying, "sleep", waits.append)
    with Server(settings={"transientStorePoolEnable": True}) as server:
        broker = Broker.of(server)
        topic = new_topic(broker, queues=1)
        source, target = MessageQueue(topic, "broker-of-the-source", 0), queue(broker, topic, 0)
        writing = parse_write_options(options(broker, sendBatchBytes=1024), streaming=True, environ={})
        order = Order(writing=writing, targets=[(source, target)], next_offsets=[], searched_from=[])
        is_quick.clear()
        with pytest.raises(Killed):
            mirror_rows(order, rows(topic, 3, killed=True), launch="stage 1")
        monkeypatch.setattr(ClientMetadata, "log_states", watched)

        runs = mirror_rows(order, rows(topic, 5), attempt=attempt, launch="stage 2")

        is_quick.set()
        deadline = monotonic() + 30  # the pool makes the last copies readable a moment later
        while (copied := values_in(broker, topic)).total() < 5 and monotonic() < deadline:
            pass
        assert copied == Counter(f"{number}" * 2000 for number in range(5))
    assert [(run.source_start, run.target_start, run.count) for run in runs] == [(0, 0, 5)]
    assert waits == [IN_FLIGHT_S] * attempt
