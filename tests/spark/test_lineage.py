"""Events of OpenLineage, by its own client with the local file transport."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from pocketmq.errors import InvalidSetting, MissingLibrary

pytest.importorskip("pyspark.sql")

from openlineage.client import OpenLineageClient
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq.spark import lineage as module
from pocketmq.spark.lineage import Data, Lineage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Events:
    """The events in the file of a transport."""

    def __init__(self, path: Path) -> None:
        self._path = path
        config = {"transport": {"type": "file", "log_file_path": str(path), "append": True}}
        self.client = OpenLineageClient(config=config)

    def read(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def kinds(self) -> list[str]:
        return [event["eventType"] for event in self.read()]


@pytest.fixture
def events(tmp_path: Path) -> Events:
    return Events(tmp_path / "events.json")


def names(sets: list[dict[str, Any]]) -> list[str]:
    return [f"{each['namespace']}/{each['name']}" for each in sets]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("orders", Data("rocketmq://10.0.0.1:9876", "orders")),
        ("rocketmq://10.0.0.9:9876/orders", Data("rocketmq://10.0.0.9:9876", "orders")),
        ("/data/lake", Data("file", "/data/lake")),
        ("file:/data/lake", Data("file", "/data/lake")),
        ("s3://bucket/lake/orders", Data("s3://bucket", "lake/orders")),
    ],
)
def test_a_topic_a_path_and_an_address_are_data_sets(events: Events, text: str, found: Data) -> None:
    assert Lineage("10.0.0.1:9876;10.0.0.2:9876", client=events.client).data(text) == found


def test_a_batch_is_a_run_with_its_inputs_and_outputs(events: Events) -> None:
    lineage = Lineage("10.0.0.1:9876", namespace="shop", client=events.client)

    with lineage.job("report", inputs=["orders"], outputs=["/data/report"]):
        pass
    with pytest.raises(ValueError, match="no rows"), lineage.job("report", inputs=["orders"]):
        raise ValueError("no rows")

    assert events.kinds() == ["START", "COMPLETE", "START", "FAIL"]
    start, complete, _, fail = events.read()
    assert start["run"]["runId"] == complete["run"]["runId"] != fail["run"]["runId"]
    assert complete["job"] | {"facets": {}} == {"namespace": "shop", "name": "report", "facets": {}}
    assert names(complete["inputs"]) == ["rocketmq://10.0.0.1:9876/orders"]
    assert names(complete["outputs"]) == ["file//data/report"]
    assert fail["run"]["facets"]["errorMessage"]["message"] == "ValueError: no rows"


def test_a_transport_that_fails_does_not_fail_the_job(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def emit(self, event: Any) -> None:
            raise OSError("no route to host")

    with Lineage("10.0.0.1:9876", client=Broken()).job("report"):  # type: ignore[arg-type]
        pass

    assert [record.message for record in caplog.records] == [
        "an event of OpenLineage could not be sent: OSError: no route to host; the job continues without it"
    ]


def test_it_is_configured_by_the_variables_of_openlineage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Lineage.configured("10.0.0.1:9876", {}) is None
    path = tmp_path / "events.json"
    transport = json.dumps({"type": "file", "log_file_path": str(path), "append": True})
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", transport)
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")

    lineage = Lineage.configured("10.0.0.1:9876")

    assert lineage is not None
    with lineage.job("report"):
        pass
    assert [json.loads(line)["job"]["namespace"] for line in path.read_text().splitlines()] == ["shop", "shop"]


def test_without_name_servers_or_the_library_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSetting, match="lineage needs the name servers of the topics"):
        Lineage(environ={})
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(MissingLibrary, match=r"lineage needs openlineage-python; run .*'openlineage-python>=1.40'$"):
        module._library()


@pytest.fixture
def listening(spark: "SparkSession") -> Iterator[Callable[[Any], None]]:
    added: list[Any] = []

    def add(listener: Any) -> None:
        spark.streams.addListener(listener)
        added.append(listener)

    yield add
    for listener in added:
        spark.streams.removeListener(listener)


def until_ended(spark: "SparkSession", events: Events) -> None:
    """Spark calls listeners a moment later."""
    spark._jsparkSession.sparkContext().listenerBus().waitUntilEmpty(30_000)
    deadline = monotonic() + 30
    while not {"COMPLETE", "FAIL"} & set(events.kinds()):
        assert monotonic() < deadline, events.read()


def test_a_streaming_query_reports_its_topics_and_its_files(
    spark: "SparkSession", broker: Broker, tmp_path: Path, events: Events, listening: Callable[[Any], None]
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["1", "2"])
    lineage = Lineage(broker.name_server, client=events.client)
    listening(lineage.listener())
    options = {"rocketmq.namesrv.addr": broker.name_server, "subscribe": topic, "startingOffsets": "earliest"}

    rows = spark.readStream.format("rocketmq").options(**options).load().select("value")
    query = (
        rows.writeStream.queryName("billing")
        .format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    until_ended(spark, events)

    found = events.read()
    assert events.kinds() == ["START", "RUNNING", "COMPLETE"]
    assert {event["job"]["name"] for event in found} == {"billing"}
    assert {event["run"]["runId"] for event in found} == {str(query.runId)}
    assert names(found[-1]["inputs"]) == [f"rocketmq://{broker.name_server}/{topic}"]
    assert names(found[-1]["outputs"]) == [f"file/{tmp_path / 'out'}"]


def test_a_query_that_fails_reports_its_error_and_the_topic_that_it_was_given(
    spark: "SparkSession", broker: Broker, tmp_path: Path, events: Events, listening: Callable[[Any], None]
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["1", "2"])
    listening(Lineage(broker.name_server, client=events.client).listener({"failing": ["invoices"]}))
    options = {"rocketmq.namesrv.addr": broker.name_server, "subscribe": topic, "startingOffsets": "earliest"}

    def fail(batch: Any, number: int) -> None:
        raise ValueError("no price")

    rows = spark.readStream.format("rocketmq").options(**options).load().select("value")
    query = rows.writeStream.queryName("failing").foreachBatch(fail).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="no price"):
        query.awaitTermination(60)
    until_ended(spark, events)

    assert events.kinds()[-1] == "FAIL"
    last = events.read()[-1]
    assert "no price" in last["run"]["facets"]["errorMessage"]["message"]
    assert names(last["outputs"]) == [f"rocketmq://{broker.name_server}/invoices"]
