"""`pocketmq serve`, as the real program: name server and brokers with one command."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from conformance.broker_line import BrokerLine
from tests.cli.program import ACCOUNTS, DEADLINE_S, SECRET, Program, Start, ended, programs, ready
from tests.net.certificates import make_authority, make_certificate

from pocketmq.cli import main
from pocketmq.client import Credentials, Producer, client_context
from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError
from pocketmq.net.address import Address
from pocketmq.protocol.api.administration import GetRoute
from pocketmq.protocol.bodies.topics import ClusterInfo, TopicRouteData

IDLE_MEMORY_KIB = 60 * 1024
GRPC_MEMORY_KIB = 24 * 1024
"""How much more it is with gRPC, most of which is its library."""
START_S = 1.0
STOP_S = 1.0
SLOWNESS = 4
"""How much slower a busy machine may be."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with programs(tmp_path, "serve", "--namesrv-port", "0", "--broker-port", "0", "--json") as starter:
        yield starter


def refused(*args: object) -> Result:
    """A command that ends before anything starts."""
    return CliRunner().invoke(main, ["serve", *map(str, args)])


def line_to(address: str) -> BrokerLine:
    return BrokerLine(Address.parse(address).port)


def clusters(told: dict[str, Any]) -> ClusterInfo:
    with line_to(told["name_server"]) as line:
        return ClusterInfo.decode(line.call(RequestCode.GET_BROKER_CLUSTER_INFO).body)


def route(told: dict[str, Any], topic: str) -> TopicRouteData:
    with line_to(told["name_server"]) as line:
        return TopicRouteData.decode(line.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic)).body)


def memory_kib(process: Program) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


@pytest.mark.parametrize(("number", "flush"), [(signal.SIGTERM, "async"), (signal.SIGINT, "sync")])
def test_serve_is_ready_serves_and_stops_within_a_second_without_loss(
    start: Start, number: signal.Signals, flush: str
) -> None:
    process = start("--flush", flush)
    [broker] = ready(process)["brokers"]
    with line_to(broker["address"]) as line:
        for count in range(20):
            line.send("T", 0, b"%d" % count, {})
        began = time.perf_counter()
        process.send_signal(number)
        ended(process)
        took_s = time.perf_counter() - began

    again = start()
    with line_to(ready(again)["brokers"][0]["address"]) as line:
        kept = line.read_queue("T", 0)
    again.terminate()

    assert process.returncode == 0
    assert took_s < STOP_S * SLOWNESS
    assert "after a clean stop" in ended(again)
    assert [message.body for message in kept] == [b"%d" % count for count in range(20)]


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_messages_acknowledged_before_the_stop_exist_after_a_restart(start: Start, flush: str) -> None:
    process = start("--flush", flush)
    [broker] = ready(process)["brokers"]
    acknowledged = 0

    with line_to(broker["address"]) as line, suppress(PocketMQError, OSError):
        while acknowledged < 1_000_000:
            line.send("T", 0, b"%d" % acknowledged, {})
            acknowledged += 1
            if acknowledged == 50:
                process.terminate()
    ended(process)
    with line_to(ready(start())["brokers"][0]["address"]) as line:
        kept = [message.body for message in line.read_queue("T", 0)]

    assert process.returncode == 0
    assert acknowledged >= 50
    assert kept[:acknowledged] == [b"%d" % number for number in range(acknowledged)]
    assert len(kept) <= acknowledged + 1


def test_the_name_server_knows_the_broker_and_its_topics_from_the_start(start: Start) -> None:
    told = ready(start())
    [broker] = told["brokers"]

    with line_to(broker["address"]) as line:
        line.send("T", 0, b"x", {})

    assert clusters(told).broker_addr_table["broker-a"].broker_addrs == {0: broker["address"]}
    assert route(told, "TBW102").broker_datas[0].broker_name == "broker-a"


def test_the_json_line_has_all_facts_for_a_script(start: Start, tmp_path: Path) -> None:
    told = ready(start("--data", "kept", "--flush", "sync"))

    assert told["event"] == "ready"
    assert told["program"] == "serve"
    assert (told["data"], told["flush"], told["open_to_the_network"]) == ("kept", "sync", False)
    assert [broker["name"] for broker in told["brokers"]] == ["broker-a"]
    assert told["brokers"][0]["data"] == "kept/broker-a"
    assert (tmp_path / "kept" / "broker-a").is_dir()


