"""`pocketmq msg` as a user meets it, on a real server."""

import json
from collections.abc import Callable

import pytest
from tests.cli.running_cluster import RunningCluster

from pocketmq.cli import msg


@pytest.mark.parametrize(
    "args",
    [
        ("send", "odd", "x", "--key", "\udcff"),
        ("send", "odd", "x", "--tag", "\udcff"),
        ("send", "odd", "x", "--property", "a=\udcff"),
        ("find", "odd", "--key", "\udcff"),
        ("get", "odd", "\udcff"),
        ("trace", "odd", "\udcff"),
    ],
)
def test_invalid_text_is_wrong_usage(cluster: RunningCluster, args: tuple[str, ...]) -> None:
    cluster.send("odd", b"1")

    result = cluster.run("msg", *args)

    assert (result.exit_code, "an unpaired surrogate" in result.stderr) == (64, True), result.stderr


def test_a_message_is_found_by_the_offset_id(cluster: RunningCluster) -> None:
    [result] = cluster.send("by-id", b"1")

    by_offset = cluster.ask("msg", "get", "by-id", result.offset_id)
    text = cluster.run("msg", "get", "by-id", result.message_id, "--body", "hex").stdout

    assert [row["message_id"] for row in by_offset] == [result.message_id]
    assert text.split()[-1] == "31"


@pytest.mark.parametrize("strange", ["0", "7F0000010000000100000000000000EB", "F" * 32, "it's me"])
def test_an_unknown_id_is_reported_in_one_sentence(cluster: RunningCluster, strange: str) -> None:
    cluster.send("by-id", b"1")

    result = cluster.run("msg", "get", "by-id", strange)

    assert result.exit_code == 3
    assert result.stderr.startswith(f"pocketmq: topic by-id has no message {strange}; ")


def test_messages_are_found_by_key_time_and_queue(cluster: RunningCluster) -> None:
    cluster.create("searched")
    cluster.send("searched", b"1", b"2", keys="k")
    cluster.send("searched", b"3")

    def bodies(*args: object) -> list[str]:
        return [row["body"] for row in cluster.ask("msg", "find", "searched", *args)]

    assert bodies("--key", "k") == ["1", "2"]
    assert bodies("--key", "k", "--until", "1h") == []
    assert bodies("--since", "1h") == ["1", "2", "3"]
    assert bodies("--until", "2020-01-01") == []
    assert bodies("--queue", "broker-a:0", "--offset", "1") == ["2", "3"]


def test_a_search_reports_empty_and_incomplete_results(cluster: RunningCluster) -> None:
    cluster.send("many", b"1", b"2", keys="k")

    nothing = cluster.run("msg", "find", "many", "--key", "other")
    more = cluster.run("msg", "find", "many", "--key", "k", "--limit", 1)

    assert (nothing.exit_code, nothing.stderr) == (0, "No message found.\n")
    assert "There may be more than 1" in more.stderr


def test_a_search_by_key_reports_the_limit_of_brokers(cluster: RunningCluster) -> None:
    cluster.send("busy-key", *(b"%d" % number for number in range(msg.MAX_BY_KEY + 1)), keys="k")

    result = cluster.run("msg", "find", "busy-key", "--key", "k", "--limit", 10**20, "--json")

    assert (result.exit_code, len(result.stdout.splitlines())) == (0, msg.MAX_BY_KEY)
    assert "There may be more: a broker returns at most 64 messages for a key" in result.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "give --key, --since and --until"),
        (["--queue", "broker-a:0"], "--queue needs --offset"),
        (["--queue", "broker-a:0", "--offset", "0", "--key", "k"], "--queue needs --offset"),
        (["--since", "1h", "--until", "2h"], "--since must be before --until"),
        (["--queue", "broker-z:0", "--offset", "0"], "has no queue searched-wrongly@broker-z:0"),
    ],
)
def test_a_search_without_criteria_is_wrong_usage(cluster: RunningCluster, args: list[str], words: str) -> None:
    cluster.send("searched-wrongly", b"1")

    result = cluster.run("msg", "find", "searched-wrongly", *args)

    assert (result.exit_code, words in result.stderr) == (64, True), result.stderr


