"""TCP sockets: what connects, and the errors if it does not."""

import asyncio
import errno
import os
import socket
from pathlib import Path

import pytest
from tests.net.certificates import Certificate, make_authority, make_certificate
from tests.net.talk import LOOPBACK, NewLoop, Recorder, ask, echo, every_loop, run_on, until

from pocketmq.errors import ConnectFailed, ListenFailed
from pocketmq.net.address import Address
from pocketmq.net.network import TcpNetwork
from pocketmq.net.peer import Peer
from pocketmq.net.server import Server
from pocketmq.net.tls import ServerTls, TlsMode, client_context, server_context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory, authority: Certificate) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("server"), authority)


def tls_of(certificate: Certificate, mode: TlsMode = TlsMode.PERMISSIVE, client_ca: Path | None = None) -> ServerTls:
    return ServerTls(server_context(certificate.cert, certificate.key, client_ca=client_ca), mode)


@every_loop
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_host_is_reached_by_address_and_by_name(new_loop: NewLoop, host: str) -> None:
    async def main() -> None:
        async with Server(LOOPBACK, serve=echo) as server:
            client = Peer()
            await TcpNetwork().connect(lambda: client.connection, Address(host, server.address.port))

            assert (await client.call(ask(b"hello"))).body == b"hello"
            client.close()

    run_on(new_loop, main())


@every_loop
def test_ipv6_works_if_the_machine_has_it(new_loop: NewLoop) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")

    async def main() -> None:
        async with Server(Address("::1", 0), serve=echo) as server:
            client = Peer()
            await TcpNetwork().connect(lambda: client.connection, server.address)

            assert (await client.call(ask(b"six"))).body == b"six"
            assert str(client.address).startswith("[::1]:")
            client.close()

    run_on(new_loop, main())


@every_loop
def test_a_port_without_a_server_is_reported(new_loop: NewLoop) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = Address(*taken.getsockname())

        async def main() -> None:
            with pytest.raises(ConnectFailed, match=rf"{address}: .*refused"):
                await TcpNetwork().connect(lambda: Recorder().connection, address)

        run_on(new_loop, main())


@every_loop
@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 300])
def test_an_unknown_host_is_reported(new_loop: NewLoop, host: str) -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed, match=f"{host}:10911"):
            await TcpNetwork().connect(lambda: Recorder().connection, Address(host, 10911))

    run_on(new_loop, main())


@every_loop
def test_tls_and_plain_text_share_one_port(new_loop: NewLoop, authority: Certificate, certificate: Certificate) -> None:
    async def main() -> None:
        network = TcpNetwork()
        async with Server(LOOPBACK, serve=echo, tls=tls_of(certificate)) as server:
            plain, secret = Peer(), Peer(serve=echo)
            await network.connect(lambda: plain.connection, server.address)
            await network.connect(lambda: secret.connection, server.address, tls=client_context(authority.cert))

            assert (await plain.call(ask(b"plain"))).body == b"plain"
            assert (await secret.call(ask(b"secret"))).body == b"secret"
            body = bytes(range(256)) * 10_000
            assert (await secret.call(ask(body), timeout=10)).body == body

            assert plain.connection._transport.get_extra_info("cipher") is None
            assert secret.connection._transport.get_extra_info("cipher") is not None
            encrypted = [peer for peer in server.peers if peer.connection._transport.get_extra_info("cipher")]
            assert (await encrypted[0].call(ask(b"back"))).body == b"back"
            for peer in (plain, secret):
                peer.close()
                await peer.wait_lost()

    run_on(new_loop, main())


@every_loop
def test_an_untrusted_certificate_is_refused_with_advice(new_loop: NewLoop, certificate: Certificate) -> None:
    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, tls=tls_of(certificate)) as server:
            with pytest.raises(ConnectFailed, match=r"certificate of the server is not trusted: .*ca=….*verify=False"):
                await TcpNetwork().connect(lambda: Recorder().connection, server.address, tls=client_context())
            await until(lambda: server.counters.turned_away == 1)

            lax = Peer()
            await TcpNetwork().connect(lambda: lax.connection, server.address, tls=client_context(verify=False))
            assert (await lax.call(ask(b"lax"))).body == b"lax"
            lax.close()
            await lax.wait_lost()

    run_on(new_loop, main())


@every_loop
def test_a_certificate_for_another_host_is_refused(new_loop: NewLoop, authority: Certificate, tmp_path: Path) -> None:
    other = make_certificate(tmp_path, authority, host="10.9.8.7")

    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, tls=tls_of(other)) as server:
            with pytest.raises(ConnectFailed, match=r"certificate of the server is not trusted: IP address mismatch"):
                await TcpNetwork().connect(
                    lambda: Recorder().connection, server.address, tls=client_context(authority.cert)
                )

    run_on(new_loop, main())


