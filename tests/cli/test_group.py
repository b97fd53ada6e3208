"""`pocketmq group` as a user meets it, on a real server."""

import time

import pytest
from tests.cli.running_cluster import RunningCluster

import pocketmq


def place(cluster: RunningCluster, group: str, topic: str) -> list[int | None]:
    """Where a group is in each queue."""
    with pocketmq.Admin(cluster.name_server) as admin:
        return list(admin.offsets.committed(group, topic).values())


def test_groups_are_listed_with_members_and_lag(own_cluster: RunningCluster) -> None:
    assert "A consumer creates its group when it starts" in own_cluster.run("group", "ls").stderr
    own_cluster.create("T")
    own_cluster.send("T", b"1", b"2")
    own_cluster.stand("G", "T", 2)
    with pocketmq.Admin(own_cluster.name_server) as admin:
        admin.groups.create("new")

    rows = own_cluster.ask("group", "ls", "--long")

    assert own_cluster.ask("group", "ls") == [{"group": "G"}, {"group": "new"}]
    assert rows[0] == {"group": "G", "members": 0, "lag": 0, "lag_ms": 0, "problem": ""}
    assert (rows[1]["lag"], rows[1]["problem"]) == (None, "no committed offset yet")
    assert "unknown" in own_cluster.run("group", "ls", "-l").stdout.splitlines()[2]


def test_lag_is_shown_in_messages_and_time(cluster: RunningCluster) -> None:
    cluster.create("behind")
    cluster.send("behind", b"1", b"2", b"3")
    cluster.stand("slow", "behind", 1)

    row, total = cluster.ask("group", "lag", "slow")
    text = cluster.run("group", "lag", "slow", "--topic", "behind").stdout

    assert (row["committed"], row["max_offset"], row["lag"], total["lag"]) == (1, 3, 2, 2)
    assert row["lag_ms"] == total["lag_ms"] >= 0
    assert "Lag of group slow: 2 messages, " in text


def test_an_unknown_lag_is_shown_as_unknown(cluster: RunningCluster) -> None:
    cluster.create("half-known", queues=2)
    cluster.send("half-known", b"1", queue=1)
    cluster.stand("partly", "half-known", 0)

    first, second, total = cluster.ask("group", "lag", "partly")
    text = cluster.run("group", "lag", "partly").stdout

    assert (first["lag"], second["lag"], total["lag"], total["lag_ms"]) == (0, None, None, None)
    assert second["problem"] == "the group has no offset in this queue"
    assert "Lag of group partly: unknown messages, unknown." in text


def test_show_prints_the_settings_of_a_group(cluster: RunningCluster) -> None:
    cluster.create("set-up")
    cluster.stand("shown", "set-up", 0)

    [told] = cluster.ask("group", "show", "shown")
    text = cluster.run("group", "show", "shown").stdout

    assert (told["members"], told["model"], told["lag"]) == (0, None, 0)
    assert told["brokers"]["broker-a"]["max_reconsume_times"] == 16
    assert "none online" in text
    assert "at most 16 retries, 1 retry queue" in text


@pytest.mark.parametrize("command", ["show", "lag", "members", "rm"])
def test_a_missing_group_is_reported_in_one_sentence(cluster: RunningCluster, command: str) -> None:
    result = cluster.run("group", command, "nobody")

    assert result.exit_code == 3
    assert result.stderr == ("pocketmq: no broker knows the group 'nobody'; `pocketmq group ls` lists the groups\n")


def test_members_are_shown_with_their_queues_and_prevent_a_deletion(cluster: RunningCluster) -> None:
    cluster.create("watched", queues=2)
    with pocketmq.LitePullConsumer(cluster.name_server, group="alive") as consumer:
        consumer.subscribe("watched")
        while len(consumer.queues()) < 2:
            consumer.poll(0.1)

        [member] = cluster.ask("group", "members", "alive")
        text = cluster.run("group", "members", "alive").stdout
        refused = cluster.run("group", "rm", "alive", "--yes")

    assert member["queues"] == ["watched@broker-a:0", "watched@broker-a:1"]
    assert member["client_id"] in text
    assert (refused.exit_code, refused.stderr) == (64, "pocketmq: group alive has 1 online member; stop them first\n")
    assert "Group alive has no online members." in cluster.run("group", "members", "alive").stderr


