"""`pocketmq broker`, as the real program, in a process of its own."""

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conformance.broker_line import BrokerLine
from tests.cli.program import ACCOUNTS, SECRET, Start, ended, programs, ready
from tests.net.certificates import make_authority, make_certificate

from pocketmq.cli import main
from pocketmq.client import Credentials, Producer, client_context
from pocketmq.codes import RequestCode
from pocketmq.errors import TopicNotFound
from pocketmq.protocol.bodies.properties_text import read_properties


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with programs(tmp_path, "broker") as starter:
        yield starter


def refused(*args: object) -> Result:
    """A command that ends before anything starts."""
    return CliRunner().invoke(main, ["broker", *map(str, args)])


def settings_of(port: int) -> dict[str, str]:
    with BrokerLine(port) as line:
        return read_properties(line.call(RequestCode.GET_BROKER_CONFIG).body)


def test_sent_messages_exist_after_a_stop_within_a_second(start: Start) -> None:
    process = start("--port", 0, "--json", "--set", "autoCreateTopicEnable=true")
    with BrokerLine(ready(process)["port"]) as line:
        for number in range(3):
            line.send("T", 0, b"%d" % number, {})
        process.terminate()
        began = time.perf_counter()
        log = ended(process)
        took_s = time.perf_counter() - began

    again = start("--port", 0, "--json")
    with BrokerLine(ready(again)["port"]) as line:
        kept = line.read_queue("T", 0)

    assert process.returncode == 0
    assert took_s < 1.5
    assert "listening on" in log
    assert [message.body for message in kept] == [b"0", b"1", b"2"]


def test_the_json_line_has_all_facts_for_a_script(start: Start) -> None:
    told = ready(
        start(
            "--port",
            0,
            "--json",
            "--name",
            "b",
            "--cluster",
            "C",
            "--data",
            "kept",
            "--flush",
            "sync",
            "-n",
            "127.0.0.1:1",
            "--advertise",
            "broker.example",
        )
    )

    assert told["event"] == "ready"
    assert (told["name"], told["cluster"], told["data"], told["flush"]) == ("b", "C", "kept", "sync")
    assert told["address"] == f"127.0.0.1:{told['port']}"
    assert told["name_servers"] == ["127.0.0.1:1"]
    assert told["advertised"] == f"broker.example:{told['port']}"
    assert told["open_to_the_network"] is False
    assert settings_of(told["port"])["flushDiskType"] == "SYNC_FLUSH"


def test_the_banner_shows_name_address_and_guarantees(start: Start) -> None:
    process = start("--port", 0)
    assert process.stdout is not None

    banner = [process.stdout.readline().rstrip() for _ in range(9)]

    assert banner[0].startswith("PocketMQ broker ")
    assert banner[1] == "  broker        broker-a of DefaultCluster"
    assert banner[2].startswith("  address       127.0.0.1:")
    assert banner[4] == "  data          pocketmq-data/broker-a"
    assert banner[5].startswith("  flush         async: ")
    assert banner[6] == "  topics        not created automatically"
    assert banner[7] == "  open to       this machine only"
    assert banner[8] == "Ready. Press Ctrl-C to stop."


def test_sends_do_not_create_topics_unless_the_file_allows_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("autoCreateTopicEnable=true\nbrokerName=b\n")

    with BrokerLine(ready(start("--port", 0, "--json"))["port"]) as line, pytest.raises(TopicNotFound):
        line.send("T", 0, b"x", {})
    with BrokerLine(ready(start("--port", 0, "--json", "-c", "broker.conf"))["port"]) as line:
        assert line.send("T", 0, b"x", {}).queue_offset == 0


def test_a_file_of_rocketmq_is_read_and_options_override_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text(
        "brokerName=from-file\nlistenPort=1\nbindAddress=0.0.0.0\nstorePathRootDir=./kept\nfileReservedTime=48\n"
        "brokerRole=ASYNC_MASTER\nhaListenPort=0\nminInSyncReplicas=1\nlistening=1\ndiskMaxUsedSpaceRatio=88\n"
    )
    process = start("-c", "broker.conf", "--host", "127.0.0.1", "--port", 0, "--json")

    told = ready(process)
    settings = settings_of(told["port"])
    process.terminate()
    log = ended(process)

    assert (told["host"], told["name"], told["data"]) == ("127.0.0.1", "from-file", "kept")
    assert (settings["fileReservedTime"], settings["listenPort"]) == ("48", str(told["port"]))
    assert "broker.conf: minInSyncReplicas has no effect here: a send is stored in any case" in log
    assert "broker.conf: listening is not known" in log
    assert "broker.conf: diskMaxUsedSpaceRatio=88 is lowered to 85" in log
    assert "brokerRole" not in log


