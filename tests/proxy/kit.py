"""Clients of the gRPC server: with gRPC over a socket, and as calls of its handlers in memory and in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Self

import grpc.aio
from tests.client.real_cluster import NAME_SERVER, RealCluster, real_cluster

from pocketmq.codes import Language
from pocketmq.net import Address
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.signing import Credentials
from pocketmq.proxy import messages as m
from pocketmq.proxy.callers import Caller, signature_of
from pocketmq.proxy.server import Calls
from pocketmq.proxy.settings import ProxySettings

DATE: str = "20240101T000000Z"


def message(topic: str = "T", body: bytes = b"body", *, id: str = "01" * 17, **system: Any) -> m.Message:  # noqa: A002
    """A message to send; `system` are its system properties."""
    user = system.pop("properties", {})
    properties = m.SystemProperties(message_id=id, body_encoding=m.Encoding.IDENTITY, born_host="client", **system)
    return m.Message(topic=m.Resource(name=topic), user_properties=user, system_properties=properties, body=body)


def subscription_settings(
    kind: int = m.ClientType.SIMPLE_CONSUMER, *topics: str, group: str = "G"
) -> m.TelemetryCommand:
    entries = [m.SubscriptionEntry(topic=m.Resource(name=topic)) for topic in topics or ("T",)]
    subscription = m.Subscription(group=m.Resource(name=group), subscriptions=entries)
    return m.TelemetryCommand(settings=m.Settings(client_type=kind, subscription=subscription))


def publishing_settings(*topics: str) -> m.TelemetryCommand:
    publishing = m.Publishing(topics=[m.Resource(name=topic) for topic in topics or ("T",)])
    return m.TelemetryCommand(settings=m.Settings(client_type=m.ClientType.PRODUCER, publishing=publishing))


def receive_request(
    topic: str = "T", group: str = "G", *, invisible_s: int = 30, **fields: Any
) -> m.ReceiveMessageRequest:
    queue = m.MessageQueue(topic=m.Resource(name=topic), id=-1, broker=m.Broker(name=fields.pop("broker", "broker-a")))
    return m.ReceiveMessageRequest(
        group=m.Resource(name=group),
        message_queue=queue,
        batch_size=fields.pop("batch_size", 32),
        invisible_duration=None if fields.get("auto_renew") else m.Duration(seconds=invisible_s),
        **fields,
    )


class Received:
    """What a receive returned."""

    def __init__(self, responses: Iterable[m.ReceiveMessageResponse]) -> None:
        responses = list(responses)
        kinds = [response.WhichOneof("content") for response in responses]
        self.status = responses[0].status
        self.messages = [response.message for response in responses if response.WhichOneof("content") == "message"]
        self.is_complete = kinds[0] == "status" and kinds[-1] == "delivery_timestamp"

    @property
    def code(self) -> m.Code:
        return m.Code(self.status.code)

    @property
    def bodies(self) -> list[bytes]:
        return sorted(one.body for one in self.messages)


class Telemetry:
    """A telemetry stream that a test reads and writes."""

    def __init__(self) -> None:
        self._to_server: asyncio.Queue[m.TelemetryCommand | None] = asyncio.Queue()
        self._to_client: asyncio.Queue[m.TelemetryCommand] = asyncio.Queue()

    async def read(self) -> m.TelemetryCommand | None:
        return await self._to_server.get()

    async def write(self, command: m.TelemetryCommand) -> None:
        await self._to_client.put(command)

    async def ask(self, command: m.TelemetryCommand) -> m.TelemetryCommand:
        self.send(command)
        return await self.next()

    def send(self, command: m.TelemetryCommand | None) -> None:
        self._to_server.put_nowait(command)

    async def next(self) -> m.TelemetryCommand:
        return await self._to_client.get()


class VirtualClient:
    """A client whose calls go to the handlers."""

    def __init__(self, calls: Calls, client_id: str = "client-1") -> None:
        self.calls = calls
        self.caller = Caller(client_id, Language.PYTHON, "5.1.2", Address("10.0.9.1", 5000), None, None, None)

    async def call(self, method: str, request: Any) -> Any:
        """The response. Raises Refused and errors of brokers, which the server turns into a status."""
        return await self.calls.unary[method](self.caller, request)

    async def send(self, *messages: m.Message) -> m.SendResultEntry:
        response = await self.call("SendMessage", m.SendMessageRequest(messages=messages))
        assert isinstance(response, m.SendMessageResponse)
        return response.entries[0]

    async def receive(self, topic: str = "T", group: str = "G", **fields: Any) -> Received:
        responses: list[m.ReceiveMessageResponse] = []

        async def write(response: m.ReceiveMessageResponse) -> None:
            responses.append(response)

        await self.calls.receiving.receive(self.caller, receive_request(topic, group, **fields), write)
        return Received(responses)

    async def drain(self, count: int, **fields: Any) -> list[m.Message]:
        """So many messages, from as many receives as they need."""
        found: list[m.Message] = []
        async with asyncio.timeout(300):
            while len(found) < count:
                found += (await self.receive(**fields)).messages
        return found

    async def ack(self, *messages: m.Message, group: str = "G") -> Any:
        return await self.call("AckMessage", ack_request(*messages, group=group))

    async def change(self, received: m.Message, seconds: int, group: str = "G") -> Any:
        request = m.ChangeInvisibleDurationRequest(
            group=m.Resource(name=group),
            topic=received.topic,
            receipt_handle=received.system_properties.receipt_handle,
            message_id=received.system_properties.message_id,
            invisible_duration=m.Duration(seconds=seconds),
        )
        return await self.call("ChangeInvisibleDuration", request)

    @asynccontextmanager
    async def telemetry(self, settings: m.TelemetryCommand) -> AsyncIterator[tuple[Telemetry, m.Settings]]:
        """A stream that has sent these settings, and the answer."""
        stream = Telemetry()
        serving = asyncio.ensure_future(self.calls.telemetry.telemetry(self.caller, stream.read, stream.write))
        asking = asyncio.ensure_future(stream.ask(settings))
        await asyncio.wait((asking, serving), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            asking.cancel()
            serving.result()
        answer = await asking
        assert answer.status.code == m.Code.OK
        try:
            yield stream, answer.settings
        finally:
            stream.send(None)
            await serving


def ack_request(*messages: m.Message, group: str = "G") -> m.AckMessageRequest:
    entries = [
        m.AckMessageEntry(
            message_id=one.system_properties.message_id, receipt_handle=one.system_properties.receipt_handle
        )
        for one in messages
    ]
    return m.AckMessageRequest(group=m.Resource(name=group), topic=messages[0].topic, entries=entries)


class VirtualProxy:
    """The handlers of a gRPC server in front of a cluster in memory."""

    def __init__(self, cluster: RealCluster, **settings: Any) -> None:
        self.cluster = cluster
        made = ProxySettings(name_servers=str(NAME_SERVER), **settings)
        self.calls = Calls(made, cluster.dependencies("10.0.8.1"), lambda: Address("10.0.8.1", 8081))

    def client(self, client_id: str = "client-1") -> VirtualClient:
        return VirtualClient(self.calls, client_id)


@asynccontextmanager
async def virtual_proxy(
    *topics: str, broker: dict[str, Any] | None = None, group: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[VirtualProxy]:
    """A gRPC server with topics `NAME` or `NAME:TYPE`, and with the group G if it has settings."""
    async with real_cluster(topics=(), **(broker or {})) as cluster:
        state = cluster.broker.parts.state
        for text in topics or ("T",):
            name, _, kind = text.partition(":")
            attributes = {"+message.type": kind} if kind else {}
            config = TopicConfig(name, read_queue_nums=4, write_queue_nums=4, attributes=attributes)
            state.topics.put([config], cluster.clock.now_ms())
        cluster.broker.parts.announce()
        if group is not None:
            state.groups.put([SubscriptionGroupConfig("G", **group)], cluster.clock.now_ms())
        proxy = VirtualProxy(cluster, **settings)
        proxy.calls.start()
        try:
            yield proxy
        finally:
            await proxy.calls.stop()


class GrpcClient:
    """A client with gRPC's own library, as the official clients have it."""

    def __init__(
        self,
        address: str,
        *,
        client_id: str = "client-1",
        credentials: Credentials | None = None,
        tls: grpc.ChannelCredentials | None = None,
        **metadata: str,
    ) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        insecure, secure = grpc.aio.insecure_channel, grpc.aio.secure_channel
        self._channel = insecure(address, options) if tls is None else secure(address, tls, options)
        self.metadata = {"x-mq-client-id": client_id, "x-mq-language": "PYTHON", "x-mq-client-version": "5.1.2"}
        self.metadata |= {"x-mq-date-time": DATE}
        if credentials is not None:
            signature = signature_of(DATE, credentials).upper()
            self.metadata["authorization"] = (
                f"MQv2-HMAC-SHA1 Credential={credentials.access_key}, SignedHeaders=x-mq-date-time, Signature={signature}"
            )
        self.metadata |= {name.replace("_", "-"): value for name, value in metadata.items()}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._channel.close()

    def _method(self, kind: str, method: str) -> Any:
        request, response = m.METHODS[method]
        make = getattr(self._channel, kind)
        return make(
            f"/{m.SERVICE}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )

    async def call(self, method: str, request: Any, timeout_s: float = 10) -> Any:
        return await self._method("unary_unary", method)(
            request, metadata=tuple(self.metadata.items()), timeout=timeout_s
        )

    async def receive(self, topic: str = "T", group: str = "G", timeout_s: float = 20, **fields: Any) -> Received:
        call = self._method("unary_stream", "ReceiveMessage")(
            receive_request(topic, group, **fields), metadata=tuple(self.metadata.items()), timeout=timeout_s
        )
        return Received([response async for response in call])

    def telemetry(self) -> Any:
        """The call, with `write`, `read` and `done_writing`."""
        return self._method("stream_stream", "Telemetry")(metadata=tuple(self.metadata.items()))
