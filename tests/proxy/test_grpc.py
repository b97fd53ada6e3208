"""The gRPC server over real sockets, with gRPC's own client library."""

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.net.certificates import make_authority, make_certificate
from tests.proxy.kit import (
    GrpcClient,
    ack_request,
    message,
    publishing_settings,
    receive_request,
    subscription_settings,
)

import pocketmq
from pocketmq.errors import InvalidSetting, ListenFailed
from pocketmq.net import ServerTlsFiles, TlsMode
from pocketmq.protocol.signing import Credentials
from pocketmq.proxy import messages as m

ACCOUNTS = """
[[account]]
access_key = "admin"
secret = "the secret of admin"
admin = true

[[account]]
access_key = "user"
secret = "the secret of user"
topics = { "T" = ["Pub", "Sub"] }
groups = { "G" = ["Sub"] }

[[account]]
access_key = "elsewhere"
secret = "the secret of elsewhere"
topics = { "T" = ["Pub"] }
sources = ["10.0.0.0/8"]
"""
ADMIN = Credentials("admin", "the secret of admin")
USER = Credentials("user", "the secret of user")


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    path = tmp_path / "accounts.toml"
    path.write_text(ACCOUNTS)
    path.chmod(0o600)
    return path


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


async def create(server: pocketmq.Server, *topics: str, **options: Any) -> None:
    async with pocketmq.AsyncAdmin(server.name_server, **options) as admin:
        for topic in topics:
            await admin.topics.create(topic)


def address_of(server: pocketmq.Server) -> str:
    assert server.grpc_address is not None
    return server.grpc_address


def test_a_message_is_sent_received_and_acknowledged() -> None:
    async def main() -> None:
        async with pocketmq.Server(grpc_port=0) as server, GrpcClient(address_of(server)) as client:
            await create(server, "T")
            route = await client.call("QueryRoute", m.QueryRouteRequest(topic=m.Resource(name="T")))
            stream = client.telemetry()
            await stream.write(subscription_settings(m.ClientType.SIMPLE_CONSUMER))
            settings = await stream.read()
            receiving = asyncio.create_task(client.receive())
            await asyncio.sleep(0)
            sent = await client.call("SendMessage", m.SendMessageRequest(messages=[message(tag="red")]))
            received = await receiving
            acked = await client.call("AckMessage", ack_request(*received.messages))
            beat = await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.ClientType.SIMPLE_CONSUMER))
            ended = await client.call("NotifyClientTermination", m.NotifyClientTerminationRequest())
            await stream.done_writing()

            for answer in (route, settings, sent, acked, beat, ended):
                assert answer.status.code == m.Code.OK
            assert settings.settings.subscription.receive_batch_size == 32
            assert received.is_complete
            assert [(one.body, one.system_properties.tag) for one in received.messages] == [(b"body", "red")]

    run(main())


