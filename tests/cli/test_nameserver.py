"""`pocketmq nameserver` as a user meets it: the real program, in a process of its own."""

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cli.program import ACCOUNTS, DEADLINE_S, SECRET, Start, programs, ready
from tests.nameserver.talk import ask, connected, done, register_command, route
from tests.net.certificates import make_authority, make_certificate

from pocketmq.cli import main
from pocketmq.codes import RequestCode
from pocketmq.net.address import Address
from pocketmq.net.network import TcpNetwork
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.administration import KvKey, PutKvConfig


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with programs(tmp_path, "nameserver") as starter:
        yield starter


def refused(*args: object) -> Result:
    """A command that ends before anything starts."""
    return CliRunner().invoke(main, ["nameserver", *map(str, args)])


@asynccontextmanager
async def talking_to(told: dict[str, Any]) -> AsyncIterator[Peer]:
    async with asyncio.timeout(DEADLINE_S):
        peer = await connected(TcpNetwork(), Address(told["host"], told["port"]))
        yield peer
        peer.close()
        await peer.wait_lost()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_name_server_is_ready_serves_and_stops_within_a_second(start: Start, number: signal.Signals) -> None:
    process = start("--port", 0, "--json")
    told = ready(process)

    async def talk() -> float:
        async with talking_to(told) as peer:
            await done(peer, register_command("A", "B"))
            assert await route(peer, "A") is not None
            began = time.perf_counter()
            process.send_signal(number)
            await peer.wait_lost()
        return began

    began = asyncio.run(talk())

    output, log = process.communicate(timeout=DEADLINE_S)
    assert time.perf_counter() - began < 1
    assert process.returncode == 0
    assert output == ""
    assert f"listening on {told['address']}" in log
    assert "Traceback" not in log


def test_the_json_line_has_all_facts_for_a_script(start: Start) -> None:
    told = ready(start("--port", 0, "--json", "--data", "kept"))

    assert told["event"] == "ready"
    assert told["address"] == f"127.0.0.1:{told['port']}"
    assert told["data"] == "kept"
    assert told["open_to_the_network"] is False


def test_the_banner_shows_the_address_and_the_data_folder(start: Start, tmp_path: Path) -> None:
    process = start("--port", 0)
    assert process.stdout is not None

    banner = [process.stdout.readline() for _ in range(5)]

    assert banner[0].startswith("PocketMQ name server ")
    assert "address    127.0.0.1:" in banner[1]
    assert "KV config  pocketmq-data/nameserver/kvConfig.json" in banner[2]
    assert "this machine only" in banner[3]
    process.terminate()
    process.communicate(timeout=DEADLINE_S)
    assert list(tmp_path.iterdir()) == []


def test_stored_keys_exist_after_a_restart(start: Start, tmp_path: Path) -> None:
    async def put(told: dict[str, Any]) -> None:
        async with talking_to(told) as peer:
            await ask(peer, RequestCode.PUT_KV_CONFIG, PutKvConfig("ns", "k", "v"))

    async def get(told: dict[str, Any]) -> str | None:
        async with talking_to(told) as peer:
            answer = await ask(peer, RequestCode.GET_KV_CONFIG, KvKey("ns", "k"))
        return (answer.ext or {}).get("value")

    first = start("--port", 0, "--json", "--data", "kept")
    asyncio.run(put(ready(first)))
    first.kill()
    first.wait()

    assert asyncio.run(get(ready(start("--port", 0, "--json", "--data", "kept")))) == "v"
    assert (tmp_path / "kept" / "kvConfig.json").read_bytes() == b'{"configTable":{"ns":{"k":"v"}}}'


def test_a_file_of_rocketmq_is_read_and_options_override_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "namesrv.conf").write_text(
        "listenPort=0\nbindAddress=0.0.0.0\nkvConfigPath=./kv.json\nrocketmqHome=/opt\n"
    )
    process = start("-c", "namesrv.conf", "--host", "127.0.0.1", "--json")

    told = ready(process)
    process.terminate()
    _, log = process.communicate(timeout=DEADLINE_S)

    assert told["host"] == "127.0.0.1"
    assert told["data"] == "."
    assert "namesrv.conf: rocketmqHome has no effect here" in log


def test_a_key_that_is_almost_a_setting_is_refused(start: Start, tmp_path: Path) -> None:
    (tmp_path / "namesrv.conf").write_text("listenport=1\n")
    process = start("-c", "namesrv.conf", "--json")

    _, log = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 64
    assert "namesrv.conf: listenport is not known; did you mean listenPort?" in log


def test_an_address_that_others_reach_needs_an_explicit_option(start: Start) -> None:
    result = refused("--host", "0.0.0.0", "--port", 0)

    assert result.exit_code == 64
    assert "--open-to-the-network-without-authentication" in result.stderr
    process = start("--host", "0.0.0.0", "--port", 0, "--open-to-the-network-without-authentication", "--json")
    assert ready(process)["open_to_the_network"] is True


def test_a_port_in_use_is_reported_in_one_sentence(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start("--port", taken.getsockname()[1])
        _, log = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 3
    assert log.splitlines()[-1].startswith("pocketmq: cannot listen on 127.0.0.1:")
    assert "Traceback" not in log


def test_a_damaged_kv_config_is_reported_in_one_sentence(start: Start, tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_text("{")

    process = start("--port", 0, "--data", ".")
    _, log = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 3
    assert log.splitlines()[-1].startswith("pocketmq: kvConfig.json is damaged (")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"listenPort=x\n", "namesrv.conf: listenPort=x is not a whole number"),
        (b"\xff\n", "namesrv.conf: properties are not UTF-8"),
    ],
)
def test_a_file_with_an_impossible_value_is_named(tmp_path: Path, text: bytes, why: str) -> None:
    (tmp_path / "namesrv.conf").write_bytes(text)

    result = refused("-c", tmp_path / "namesrv.conf")

    assert result.exit_code == 64
    assert why in result.stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = refused("-c", tmp_path / "none.conf")

    assert result.exit_code == 3
    assert "none.conf: No such file or directory" in result.stderr


def test_with_accounts_a_name_server_may_listen_anywhere_and_shows_its_protection(start: Start, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, make_authority(tmp_path))
    (tmp_path / "accounts.toml").write_text(ACCOUNTS)
    (tmp_path / "namesrv.conf").write_text("authenticationEnabled=true\n")
    tls = ["--tls-cert", certificate.cert, "--tls-key", certificate.key, "--tls-mode", "permissive"]
    accounts = ["-c", "namesrv.conf", "--accounts", "accounts.toml"]

    process = start("--host", "0.0.0.0", "--port", 0, *accounts, *tls, OPERATOR_SECRET=SECRET)
    assert process.stdout is not None
    banner = [process.stdout.readline().rstrip() for _ in range(5)]

    assert banner[3] == "  open to    the network, with an account in accounts.toml"
    assert banner[4] == "  TLS        optional: plain text is also accepted"


def test_a_file_with_access_rules_needs_accounts(tmp_path: Path) -> None:
    (tmp_path / "namesrv.conf").write_text("authenticationEnabled=true\n")

    result = refused("-c", tmp_path / "namesrv.conf", "--port", 0)

    assert result.exit_code == 64
    assert "authenticationEnabled=true is not supported" in result.stderr
