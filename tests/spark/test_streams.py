"""Streams on a real Spark: several at once, stopped, lagging, and with credentials."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.errors import PySparkException
from tests.net.certificates import make_authority, make_certificate
from tests.spark.broker_kit import Broker, delete_old_messages, fill, new_topic, old_broker_settings, options, queue
from tests.spark.stream_kit import ran, ran_side_by_side, running

from pocketmq import Admin, Credentials, Producer, Server
from pocketmq.client import client_context
from pocketmq.net.tls import ServerTlsFiles
from pocketmq.spark.pyspark_versions import LIMITS, REPORTS, has
from pocketmq.spark.read.progress_listener import ProgressListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

IDLE_REPORTS = "spark.sql.streaming.noDataProgressEventInterval"
SECRET = "the-secret-of-orders"
ACCOUNTS = f"""
[[account]]
access_key = "orders"
secret = "{SECRET}"
topics = {{ "*" = ["Pub", "Sub"] }}
groups = {{ "*" = ["Sub"] }}

[[account]]
access_key = "owner"
secret = "the secret of the owner"
admin = true
"""


def stream(spark: "SparkSession", given: dict[str, str]) -> "DataFrame":
    return spark.readStream.format("rocketmq").schema("value binary").options(**given).load()


def to_topic(frame: "DataFrame", given: dict[str, str], checkpoint: Path) -> Any:
    return frame.writeStream.format("rocketmq").options(**given).option("checkpointLocation", str(checkpoint))


def values(spark: "SparkSession", given: dict[str, str]) -> Counter[str]:
    rows = spark.read.format("rocketmq").schema("value binary").options(**given).load().collect()
    return Counter(row[0].decode() for row in rows)


def test_two_queries_on_one_topic_are_independent(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    source, targets = new_topic(broker), [new_topic(broker) for _ in range(2)]
    sent = [f"{number}" for number in range(20)]
    fill(broker, source, sent[:10])
    fill(broker, source, sent[10:], number=1)

    def start(target: str, limit: int) -> "StreamingQuery":
        given = options(broker, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
        frame = stream(spark, {**given, "groupId": f"of-{target}"})
        writer = to_topic(frame, options(broker, topic=target), tmp_path / target).trigger(availableNow=True)
        query: StreamingQuery = writer.start()
        return query

    queries = ran_side_by_side(lambda: start(targets[0], 7), lambda: start(targets[1], 20))

    for target, query in zip(targets, queries, strict=True):
        assert values(spark, options(broker, subscribe=target)) == Counter(sent)
        if not has(LIMITS):
            continue  # the next run would publish the end of the only batch
        with Admin(broker.name_server) as admin:
            group = f"of-{target}"
            running(lambda query=query: query, lambda _, group=group: admin.offsets.lag(group, source).messages == 0)  # type: ignore[misc]


def test_another_thread_can_start_a_write_with_the_session(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    source, target = new_topic(broker), new_topic(broker)
    fill(broker, source, ["a", "b"])

    def run() -> None:
        spark.createDataFrame([(1,)], "number int")  # whatever the rows are: Spark notes whose session this thread uses
        frame = stream(spark, options(broker, subscribe=source, startingOffsets="earliest"))
        ran(to_topic(frame, options(broker, topic=target), tmp_path).trigger(availableNow=True).start)

    with ThreadPoolExecutor(1) as other:
        other.submit(run).result()

    assert values(spark, options(broker, subscribe=target)) == Counter("ab")


@pytest.mark.parametrize(
    ("interval", "listens"),
    [
        pytest.param("0 seconds", False, id="Spark asks all the time"),
        pytest.param("1 hour", True, id="Spark will not query again for a long time, so the pull waits"),
    ],
)
def test_after_a_clean_stop_the_group_has_the_end_of_the_last_batch(
    spark: "SparkSession", broker: Broker, tmp_path: Path, interval: str, listens: bool
) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["a", "b"])
    group = f"stopped-{topic}"
    given = options(broker, subscribe=topic, startingOffsets="earliest", groupId=group)
    listener = ProgressListener(options(broker, groupId=group))
    if listens:
        spark.streams.addListener(listener)

    writer = stream(spark, given).writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = running(writer.trigger(processingTime=interval).start, lambda query: query.lastProgress is not None)
    query.stop()

    with Admin(broker.name_server) as admin:
        running(lambda: query, lambda _: admin.offsets.committed(group, topic)[queue(broker, topic, 0)] == 2)
    if listens:
        spark.streams.removeListener(listener)


@pytest.fixture(scope="module")
def forgetful() -> Iterator[Broker]:
    """A broker that keeps messages as short as can be."""
    with Server(flush="sync", settings=old_broker_settings()) as server:
        yield Broker.of(server)


@pytest.mark.skipif(not has(LIMITS), reason="PySpark 4.0 and 4.1 pass no limits: the first batch reads everything")
def test_a_query_overtaken_by_retention_is_warned_and_stops_or_skips_the_range(
    spark: "SparkSession", forgetful: Broker, tmp_path: Path
) -> None:
    topic = new_topic(forgetful, queues=1)
    fill(forgetful, topic, ["x" * 3000] * 100)
    given = options(
        forgetful, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=5, retentionWarning="1ms"
    )

    def run(**trigger: Any) -> "StreamingQuery":
        frame = stream(spark, given)
        return frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(**trigger).start()

    def is_in_danger(query: "StreamingQuery") -> bool:
        return "endangered" in str(query.lastProgress and query.lastProgress["sources"])

    query = running(lambda: run(processingTime="1 second"), is_in_danger)
    query.stop()
    progress = query.lastProgress
    assert progress is not None
    read_to = (progress["batchId"] + 1) * 5

    low = delete_old_messages(forgetful, topic)
    with pytest.raises(PySparkException, match=rf"{topic}@broker-a:0 from {read_to} to {low} \(retention\)"):
        ran(lambda: run(availableNow=True))

    given["onDataLoss"] = "skip"
    skipping = ran(lambda: run(availableNow=True))
    ends = [str(one["sources"][0]["endOffset"]) for one in skipping.recentProgress]
    assert any("retention" in end for end in ends)
    assert sum(one["numInputRows"] for one in skipping.recentProgress) == 100 - low


def test_keys_tls_and_namespace_reach_the_brokers_and_no_secret_is_visible(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, authority)
    (tmp_path / "accounts.toml").write_text(ACCOUNTS, "utf-8")
    for name, text in (("access", "orders"), ("secret", SECRET)):
        (tmp_path / name).write_text(text, "utf-8")
    checkpoint = tmp_path / "checkpoint"
    tls = ServerTlsFiles(cert=certificate.cert, key=certificate.key, client_ca=authority.cert)
    context = client_context(authority.cert, cert=certificate.cert, key=certificate.key)
    owner = Credentials("owner", "the secret of the owner")

    with Server(accounts=tmp_path / "accounts.toml", tls=tls) as server:
        with Admin(server.name_server, namespace="team-a", credentials=owner, tls=context) as admin:
            for topic in ("orders", "invoices"):
                admin.topics.create(topic, queues=2)
        with Producer(server.name_server, namespace="team-a", credentials=owner, tls=context) as producer:
            for number in range(5):
                producer.send("orders", f"{number}".encode())
        shown = {
            "rocketmq.namesrv.addr": server.name_server,
            "rocketmq.namespace": "team-a",
            "rocketmq.accessKeyFile": str(tmp_path / "access"),
            "rocketmq.secretKeyFile": str(tmp_path / "secret"),
            "rocketmq.tls.enable": "true",
            "rocketmq.tls.caFile": str(authority.cert),
            "rocketmq.tls.certFile": str(certificate.cert),
            "rocketmq.tls.keyFile": str(certificate.key),
            "rocketmqConsumer.idleTimeoutMs": "0",
        }
        frame = stream(spark, {**shown, "subscribe": "orders", "startingOffsets": "earliest", "groupId": "etl"})
        sink = {name: text for name, text in shown.items() if not name.startswith("rocketmqConsumer")}
        query = ran(to_topic(frame, {**sink, "topic": "invoices"}, checkpoint).trigger(availableNow=True).start)

        assert values(spark, {**shown, "subscribe": "invoices"}) == Counter("01234")
        query.explain(extended=True)
        batch = spark.read.format("rocketmq").options(**shown, subscribe="invoices").load()
        batch.explain(mode="formatted")

    said = capsys.readouterr().out + str(query.lastProgress)
    kept = "".join(file.read_text("utf-8", "replace") for file in checkpoint.rglob("*") if file.is_file())
    assert SECRET not in said + kept
    assert "orders" in kept


@pytest.mark.skipif(not has(REPORTS), reason="PySpark 4.0 and 4.1 do not report an outage")
def test_a_query_waits_for_an_unavailable_broker_and_continues(spark: "SparkSession", tmp_path: Path) -> None:
    def outage(query: "StreamingQuery") -> bool:
        last = query.lastProgress
        return last is not None and "outage" in (last.sources[0].latestOffset or "")

    def rows(query: "StreamingQuery") -> int:
        return sum(progress.numInputRows for progress in query.recentProgress)

    spark.conf.set(IDLE_REPORTS, "100")
    try:
        with Server(tmp_path / "data") as server:
            name_port, port = (int(text.rpartition(":")[2]) for text in (server.name_server, server.broker_address))
            broker = Broker.of(server)
            topic = new_topic(broker)
            fill(broker, topic, ["before"])
            given = options(broker, subscribe=topic, startingOffsets="earliest", fetchOffset_retryIntervalMs=50)
            writing = stream(spark, {**given, "fetchOffset.numRetries": "0"}).writeStream.format("noop")
            query = running(writing.start, lambda query: rows(query) == 1)
        running(lambda: query, outage)
        with Server(tmp_path / "data", name_server_port=name_port, broker_port=port):
            fill(broker, topic, ["after"])
            running(lambda: query, lambda query: rows(query) == 2)
        running(lambda: query, outage)
        began = monotonic()
        query.stop()
    finally:
        spark.conf.unset(IDLE_REPORTS)

    assert monotonic() - began < 10
    assert query.exception() is None
