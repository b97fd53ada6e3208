"""`pocketmq proxy` as a user meets it: the real program, in a process of its own."""

import asyncio
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli.program import DEADLINE_S, Start, programs, ready
from tests.proxy.kit import GrpcClient, ack_request, message

import pocketmq
from pocketmq.cli import main
from pocketmq.proxy import messages as m


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with programs(tmp_path, "proxy", "--port", "0", "--json") as starter:
        yield starter


async def sent_and_received(address: str) -> list[bytes]:
    async with asyncio.timeout(DEADLINE_S), GrpcClient(address) as client:
        sent = await client.call("SendMessage", m.SendMessageRequest(messages=[message()]))
        received = await client.receive()
        acked = await client.call("AckMessage", ack_request(*received.messages))
        assert [sent.status.code, received.code, acked.status.code] == [m.Code.OK] * 3
        return received.bodies


def test_it_serves_grpc_clients_of_another_process_and_ends_at_once(start: Start) -> None:
    with pocketmq.Server() as server:
        with pocketmq.Admin(server.name_server) as admin:
            admin.topics.create("T")
        process = start("-n", server.name_server, "--metrics-port", 0)
        told = ready(process)
        assert asyncio.run(sent_and_received(told["address"])) == [b"body"]
        with urllib.request.urlopen(told["metrics"]) as page:
            assert "rocketmq_proxy_calls_total" in page.read().decode()
        process.send_signal(signal.SIGTERM)

        assert process.wait(DEADLINE_S) == 0
        assert told["name_servers"] == server.name_server


def test_limits_can_be_set(start: Start) -> None:
    with pocketmq.Server() as server:
        told = ready(start("-n", server.name_server, "--set", "max_clients=1"))

        async def second() -> Any:
            request = m.QueryRouteRequest(topic=m.Resource(name="T"))
            async with GrpcClient(told["address"], client_id="1") as one, GrpcClient(told["address"]) as two:
                await one.call("QueryRoute", request)
                return await two.call("QueryRoute", request)

        assert asyncio.run(second()).status.code == m.Code.TOO_MANY_REQUESTS


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--set", "max_client=1"), "did you mean 'max_clients'?"),
        (("--set", "max_clients=many"), "must be a whole number"),
        (("--set", "max_clients=0"), "max_clients"),
        (("--set", "max_clients"), "expected KEY=VALUE"),
        (("--host", "0.0.0.0"), "there is no authentication"),
        (("--metrics-host", "127.0.0.1"), "need --metrics-port"),
    ],
)
def test_impossible_settings_are_reported_before_anything_starts(args: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(main, ["proxy", *args])

    assert result.exit_code != 0
    assert why in result.output
