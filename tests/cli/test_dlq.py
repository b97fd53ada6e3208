"""`pocketmq dlq` as a user meets it, on a real server."""

import base64
import json
import time
import tracemalloc
from pathlib import Path
from threading import Event

import pytest
from tests.cli.running_cluster import RunningCluster

import pocketmq
from pocketmq.cli import dlq
from pocketmq.cli import dlq as dlq_export
from pocketmq.client.admin import admin as blocking_admin
from pocketmq.errors import ConnectionLost

DEADLINE_S = 30


@pytest.fixture
def buried(own_cluster: RunningCluster) -> RunningCluster:
    """A cluster with two dead letters of the group `billing`."""
    own_cluster.create("orders")
    own_cluster.send("orders", b"1", b"2", keys="k")
    seen: list[bytes] = []
    all_seen = Event()

    def give_up(message: pocketmq.StoredMessage) -> None:
        seen.append(message.body)
        if len(seen) == 2:
            all_seen.set()
        raise pocketmq.DeadLetter("no such customer")

    consumer = pocketmq.PushConsumer(own_cluster.name_server, group="billing", start_at="first")
    consumer.on("orders")(give_up)
    with consumer:
        assert all_seen.wait(DEADLINE_S)
    return own_cluster


def orders(cluster: RunningCluster, topic: str = "orders") -> list[str]:
    return [row["body"] for row in cluster.ask("msg", "tail", topic, "--no-follow")]


def test_a_group_without_dead_letters_is_reported(cluster: RunningCluster) -> None:
    assert "There are no dead letters." in cluster.run("dlq", "ls").stderr
    with pocketmq.Admin(cluster.name_server) as admin:
        admin.groups.create("calm")
    assert "Group calm has no dead letters." in cluster.run("dlq", "show", "calm").stderr
    assert cluster.run("dlq", "replay", "calm", "--yes").stdout == "Group calm has no dead letters.\n"


def test_dead_letters_are_counted_and_shown_with_their_reason(buried: RunningCluster) -> None:
    letters = buried.ask("dlq", "show", "billing")
    short = buried.run("dlq", "show", "billing", "--limit", 1, "--newest")

    assert buried.ask("dlq", "ls") == [{"group": "billing", "letters": 2}]
    assert sorted(letter["body"] for letter in letters) == ["1", "2"]
    assert {(letter["topic"], letter["reason"]) for letter in letters} == {("orders", "no such customer")}
    assert "no such customer" in short.stdout
    assert "1 of 2 dead letters; raise --limit to see more." in short.stderr


def test_a_replay_shows_its_plan_and_asks_for_confirmation(buried: RunningCluster) -> None:
    dry = buried.run("dlq", "replay", "billing", "--dry-run")
    refused = buried.run("dlq", "replay", "billing", text_in="n\n")

    assert dry.stdout == "2 dead letters of group billing to topic orders.\nNothing changed.\n"
    assert len(buried.ask("dlq", "replay", "billing", "--dry-run")) == 2
    assert refused.exit_code == 1
    assert orders(buried) == ["1", "2"]


def test_a_replay_sends_dead_letters_again(buried: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlq, "MAX_AT_ONCE", 1)

    done = buried.run("dlq", "replay", "billing", "--yes")

    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "Sent 2 messages.")
    assert sorted(orders(buried)) == ["1", "1", "2", "2"]


def test_dead_letters_are_selected_by_id_and_number(buried: RunningCluster) -> None:
    first, second = buried.ask("dlq", "show", "billing")

    by_id = buried.ask("dlq", "replay", "billing", "--id", second["id"], "--topic", "repaired", "--yes")
    by_number = buried.ask("dlq", "replay", "billing", "--limit", 1, "--topic", "repaired", "--yes")
    missing = buried.run("dlq", "replay", "billing", "--id", "X", "--yes")

    assert [row["id"] for row in by_id] == [second["id"]]
    assert [row["id"] for row in by_number] == [first["id"]]
    assert sorted(orders(buried, "repaired")) == ["1", "2"]
    assert (missing.exit_code, "has no dead letter X" in missing.stderr) == (3, True)