def test_failures_are_statuses_and_gRPCs_own_status_stays_ok(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with pocketmq.Server(grpc_port=0) as server:
            async with GrpcClient(address_of(server)) as client:
                unknown = await client.call("QueryRoute", m.QueryRouteRequest(topic=m.Resource(name="unknown")))
                refused = await client.receive(invisible_s=1)
            async with GrpcClient(address_of(server), client_id="") as client:
                unnamed = await client.call("QueryRoute", m.QueryRouteRequest(topic=m.Resource(name="T")))

            assert unknown.status.code == m.Code.TOPIC_NOT_FOUND
            assert refused.code is m.Code.ILLEGAL_INVISIBLE_TIME
            assert unnamed.status.code == m.Code.CLIENT_ID_REQUIRED

    with caplog.at_level(logging.ERROR):
        run(main())
    assert caplog.records == []


def test_settings_that_are_not_allowed_end_the_stream_with_an_error() -> None:
    async def main() -> None:
        async with pocketmq.Server(grpc_port=0) as server, GrpcClient(address_of(server)) as client:
            stream = client.telemetry()
            await stream.write(publishing_settings("not a topic"))
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await stream.read()
            assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "not a topic" in str(error.value.details())

    run(main())


def test_methods_that_apaches_proxy_does_not_serve_are_unimplemented() -> None:
    async def main() -> None:
        async with (
            pocketmq.Server(grpc_port=0) as server,
            grpc.aio.insecure_channel(address_of(server)) as channel,
        ):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await channel.unary_unary(f"/{m.SERVICE}/PullMessage")(b"")
            assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED

    run(main())


def test_with_accounts_calls_must_be_signed_by_one_with_the_permission(accounts: Path) -> None:
    async def main() -> None:
        async with pocketmq.Server(grpc_port=0, accounts=accounts) as server:
            await create(server, "T", "U", credentials=ADMIN)
            wrong = Credentials("user", "another secret")
            elsewhere = Credentials("elsewhere", "the secret of elsewhere")
            stranger = Credentials("stranger", "secret")
            for credentials, words in (
                (None, "cannot be null"),
                (wrong, "check signature failed"),
                (stranger, "User:stranger is not found"),
                (elsewhere, "may not come from 127.0.0.1"),
            ):
                async with GrpcClient(address_of(server), credentials=credentials) as client:
                    answer = await client.call("SendMessage", m.SendMessageRequest(messages=[message()]))
                    assert answer.status.code == m.Code.UNAUTHORIZED
                    assert words in answer.status.message

            async with GrpcClient(address_of(server), credentials=USER) as client:
                route = await client.call("QueryRoute", m.QueryRouteRequest(topic=m.Resource(name="T")))
                stream = client.telemetry()
                await stream.write(subscription_settings())
                settings = await stream.read()
                receiving = asyncio.create_task(client.receive())
                await asyncio.sleep(0)
                sent = await client.call("SendMessage", m.SendMessageRequest(messages=[message()]))
                received = await receiving
                acked = await client.call("AckMessage", ack_request(*received.messages))
                for answer in (route, settings, sent, received, acked):
                    assert answer.status.code == m.Code.OK

                hidden = await client.call("QueryRoute", m.QueryRouteRequest(topic=m.Resource(name="U")))
                unsent = await client.call("SendMessage", m.SendMessageRequest(messages=[message("U")]))
                other_group = await client.receive(group="H")
                for answer in (hidden, unsent, other_group):
                    assert answer.status.code == m.Code.UNAUTHORIZED
                assert "Topic:U" in unsent.status.message
                assert "Pub" in unsent.status.message
                assert "Group:H" in other_group.status.message

    run(main())


@pytest.mark.parametrize("mutual", [False, True], ids=["server", "mutual"])
def test_with_tls_plain_text_is_refused(tmp_path: Path, mutual: bool) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, authority)
    tls = ServerTlsFiles(cert=certificate.cert, key=certificate.key, client_ca=authority.cert if mutual else None)
    shown = (certificate.key.read_bytes(), certificate.cert.read_bytes()) if mutual else (None, None)
    trusted = grpc.ssl_channel_credentials(authority.cert.read_bytes(), *shown)
    anonymous = grpc.ssl_channel_credentials(authority.cert.read_bytes())
    request = m.QueryRouteRequest(topic=m.Resource(name="T"))

    async def main() -> None:
        async with pocketmq.Server(grpc_port=0, tls=tls) as server:
            async with GrpcClient(address_of(server), tls=trusted) as client:
                assert (await client.call("QueryRoute", request)).status.code == m.Code.TOPIC_NOT_FOUND
            for refused in (None, anonymous) if mutual else (None,):
                async with GrpcClient(address_of(server), tls=refused) as client:
                    with pytest.raises(grpc.aio.AioRpcError):
                        await client.call("QueryRoute", request, timeout_s=5)

    run(main())


def test_permissive_tls_accepts_plain_text_on_the_same_port(tmp_path: Path, accounts: Path) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, authority)
    tls = ServerTlsFiles(cert=certificate.cert, key=certificate.key, mode=TlsMode.PERMISSIVE)
    trusted = grpc.ssl_channel_credentials(authority.cert.read_bytes())
    big = message(body=bytes(4 << 20))

    async def main() -> None:
        async with pocketmq.Server(grpc_port=0, tls=tls, accounts=accounts) as server:
            await create(server, "T", credentials=ADMIN, tls=pocketmq.client.client_context(authority.cert))
            for channel in (trusted, None):
                async with GrpcClient(address_of(server), tls=channel, credentials=USER) as client:
                    sent = await client.call("SendMessage", m.SendMessageRequest(messages=[big]))
                    received = await client.receive()
                    acked = await client.call("AckMessage", ack_request(*received.messages))
                    assert [sent.status.code, received.code, acked.status.code] == [m.Code.OK] * 3
                    assert received.messages[0].body == big.body
                elsewhere = Credentials("elsewhere", "the secret of elsewhere")
                async with GrpcClient(address_of(server), tls=channel, credentials=elsewhere) as client:
                    answer = await client.call("SendMessage", m.SendMessageRequest(messages=[message()]))
                    assert "may not come from 127.0.0.1" in answer.status.message

    run(main())


