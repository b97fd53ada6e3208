"""Servers: turns over real and in-memory sockets, bounds on connections, and a stop that finishes what was begun."""

import asyncio
import logging
import socket

import pytest
from tests.net.talk import (
    BRISK,
    LOOPBACK,
    SERVER,
    NewLoop,
    Recorder,
    ask,
    echo,
    every_loop,
    frame_of,
    run_on,
    until,
)

from pocketmq.codes import ResponseCode
from pocketmq.errors import ConnectFailed, ConnectionLost, InvalidSetting, ListenFailed, WrongState
from pocketmq.net.address import Address
from pocketmq.net.connection import ConnectionSettings
from pocketmq.net.network import TcpNetwork
from pocketmq.net.peer import Peer, PeerSettings
from pocketmq.net.server import Server, ServerCounters, ServerSettings
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.frames import Frame, FrameLimits
from pocketmq.testing import run
from pocketmq.testing.memory_net import MemoryNetwork


async def connect(network: MemoryNetwork | TcpNetwork, address: Address) -> Peer:
    peer = Peer()
    await network.connect(lambda: peer.connection, address)
    return peer


def answer_by_turn(peer: Peer, frames: list[Frame]) -> None:
    for frame in frames:
        peer.connection.write(encode_command(echo(peer, decode_command(frame))))


@every_loop
@pytest.mark.parametrize("by_turn", [False, True], ids=["serve", "turn"])
def test_a_server_answers_over_real_sockets(new_loop: NewLoop, by_turn: bool) -> None:
    async def main() -> None:
        server = Server(LOOPBACK, on_turn=answer_by_turn) if by_turn else Server(LOOPBACK, serve=echo)
        async with server:
            assert server.address.port > 0
            client = await connect(TcpNetwork(), server.address)

            answers = await asyncio.gather(*(client.call(ask(b"%d" % number)) for number in range(500)))

            assert [answer.body for answer in answers] == [b"%d" % number for number in range(500)]
            assert server.counters == ServerCounters(open=1, accepted=1)
            client.close()
            await client.wait_lost()
            await until(lambda: server.counters.open == 0)

    run_on(new_loop, main())


@every_loop
def test_bodies_of_megabytes_pass_in_both_directions(new_loop: NewLoop) -> None:
    async def main() -> None:
        async with Server(LOOPBACK, serve=echo) as server:
            client = Peer(settings=PeerSettings(connection=ConnectionSettings(pause_reading=False)))
            await TcpNetwork().connect(lambda: client.connection, server.address)
            bodies = [bytes([number]) * 3_000_000 for number in range(8)]

            answers = await asyncio.gather(*(client.call(ask(body), timeout=20) for body in bodies))

            assert [answer.body for answer in answers] == bodies
            client.close()

    run_on(new_loop, main())


@every_loop
def test_a_pipelined_client_is_answered_in_order_by_few_writes(new_loop: NewLoop) -> None:
    async def main() -> None:
        turns: list[int] = []

        def on_turn(peer: Peer, frames: list[Frame]) -> None:
            turns.append(len(frames))
            answer_by_turn(peer, frames)

        async with Server(LOOPBACK, on_turn=on_turn) as server:
            client = Recorder()
            await TcpNetwork().connect(lambda: client.connection, server.address)
            client.connection.write(b"".join(frame_of(body=b"%d" % number) for number in range(1000)))
            await until(lambda: len(client.heard) == 1000)

            assert [body for _, _, body in client.heard] == [b"%d" % number for number in range(1000)]
            assert sum(turns) == 1000
            assert len(turns) < 50
            client.connection.close()

    run_on(new_loop, main())


@every_loop
def test_segments_are_sent_without_nagles_delay(new_loop: NewLoop) -> None:
    async def main() -> None:
        async with Server(LOOPBACK, serve=echo) as server:
            client = await connect(TcpNetwork(), server.address)
            await client.call(ask())
            (server_side,) = server.peers

            for peer in (client, server_side):
                sock = peer.connection._transport.get_extra_info("socket")
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            client.close()

    run_on(new_loop, main())


@every_loop
def test_a_slow_reader_is_paused_and_then_disconnected_with_limited_memory(new_loop: NewLoop) -> None:
    line = ConnectionSettings(
        unsent_low_bytes=10_000, unsent_high_bytes=100_000, unsent_max_bytes=4_000_000, slow_s=0.5
    )
    body = bytes(200_000)
    asked = 500

    async def main() -> None:
        held: list[int] = []

        def serve(peer: Peer, request: Command) -> Command:
            held.append(peer.connection.unsent_bytes)
            return request.reply(body=body)

        settings = ServerSettings(peer=PeerSettings(connection=line))
        async with Server(LOOPBACK, serve=serve, settings=settings) as server:
            with socket.create_connection(server.address) as silent:
                silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                silent.setblocking(False)
                loop = asyncio.get_running_loop()
                for _ in range(asked):
                    await loop.sock_sendall(silent, frame_of())
                await until(lambda: server.counters.slow == 1)

            assert len(held) < asked
            assert max(held) <= line.unsent_max_bytes
            assert server.counters.open == 0

    run_on(new_loop, main())


