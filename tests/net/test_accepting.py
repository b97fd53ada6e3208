"""Accepting connections: a TLS handshake has a deadline, and a lack of file descriptors causes a pause, not a busy loop."""

import asyncio
import errno
import socket

import pytest
from tests.net.certificates import Certificate, make_authority, make_certificate
from tests.net.talk import LOOPBACK, NewLoop, Recorder, ask, echo, every_loop, frame_of, run_on, until

from pocketmq.errors import InvalidSetting, NetworkError
from pocketmq.net.address import Address
from pocketmq.net.network import AcceptSettings, TcpNetwork
from pocketmq.net.peer import Peer
from pocketmq.net.server import Server
from pocketmq.net.tls import ServerTls, server_context


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("server")
    return make_certificate(folder, make_authority(folder))


@every_loop
def test_a_silent_peer_is_disconnected(new_loop: NewLoop, certificate: Certificate) -> None:
    network = TcpNetwork(AcceptSettings(hello_s=0.2))
    tls = ServerTls(server_context(certificate.cert, certificate.key))

    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, tls=tls, network=network) as server:
            with socket.create_connection(server.address) as silent:
                silent.setblocking(False)
                assert await asyncio.get_running_loop().sock_recv(silent, 1) == b""

            assert server.counters.turned_away == 1
            assert server.counters.accepted == 0

    run_on(new_loop, main())


@every_loop
def test_a_peer_that_does_not_complete_its_handshake_is_disconnected(
    new_loop: NewLoop, certificate: Certificate
) -> None:
    network = TcpNetwork(AcceptSettings(hello_s=0.2))
    tls = ServerTls(server_context(certificate.cert, certificate.key))

    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, tls=tls, network=network) as server:
            with socket.create_connection(server.address) as halting:
                halting.setblocking(False)
                halting.sendall(b"\x16\x03\x01")
                assert await asyncio.get_running_loop().sock_recv(halting, 1) == b""

            assert server.counters.turned_away == 1
            assert server.counters.accepted == 0

    run_on(new_loop, main())


@every_loop
def test_a_peer_that_disconnects_at_once_is_closed(new_loop: NewLoop, certificate: Certificate) -> None:
    tls = ServerTls(server_context(certificate.cert, certificate.key))

    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, tls=tls) as server:
            socket.create_connection(server.address).close()

            await until(lambda: server.counters.turned_away == 1)

    run_on(new_loop, main())


@every_loop
def test_a_pending_handshake_is_not_aborted_for_newer_ones(new_loop: NewLoop, certificate: Certificate) -> None:
    network = TcpNetwork(AcceptSettings(max_hellos=4, hello_s=60))
    tls = ServerTls(server_context(certificate.cert, certificate.key))

    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, tls=tls, network=network) as server:
            first = socket.create_connection(server.address)
            await until(lambda: server._listener._hellos)  # type: ignore[union-attr]
            crowd = [socket.create_connection(server.address) for _ in range(60)]
            await until(lambda: len(server._listener._hellos) == 4)  # type: ignore[union-attr]

            first.sendall(frame_of(body=b"slow to speak"))
            first.setblocking(False)
            assert b"slow to speak" in await asyncio.get_running_loop().sock_recv(first, 1000)
            assert server.counters.turned_away == 0
            for sock in (first, *crowd):
                sock.close()

    run_on(new_loop, main())


@every_loop
def test_new_connections_wait_until_an_earlier_one_is_accepted(new_loop: NewLoop, certificate: Certificate) -> None:
    network = TcpNetwork(AcceptSettings(max_hellos=4, hello_s=0.3))
    tls = ServerTls(server_context(certificate.cert, certificate.key))

    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, tls=tls, network=network) as server:
            silent = [socket.create_connection(server.address) for _ in range(4)]
            await until(lambda: len(server._listener._hellos) == 4)  # type: ignore[union-attr]
            client = Peer()
            await network.connect(lambda: client.connection, server.address)

            assert (await client.call(ask(b"let in"), timeout=20)).body == b"let in"
            assert server.counters.turned_away == 4
            client.close()
            await client.wait_lost()
            for sock in silent:
                sock.close()

    run_on(new_loop, main())