def test_a_dry_run_of_a_reset_changes_nothing(cluster: RunningCluster) -> None:
    cluster.create("kept")
    cluster.send("kept", b"1", b"2", b"3")
    cluster.stand("keeper", "kept", 2)

    text = cluster.run("group", "reset", "keeper", "kept", "--to", "earliest", "--dry-run").stdout
    [row] = cluster.ask("group", "reset", "keeper", "kept", "--to", "latest", "--dry-run")

    assert "2 messages to be consumed again, 0 to be skipped" in text
    assert "Nothing changed." in text
    assert (row["before"], row["after"], row["skipped"], row["is_done"]) == (2, 3, 1, False)
    assert place(cluster, "keeper", "kept") == [2]


def test_a_reset_shows_its_plan_and_asks_for_confirmation(cluster: RunningCluster) -> None:
    cluster.create("moved")
    cluster.send("moved", b"1", b"2", b"3")
    cluster.stand("mover", "moved", 2)

    refused = cluster.run("group", "reset", "mover", "moved", "--to", "earliest", text_in="n\n")
    after_refusal = place(cluster, "mover", "moved")
    done = cluster.run("group", "reset", "mover", "moved", "--to", "earliest", text_in="y\n")

    assert (refused.exit_code, after_refusal) == (1, [2])
    assert (done.exit_code, place(cluster, "mover", "moved")) == (0, [0])


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        (["--to", "2h"], 0),
        (["--to", "2020-01-01T00:00:00+00:00"], 0),
        (["--to", "latest"], 3),
        (["--offset", "broker-a:0", "1"], 1),
    ],
)
def test_a_reset_accepts_times_and_offsets(cluster: RunningCluster, where: list[str], offset: int) -> None:
    topic = f"to-{where[1].replace(':', '-').replace('+', '-')}"
    cluster.create(topic)
    cluster.send(topic, b"1", b"2", b"3")
    cluster.stand("traveller", topic, 2)

    [row] = cluster.ask("group", "reset", "traveller", topic, *where, "--yes")

    assert (row["after"], row["is_done"]) == (offset, True)
    assert place(cluster, "traveller", topic) == [offset]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ([], "give either --to"),
        (["--to", "earliest", "--offset", "broker-a:0", "1"], "give either --to"),
        (["--to", "yesterday"], "'yesterday' is not a time such as"),
        (["--offset", "0", "1"], "'0' is not a broker name and a queue id"),
        (["--offset", "broker-a:0", "9"], "offset 9 is out of range"),
    ],
)
def test_an_invalid_reset_is_wrong_usage(cluster: RunningCluster, where: list[str], words: str) -> None:
    if {"topic": "somewhere"} not in cluster.ask("topic", "ls"):
        cluster.create("somewhere")

    result = cluster.run("group", "reset", "lost", "somewhere", *where, "--yes")

    assert result.exit_code == 64
    assert words in result.stderr


def test_a_clone_gets_the_offsets_of_its_source(cluster: RunningCluster) -> None:
    cluster.create("shared")
    cluster.send("shared", b"1", b"2", b"3")
    cluster.stand("source", "shared", 2)
    missing = cluster.run("group", "clone", "source", "target", "shared", "--yes")
    with pocketmq.Admin(cluster.name_server) as admin:
        admin.groups.create("target")

    [dry] = cluster.ask("group", "clone", "source", "target", "shared", "--dry-run")
    refused = cluster.run("group", "clone", "source", "target", "shared", text_in="n\n")
    after_refusal = place(cluster, "target", "shared")
    done = cluster.run("group", "clone", "source", "target", "shared", "--yes")

    assert missing.exit_code == 3
    assert (dry["before"], dry["after"], dry["is_done"]) == (None, 2, False)
    assert (refused.exit_code, after_refusal) == (1, [None])
    assert done.stdout.endswith("Copied the offsets of group source to group target.\n")
    assert place(cluster, "target", "shared") == [2]