@every_loop
@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff\0\0\0\0", b"\0\0\0\x08\0\0\0\x04nope", b"\0\0\0\x04\x09\0\0\0"],
    ids=["http", "huge frame", "no header", "unknown encoding"],
)
def test_invalid_bytes_close_only_their_own_connection(new_loop: NewLoop, data: bytes) -> None:
    async def main() -> None:
        async with Server(LOOPBACK, serve=echo) as server:
            good = await connect(TcpNetwork(), server.address)
            await good.call(ask())
            with socket.create_connection(server.address) as bad:
                bad.setblocking(False)
                bad.sendall(data)
                assert await asyncio.get_running_loop().sock_recv(bad, 100) == b""

            assert server.counters.protocol_errors == 1
            assert (await good.call(ask(b"still here"))).body == b"still here"
            good.close()

    run_on(new_loop, main())


def test_above_its_limit_a_server_closes_new_connections_and_logs_it_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        settings = ServerSettings(max_connections=5)
        async with Server(SERVER, serve=echo, network=network, settings=settings) as server:
            peers = [await connect(network, server.address) for _ in range(50)]
            await asyncio.sleep(1)

            assert [peer.is_open for peer in peers] == [True] * 5 + [False] * 45
            assert server.counters == ServerCounters(open=5, accepted=50, refused=45)
            assert (await peers[0].call(ask(b"served"))).body == b"served"

            peers[0].close()
            await asyncio.sleep(1)
            late = await connect(network, server.address)
            assert (await late.call(ask(b"room again"))).body == b"room again"

    with caplog.at_level(logging.WARNING, "pocketmq.net"):
        run(main())
    assert len(caplog.records) == 1
    assert "5 connections are open, the limit of this server" in caplog.text


def test_a_server_reports_every_lost_connection_once() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        lost: list[tuple[Address, str]] = []
        server = Server(
            SERVER,
            serve=echo,
            on_lost=lambda peer, reason: lost.append((peer.address, str(reason))),
            network=network,
            settings=ServerSettings(max_connections=2),
        )
        async with server:
            first, second = [await connect(network, server.address) for _ in range(2)]
            refused = await connect(network, server.address)
            await refused.wait_lost()
            assert len(lost) == 1
            first.close()
            await first.wait_lost()
            await until(lambda: len(lost) == 2)

        assert len({address for address, _ in lost}) == 3
        assert "the limit of this server" in lost[0][1]
        assert "the server stopped" in lost[2][1]
        await second.wait_lost()

    run(main())


def test_one_host_cannot_use_the_connections_of_others() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        settings = ServerSettings(max_connections=10, max_connections_per_host=2)
        async with Server(SERVER, serve=echo, network=network, settings=settings) as server:
            greedy = [Peer() for _ in range(5)]
            for peer in greedy:
                await network.at("10.0.0.6").connect(lambda peer=peer: peer.connection, SERVER)  # type: ignore[misc]
            modest = Peer()
            await network.at("10.0.0.7").connect(lambda: modest.connection, SERVER)
            await asyncio.sleep(1)

            assert sum(peer.is_open for peer in greedy) == 2
            assert (await modest.call(ask())).code == ResponseCode.SUCCESS
            assert server.counters.refused == 3

            greedy[0].close()
            await asyncio.sleep(1)
            again = Peer()
            await network.at("10.0.0.6").connect(lambda: again.connection, SERVER)
            assert (await again.call(ask())).code == ResponseCode.SUCCESS
            again.close()
            local = [await connect(network, SERVER) for _ in range(5)]
            assert [(await peer.call(ask())).code for peer in local] == [ResponseCode.SUCCESS] * 5
        assert server._by_host == {}

    run(main())


@every_loop
def test_a_flood_of_connections_over_tcp_does_not_stop_the_first_ones(new_loop: NewLoop) -> None:
    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, settings=ServerSettings(max_connections=10)) as server:
            first = await connect(TcpNetwork(), server.address)
            await first.call(ask())
            flood = [socket.create_connection(server.address) for _ in range(100)]
            await until(lambda: server.counters.accepted == 101)

            assert server.counters.refused == 91
            assert (await first.call(ask(b"unharmed"))).body == b"unharmed"
            for sock in flood:
                sock.close()
            first.close()

    run_on(new_loop, main())


