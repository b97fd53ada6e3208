"""What broken and hostile clients do to the gRPC server: nothing."""

import asyncio
import logging
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.proxy.kit import GrpcClient, message, receive_request, subscription_settings

import pocketmq
from pocketmq.proxy import messages as m

CLIENTS = 150
ROUTE = m.QueryRouteRequest(topic=m.Resource(name="T"))


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


def address_of(server: pocketmq.Server) -> str:
    assert server.grpc_address is not None
    return server.grpc_address


async def is_served(server: pocketmq.Server) -> bool:
    async with GrpcClient(address_of(server), client_id="another") as client:
        answer = await client.call("QueryRoute", ROUTE)
        return bool(answer.status.code == m.Code.TOPIC_NOT_FOUND)


def test_requests_that_are_no_messages_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        dice = random.Random(1)
        async with pocketmq.Server(grpc_port=0) as server, GrpcClient(address_of(server)) as client:
            metadata = tuple(client.metadata.items())
            async with grpc.aio.insecure_channel(address_of(server)) as channel:
                for method in m.METHODS.keys() - {"Telemetry"}:
                    call = channel.unary_stream(f"/{m.SERVICE}/{method}")
                    answers = [one async for one in call(b"\xff" + dice.randbytes(50), metadata=metadata, timeout=5)]
                    assert [_code(method, answer) for answer in answers] == [m.Code.BAD_REQUEST]
                stream = channel.stream_stream(f"/{m.SERVICE}/Telemetry")(metadata=metadata)
                await stream.write(b"\xff")
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await stream.read()
                assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert await is_served(server)

    with caplog.at_level(logging.WARNING):
        run(main())
    assert caplog.records == []


def _code(method: str, answer: bytes) -> int:
    response: Any = m.METHODS[method][1].FromString(answer)
    return int(response.status.code)


def test_connections_without_http2_are_closed() -> None:
    async def main() -> None:
        async with pocketmq.Server(grpc_port=0) as server:
            host, _, port = address_of(server).rpartition(":")
            for sent in (b"GET / HTTP/1.1\r\n\r\n", random.Random(2).randbytes(1000), b"\x16\x03\x01\x00\x05hello"):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(sent)
                with suppress(ConnectionResetError):
                    await asyncio.wait_for(reader.read(), 10)
                writer.close()
            assert await is_served(server)

    run(main())


def test_metadata_and_requests_above_the_limits_are_refused() -> None:
    async def main() -> None:
        async with pocketmq.Server(grpc_port=0, grpc_settings={"max_request_bytes": 1 << 20}) as server:
            async with GrpcClient(address_of(server), x_mq_namespace="n" * 100_000) as client:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await client.call("QueryRoute", ROUTE)
                assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            async with GrpcClient(address_of(server)) as client:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await client.call("SendMessage", m.SendMessageRequest(messages=[message(body=bytes(2 << 20))]))
                assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert await is_served(server)

    run(main())


def test_many_clients_with_open_streams_leave_when_they_are_lost() -> None:
    async def main() -> None:
        server = pocketmq.Server(grpc_port=0, grpc_settings={"lost_after_s": 1})
        async with server, pocketmq.AsyncAdmin(server.name_server) as admin:
            await admin.topics.create("T")
            channels = [GrpcClient(address_of(server), client_id=f"client-{number}") for number in range(CLIENTS)]
            streams = [channel.telemetry() for channel in channels]
            await asyncio.gather(*(stream.write(subscription_settings()) for stream in streams))
            answers = await asyncio.gather(*(stream.read() for stream in streams))
            assert {answer.status.code for answer in answers} == {m.Code.OK}
            assert len(await admin.groups.members("G")) == CLIENTS

            await asyncio.gather(*(channel.__aexit__() for channel in channels))
            async with asyncio.timeout(30):
                while await admin.groups.members("G"):  # noqa: ASYNC110 there is no event for it
                    await asyncio.sleep(0.2)

    run(main())


def test_a_client_that_does_not_read_its_telemetry_stream_is_read_no_further() -> None:
    async def main() -> None:
        large = subscription_settings()
        large.settings.user_agent.platform = "x" * 500_000
        async with pocketmq.Server(grpc_port=0) as server, GrpcClient(address_of(server)) as client:
            stream, written = client.telemetry(), 0
            with suppress(TimeoutError):
                while written < 100:
                    await asyncio.wait_for(stream.write(large), 1)
                    written += 1
            assert written < 100
            assert await is_served(server)
            stream.cancel()

    run(main())


def test_receives_that_are_cancelled_at_once_leave_nothing() -> None:
    async def main() -> None:
        async with pocketmq.Server(grpc_port=0) as server, GrpcClient(address_of(server)) as client:
            async with pocketmq.AsyncAdmin(server.name_server) as admin:
                await admin.topics.create("T")
            request, response = m.METHODS["ReceiveMessage"]
            async with grpc.aio.insecure_channel(address_of(server)) as channel:
                receive = channel.unary_stream(
                    f"/{m.SERVICE}/ReceiveMessage",
                    request_serializer=request.SerializeToString,
                    response_deserializer=response.FromString,
                )
                for _ in range(50):
                    call = receive(receive_request(), metadata=tuple(client.metadata.items()), timeout=30)
                    await asyncio.sleep(0.002)
                    call.cancel()
            sent = await client.call("SendMessage", m.SendMessageRequest(messages=[message()]))
            assert sent.status.code == m.Code.OK
            async with asyncio.timeout(30):
                while not (received := await client.receive()).messages:
                    continue
            assert received.bodies == [b"body"]
            assert received.messages[0].system_properties.delivery_attempt == 1

    run(main())
