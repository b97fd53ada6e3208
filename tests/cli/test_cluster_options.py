"""Options of the commands for running clusters, and errors if a cluster does not answer."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.program import ACCOUNTS, SECRET, programs, ready
from tests.cli.running_cluster import RunningCluster
from tests.net.certificates import make_authority, make_certificate

import pocketmq
from pocketmq.cli import main
from pocketmq.cli.cluster_options import with_advice
from pocketmq.errors import ConnectFailed, NoPermission, PocketMQError, UsageError
from pocketmq.net.tls import ServerTlsFiles


def test_an_unreachable_cluster_is_reported_in_one_sentence_with_advice() -> None:
    result = CliRunner().invoke(main, ["topic", "ls", "--namesrv", "127.0.0.1:1"])

    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1
    assert "127.0.0.1:1" in result.stderr
    assert result.stderr.endswith("that --namesrv or NAMESRV_ADDR is correct\n")


@pytest.mark.parametrize(
    "command", [["topic", "ls"], ["topic", "ls", "--long"], ["cluster", "config"], ["dlq", "ls"], ["dlq", "show", "g"]]
)
def test_a_cluster_without_brokers_is_an_error_not_an_empty_list(command: list[str], lonely: str) -> None:
    result = CliRunner().invoke(main, [*command, "--namesrv", lonely])

    assert (result.exit_code, result.stdout) == (3, "")
    assert "no broker is registered at" in result.stderr


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server without brokers."""
    with programs(tmp_path_factory.mktemp("lonely"), "nameserver") as start:
        told = ready(start("--port", 0, "--json"))
        yield f"{told['host']}:{told['port']}"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9878", "https://mq:9876"])
def test_a_url_is_not_a_name_server(url: str) -> None:
    result = CliRunner().invoke(main, ["topic", "ls", "--namesrv", url])

    assert result.exit_code == 64
    assert "write HOST:PORT without a scheme" in result.stderr


def test_a_broker_or_a_web_server_is_not_a_name_server() -> None:
    with pocketmq.Server(metrics_port=0) as server:
        assert server.metrics_address is not None
        address = server.broker_address
        asked_broker = CliRunner().invoke(main, ["topic", "ls", "--namesrv", server.broker_address])
        asked_page = CliRunner().invoke(main, ["topic", "ls", "--namesrv", server.metrics_address])

    assert (asked_broker.exit_code, asked_page.exit_code) == (64, 3)
    assert f"{address} is not a name server" in asked_broker.stderr
    assert asked_page.stderr.count("web server") == 1
    assert "give the address of a name server" in asked_page.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["topic", "show", "invoces"], "there is no topic 'invoces'; did you mean 'invoices'?"),
        (["msg", "tail", "invoces", "--no-follow"], "did you mean 'invoices'?"),
        (["group", "lag", "acountants"], "there is no group 'acountants'; did you mean 'accountants'?"),
        (["dlq", "show", "acountants"], "did you mean 'accountants'?"),
        (["dlq", "show", "nothing-like-it"], "no broker knows the group 'nothing-like-it'"),
        (["dlq", "export", "nothing-like-it"], "no broker knows the group 'nothing-like-it'"),
        (["dlq", "replay", "nothing-like-it"], "no broker knows the group 'nothing-like-it'"),
        (["dlq", "drop", "nothing-like-it", "--yes"], "no broker knows the group 'nothing-like-it'"),
    ],
)
def test_a_missing_name_is_reported_with_the_nearest_one(
    cluster: RunningCluster, command: list[str], words: str
) -> None:
    if {"topic": "invoices"} not in cluster.ask("topic", "ls"):
        cluster.create("invoices")
    cluster.stand("accountants", "invoices", 0)

    result = cluster.run(*command)

    assert result.exit_code == 3
    assert words in result.stderr


def test_an_invalid_address_is_wrong_usage() -> None:
    result = CliRunner().invoke(main, ["topic", "ls", "--namesrv", "here:there"])

    assert result.exit_code == 64
    assert "here:there" in result.stderr


def test_the_environment_may_name_the_cluster(cluster: RunningCluster) -> None:
    result = CliRunner().invoke(main, ["cluster", "show"], env={"NAMESRV_ADDR": cluster.name_server})

    assert result.exit_code == 0
    assert "broker-a" in result.stdout


def test_requests_are_signed_by_the_given_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERATOR_SECRET", SECRET)
    accounts = tmp_path / "accounts.toml"
    accounts.write_text(ACCOUNTS)
    with pocketmq.Server(accounts=accounts) as server:
        words = ["cluster", "show", "--namesrv", server.name_server]

        stranger = CliRunner().invoke(main, words)
        operator = CliRunner().invoke(main, [*words, "--access-key", "operator"], env={"ROCKETMQ_SECRET_KEY": SECRET})

    assert (stranger.exit_code, "ROCKETMQ_SECRET_KEY" in stranger.stderr) == (3, True), stranger.stderr
    assert (operator.exit_code, "broker-a" in operator.stdout) == (0, True), operator.stderr


def test_an_account_without_its_secret_is_wrong_usage() -> None:
    result = CliRunner().invoke(main, ["topic", "ls", "--access-key", "me"], env={"ROCKETMQ_SECRET_KEY": ""})

    assert result.exit_code == 64
    assert "needs the secret of 'me' in the variable ROCKETMQ_SECRET_KEY" in result.stderr


def test_advice_depends_on_the_error() -> None:
    with (
        pytest.raises(PocketMQError, match=r"^no connection; check that name server and brokers are running"),
        with_advice(),
    ):
        raise ConnectFailed("no connection.")
    with pytest.raises(PocketMQError, match=r"^not you; use an account"), with_advice():
        raise NoPermission("not you\nand so on")
    with pytest.raises(NoPermission, match=r"no writable queue$"), with_advice():
        raise NoPermission("topic 'orders' has no writable queue")
    with pytest.raises(UsageError, match=r"^as it was$"), with_advice():
        raise UsageError("as it was")


def test_tls_verifies_servers_with_the_certificate_authority(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, authority)
    mine = make_certificate(tmp_path, authority, "client")
    tls = ServerTlsFiles(cert=certificate.cert, key=certificate.key, client_ca=authority.cert)
    shown = ("--tls-cert", str(mine.cert), "--tls-key", str(mine.key))
    with pocketmq.Server(tls=tls) as server:
        words = ["cluster", "show", "--namesrv", server.name_server]

        plain = CliRunner().invoke(main, words)
        untrusted = CliRunner().invoke(main, [*words, "--tls", *shown])
        trusted = CliRunner().invoke(main, [*words, "--tls-ca", str(authority.cert), *shown])
        anybody = CliRunner().invoke(main, [*words, "--tls-no-verify", *shown])
        examined = CliRunner().invoke(main, ["doctor", *words[2:], "--tls-ca", str(authority.cert), *shown])

    assert plain.exit_code == 3
    assert (untrusted.exit_code, "certificate" in untrusted.stderr) == (3, True), untrusted.stderr
    assert (trusted.exit_code, "broker-a" in trusted.stdout) == (0, True), trusted.stderr
    assert anybody.exit_code == 0
    assert "TLS with verified certificates" in examined.stdout


def test_a_missing_certificate_is_wrong_usage(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["topic", "ls", "--tls-ca", str(tmp_path / "no.pem")])

    assert result.exit_code == 64
    assert "no.pem" in result.stderr