def test_the_banner_shows_addresses_and_access(tmp_path: Path) -> None:
    with programs(tmp_path, "serve") as start:
        process = start("--namesrv-port", 0, "--broker-port", 0)
        assert process.stdout is not None

        banner = [process.stdout.readline().rstrip() for _ in range(8)]

    assert banner[0].startswith("PocketMQ ")
    assert banner[1].startswith("  name server  127.0.0.1:")
    assert banner[2].startswith("  broker-a     127.0.0.1:")
    assert banner.pop(3).startswith("  gRPC         127.0.0.1:")
    assert banner[3] == "  data         pocketmq-data"
    assert banner[4].startswith("  flush        async: ")
    assert banner[5] == "  open to      this machine only"
    assert banner[6] == "Ready. Press Ctrl-C to stop."


def test_serve_starts_quickly_and_needs_little_memory(start: Start) -> None:
    began = time.perf_counter()
    process = start("--no-grpc")
    ready(process)
    took_s = time.perf_counter() - began

    assert took_s < START_S * SLOWNESS
    assert memory_kib(process) < IDLE_MEMORY_KIB
    with_grpc = start("--data", "with-grpc")
    ready(with_grpc)
    assert memory_kib(with_grpc) < IDLE_MEMORY_KIB + GRPC_MEMORY_KIB


def test_the_log_says_when_the_c_twins_are_not_used(start: Start) -> None:
    process = start(POCKETMQ_PURE="1")
    ready(process)
    process.terminate()

    assert "Using pure Python instead of the C twins, which is slower: " in ended(process)


def test_an_address_that_others_reach_needs_an_explicit_option(start: Start) -> None:
    result = refused("--host", "0.0.0.0")

    assert result.exit_code == 64
    assert "--open-to-the-network-without-authentication" in result.stderr
    told = ready(start("--host", "0.0.0.0", "--open-to-the-network-without-authentication"))
    assert told["open_to_the_network"] is True
    assert not told["name_server"].startswith("0.0.0.0")
    assert clusters(told).broker_addr_table["broker-a"].broker_addrs == {0: told["brokers"][0]["address"]}


def test_clients_find_serve_at_the_advertised_address(start: Start) -> None:
    told = ready(start("--advertise", "broker.example"))

    [address] = clusters(told).broker_addr_table["broker-a"].broker_addrs.values()
    assert address.startswith("broker.example:")


def test_a_port_in_use_is_reported_in_one_sentence(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start("--broker-port", taken.getsockname()[1])
        log = ended(process)

    assert process.returncode == 3
    assert log.splitlines()[-1].startswith("pocketmq: cannot listen on 127.0.0.1:")


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--set", "storePathRootDir=/x"], "storePathRootDir cannot be set here"),
        (["--set", "storePathRootDir=/x", "--brokers", "2"], "storePathRootDir cannot be set here"),
        (["--set", "brokerName=x", "--brokers", "2"], "brokerName is for a single broker"),
        (["--set", "maxTopic=1"], "maxTopic is not known; did you mean maxTopics?"),
        (["--set", "maxTopic=1", "--brokers", "2"], "maxTopic is not known; did you mean maxTopics?"),
        (["--brokers", "0"], "--brokers"),
        (["--brokers", "27"], "--brokers"),
        (["--console-port", "0"], "--console-port needs --console"),
        (["--console-users", "users"], "--console-users needs --console"),
        (["--tls-mode", "enforcing"], "TLS: the mode is enforcing, but there is no server certificate"),
        (["--metrics-host", "127.0.0.1"], "need --metrics-port"),
    ],
)
def test_impossible_settings_are_reported_before_anything_starts(args: list[str], why: str) -> None:
    result = refused(*args)

    assert result.exit_code == 64
    assert why in result.stderr


def test_keys_of_a_java_broker_cause_a_warning(start: Start) -> None:
    process = start("--set", "brokerFastFailureEnable=false", "--set", "diskMaxUsedSpaceRatio=95")
    ready(process)
    process.terminate()
    log = ended(process)

    assert process.returncode == 0
    assert "brokerFastFailureEnable has no effect here" in log
    assert "diskMaxUsedSpaceRatio=95 is lowered to 85" in log


def test_several_brokers_share_one_name_server_and_stop_together(start: Start) -> None:
    process = start("--brokers", 3)
    told = ready(process)

    for broker in told["brokers"]:
        with line_to(broker["address"]) as line:
            line.send("T", 0, broker["name"].encode(), {})
    known = clusters(told).broker_addr_table
    process.send_signal(signal.SIGINT)
    ended(process)
    kept = ready(start("--brokers", 3))["brokers"]

    assert process.returncode == 0
    assert {name: data.broker_addrs[0] for name, data in known.items()} == {
        broker["name"]: broker["address"] for broker in told["brokers"]
    }
    assert [broker["name"] for broker in kept] == ["broker-a", "broker-b", "broker-c"]
    for broker in kept:
        with line_to(broker["address"]) as line:
            assert [message.body.decode() for message in line.read_queue("T", 0)] == [broker["name"]]