def test_dead_letters_that_cannot_be_sent_are_reported(buried: RunningCluster) -> None:
    buried.run("topic", "alter", "orders", "--perm", "r")

    result = buried.run("dlq", "replay", "billing", "--limit", 1, "--yes")

    assert result.exit_code == 3
    assert "Sent 0 messages." in result.stdout
    assert "Not sent: " in result.stdout


def test_dead_letters_are_exported_completely(
    buried: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlq_export, "PAGE", 1)
    path = tmp_path / "letters.jsonl"

    out = buried.run("dlq", "export", "billing")
    buried.run("dlq", "export", "billing", "--to", path)
    refused = buried.run("dlq", "export", "billing", "--to", path, text_in="n\n")
    again = buried.run("dlq", "export", "billing", "--to", path, "--yes", "--body", "text")

    letters = [json.loads(line) for line in out.stdout.splitlines()]
    assert sorted(base64.b64decode(letter["body"]) for letter in letters) == [b"1", b"2"]
    assert {(letter["topic"], letter["reason"]) for letter in letters} == {("orders", "no such customer")}
    assert refused.exit_code == 1
    assert again.stderr == f"2 dead letters of group billing in {path}.\n"
    assert sorted(json.loads(line)["body"] for line in path.read_text().splitlines()) == ["1", "2"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_export_keeps_the_existing_file(
    buried: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "letters.jsonl"
    path.write_text("as before")

    def gone(*_: object) -> object:
        raise ConnectionLost("the broker is gone")

    monkeypatch.setattr(blocking_admin.DeadLetters, "in_queue", gone)
    result = buried.run("dlq", "export", "billing", "--to", path, "--yes")

    assert (result.exit_code, "the broker is gone" in result.stderr) == (3, True)
    assert (list(tmp_path.iterdir()), path.read_text()) == ([path], "as before")


def test_dead_letters_are_dropped_all_at_once(buried: RunningCluster) -> None:
    dry = buried.run("dlq", "drop", "billing", "--dry-run")
    refused = buried.run("dlq", "drop", "billing", text_in="n\n")
    before = buried.ask("dlq", "ls")
    [done] = buried.ask("dlq", "drop", "billing", "--yes")

    assert "2 dead letters of group billing will be deleted" in dry.stdout
    assert (refused.exit_code, before) == (1, [{"group": "billing", "letters": 2}])
    assert done == {"group": "billing", "letters": 2, "is_done": True}
    assert buried.ask("dlq", "ls") == []
    assert buried.run("dlq", "drop", "billing", "--yes").stdout.endswith("Nothing changed.\n")


def test_dead_letters_with_compressed_bodies_are_shown_without_full_decompression(cluster: RunningCluster) -> None:
    many, mib = 20, 1024 * 1024
    with pocketmq.Producer(cluster.name_server, max_message_bytes=16 * mib) as producer:
        for _ in range(many):
            producer.send("%DLQ%packed", b"start" + b"0" * 8 * mib)
    tracemalloc.start()
    try:
        shown = cluster.run("dlq", "show", "packed")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert shown.exit_code == 0
    assert shown.stdout.count("start") == many
    assert peak < 20 * mib


def test_a_dead_letter_is_named_by_its_original_id(own_cluster: RunningCluster) -> None:
    """However it died: buried by its consumer, or sent back to the broker too often."""
    consumed, seen = Event(), []
    consumer = pocketmq.PushConsumer(own_cluster.name_server, group="G", start_at="first", max_reconsume_times=0)

    @consumer.on("T")
    def handle(message: pocketmq.StoredMessage) -> None:
        seen.append(message.message_id)
        if len(seen) == 2:
            consumed.set()
        raise pocketmq.DeadLetter("no") if message.body == b"buried" else ValueError("no")

    sent = own_cluster.send("T", b"buried", b"failed")
    with consumer:
        assert consumed.wait(DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while len(shown := own_cluster.run("dlq", "show", "G", "--json").stdout.splitlines()) < 2:
            assert time.monotonic() < deadline

    ids = {json.loads(line)["id"] for line in shown}
    assert ids == {result.message_id for result in sent} == set(seen)
