"""`pocketmq delay` on a real server."""

import json
from typing import Any

import pytest
from tests.cli.running_cluster import RunningCluster

from pocketmq.client.admin import admin as blocking_admin
from pocketmq.client.admin.delays import Delayed
from pocketmq.errors import ConnectionLost
from pocketmq.model.message_id import RecallHandle

HOUR_MS = 3_600_000


def waiting(cluster: RunningCluster, topic: str) -> list[str]:
    return [row["id"] for row in cluster.ask("delay", "ls", "--topic", topic)]


def test_delayed_messages_are_listed_and_recalled(cluster: RunningCluster) -> None:
    cluster.create("delayed-orders")
    [timed] = cluster.send("delayed-orders", b"1", delay_ms=HOUR_MS)
    [by_level] = cluster.send("delayed-orders", b"2", delay_level=18)

    rows = cluster.ask("delay", "ls", "--topic", "delayed-orders")
    refused = cluster.run("delay", "cancel", by_level.message_id, "--yes")
    unanswered = cluster.run("delay", "cancel", timed.message_id)
    plan = cluster.ask("delay", "cancel", timed.message_id, "--dry-run")
    still = waiting(cluster, "delayed-orders")
    done = cluster.run("delay", "cancel", timed.message_id, "--yes")

    assert [(row["id"], row["level"]) for row in rows] == [(timed.message_id, None), (by_level.message_id, 18)]
    assert 0 < rows[0]["in_ms"] <= HOUR_MS + 1000
    assert (refused.exit_code, "has delay level 18" in refused.stderr) == (64, True)
    assert (unanswered.exit_code, "Nothing changed" in unanswered.stderr) == (1, True)
    assert plan[0]["is_done"] is False
    assert timed.message_id in still
    assert done.stdout.endswith("Recalled 1 message.\n")
    assert waiting(cluster, "delayed-orders") == [by_level.message_id]


def test_a_message_is_recalled_by_its_handle(cluster: RunningCluster) -> None:
    cluster.create("handled-orders")
    [sent] = cluster.send("handled-orders", b"1", delay_ms=HOUR_MS)

    [row] = cluster.ask("delay", "cancel", "--handle", sent.recall_handle, "--yes")

    assert (row["id"], row["topic"], row["is_done"]) == (sent.message_id, "handled-orders", True)
    assert waiting(cluster, "handled-orders") == []


@pytest.mark.parametrize("wrong", ["its id", "its time", "its topic", "nothing, but it was recalled before"])
def test_an_unknown_handle_recalls_nothing(cluster: RunningCluster, wrong: str) -> None:
    topic = f"no-such-handle-{len(wrong)}"
    cluster.create(topic)
    cluster.create(f"{topic}-other")
    [sent, other] = cluster.send(topic, b"1", b"2", delay_ms=HOUR_MS)
    assert sent.recall_handle is not None
    meant = RecallHandle.parse(sent.recall_handle)
    changed: dict[str, dict[str, Any]] = {
        "its id": {"unique_id": "X" * 32},
        "its time": {"deliver_ms": meant.deliver_ms + 1000},
        "its topic": {"topic": f"{topic}-other"},
    }
    if wrong not in changed:
        cluster.ask("delay", "cancel", "--handle", sent.recall_handle, "--yes")
    handle = meant._replace(**changed.get(wrong, {}))
    before = waiting(cluster, topic)

    result = cluster.run("delay", "cancel", "--handle", other.recall_handle, "--handle", str(handle), "--yes")

    assert (result.exit_code, result.stdout) == (3, "")
    assert f"no message {handle.unique_id} on {handle.broker_name} is due at" in result.stderr
    assert waiting(cluster, topic) == before


def test_messages_that_cannot_be_recalled_are_reported(cluster: RunningCluster) -> None:
    nothing = cluster.run("delay", "cancel")
    missing = cluster.run("delay", "cancel", "X", "--yes")
    damaged = cluster.run("delay", "cancel", "--handle", "?", "--yes")

    assert (nothing.exit_code, "give IDs" in nothing.stderr) == (64, True)
    assert (missing.exit_code, "no delayed message X" in missing.stderr) == (3, True)
    assert (damaged.exit_code, "recall handle" in damaged.stderr) == (64, True)


def test_recalls_before_a_failure_are_reported(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create("half-taken")
    first, second = cluster.send("half-taken", b"1", b"2", delay_ms=HOUR_MS)
    cancel = blocking_admin.Delays.cancel

    def failing(delays: blocking_admin.Delays, delayed: Delayed) -> str:
        if delayed.message.message_id == second.message_id:
            raise ConnectionLost("the broker is gone")
        return cancel(delays, delayed)

    monkeypatch.setattr(blocking_admin.Delays, "cancel", failing)
    result = cluster.run("delay", "cancel", first.message_id, second.message_id, "--yes", "--json")

    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.exit_code, "the broker is gone" in result.stderr) == (3, True)
    assert [(row["id"], row["is_done"]) for row in rows] == [(first.message_id, True), (second.message_id, False)]
    assert waiting(cluster, "half-taken") == [second.message_id]


def test_empty_and_incomplete_lists_are_reported(own_cluster: RunningCluster) -> None:
    empty = own_cluster.run("delay", "ls")
    own_cluster.create("delayed-orders")
    own_cluster.send("delayed-orders", b"1", b"2", delay_level=18)
    short = own_cluster.run("delay", "ls", "--limit", 1)

    assert "No delayed messages." in empty.stderr
    assert "There may be more" in short.stderr