def test_a_broker_that_exits_is_reported_and_stops_the_others(start: Start) -> None:
    process = start("--brokers", 2)
    told = ready(process)
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]

    os.kill(children[1], signal.SIGKILL)
    log = ended(process)

    assert process.returncode == 3
    assert log.splitlines()[-1] == "pocketmq: broker-b exited unexpectedly with code -9; stopping all brokers"
    for broker in told["brokers"]:
        with pytest.raises(ConnectionRefusedError):
            line_to(broker["address"])


def test_a_broker_that_does_not_start_is_reported_and_stops_the_others(start: Start, tmp_path: Path) -> None:
    with programs(tmp_path, "broker", "--port", "0", "--json", "--data", "pocketmq-data/broker-b") as start_broker:
        ready(start_broker())

        process = start("--brokers", 2)
        log = ended(process)

    assert process.returncode == 3
    assert log.splitlines()[-1] == "pocketmq: broker-b ended with exit code 3 before it was ready"


def test_brokers_stop_when_their_parent_process_ends(start: Start) -> None:
    process = start("--brokers", 2)
    told = ready(process)

    process.kill()

    deadline = time.monotonic() + DEADLINE_S
    for broker in told["brokers"]:
        while _is_there(broker["address"]):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def _is_there(address: str) -> bool:
    try:
        line_to(address).__exit__()
    except ConnectionRefusedError:
        return False
    return True


# accounts and TLS


def clients_of(told: dict[str, Any], **options: Any) -> Producer:
    return Producer(told["name_server"], credentials=Credentials("operator", SECRET), **options)


@pytest.mark.parametrize("count", [1, 2])
def test_with_accounts_and_tls_brokers_register_and_clients_are_served(
    start: Start, tmp_path: Path, count: int
) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, authority)
    (tmp_path / "accounts.toml").write_text(ACCOUNTS)
    files = ["--accounts", "accounts.toml", "--tls-cert", certificate.cert, "--tls-key", certificate.key]

    process = start(*files, "--brokers", count, OPERATOR_SECRET=SECRET)
    told = ready(process)
    with clients_of(told, tls=client_context(authority.cert)) as producer:
        brokers = {producer.send("T", b"x").queue.broker_name for _ in range(8 * count)}
    process.terminate()
    log = ended(process)

    assert (told["accounts"], told["tls"], told["open_to_the_network"]) == ("accounts.toml", "enforcing", False)
    assert brokers == {broker["name"] for broker in told["brokers"]}
    assert process.returncode == 0
    assert SECRET not in log


def test_an_address_that_others_reach_needs_no_option_with_accounts(tmp_path: Path) -> None:
    (tmp_path / "accounts.toml").write_text(ACCOUNTS)
    with programs(tmp_path, "serve", "--namesrv-port", "0", "--broker-port", "0") as start:
        process = start("--host", "0.0.0.0", "--accounts", "accounts.toml", OPERATOR_SECRET=SECRET)
        assert process.stdout is not None

        banner = [process.stdout.readline().rstrip() for _ in range(9)]

    assert banner[6] == "  open to      the network, with an account in accounts.toml"
    assert banner[7] == "  TLS          off: others on the network can read and repeat requests"


@pytest.mark.parametrize("count", [1, 2])
def test_invalid_accounts_are_reported_before_anything_starts(tmp_path: Path, count: int) -> None:
    file = tmp_path / "accounts.toml"
    file.write_text('[[account]]\naccess_key = "a"\nsecret = "hush"\n')

    result = refused(
        "--accounts", file, "--namesrv-port", 0, "--broker-port", 0, "--data", tmp_path, "--brokers", count
    )

    assert result.exit_code == 64
    assert f"accounts in {file}: account 1 ('a'): its secret must have at least 8 characters" in result.stderr
    assert "hush" not in result.stderr


def test_no_grpc_turns_grpc_off(start: Start) -> None:
    assert ready(start("--no-grpc"))["grpc"] is None


def test_grpc_has_the_port_of_its_option(start: Start) -> None:
    assert str(ready(start("--grpc-port", "0"))["grpc"]).startswith("127.0.0.1:")


def test_options_for_grpc_that_contradict_each_other(tmp_path: Path) -> None:
    result = refused("--grpc-port", 0, "--no-grpc", "--data", tmp_path)

    assert "--no-grpc and --grpc-port contradict each other" in result.stderr
