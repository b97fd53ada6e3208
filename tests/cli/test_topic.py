"""`pocketmq topic` as a user meets it, on a real server."""

import pytest
from tests.cli.running_cluster import RunningCluster

from pocketmq.client.admin import admin as blocking_admin
from pocketmq.client.admin.topics import TopicState
from pocketmq.errors import TopicNotFound


def test_a_cluster_without_topics_shows_how_to_create_one(own_cluster: RunningCluster) -> None:
    result = own_cluster.run("topic", "ls")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "Create one with `pocketmq topic create NAME`" in result.stderr
    assert own_cluster.ask("topic", "ls") == []


def test_a_created_topic_is_listed(cluster: RunningCluster) -> None:
    made = cluster.run("topic", "create", "made", "--queues", 2, "--attribute", "message.type=NORMAL")

    assert made.stdout == "Created topic made with 2 queues on broker-a.\n"
    assert {"topic": "made"} in cluster.ask("topic", "ls")
    assert "made" in cluster.run("topic", "ls").stdout.split()
    assert not any(row["topic"].startswith("SYSTEM") for row in cluster.ask("topic", "ls"))
    assert len(cluster.ask("topic", "ls", "--all")) > len(cluster.ask("topic", "ls"))


def test_a_long_list_has_queues_and_messages(own_cluster: RunningCluster) -> None:
    own_cluster.create("orders", queues=2)
    own_cluster.send("orders", b"1", b"2")

    rows = own_cluster.ask("topic", "ls", "--long")

    assert rows == [
        {"topic": "orders", "brokers": ["broker-a"], "queues": 2, "perm": "rw", "messages": 2, "problem": ""}
    ]
    assert own_cluster.run("topic", "ls", "-l").stdout.split()[-5:] == ["orders", "broker-a", "2", "rw", "2"]


def test_an_existing_topic_is_not_created_again(cluster: RunningCluster) -> None:
    cluster.create("twice")

    result = cluster.run("topic", "create", "twice")

    assert result.exit_code == 64
    assert "is on broker broker-a already; `alter` changes it" in result.stderr


def test_show_prints_queues_and_consumer_groups(cluster: RunningCluster) -> None:
    cluster.create("shown", queues=2)
    cluster.send("shown", b"1", queue=1)
    cluster.stand("reader-of-shown", "shown", 0)

    [shown] = cluster.ask("topic", "show", "shown")
    text = cluster.run("topic", "show", "shown").stdout

    assert shown["groups"] == ["reader-of-shown"]
    assert shown["brokers"]["broker-a"]["read_queues"] == 2
    assert [(row["queue"], row["messages"]) for row in shown["queues"]] == [(0, 0), (1, 1)]
    assert "reader-of-shown" in text
    assert "2 read queues, 2 write queues, rw" in text
    assert "never" in text


@pytest.mark.parametrize("command", ["show", "rm", "alter"])
def test_a_missing_topic_is_reported_in_one_sentence(cluster: RunningCluster, command: str) -> None:
    extra = ["--perm", "r"] if command == "alter" else []

    result = cluster.run("topic", command, "qqqqqqq", *extra)

    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1
    assert "qqqqqqq; `pocketmq topic ls` lists the topics" in result.stderr


def test_alter_changes_the_named_settings(cluster: RunningCluster) -> None:
    cluster.create("altered", queues=2)

    result = cluster.run("topic", "alter", "altered", "--perm", "r", "--write-queues", 1, "--ordered")

    [shown] = cluster.ask("topic", "show", "altered")
    assert result.stdout == "Changed topic altered on broker-a.\n"
    assert shown["brokers"]["broker-a"] | {"attributes": {}} == {
        "read_queues": 2,
        "write_queues": 1,
        "perm": "r",
        "ordered": True,
        "attributes": {},
    }


def test_alter_asks_for_confirmation_before_messages_become_unreachable(cluster: RunningCluster) -> None:
    cluster.create("narrowed", queues=2)
    cluster.send("narrowed", b"1", queue=1)

    refused = cluster.run("topic", "alter", "narrowed", "--queues", 1, text_in="n\n")
    after_refusal = cluster.ask("topic", "show", "narrowed")[0]["brokers"]["broker-a"]["read_queues"]
    agreed = cluster.run("topic", "alter", "narrowed", "--queues", 1, "--yes")

    assert (refused.exit_code, after_refusal) == (1, 2)
    assert "Consumers could no longer read 1 message in 1 queue." in refused.stdout
    assert agreed.exit_code == 0
    assert cluster.ask("topic", "show", "narrowed")[0]["brokers"]["broker-a"]["read_queues"] == 1


def test_alter_without_a_change_or_with_an_invalid_perm_is_wrong_usage(cluster: RunningCluster) -> None:
    nothing = cluster.run("topic", "alter", "made")
    strange = cluster.run("topic", "alter", "made", "--perm", "x")

    assert (nothing.exit_code, strange.exit_code) == (64, 64)
    assert "nothing to change" in nothing.stderr
    assert "'x' is not a permission; the permissions are rw, r, w" in strange.stderr


def test_rm_shows_what_it_deletes_and_asks_for_confirmation(cluster: RunningCluster) -> None:
    cluster.create("doomed")
    cluster.send("doomed", b"1", b"2")

    unasked = cluster.run("topic", "rm", "doomed", text_in="")
    still_there = {"topic": "doomed"} in cluster.ask("topic", "ls")
    done = cluster.run("topic", "rm", "doomed", text_in="y\n")

    assert (unasked.exit_code, still_there) == (1, True)
    assert "2 messages of 1 queue will be deleted" in unasked.stdout
    assert "Nothing changed. Use --yes to skip this question." in unasked.stderr
    assert done.exit_code == 0
    assert {"topic": "doomed"} not in cluster.ask("topic", "ls")


def test_a_topic_that_cannot_be_queried_does_not_hide_the_others(
    own_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_cluster.create("gone")
    own_cluster.create("here")
    describe = blocking_admin.Topics.describe

    def failing(topics: blocking_admin.Topics, topic: str) -> TopicState:
        if topic == "gone":
            raise TopicNotFound("deleted meanwhile")
        return describe(topics, topic)

    monkeypatch.setattr(blocking_admin.Topics, "describe", failing)
    gone, here = own_cluster.ask("topic", "ls", "--long")

    assert (gone["topic"], gone["messages"], "deleted meanwhile" in gone["problem"]) == ("gone", None, True)
    assert (here["topic"], here["messages"], here["problem"]) == ("here", 0, "")
