"""Incomplete frames: how much memory they may use, and which connections are closed when."""

import asyncio
import logging
import struct

import pytest
from tests.net.talk import BRISK, LOOPBACK, SERVER, NewLoop, Recorder, ask, echo, every_loop, frame_of, run_on, until

from pocketmq.errors import InvalidSetting
from pocketmq.net.network import TcpNetwork
from pocketmq.net.peer import Peer
from pocketmq.net.server import Server, ServerSettings
from pocketmq.net.unfinished import TRIM_AFTER_S, UnfinishedFrames, UnfinishedLimits
from pocketmq.protocol.command import Command
from pocketmq.testing import run
from pocketmq.testing.memory_net import MemoryNetwork

MIB = 1024 * 1024
LIMITS = UnfinishedLimits(max_bytes=20 * MIB, max_unsigned_bytes=16 * MIB, timeout_s=60)
BEGINNING = struct.pack(">II", 15 * MIB, 100)
"""The prefix of a frame that will never be complete."""


def sign(peer: Peer, request: Command) -> Command:
    """A `serve` for which each request has a valid signature."""
    peer.connection.authenticated = True
    return echo(peer, request)


def new_server(
    network: MemoryNetwork | TcpNetwork, limits: UnfinishedLimits = LIMITS, must_sign: bool = False
) -> Server:
    address = SERVER if isinstance(network, MemoryNetwork) else LOOPBACK
    settings = ServerSettings(unfinished=limits)
    return Server(address, serve=sign, network=network, settings=settings, must_sign=must_sign)


async def hoarder(network: MemoryNetwork, mib: int) -> Recorder:
    """A connection that has sent `mib` of a frame."""
    client = Recorder()
    await network.connect(lambda: client.connection, SERVER)
    client.connection.write(BEGINNING + bytes(mib * MIB - len(BEGINNING)))
    await asyncio.sleep(1)
    return client


def test_a_frame_that_is_not_complete_in_time_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with new_server(network) as server:
            client = await hoarder(network, 1)
            for _ in range(58):  # a byte now and then does not help
                client.connection.write(b"x")
                await asyncio.sleep(1)
            assert server.counters.open == 1

            await asyncio.sleep(2)
            assert (server.counters.open, server.counters.unfinished) == (0, 1)

    with caplog.at_level(logging.WARNING, "pocketmq.net"):
        run(main())
    assert "a frame did not arrive within 60 s" in caplog.text


def test_the_deadline_applies_to_one_frame_not_to_a_stream() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with new_server(network) as server:
            client = Recorder()
            await network.connect(lambda: client.connection, SERVER)
            frame = frame_of(body=b"in two halves")
            client.connection.write(frame[:10])
            for _ in range(100):  # each read ends one frame and begins the next
                await asyncio.sleep(5)
                client.connection.write(frame[10:] + frame[:10])
            await asyncio.sleep(1)

            assert len(client.heard) == 100
            assert server.counters.unfinished == 0

    run(main())


def test_above_the_limit_the_connection_with_the_most_and_oldest_bytes_is_closed() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with new_server(network) as server:
            early_and_small = await hoarder(network, 1)
            early_and_large = await hoarder(network, 10)
            await asyncio.sleep(20)
            late_and_large = await hoarder(network, 12)

            assert [bool(client.lost) for client in (early_and_small, early_and_large, late_and_large)] == [
                False,
                True,
                False,
            ]
            assert server.counters.unfinished == 1
            assert server._unfinished.size == 13 * MIB
        assert server._unfinished.size == 0

    run(main())


def test_small_requests_are_served_while_the_memory_for_unfinished_frames_is_used_up() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with new_server(network):
            for _ in range(10):
                await hoarder(network, 12)
            modest = Peer()
            await network.connect(lambda: modest.connection, SERVER)

            assert (await modest.call(ask(bytes(4 * MIB)), timeout=5)).body == bytes(4 * MIB)
            modest.close()

    run(main())


def test_before_its_first_valid_signature_a_connection_shares_a_smaller_limit() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with new_server(network, must_sign=True) as server:
            signed = Recorder()
            await network.connect(lambda: signed.connection, SERVER)
            signed.connection.write(frame_of())
            signed.connection.write(BEGINNING + bytes(3 * MIB))
            await asyncio.sleep(5)
            unsigned = [await hoarder(network, 9) for _ in range(4)]

            assert [bool(client.lost) for client in unsigned] == [True, True, True, False]
            assert not signed.lost
            assert server.counters.unfinished == 3

    run(main())


def test_without_accounts_connections_share_one_limit() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with new_server(network) as server:
            clients = [await hoarder(network, 9) for _ in range(2)]

            assert not any(client.lost for client in clients)
            assert server._unfinished.size == 18 * MIB

    run(main())


@every_loop
def test_over_tcp_memory_is_released_with_the_connection(new_loop: NewLoop) -> None:
    async def main() -> None:
        network = TcpNetwork()
        async with new_server(network, UnfinishedLimits(timeout_s=0.5)) as server:
            client = Recorder()
            await network.connect(lambda: client.connection, server.address)
            client.connection.write(BEGINNING + bytes(5 * MIB))
            await until(lambda: server._unfinished.size > 5 * MIB)
            (peer,) = server.peers

            await until(lambda: client.lost)
            assert server._unfinished.size == 0
            assert peer.connection._splitter.pending == 0

    run_on(new_loop, main())


def test_after_a_burst_freed_memory_is_returned_to_the_system_once() -> None:
    given_back: list[float] = []

    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        loop = asyncio.get_running_loop()
        async with new_server(network) as server:
            server._unfinished = UnfinishedFrames(
                LIMITS, must_sign=False, give_back=lambda: given_back.append(loop.time())
            )
            small = await hoarder(network, 3)
            small.connection.close()
            await asyncio.sleep(10)
            assert not given_back

            large = [await hoarder(network, 9) for _ in range(2)]
            large[0].connection.close()
            await asyncio.sleep(10)
            assert not given_back, "more than half is still in use"
            gone_at = loop.time()
            large[1].connection.close()
            await asyncio.sleep(10)

            (at,) = given_back
            assert gone_at + TRIM_AFTER_S <= at < gone_at + TRIM_AFTER_S + 1

    run(main())


@pytest.mark.parametrize("bad", [{"max_bytes": MIB}, {"max_unsigned_bytes": MIB}, {"timeout_s": 0}])
def test_limits_below_the_largest_frame_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(InvalidSetting, match="unfinished frames"):
        UnfinishedLimits(**bad)
