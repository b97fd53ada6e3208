"""The page for Prometheus, over the network inside the virtual loop."""

import asyncio
import base64

import msgspec
import pytest

from pocketmq.errors import InvalidSetting, ListenFailed
from pocketmq.metrics.families import Family, gauge
from pocketmq.metrics.page import MAX_REQUEST_BYTES, MetricsPage, MetricsSettings
from pocketmq.net.address import Address
from pocketmq.testing.memory_net import MemoryNetwork
from pocketmq.testing.virtual_loop import run

SETTINGS = MetricsSettings(enabled=True, port=5557, max_connections=2)


class Visitor(asyncio.Protocol):
    """A client that sends requests and keeps the answers."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.told = asyncio.Event()
        self.gone = asyncio.Event()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.told.set()

    def connection_lost(self, reason: Exception | None) -> None:
        self.gone.set()

    def ask(self, text: str) -> None:
        assert self.transport is not None
        self.transport.write(text.encode())

    async def hears(self, what: str) -> str:
        async with asyncio.timeout(5):
            while what.encode() not in self.heard:
                self.told.clear()
                await self.told.wait()
        return self.heard.decode()


class Stage:
    """A page on a network of its own, and how often it was rendered."""

    def __init__(self) -> None:
        self.network = MemoryNetwork(seed=1)
        self.looks = 0
        self.looking = asyncio.Event()
        self.is_broken = False

    async def collect(self) -> list[Family]:
        self.looks += 1
        self.looking.set()
        await asyncio.sleep(0.1)
        if self.is_broken:
            raise RuntimeError("the disk is gone")
        return [gauge("looks", "How often somebody looked", self.looks)]

    async def visitor(self) -> Visitor:
        return await self.network.connect(Visitor, Address("127.0.0.1", 5557))


def test_metrics_can_be_read_repeatedly_over_one_connection() -> None:
    async def story() -> None:
        stage = Stage()
        async with MetricsPage(SETTINGS, stage.collect, network=stage.network):
            visitor = await stage.visitor()

            visitor.ask("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\nGET /metrics?x=1 HTTP/1.1\r\n\r\n")

            heard = await visitor.hears("looks 2")
            assert heard.count("HTTP/1.1 200 OK") == 2
            assert "text/plain; version=0.0.4" in heard

    run(story())


def test_concurrent_requests_get_the_same_text() -> None:
    async def story() -> None:
        stage = Stage()
        async with MetricsPage(SETTINGS, stage.collect, network=stage.network):
            visitors = [await stage.visitor(), await stage.visitor()]

            for visitor in visitors:
                visitor.ask("GET /metrics HTTP/1.1\r\n\r\n")
            for visitor in visitors:
                await visitor.hears("looks 1")

            assert stage.looks == 1

    run(story())


@pytest.mark.parametrize(
    ("request_text", "answer"),
    [
        ("GET / HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET /other HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        ("hello\r\n\r\n", "400 Bad Request"),
        ("GET /metrics HTTP/1.1\r\nX: " + "x" * MAX_REQUEST_BYTES, "431 Request Header Fields Too Large"),
    ],
)
def test_other_paths_get_a_short_answer(request_text: str, answer: str) -> None:
    async def story() -> None:
        stage = Stage()
        async with MetricsPage(SETTINGS, stage.collect, network=stage.network):
            visitor = await stage.visitor()

            visitor.ask(request_text)

            await visitor.hears(f"HTTP/1.1 {answer}")
            assert stage.looks == 0

    run(story())


def test_a_failure_to_collect_metrics_is_a_server_error() -> None:
    async def story() -> None:
        stage = Stage()
        stage.is_broken = True
        async with MetricsPage(SETTINGS, stage.collect, network=stage.network):
            visitor = await stage.visitor()

            visitor.ask("GET /metrics HTTP/1.1\r\n\r\n")
            await visitor.hears("500 Internal Server Error")
            await visitor.gone.wait()

            stage.is_broken = False
            visitor = await stage.visitor()
            visitor.ask("GET /metrics HTTP/1.0\r\n\r\n")
            await visitor.hears("looks 2")
            await visitor.gone.wait()

    run(story())


def test_a_silent_connection_and_one_above_the_limit_are_closed() -> None:
    async def story() -> None:
        stage = Stage()
        async with MetricsPage(SETTINGS, stage.collect, network=stage.network):
            first, second = await stage.visitor(), await stage.visitor()
            second.ask("GET /metr")

            third = await stage.visitor()

            await third.gone.wait()
            assert not first.gone.is_set()
            async with asyncio.timeout(SETTINGS.request_s + 1):
                await first.gone.wait()
                await second.gone.wait()

    run(story())


def test_a_stopping_page_answers_all_requests() -> None:
    async def story() -> None:
        stage = Stage()
        async with MetricsPage(SETTINGS, stage.collect, network=stage.network):
            visitor = await stage.visitor()
            visitor.ask("GET /metrics HTTP/1.1\r\n\r\n")
            await stage.looking.wait()

        await visitor.gone.wait()
        assert not visitor.heard

    run(story())


def test_a_port_in_use_is_reported() -> None:
    async def story() -> None:
        stage = Stage()
        async with MetricsPage(SETTINGS, stage.collect, network=stage.network):
            with pytest.raises(ListenFailed, match="5557"):
                await MetricsPage(SETTINGS, stage.collect, network=stage.network).start()

    run(story())


@pytest.mark.parametrize("wrong", [{"port": 70_000}, {"max_connections": 0}, {"request_s": 0}])
def test_impossible_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidSetting):
        MetricsSettings(**wrong)  # type: ignore[arg-type]


OPEN = MetricsSettings(enabled=True, host="10.0.0.1", port=5557)


def basic(key: str, secret: str) -> str:
    return f"Authorization: Basic {base64.b64encode(f'{key}:{secret}'.encode()).decode()}\r\n"


@pytest.mark.parametrize(
    ("credentials", "status"),
    [
        ("", 401),
        (basic("prometheus", "wrong"), 401),
        ("Authorization: Basic %%%\r\n", 401),
        ("Authorization: Bearer x\r\n", 401),
        (basic("prometheus", "right"), 200),
    ],
)
def test_on_open_addresses_an_account_is_required(credentials: str, status: int) -> None:
    async def story() -> str:
        stage = Stage()
        page = MetricsPage(
            OPEN,
            stage.collect,
            network=stage.network,
            admits=lambda _, key, secret: (key, secret) == ("prometheus", "right"),
        )
        async with page:
            visitor = await stage.network.connect(Visitor, OPEN.address)
            visitor.ask(f"GET /metrics HTTP/1.1\r\n{credentials}\r\n")
            return await visitor.hears("\n\r\n" if status == 401 else "looks 1")

    heard = run(story())
    assert heard.startswith(f"HTTP/1.1 {status} ")
    assert ("WWW-Authenticate: Basic" in heard) is (status == 401)
    assert ("looks" in heard) is (status == 200)


@pytest.mark.parametrize("settings", [SETTINGS, msgspec.structs.replace(OPEN, without_authentication=True)])
def test_on_loopback_or_with_the_option_no_authentication_is_required(settings: MetricsSettings) -> None:
    async def story() -> None:
        stage = Stage()
        async with MetricsPage(settings, stage.collect, network=stage.network, admits=lambda *_: False):
            visitor = await stage.network.connect(Visitor, settings.address)
            visitor.ask("GET /metrics HTTP/1.1\r\n\r\n")
            assert "200 OK" in await visitor.hears("looks 1")

    run(story())
