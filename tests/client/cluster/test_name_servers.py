"""Name servers: their addresses, and the choice of one for each call."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.kit import BRISK, FakeServer, ignore, refuse

from pocketmq.client import AsyncProducer
from pocketmq.client.cluster.name_servers import NameServers, parse_name_servers
from pocketmq.client.cluster.rpc import RpcClient
from pocketmq.codes import RequestCode
from pocketmq.errors import BodyError, CallTimedOut, InvalidSetting, NetworkError, TopicNotFound
from pocketmq.net.address import Address
from pocketmq.net.pool import Pool
from pocketmq.protocol.bodies.topics import ClusterInfo, TopicRouteData
from pocketmq.testing import MemoryNetwork, run

A, B = Address("a", 9876), Address("b", 9876)


@pytest.mark.parametrize(
    ("given", "environ", "found"),
    [
        ("a:9876;b:9876", {}, (A, B)),
        (" a:9876 ; b ;a:9876;", {}, (A, B)),
        ("a,b", {}, (A, B)),
        (["a:9876", "b:9876"], {}, (A, B)),
        (("a;b",), {}, (A, B)),
        (None, {"NAMESRV_ADDR": "a:9876"}, (A,)),
        (None, {"ROCKETMQ_NAMESRV_ADDR": "b"}, (B,)),
        (None, {"rocketmq.namesrv.addr": "a;b"}, (A, B)),
        (None, {"NAMESRV_ADDR": "a", "rocketmq.namesrv.addr": "b"}, (A,)),
        ("b", {"NAMESRV_ADDR": "a"}, (B,)),
    ],
)
def test_addresses_come_from_the_argument_or_the_environment(
    given: str | list[str] | None, environ: dict[str, str], found: tuple[Address, ...]
) -> None:
    assert parse_name_servers(given, environ) == found


@pytest.mark.parametrize("given", [None, "", " ; ", []])
def test_a_missing_address_is_an_error_with_advice(given: str | list[str] | None) -> None:
    with pytest.raises(InvalidSetting, match=r"pass name_servers='host:9876'.*NAMESRV_ADDR"):
        parse_name_servers(given, {})


@pytest.mark.parametrize("given", [9876, ["a:9876", 5], {"a:9876"}, b"a:9876"])
def test_addresses_of_another_type_are_rejected(given: Any) -> None:
    with pytest.raises(InvalidSetting, match="must be a text or a list of texts, such as 'host:9876'"):
        parse_name_servers(given, {})


def with_two(test: Callable[[NameServers, FakeServer, FakeServer], Awaitable[None]]) -> None:
    """Run `test` with two name servers; the first one is queried first."""

    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        servers = [FakeServer(network, f"10.0.0.{n}:9876") for n in (1, 2)]
        for server in servers:
            await server.start()
        async with Pool(network=network) as pool:
            dice = random.Random(1)  # whose first number below 2 is 0
            asked = NameServers(
                tuple(server.address for server in servers), RpcClient(pool), dice, timeout_s=3, is_plain=True
            )
            await test(asked, *servers)

    run(main())


ROUTE = TopicRouteData()


def answer(server: FakeServer) -> None:
    server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda command: command.reply(body=ROUTE.encode())


def test_one_name_server_is_used_until_it_fails() -> None:
    async def test(asked: NameServers, first: FakeServer, second: FakeServer) -> None:
        answer(first)
        answer(second)
        assert [await asked.route("T") for _ in range(3)] == [ROUTE] * 3
        assert (len(first.heard), len(second.heard)) == (3, 0)

        first.close()
        assert [await asked.route("T") for _ in range(3)] == [ROUTE] * 3

        assert (len(first.heard), len(second.heard)) == (3, 3)
        assert asked.current == second.address

    with_two(test)


def test_a_negative_answer_ends_the_search() -> None:
    async def test(asked: NameServers, first: FakeServer, second: FakeServer) -> None:
        first.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = refuse(17, "no route")
        answer(second)

        with pytest.raises(TopicNotFound):
            await asked.route("T")

        assert not second.heard

    with_two(test)


def test_when_all_fail_the_error_names_each_failure() -> None:
    async def test(asked: NameServers, first: FakeServer, second: FakeServer) -> None:
        first.close()
        second.close()

        with pytest.raises(NetworkError, match=r"no name server answered: 10\.0\.0\.1.*; 10\.0\.0\.2") as caught:
            await asked.route("T")

        assert not isinstance(caught.value, TimeoutError)

    with_two(test)


def test_silent_name_servers_cause_a_timeout() -> None:
    async def test(asked: NameServers, first: FakeServer, second: FakeServer) -> None:
        for server in (first, second):
            server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = ignore

        with pytest.raises(CallTimedOut):
            await asked.route("T")

    with_two(test)


def test_a_response_without_a_body_is_an_error() -> None:
    async def test(asked: NameServers, first: FakeServer, second: FakeServer) -> None:
        first.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda command: command.reply()

        with pytest.raises(BodyError, match="the route of topic T has no body"):
            await asked.route("T")

    with_two(test)


def test_the_cluster_info_lists_the_brokers() -> None:
    async def test(asked: NameServers, first: FakeServer, second: FakeServer) -> None:
        info = ClusterInfo({}, {"C": ("broker-a",)})
        first.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda command: command.reply(body=info.encode())

        assert await asked.cluster_info() == info

    with_two(test)


def test_a_broker_in_the_name_servers_is_recognised() -> None:
    async def test(asked: NameServers, first: FakeServer, second: FakeServer) -> None:
        for question in (asked.route("T"), asked.cluster_info()):
            with pytest.raises(InvalidSetting, match=r"10\.0\.0\.1:9876 is not a name server.*looks like a broker"):
                await question

    with_two(test)


def test_a_broker_among_name_servers_is_skipped() -> None:
    async def test(asked: NameServers, first: FakeServer, second: FakeServer) -> None:
        answer(second)

        for _ in range(2):
            assert await asked.route("T") == ROUTE
        assert len(first.heard) == 1

        second.close()
        with pytest.raises(InvalidSetting, match=r"10\.0\.0\.1:9876 is not a name server"):
            await asked.route("T")

    with_two(test)


def test_a_web_server_in_the_name_servers_is_recognised() -> None:
    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            writer.close()

        web = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = web.sockets[0].getsockname()[1]
        async with AsyncProducer(f"127.0.0.1:{port}") as producer:
            with pytest.raises(
                NetworkError, match=r"an HTTP response; this is the port of a web server, such as the console"
            ):
                await producer.send("T", b"x")
        web.close()

    asyncio.run(main())