def test_a_tail_starts_with_the_newest_messages(cluster: RunningCluster) -> None:
    cluster.create("tailed", queues=2)
    for number in range(4):
        cluster.send("tailed", b"%d" % number, queue=number % 2)

    newest = cluster.ask("msg", "tail", "tailed", "--last", 3, "--no-follow")
    all_of_them = cluster.ask("msg", "tail", "tailed", "--last", 0, "--from-start", "--no-follow")

    assert sorted(row["body"] for row in newest) == ["1", "2", "3"]
    assert sorted(row["body"] for row in all_of_them) == ["0", "1", "2", "3"]
    assert cluster.ask("msg", "tail", "tailed", "--last", 0, "--no-follow") == []


def test_a_tail_shows_only_selected_messages(cluster: RunningCluster) -> None:
    cluster.create("filtered")
    cluster.send("filtered", b"red apple", tags="A", keys="k")
    cluster.send("filtered", b"red brick", tags="B")
    cluster.send("filtered", b"cloud", tags="C")

    def bodies(*args: object) -> list[str]:
        return [row["body"] for row in cluster.ask("msg", "tail", "filtered", "--no-follow", *args)]

    assert bodies("--tag", "A || C") == ["red apple", "cloud"]
    assert bodies("--key", "k") == ["red apple"]
    assert bodies("--contains", "red", "--tag", "*") == ["red apple", "red brick"]
    text = cluster.run("msg", "tail", "filtered", "--no-follow", "--limit", 1).stdout
    assert text.endswith("0@0  [A k]  red apple\n")


def in_pauses(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """Call one step in each pause of a tail; then ctrl-C."""
    remaining = iter(steps)

    def pause() -> None:
        step = next(remaining, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(msg, "wait_for_next_poll", pause)


def test_a_tail_follows_until_it_is_interrupted(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create("followed")
    cluster.send("followed", b"0")
    in_pauses(
        monkeypatch,
        lambda: cluster.send("followed", b"1", b"2"),
        lambda: None,
        lambda: cluster.run("topic", "alter", "followed", "--queues", 2),
        lambda: cluster.send("followed", b"3", queue=1),
    )

    result = cluster.run("msg", "tail", "followed", "--json")

    assert [json.loads(line)["body"] for line in result.stdout.splitlines()] == ["0", "1", "2", "3"]
    assert result.exit_code == 130


def test_a_tail_ends_at_its_limit(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create("limited")
    in_pauses(monkeypatch, lambda: cluster.send("limited", b"1", b"2", b"3"))

    result = cluster.run("msg", "tail", "limited", "--limit", 2)

    assert result.exit_code == 0
    assert [line.split()[-1] for line in result.stdout.splitlines()] == ["1", "2"]


def test_a_tail_needs_several_polls_for_many_messages(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create("long")
    cluster.send("long", *(b"%d" % number for number in range(5)))
    monkeypatch.setattr("pocketmq.cli.msg.MAX_AT_ONCE", 2)

    rows = cluster.ask("msg", "tail", "long", "--from-start", "--no-follow")

    assert [row["body"] for row in rows] == ["0", "1", "2", "3", "4"]


def test_a_tail_creates_no_group(own_cluster: RunningCluster) -> None:
    own_cluster.send("watched", b"1")

    own_cluster.run("msg", "tail", "watched", "--no-follow")

    assert own_cluster.ask("group", "ls") == []


def test_a_body_cannot_send_control_codes_to_a_terminal(cluster: RunningCluster) -> None:
    cluster.create("hostile")
    cluster.send("hostile", b"\x1b[2J[red]\xff")

    text = cluster.run("msg", "tail", "hostile", "--no-follow").stdout

    assert text.rstrip().endswith(r"\x1b[2J[red]\xff")