@every_loop
@pytest.mark.parametrize(("is_loopback", "turned_away"), [(False, 3), (True, 0)])
def test_one_host_may_have_a_part_of_the_pending_handshakes_unless_it_is_loopback(
    new_loop: NewLoop,
    certificate: Certificate,
    monkeypatch: pytest.MonkeyPatch,
    is_loopback: bool,
    turned_away: int,
) -> None:
    network = TcpNetwork(AcceptSettings(max_hellos=50, max_hellos_per_host=2, hello_s=60))
    tls = ServerTls(server_context(certificate.cert, certificate.key))
    monkeypatch.setattr(Address, "is_loopback", is_loopback)

    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, tls=tls, network=network) as server:
            crowd = [socket.create_connection(server.address) for _ in range(5)]

            await until(lambda: len(server._listener._hellos) + server.counters.turned_away == 5)  # type: ignore[union-attr]
            assert server.counters.turned_away == turned_away
            for sock in crowd:
                sock.close()

    run_on(new_loop, main())


@every_loop
def test_closing_the_listener_cancels_pending_handshakes(new_loop: NewLoop, certificate: Certificate) -> None:
    tls = ServerTls(server_context(certificate.cert, certificate.key))

    async def main() -> None:
        away: list[NetworkError] = []
        listener = await TcpNetwork().listen(lambda: Recorder().connection, LOOPBACK, tls=tls, turned_away=away.append)
        with socket.create_connection(listener.address) as silent:
            silent.setblocking(False)
            await until(lambda: listener._hellos)  # type: ignore[attr-defined]
            listener.close()
            listener.close()

            assert await asyncio.get_running_loop().sock_recv(silent, 1) == b""
            assert len(away) == 1
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(listener.address)

    run_on(new_loop, main())


@every_loop
def test_closing_the_listener_at_once_loses_no_socket(new_loop: NewLoop) -> None:
    async def main() -> None:
        listener = await TcpNetwork().listen(lambda: Recorder().connection, LOOPBACK)
        with socket.create_connection(listener.address) as early:
            early.setblocking(False)
            listener._accept()  # type: ignore[attr-defined]
            listener.close()

            assert await asyncio.get_running_loop().sock_recv(early, 1) == b""

    run_on(new_loop, main())


class Exhausted:
    """A listener without descriptors, and then one that the system closed."""

    def __init__(self, door: socket.socket) -> None:
        self._listening = door
        self.failures: list[OSError] = [ConnectionAbortedError(), OSError(errno.EMFILE, "Too many open files")]

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self.failures:
            raise self.failures.pop(0)
        return self._listening.accept()

    def fileno(self) -> int:
        return self._listening.fileno()

    def close(self) -> None:
        self._listening.close()


@every_loop
def test_without_file_descriptors_accepting_pauses_and_resumes(
    new_loop: NewLoop, caplog: pytest.LogCaptureFixture
) -> None:
    network = TcpNetwork(AcceptSettings(exhausted_pause_s=0.1))

    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, network=network) as server:
            acceptor = server._listener
            acceptor._listening = Exhausted(acceptor._listening)  # type: ignore[union-attr]
            client = Peer()
            await network.connect(lambda: client.connection, server.address)

            assert (await client.call(ask(b"late"), timeout=5)).body == b"late"
            client.close()
            await client.wait_lost()

    run_on(new_loop, main())
    assert [record.message for record in caplog.records if "next attempt in 0.1 s" in record.message]


@every_loop
def test_the_first_byte_is_examined_without_reading_it(new_loop: NewLoop, certificate: Certificate) -> None:
    tls = ServerTls(server_context(certificate.cert, certificate.key))

    async def main() -> None:
        heard = Recorder()
        listener = await TcpNetwork().listen(lambda: heard.connection, LOOPBACK, tls=tls)
        with socket.create_connection(listener.address) as plain:
            plain.sendall(frame_of(body=b"whole"))
            await until(lambda: heard.turns)

            assert [body for _, _, body in heard.heard] == [b"whole"]
        listener.close()
        await heard.connection.wait_lost()

    run_on(new_loop, main())


def test_limits_for_accepting_must_be_above_zero() -> None:
    for settings in (
        {"backlog": 0},
        {"hello_s": 0},
        {"max_hellos": 0},
        {"max_hellos_per_host": 0},
        {"exhausted_pause_s": 0},
    ):
        with pytest.raises(InvalidSetting):
            AcceptSettings(**settings)