def test_stopping_completes_running_requests_and_refuses_new_ones() -> None:
    async def serve(peer: Peer, request: Command) -> Command:
        await asyncio.sleep(5)
        return echo(peer, request)

    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        server = Server(SERVER, serve=serve, network=network)
        await server.start()
        client = await connect(network, SERVER)
        begun = asyncio.create_task(client.call(ask(b"begun"), timeout=20))
        await asyncio.sleep(1)
        stopped_at = asyncio.get_running_loop().time()
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(1)

        assert (await client.call(ask(b"new"))).code == ResponseCode.GO_AWAY
        assert (await begun).body == b"begun"
        await stopping

        assert asyncio.get_running_loop().time() - stopped_at < 5
        assert server.counters.open == 0
        await asyncio.sleep(1)
        assert not client.is_open

    run(main())


def test_after_the_listener_is_closed_running_requests_continue_until_the_stop() -> None:
    async def serve(peer: Peer, request: Command) -> Command:
        await asyncio.sleep(5)
        return echo(peer, request)

    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        server = Server(SERVER, serve=serve, network=network)
        server.close_listener()
        await server.start()
        client = await connect(network, SERVER)
        begun = asyncio.create_task(client.call(ask(b"begun"), timeout=20))
        await asyncio.sleep(1)

        server.close_listener()
        server.close_listener()

        assert (await client.call(ask(b"new"))).code == ResponseCode.GO_AWAY
        with pytest.raises(ConnectFailed):
            await connect(network, SERVER)
        assert (await begun).body == b"begun"
        assert client.is_open
        await server.stop()
        await client.wait_lost()

    run(main())


def test_stopping_waits_no_longer_than_its_limit() -> None:
    ended: list[str] = []

    async def serve(peer: Peer, request: Command) -> Command | None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("unwound")
        return None

    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        settings = ServerSettings(drain_s=3.0)
        server = Server(SERVER, serve=serve, network=network, settings=settings)
        await server.start()
        client = await connect(network, SERVER)
        call = asyncio.create_task(client.call(ask(), timeout=60))
        await asyncio.sleep(1)
        stopped_at = asyncio.get_running_loop().time()

        await server.stop()

        assert asyncio.get_running_loop().time() - stopped_at == pytest.approx(3.0, abs=0.01)
        assert ended == ["unwound"]
        with pytest.raises(ConnectionLost):
            await call

    run(main())


def test_stopping_twice_and_starting_again_is_fine() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        server = Server(SERVER, serve=echo, network=network)
        await server.stop()
        for _ in range(2):
            async with server:
                with pytest.raises(WrongState, match="already"):
                    await server.start()
                client = await connect(network, SERVER)
                assert (await client.call(ask(b"x"))).body == b"x"
            await server.stop()
        with pytest.raises(WrongState, match="is not started"):
            _ = server.address

    run(main())


def test_a_new_connection_during_the_stop_is_refused() -> None:
    async def main() -> None:
        server = Server(SERVER, serve=echo, network=MemoryNetwork(weather=BRISK))
        await server.start()
        server._stopping = True
        client, late = Recorder(), server._new_connection()
        network = MemoryNetwork(weather=BRISK)
        await network.listen(lambda: late, SERVER)
        await network.connect(lambda: client.connection, SERVER)
        await client.connection.wait_lost()

        assert server.counters.refused == 1
        await server.stop()

    run(main())


def test_an_idle_connection_is_counted() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Server(SERVER, serve=echo, network=network) as server:
            client = Peer(settings=PeerSettings(connection=ConnectionSettings(idle_s=1000)))
            await network.connect(lambda: client.connection, SERVER)
            await client.wait_lost()

            assert server.counters == ServerCounters(accepted=1, idle=1)

    run(main())


@every_loop
def test_a_used_address_cannot_be_listened_on(new_loop: NewLoop) -> None:
    async def main() -> None:
        async with Server(LOOPBACK, serve=echo) as first:
            with pytest.raises(ListenFailed, match=rf"cannot listen on 127\.0\.0\.1:{first.address.port}: .*in use"):
                await Server(first.address, serve=echo).start()

    run_on(new_loop, main())


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    async def main(address: Address) -> None:
        with pytest.raises(ListenFailed):
            await Server(address, serve=echo).start()

    for address in (Address("192.0.2.1", 0), Address("a..b", 0)):
        asyncio.run(main(address))


def test_the_limits_of_frames_are_a_setting() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        line = ConnectionSettings(limits=FrameLimits(frame_bytes=1000))
        settings = ServerSettings(peer=PeerSettings(connection=line))
        async with Server(SERVER, serve=echo, network=network, settings=settings) as server:
            client = await connect(network, SERVER)
            with pytest.raises(ConnectionLost):
                await client.call(ask(bytes(2000)))

            assert server.counters.protocol_errors == 1

    run(main())


def test_impossible_limits_of_a_server_are_refused() -> None:
    for settings in ({"max_connections": 0}, {"max_connections_per_host": 0}, {"drain_s": -1.0}):
        with pytest.raises(InvalidSetting):
            ServerSettings(**settings)
