"""`pocketmq msg trace` on a real server."""

import time
from threading import Event

import pytest
from tests.cli.running_cluster import RunningCluster

import pocketmq

DEADLINE_S = 30


@pytest.fixture
def traced(cluster: RunningCluster) -> str:
    """The id of a message that was sent and consumed by clients that trace."""
    cluster.create("traced-orders")
    seen = Event()
    consumer = pocketmq.PushConsumer(cluster.name_server, group="followers", start_at="first", trace=True)
    consumer.on("traced-orders")(lambda _: seen.set())
    with consumer, pocketmq.Producer(cluster.name_server, group="leaders", trace=True) as producer:
        sent = producer.send("traced-orders", b"1", keys="f1")
        assert seen.wait(DEADLINE_S)
    return sent.message_id


def whole_timeline(cluster: RunningCluster, message_id: str) -> list[dict[str, object]]:
    """Traces are written after the messages: wait for the last part."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        rows = cluster.ask("msg", "trace", "traced-orders", message_id)
        if {row["event"] for row in rows} == {"sent", "stored", "consumed"} or time.monotonic() > deadline:
            return rows


def test_the_history_of_a_message_is_a_timeline(cluster: RunningCluster, traced: str) -> None:
    rows = whole_timeline(cluster, traced)
    by_key = cluster.run("msg", "trace", "traced-orders", "--key", "f1")

    assert sorted(str(row["event"]) for row in rows) == ["consumed", "sent", "stored"]
    assert {row["message_id"] for row in rows} == {traced}
    consumed = next(row for row in rows if row["event"] == "consumed")
    assert (consumed["by"], consumed["detail"]) == ("group followers", "success")
    assert f"message {traced}" in by_key.stdout
    assert "broker-a:0@0" in by_key.stdout


def test_without_a_trace_the_store_time_and_groups_are_shown(cluster: RunningCluster) -> None:
    cluster.create("untraced")
    [sent] = cluster.send("untraced", b"1")

    result = cluster.run("msg", "trace", "untraced", sent.message_id)

    assert "stored" in result.stdout
    assert "No client wrote a trace of this message" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 64, "give the ID of a message"),
        (("X", "--key", "k"), 64, "give the ID of a message"),
        (("0" * 32,), 3, "has no message"),
        (("--key", "nobody"), 3, "no client wrote a trace"),
    ],
)
def test_an_unknown_message_is_reported(cluster: RunningCluster, words: tuple[str, ...], code: int, told: str) -> None:
    if "traceless" not in [row["topic"] for row in cluster.ask("topic", "ls")]:
        cluster.create("traceless")

    result = cluster.run("msg", "trace", "traceless", *words)

    assert (result.exit_code, told in result.stderr) == (code, True), result.stderr