def test_with_permissive_tls_only_silent_connections_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path, make_authority(tmp_path))
    tls = ServerTlsFiles(cert=certificate.cert, key=certificate.key, mode=TlsMode.PERMISSIVE)
    monkeypatch.setattr("pocketmq.proxy.server.FIRST_BYTE_S", 0.5)

    async def main() -> None:
        async with pocketmq.Server(grpc_port=0, tls=tls) as server, GrpcClient(address_of(server)) as client:
            stream = client.telemetry()
            await stream.write(publishing_settings())
            assert (await stream.read()).status.code == m.Code.OK
            host, _, port = address_of(server).rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            assert await reader.read() == b""
            writer.close()
            await stream.write(publishing_settings())
            assert (await stream.read()).status.code == m.Code.OK
            await stream.done_writing()

    run(main())


def test_a_client_that_does_not_read_its_messages_does_not_delay_others() -> None:
    async def main() -> None:
        async with pocketmq.Server(grpc_port=0) as server, GrpcClient(address_of(server), client_id="slow") as slow:
            await create(server, "T")
            await slow.call("SendMessage", m.SendMessageRequest(messages=[message()]))
            async with pocketmq.AsyncProducer(server.name_server) as producer:
                for _ in range(16):
                    await producer.send("T", bytes(1 << 20))
            request, response = m.METHODS["ReceiveMessage"]
            channel = grpc.aio.insecure_channel(address_of(server))
            call = channel.unary_stream(
                f"/{m.SERVICE}/ReceiveMessage",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )(receive_request(group="S"), metadata=tuple(slow.metadata.items()), timeout=30)
            assert (await call.read()).status.code == m.Code.OK  # and nothing more
            async with GrpcClient(address_of(server), client_id="quick") as quick:
                for _ in range(20):
                    answer = await quick.call("SendMessage", m.SendMessageRequest(messages=[message()]), timeout_s=2)
                    assert answer.status.code == m.Code.OK
            call.cancel()
            await channel.close()

    run(main())


def test_a_message_that_a_client_cannot_read_is_no_error_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with pocketmq.Server(grpc_port=0) as server, GrpcClient(address_of(server)) as client:
            await create(server, "T")
            await client.call("SendMessage", m.SendMessageRequest(messages=[message(body=bytes(4 << 20))]))
            request, response = m.METHODS["ReceiveMessage"]
            small = [("grpc.max_receive_message_length", 1 << 20)]
            async with grpc.aio.insecure_channel(address_of(server), small) as channel:
                call = channel.unary_stream(
                    f"/{m.SERVICE}/ReceiveMessage",
                    request_serializer=request.SerializeToString,
                    response_deserializer=response.FromString,
                )(receive_request(invisible_s=3600), metadata=tuple(client.metadata.items()), timeout=30)
                with pytest.raises(grpc.aio.AioRpcError, match="larger than max"):
                    [one async for one in call]
            assert (await client.receive(group="other")).code is m.Code.OK

    with caplog.at_level(logging.ERROR):
        run(main())
    assert caplog.records == []


def test_a_blocking_server_serves_grpc_too() -> None:
    with pocketmq.Server(grpc_port=0) as server:

        async def main() -> None:
            async with GrpcClient(address_of(server)) as client:
                answer = await client.call("QueryRoute", m.QueryRouteRequest(topic=m.Resource(name="T")))
                assert answer.status.code == m.Code.TOPIC_NOT_FOUND

        run(main())


def test_a_port_in_use_is_reported() -> None:
    async def main() -> None:
        async with pocketmq.Server(grpc_port=0) as server:
            port = int(address_of(server).rpartition(":")[2])
            with pytest.raises(ListenFailed, match="for gRPC"):
                await pocketmq.Server(grpc_port=port).__aenter__()

    run(main())


def test_without_its_packages_grpc_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.embedded.find_spec", lambda name: None)
    with pytest.raises(InvalidSetting, match=r"pip install 'pocketmq\[grpc\]'"):
        pocketmq.Server(grpc_port=0).__enter__()


def test_metrics_show_grpc_clients() -> None:
    async def main() -> None:
        async with pocketmq.Server(grpc_port=0, metrics_port=0) as server, GrpcClient(address_of(server)) as client:
            stream = client.telemetry()
            await stream.write(publishing_settings("T"))
            assert (await stream.read()).status.code == m.Code.OK
            assert server.metrics_address is not None
            host, _, port = server.metrics_address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            text = (await reader.read()).decode()
            writer.close()

            node = f'node_type="proxy",node_id="{server.grpc_address}"'
            assert f'rocketmq_proxy_clients{{{node},type="producer"}} 1' in text
            assert f"rocketmq_proxy_calls_total{{{node}}} 1" in text

    run(main())