@every_loop
def test_a_server_that_enforces_tls_refuses_plain_text(
    new_loop: NewLoop, authority: Certificate, certificate: Certificate
) -> None:
    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, tls=tls_of(certificate, TlsMode.ENFORCING)) as server:
            with socket.create_connection(server.address) as plain:
                plain.setblocking(False)
                plain.sendall(b"\0\0\0\x13\0\0\0\x0f" + b'{"code":34}    ')
                loop = asyncio.get_running_loop()
                while data := await loop.sock_recv(plain, 1000):
                    assert data.startswith(b"\x15")  # a TLS alert

            await until(lambda: server.counters.turned_away == 1)
            secret = Peer()
            await TcpNetwork().connect(lambda: secret.connection, server.address, tls=client_context(authority.cert))
            assert (await secret.call(ask(b"secret"))).body == b"secret"
            secret.close()
            await secret.wait_lost()

    run_on(new_loop, main())


@every_loop
def test_a_server_without_tls_answers_a_tls_client_with_an_error(
    new_loop: NewLoop, authority: Certificate, certificate: Certificate
) -> None:
    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, tls=tls_of(certificate, TlsMode.DISABLED)) as server:
            said = f"{server.address}: the server closed the connection during the TLS handshake; the server may not use TLS"
            with pytest.raises(ConnectFailed, match=said):
                await TcpNetwork().connect(
                    lambda: Recorder().connection, server.address, tls=client_context(authority.cert)
                )
            await until(lambda: server.counters.protocol_errors == 1)

    run_on(new_loop, main())


@every_loop
def test_a_server_of_another_protocol_is_not_reported_as_a_tls_server(new_loop: NewLoop) -> None:
    class Babbling(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.write(b"220 mail.example ready\r\n")  # type: ignore[attr-defined]

    async def main() -> None:
        listener = await TcpNetwork().listen(Babbling, LOOPBACK)
        with pytest.raises(
            ConnectFailed, match=rf"{listener.address}: TLS handshake failed: .*; the server may not use TLS"
        ):
            await TcpNetwork().connect(
                lambda: Recorder().connection, listener.address, tls=client_context(verify=False)
            )
        listener.close()

    run_on(new_loop, main())


@every_loop
def test_a_server_that_requires_client_certificates_accepts_known_clients(
    new_loop: NewLoop, authority: Certificate, certificate: Certificate, tmp_path: Path
) -> None:
    known = make_certificate(tmp_path, authority, name="client")

    async def main() -> None:
        async with Server(LOOPBACK, serve=echo, tls=tls_of(certificate, client_ca=authority.cert)) as server:
            friend, stranger = Peer(), Peer()
            tls = client_context(authority.cert, cert=known.cert, key=known.key)
            await TcpNetwork().connect(lambda: friend.connection, server.address, tls=tls)
            assert (await friend.call(ask(b"friend"))).body == b"friend"

            # In TLS 1.3 the client is done before the server has looked at its certificate.
            await TcpNetwork().connect(lambda: stranger.connection, server.address, tls=client_context(authority.cert))
            await stranger.wait_lost()
            await until(lambda: server.counters.turned_away == 1)
            friend.close()
            await friend.wait_lost()

    run_on(new_loop, main())


@pytest.mark.parametrize(
    ("number", "way_out"),
    [
        (errno.EADDRINUSE, "Stop the program that listens there, or choose another port; 0 means any free port"),
        (errno.EACCES, "Choose a port from 1024 on; lower ports need administrator rights"),
        (errno.EADDRNOTAVAIL, "Choose an address of this machine; 0.0.0.0 means all of them"),
    ],
)
def test_a_failure_to_listen_is_reported_with_advice(
    monkeypatch: pytest.MonkeyPatch, number: int, way_out: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "bind", refuse)

    with pytest.raises(ListenFailed) as told:
        asyncio.run(TcpNetwork().listen(asyncio.Protocol, Address("127.0.0.1", 99)))

    assert str(told.value) == f"cannot listen on 127.0.0.1:99: {os.strerror(number)}. {way_out}"


def test_listening_on_an_unknown_host_name_is_reported_with_advice() -> None:
    with pytest.raises(ListenFailed, match=r"cannot listen on nowhere\.invalid:0: .*Choose an address of this machine"):
        asyncio.run(TcpNetwork().listen(asyncio.Protocol, Address("nowhere.invalid", 0)))