def test_name_servers_are_read_from_the_environment_if_nothing_else_names_them(start: Start) -> None:
    first = ready(start("--port", 0, "--json", NAMESRV_ADDR="127.0.0.1:1;127.0.0.1:2"))
    second = ready(start("--port", 0, "--json", "--name", "b", "-n", "127.0.0.1:3", NAMESRV_ADDR="127.0.0.1:1"))

    assert first["name_servers"] == ["127.0.0.1:1", "127.0.0.1:2"]
    assert second["name_servers"] == ["127.0.0.1:3"]


def test_the_option_for_stdin_stops_the_program_when_stdin_ends(start: Start) -> None:
    process = start("--port", 0, "--json", "--until-end-of-input")
    ready(process)

    ended(process)  # closes its input

    assert process.returncode == 0


def test_log_files_keep_their_size(start: Start) -> None:
    size = 1024 * 1024
    first = start(
        "--port", 0, "--json", "--set", f"mappedFileSizeCommitLog={size}", "--set", "autoCreateTopicEnable=true"
    )
    with BrokerLine(ready(first)["port"]) as line:
        line.send("T", 0, b"x", {})
    first.send_signal(signal.SIGINT)
    ended(first)

    told = ready(start("--port", 0, "--json"))

    assert settings_of(told["port"])["mappedFileSizeCommitLog"] == str(size)


def test_two_brokers_cannot_use_one_folder(start: Start) -> None:
    ready(start("--port", 0, "--json"))

    second = start("--port", 0, "--json")
    log = ended(second)

    assert second.returncode == 3
    assert log.splitlines()[-1].startswith("pocketmq: ")
    assert "pocketmq-data/broker-a" in log.splitlines()[-1]


def test_a_port_in_use_is_reported_in_one_sentence(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start("--port", taken.getsockname()[1])
        log = ended(process)

    assert process.returncode == 3
    assert log.splitlines()[-1].startswith("pocketmq: cannot listen on 127.0.0.1:")


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--host", "0.0.0.0"], "--open-to-the-network-without-authentication"),
        (["--set", "listenPort"], "--set listenPort: expected KEY=VALUE"),
        (["--set", "=5"], "--set =5: expected KEY=VALUE"),
        (["--set", "listnPort=1"], "listnPort is not known; did you mean listenPort?"),
        (["--set", "aclEnable=true"], "there are accounts: accountsFile=FILE or --accounts FILE"),
        (["--accounts", "none.toml"], "accounts in none.toml: the file cannot be read: No such file"),
        (["--register-as", "me"], "--register-as needs the file of the account"),
        (["--tls-key", "k.pem"], "without a server certificate"),
        (["--tls-cert", "none.pem"], "TLS: cannot use certificate none.pem"),
        (["--set", "brokerRole=MASTER"], "is not ASYNC_MASTER or SYNC_MASTER or SLAVE"),
        (["--set", "flushDiskTyp=SYNC_FLUSH"], "did you mean flushDiskType?"),
        (["--set", "readOnlyCommitLogStorePaths=/x"], "the log is in one folder"),
        (["--name", "a/b"], "'a/b'"),
        (["-n", "a:b"], "address 'a:b'"),
        (["--metrics-host", "127.0.0.1"], "need --metrics-port"),
        (["--tls-mode", "enforcing"], "TLS: the mode is enforcing, but there is no server certificate"),
    ],
)
def test_impossible_settings_are_reported_before_anything_starts(args: list[str], why: str) -> None:
    result = refused(*args)

    assert result.exit_code == 64
    assert why in result.stderr


