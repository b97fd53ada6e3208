"""A client over TLS: servers are verified, and errors name the problem."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.net.certificates import Certificate, make_authority, make_certificate
from tests.net.talk import run_on

from pocketmq.client import AsyncProducer, client_context
from pocketmq.codes import RequestCode
from pocketmq.errors import NetworkError
from pocketmq.model.message_id import offset_id
from pocketmq.net.address import Address
from pocketmq.net.network import TcpNetwork
from pocketmq.net.peer import Peer
from pocketmq.net.tls import ServerTls, TlsMode, server_context
from pocketmq.protocol.bodies.topics import BrokerData, QueueData, TopicRouteData
from pocketmq.protocol.command import Command


class Everything:
    """A name server and a broker in one process, with TLS."""

    def __init__(self) -> None:
        self.address = Address("127.0.0.1", 0)
        self.codes: list[int] = []

    def serve(self, peer: Peer, command: Command) -> Command:
        self.codes.append(command.code)
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            broker = BrokerData("C", "broker-a", {0: str(self.address)})
            return command.reply(body=TopicRouteData((QueueData("broker-a", 1, 1, 6),), (broker,)).encode())
        return command.reply(ext={"msgId": offset_id(bytes(8), 1), "queueId": "0", "queueOffset": "0"})


@asynccontextmanager
async def listening(certificate: Certificate) -> AsyncIterator[Everything]:
    everything = Everything()
    tls = ServerTls(server_context(certificate.cert, certificate.key), TlsMode.ENFORCING)
    listener = await TcpNetwork().listen(lambda: Peer(serve=everything.serve).connection, everything.address, tls=tls)
    everything.address = listener.address
    yield everything
    listener.close()


def test_a_certificate_of_a_known_authority_is_accepted(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)

    async def main() -> None:
        async with listening(make_certificate(tmp_path, authority)) as server:
            tls = client_context(ca=authority.cert)
            async with AsyncProducer(str(server.address), tls=tls) as producer:
                assert (await producer.send("T", b"secret")).is_ok
            assert {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE_V2} <= {
                *server.codes
            }

    run_on(asyncio.new_event_loop, main())


@pytest.mark.parametrize("tls", [True, False])
def test_a_server_without_a_trusted_certificate_or_with_tls_only_is_refused(tmp_path: Path, tls: bool) -> None:
    authority = make_authority(tmp_path)

    async def main() -> None:
        async with listening(make_certificate(tmp_path, authority)) as server:
            async with AsyncProducer(str(server.address), tls=tls, send_timeout_ms=2000) as producer:
                with pytest.raises(
                    NetworkError, match=r"certificate of the server is not trusted" if tls else r"no name server"
                ):
                    await producer.send("T", b"secret")
            assert server.codes == []

    run_on(asyncio.new_event_loop, main())


def test_a_client_without_tls_gets_the_hint_that_the_server_may_require_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            listening(make_certificate(tmp_path, make_authority(tmp_path))) as server,
            AsyncProducer(str(server.address)) as producer,
        ):
            with pytest.raises(
                NetworkError, match=r"a server that requires TLS closes the connection like this: set tls=True"
            ):
                await producer.send("T", b"plain")

    run_on(asyncio.new_event_loop, main())


def test_a_client_with_tls_gets_the_hint_that_the_server_may_not_support_it() -> None:
    async def main() -> None:
        listener = await TcpNetwork().listen(lambda: Peer(serve=Everything().serve).connection, Address("127.0.0.1", 0))
        async with AsyncProducer(str(listener.address), tls=True, send_timeout_ms=300) as producer:
            with pytest.raises(NetworkError, match=r"during the TLS handshake; the server may not use TLS"):
                await producer.send("T", b"secret")
        listener.close()

    run_on(asyncio.new_event_loop, main())
