"""`pocketmq topic stats` on a real server."""

from tests.cli.running_cluster import RunningCluster


def test_sent_and_consumed_messages_are_counted_for_every_broker_and_group(cluster: RunningCluster) -> None:
    cluster.create("counted")
    cluster.send("counted", b"1")
    cluster.stand("counters", "counted", 0)

    rows = cluster.ask("topic", "stats", "counted")
    text = cluster.run("topic", "stats", "counted").stdout

    assert [(row["what"], row["broker"], row["group"]) for row in rows] == [
        ("sent", "broker-a", None),
        ("consumed by counters", "broker-a", "counters"),
    ]
    assert rows[0]["last_minute"] is not None
    assert rows[1]["last_minute"] is None, "a missing count is not 0"
    assert rows[1]["problem"] == "no messages counted yet"
    assert "unknown" in text


def test_an_unknown_topic_has_no_statistics(cluster: RunningCluster) -> None:
    result = cluster.run("topic", "stats", "nothing-like-it")

    assert result.exit_code == 3
    assert "`pocketmq topic ls`" in result.stderr
