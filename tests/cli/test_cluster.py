"""`pocketmq cluster` as a user meets it, on a real server."""

from click.testing import CliRunner
from tests.cli.running_cluster import RunningCluster

from pocketmq.cli import main
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.portal import Portal


def test_every_broker_is_shown(cluster: RunningCluster) -> None:
    [broker] = cluster.ask("cluster", "show")
    text = cluster.run("cluster", "show", "--cluster", "DefaultCluster").stdout

    assert (broker["broker"], broker["id"], broker["problem"]) == ("broker-a", 0, "")
    assert 0 < broker["disk_used"] <= 1
    assert broker["address"] in text


def test_leases_are_exported(cluster: RunningCluster) -> None:
    assert cluster.run("cluster", "export-leases", "broker-a").stdout == "All leases of broker-a are in its log.\n"
    assert cluster.run("cluster", "export-leases", "broker-x").exit_code != 0


def test_an_unknown_cluster_is_wrong_usage(cluster: RunningCluster) -> None:
    result = cluster.run("cluster", "show", "--cluster", "other")

    assert result.exit_code == 64
    assert "there is no cluster 'other'; the name servers list: DefaultCluster" in result.stderr


def test_a_name_server_without_brokers_is_reported() -> None:
    with Portal() as portal:
        server = NameServer(NameServerSettings(host="127.0.0.1", port=0))
        portal.run(server.start())
        result = CliRunner().invoke(main, ["cluster", "show", "--namesrv", str(server.address)])
        portal.run(server.stop())

    assert result.exit_code == 3
    assert "no broker is registered at 127.0.0.1" in result.stderr