def test_a_clone_overridden_by_a_pending_reset_is_reported(cluster: RunningCluster) -> None:
    cluster.create("overruled")
    cluster.send("overruled", b"1", b"2", b"3")
    cluster.stand("model", "overruled", 2)
    cluster.stand("waiting", "overruled", 0)

    result = cluster.run("group", "clone", "model", "waiting", "overruled", "--yes")

    assert result.exit_code == 64
    assert "has applied its reset in topic" in result.stderr


def test_rm_shows_what_it_deletes_and_asks_for_confirmation(cluster: RunningCluster) -> None:
    cluster.create("left")
    cluster.stand("doomed", "left", 0)

    refused = cluster.run("group", "rm", "doomed", text_in="n\n")
    still_there = {"group": "doomed"} in cluster.ask("group", "ls")
    done = cluster.run("group", "rm", "doomed", "--yes")

    assert (refused.exit_code, still_there) == (1, True)
    assert "its retries and 0 dead letters will be deleted" in refused.stdout
    assert done.exit_code == 0
    assert {"group": "doomed"} not in cluster.ask("group", "ls")


def test_groups_of_sinks_are_listed_only_with_all(own_cluster: RunningCluster) -> None:
    own_cluster.create("T")
    own_cluster.stand("etl-0123456789ab-odd", "T", 0)
    own_cluster.stand("billing", "T", 0)

    assert own_cluster.ask("group", "ls") == [{"group": "billing"}]
    assert {"group": "etl-0123456789ab-odd"} in own_cluster.ask("group", "ls", "--all")


def test_the_mode_of_a_group_in_a_topic_is_shown_and_set(cluster: RunningCluster) -> None:
    cluster.create("popped")

    before = cluster.run("group", "mode", "poppers", "popped")
    (row,) = cluster.ask("group", "mode", "poppers", "popped", "pop", "--shared-with", "2")
    text = cluster.run("group", "mode", "poppers", "popped").stdout

    assert "its members pull" in before.stderr
    assert row == {"broker": "broker-a", "mode": "POP", "shared_with": 2}
    assert "2 other members" in text
    assert cluster.run("group", "mode", "poppers", "missing", "POP").exit_code == 3


def test_leased_messages_are_shown_beside_the_lag(cluster: RunningCluster) -> None:
    cluster.create("leased", queues=1)
    cluster.send("leased", b"1", b"2", b"3")
    before = cluster.run("group", "lag", "leasing")
    with pocketmq.SimpleConsumer(cluster.name_server, group="leasing", start_at="first") as consumer:
        consumer.subscribe("leased")
        popped, *_ = consumer.receive(3)
        consumer.change_invisible(popped, 0)
        assert len(consumer.receive(1, wait_s=20)) == 1, "the message that returned"

        deadline = time.monotonic() + 20
        while (rows := cluster.ask("group", "lag", "leasing"))[-1]["lag"]:  # offsets follow when the log is synced
            assert time.monotonic() < deadline
        text = cluster.run("group", "lag", "leasing").stdout
        shown = cluster.run("group", "show", "leasing").stdout
        (member,) = cluster.ask("group", "members", "leasing")

    assert before.exit_code != 0
    *queues, total = rows
    assert {row["topic"]: row["leased"] for row in queues} == {"leased": 2, "%RETRY%leasing_leased": 1}
    assert (total["leased"], total["retries"]) == (3, 0)
    assert 0 <= queues[0]["leased_ms"] <= total["leased_ms"] < 60_000
    assert "oldest lease" in text
    assert "Leases: 3 messages leased, the oldest for " in text
    assert "3 messages leased" in shown
    assert member["queues"] == ["leased@broker-a:-1"]
