"""`pocketmq bench` on a real server."""

import sys

import pytest
from tests.cli.running_cluster import RunningCluster

from pocketmq.cli.bench import percentiles

measuring = sys.modules["pocketmq.cli.bench"]  # `pocketmq.cli.bench` is the command


def test_a_short_load_is_measured_and_its_topic_deleted(own_cluster: RunningCluster) -> None:
    result = own_cluster.run("bench", "--seconds", 0.3, "--concurrency", 4, "--body-bytes", 100)
    [told] = own_cluster.ask("bench", "--seconds", 0.3, "--concurrency", 4)

    assert result.exit_code == 0, result.stderr
    assert "messages/s" in result.stdout
    assert told["sent"] == told["read"] > 0
    assert (told["failures"], told["missing"]) == ({}, 0)
    assert 0 < told["send"]["p50"] <= told["send"]["p99"] <= told["send"]["max"]
    assert told["end_to_end"]["p50"] > 0
    assert own_cluster.ask("topic", "ls") == []
    assert own_cluster.ask("group", "ls") == []


def test_an_unusable_cluster_is_reported(own_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "WARM_UP_S", 0.0)

    result = own_cluster.run("bench", "--seconds", 0.3)

    assert result.exit_code == 3
    assert "`pocketmq doctor` may find the reason" in result.stderr
    assert own_cluster.ask("topic", "ls") == [], "its topic goes in any case"


@pytest.mark.parametrize("words", [("--seconds", 1000), ("--body-bytes", 1), ("--concurrency", 0), ("--queues", 0)])
def test_a_load_outside_the_limits_is_refused(cluster: RunningCluster, words: tuple[object, ...]) -> None:
    assert cluster.run("bench", *words).exit_code == 64


def test_percentiles_are_measured_times() -> None:
    found = percentiles([each / 1000 for each in range(1, 1001)])

    assert found == {"p50": 500.0, "p90": 900.0, "p99": 990.0, "p99.9": 999.0, "max": 1000.0}
    assert set(percentiles([]).values()) == {None}
    assert percentiles([0.002]) == dict.fromkeys(found, 2.0)
