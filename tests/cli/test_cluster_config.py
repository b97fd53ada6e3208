"""`pocketmq cluster config` on a real server."""

import json

import pytest
from tests.cli.running_cluster import RunningCluster

from pocketmq.client.admin import admin as blocking_admin
from pocketmq.errors import ConnectionLost


def value(cluster: RunningCluster, name: str) -> str:
    [row] = cluster.ask("cluster", "config", "broker-a", "--contains", name)
    return str(row["value"])


def test_settings_are_shown_and_found_by_a_part_of_their_name(cluster: RunningCluster) -> None:
    everything = cluster.ask("cluster", "config")
    some = cluster.run("cluster", "config", "broker-a", "--contains", "DISKmax").stdout
    none = cluster.run("cluster", "config", "--contains", "zebra")

    assert len(everything) > 50
    assert "diskMaxUsedSpaceRatio" in some
    assert "No setting name contains this text." in none.stderr


def test_a_change_is_shown_confirmed_and_verified(own_cluster: RunningCluster) -> None:
    change = ("cluster", "config", "--set", "transactionTimeOut=7000")

    dry = own_cluster.run(*change, "--dry-run")
    unanswered = own_cluster.run(*change)
    before = value(own_cluster, "transactionTimeOut")
    [done] = own_cluster.ask(*change, "--yes")

    assert ("6000" in dry.stdout, "7000" in dry.stdout) == (True, True)
    assert (unanswered.exit_code, before) == (1, "6000")
    assert (done["before"], done["now"], done["is_done"]) == ("6000", "7000", True)
    assert value(own_cluster, "transactionTimeOut") == "7000"


def test_only_safe_settings_are_changed(cluster: RunningCluster) -> None:
    mistyped = cluster.run("cluster", "config", "--set", "transactionTimeout=7000", "--yes")
    dangerous = cluster.run("cluster", "config", "--set", "storePathRootDir=/elsewhere", "--yes")
    constant = cluster.run("cluster", "config", "--set", "aclEnable=true", "--yes")
    useless = cluster.run("cluster", "config", "--set", "brokerFastFailureEnable=false", "--yes")
    refused = cluster.run("cluster", "config", "--set", "maxMessageSize=0", "--yes")
    elsewhere = cluster.run("cluster", "config", "broker-z", "--set", "traceOn=true", "--yes")

    assert (mistyped.exit_code, "did you mean transactionTimeOut?" in mistyped.stderr) == (64, True)
    assert (dangerous.exit_code, "cannot change while a broker runs: the store" in dangerous.stderr) == (64, True)
    assert (constant.exit_code, "cannot change while a broker runs: requests are" in constant.stderr) == (64, True)
    assert (useless.exit_code, "it would have no effect: requests that waited" in useless.stderr) == (64, True)
    assert (refused.exit_code, "max_message_bytes = 0 must be" in refused.stdout) == (3, True)
    assert (elsewhere.exit_code, "unknown broker 'broker-z'" in elsewhere.stderr) == (64, True)


def test_a_broker_that_disconnects_during_a_change_does_not_hide_the_other_results(
    own_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = blocking_admin.Cluster.settings
    asked: list[str] = []

    def gone_later(cluster: blocking_admin.Cluster, broker: str) -> dict[str, str]:
        asked.append(broker)
        if len(asked) > 1:
            raise ConnectionLost("the broker is gone")
        return settings(cluster, broker)

    monkeypatch.setattr(blocking_admin.Cluster, "settings", gone_later)
    result = own_cluster.run("cluster", "config", "--set", "transactionTimeOut=7000", "--yes", "--json")

    row = json.loads(result.stdout)
    assert (result.exit_code, row["is_done"], row["now"]) == (3, False, None)
    assert row["problem"] == "the new settings cannot be read: the broker is gone"
