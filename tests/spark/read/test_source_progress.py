"""What the progress of a query shows about its topics: a text for people, and the lag as Kafka's source reports it."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.spark.broker_kit import Broker, options

from pocketmq.model import MessageQueue
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.read.offsets import SEEN, QueryOffset
from pocketmq.spark.read.source_progress import description_of, metrics_of, seen_by, sources_of

Q0, Q1, Q2 = (MessageQueue("orders", "broker-a", number) for number in range(3))
END = QueryOffset({Q0: 10, Q1: 5}, seen_ms=7).to_json()


def seen(**more: Any) -> dict[str, Any]:
    """What a reader reports beside its offsets."""
    fields = QueryOffset({Q0: 13, Q1: 5}).to_json()
    del fields["seenMs"]
    return {**fields, "description": "RocketMQ[orders: 2 queues]", "groupId": "etl", **more}


def progress(*sources: dict[str, Any]) -> Any:
    return SimpleNamespace(json=json.dumps({"sources": [{"numInputRows": 4, **source} for source in sources]}))


def described(**given: str) -> str:
    read = options(Broker("127.0.0.1:9876", "broker-a"), **given)
    return description_of(parse_read_options(read, streaming=True, environ={}), 1 if "assign" in given else 8)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param({"endOffset": END, "latestOffset": seen()}, id="PySpark 4.2 and 4.3"),
        pytest.param(
            {"endOffset": {**END, SEEN: seen()}, "latestOffset": {**END, SEEN: seen()}}, id="PySpark 4.0 and 4.1"
        ),
        pytest.param({"endOffset": {**END, SEEN: seen()}, "latestOffset": None}, id="a batch that runs again, 4.0"),
        pytest.param({"endOffset": json.dumps(END), "latestOffset": json.dumps(seen())}, id="as text"),
    ],
)
def test_the_progress_of_every_version_has_the_lag_and_the_topics(source: dict[str, Any]) -> None:
    [found] = sources_of(progress({"endOffset": {"other": 1}, "latestOffset": "no JSON"}, source))

    assert (found.description, found.group, found.input_rows, found.outage) == (
        "RocketMQ[orders: 2 queues]",
        "etl",
        4,
        None,
    )
    assert (found.end.queues, found.latest) == ({Q0: 10, Q1: 5}, {Q0: 13, Q1: 5})
    lags = (found.min_offsets_behind_latest, found.max_offsets_behind_latest, found.avg_offsets_behind_latest)
    assert lags == (0, 3, 1.5)
    assert found.offsets_behind_latest == 3


def test_an_outage_is_in_the_progress() -> None:
    [found] = sources_of(progress({"endOffset": END, "latestOffset": seen(outage={"error": "ConnectFailed: no"})}))

    assert found.outage == "ConnectFailed: no"


def test_a_query_without_a_batch_has_no_source_yet() -> None:
    assert sources_of(progress({"endOffset": None, "latestOffset": seen()})) == []


def test_an_upgraded_query_shows_the_fields_of_the_newer_version() -> None:
    """The end that 4.1 wrote stays the same until the next batch; the latest offset is newer."""
    newer = seen(description="newer")

    assert seen_by({"endOffset": {**END, SEEN: seen()}, "latestOffset": newer}) == newer


def test_metrics_have_the_names_and_the_form_of_those_of_kafka() -> None:
    assert metrics_of({Q0: 10, Q1: 5, Q2: 1}, {Q0: 14, Q1: 4}) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "4",
        "avgOffsetsBehindLatest": "2.0",
    }
    assert metrics_of({Q0: 1}, {}) == {}


def test_a_description_names_the_source() -> None:
    assert described(subscribe="payments,orders") == "RocketMQ[payments, orders: 8 queues]"
    assert described(subscribePattern="orders-.*") == "RocketMQ[topics that match orders-.*: 8 queues]"
    assert described(assign='{"orders":{"broker-a":[0]}}') == "RocketMQ[orders: 1 queue]"
    many = described(subscribe=",".join(f"t{number}" for number in range(8)))
    assert many == "RocketMQ[t0, t1, t2, t3, t4 and 3 more topics: 8 queues]"