def test_keys_of_a_java_broker_cause_a_warning_in_options_and_in_a_file(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerFastFailureEnable=false\nminInSyncReplicas=1\nnewInTheNextRelease=7\n", "utf-8")
    java = ("--set", "brokerFastFailureEnable=false", "--set", "diskMaxUsedSpaceRatio=95")

    process = start("--port", 0, "--json", "-c", config, *java)
    told = settings_of(ready(process)["port"])
    process.terminate()
    log = ended(process)

    assert process.returncode == 0
    assert told["diskMaxUsedSpaceRatio"] == "85"
    for source in ("--set", str(config)):
        assert f"warning: {source}: brokerFastFailureEnable has no effect here" in log
    assert "warning: --set: diskMaxUsedSpaceRatio=95 is lowered to 85" in log
    assert "newInTheNextRelease is not known" in log


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"listenPort=x\n", "broker.conf: listenPort=x is not a whole number"),
        (b"brokerName=a/b\n", "broker.conf: broker name 'a/b'"),
        (b"\xff\n", "broker.conf: properties are not UTF-8"),
    ],
)
def test_a_file_with_an_impossible_value_is_named(tmp_path: Path, text: bytes, why: str) -> None:
    (tmp_path / "broker.conf").write_bytes(text)

    result = refused("-c", tmp_path / "broker.conf")

    assert result.exit_code == 64
    assert why in result.stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = refused("-c", tmp_path / "none.conf")

    assert result.exit_code == 3
    assert "none.conf: No such file or directory" in result.stderr


# accounts and TLS


def test_a_broker_registers_with_signature_and_tls(start: Start, tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, authority)
    (tmp_path / "accounts.toml").write_text(ACCOUNTS)
    both = ["--json", "--port", 0, "--accounts", "accounts.toml"]
    both += ["--tls-cert", certificate.cert, "--tls-key", certificate.key]
    with programs(tmp_path, "nameserver") as start_name_server:
        name_server = ready(start_name_server(*both, OPERATOR_SECRET=SECRET))
        there = ["--namesrv", name_server["address"], "--namesrv-ca", authority.cert, "--register-as", "operator"]
        created = ["--set", "autoCreateTopicEnable=true"]
        broker = ready(start(*both, *there, *created, OPERATOR_SECRET=SECRET))
        operator = Credentials("operator", SECRET)
        with Producer(name_server["address"], credentials=operator, tls=client_context(authority.cert)) as producer:
            sent = producer.send("T", b"x")

    assert (broker["accounts"], broker["tls"]) == ("accounts.toml", "enforcing")
    assert sent.queue.broker_name == "broker-a"


def test_a_broker_without_permission_to_register_logs_it_and_retries(start: Start, tmp_path: Path) -> None:
    (tmp_path / "accounts.toml").write_text(ACCOUNTS)
    with programs(tmp_path, "nameserver") as start_name_server:
        told = ready(start_name_server("--json", "--port", 0, "--accounts", "accounts.toml", OPERATOR_SECRET=SECRET))
        process = start("--json", "--port", 0, "--namesrv", told["address"])
        ready(process)
        process.terminate()
        log = ended(process)

    assert "failed: NO_PERMISSION (16): username cannot be null." in log
    assert process.returncode == 0


def test_a_file_of_rocketmq_with_access_rules_needs_accounts(start: Start, tmp_path: Path) -> None:
    (tmp_path / "accounts.toml").write_text(ACCOUNTS)
    (tmp_path / "broker.conf").write_text("aclEnable=true\nauthenticationEnabled=true\n")

    told = ready(
        start("--json", "--port", 0, "-c", "broker.conf", "--accounts", "accounts.toml", OPERATOR_SECRET=SECRET)
    )
    result = refused("-c", tmp_path / "broker.conf")

    assert told["accounts"] == "accounts.toml"
    assert result.exit_code == 64
    assert "aclEnable=true is not supported" in result.stderr


def test_a_missing_account_cannot_register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "accounts.toml").write_text(ACCOUNTS)
    monkeypatch.setenv("OPERATOR_SECRET", SECRET)

    result = refused("--accounts", tmp_path / "accounts.toml", "--register-as", "unknown")

    assert result.exit_code == 64
    assert "--register-as unknown: no such account" in result.stderr
