"""Messages as FastStream sees them, their acknowledgement, and the producer behind `publish` and `request`.

header of FastStream     property of the message
content-type             content-type
correlation_id           correlation_id
reply_to (a topic)       reply_to; a request of RocketMQ has REPLY_TO_CLIENT instead, and its reply has no topic
any other                the same

ack       the message is done
nack      it is delivered again, after the time of a delay level, and becomes a dead letter after the last attempt
reject    it becomes a dead letter at once
"""

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final, cast

from fast_depends.library.serializer import SerializerProto
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import CustomCallable
from faststream.exceptions import IncorrectState
from faststream.message import StreamMessage, decode_message
from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand, PublishCommand, Response

from pocketmq.client import AsyncProducer, DeadLetter, RetryLater, SendResult
from pocketmq.model import Message, StoredMessage
from pocketmq.model.properties import REPLY_TO_CLIENT, RESERVED

CONTENT_TYPE: Final = "content-type"
CORRELATION_ID: Final = "correlation_id"
REPLY_TO: Final = "reply_to"
_JSON: Final = "application/json"
Raw = StoredMessage | list[StoredMessage]
"""What a subscriber consumes at once: a message, or a batch."""


class Delivery:
    """The decision about one delivered message or batch. `error` is what the handler raised."""

    def __init__(self) -> None:
        self.acked = asyncio.Event()
        self.refused: RetryLater | DeadLetter | None = None
        self.error: Exception | None = None

    @property
    def result(self) -> RetryLater | DeadLetter | None:
        """The result for the consumer at the end of the handler; None: the message is done."""
        if self.acked.is_set():
            return None
        if self.refused is None:
            return RetryLater(_reason(self.error) or "the handler ended without ack, nack or reject")
        if self.refused.reason or self.error is None:
            return self.refused
        if isinstance(self.refused, DeadLetter):
            return DeadLetter(_reason(self.error))
        return RetryLater(_reason(self.error), delay_level=self.refused.delay_level)


DELIVERY: Final[ContextVar[Delivery | None]] = ContextVar("delivery", default=None)
"""The delivery that the running handler consumes."""


def _reason(error: Exception | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"


class RocketStreamMessage(StreamMessage[Any]):
    """A received message, or batch. `raw_message` is PocketMQ's `StoredMessage`, or a list of them."""

    def __init__(self, raw_message: Raw, body: Any, *, delivery: Delivery | None, **fields: Any) -> None:
        super().__init__(raw_message, body, **fields)
        self._delivery = delivery

    async def ack(self) -> None:
        """Do not deliver the message again."""
        if self.committed is None and self._delivery is not None:
            self._delivery.acked.set()
        await super().ack()

    async def nack(self, reason: str = "", *, delay_level: int = 0) -> None:
        """Deliver the message again after the time of `delay_level`; with 0 the broker chooses it, longer each time."""
        if self.committed is None and self._delivery is not None:
            self._delivery.refused = RetryLater(reason, delay_level=delay_level)
        await super().nack()

    async def reject(self, reason: str = "") -> None:
        """Move the message to the dead letters."""
        if self.committed is None and self._delivery is not None:
            self._delivery.refused = DeadLetter(reason)
        await super().reject()


class RocketParser:
    """Makes a `RocketStreamMessage` of a stored one. Replies to requests have no delivery: nothing acknowledges them."""

    def __init__(self, *, has_delivery: bool) -> None:
        self._has_delivery = has_delivery

    async def parse_message(self, message: StoredMessage) -> RocketStreamMessage:
        headers = headers_of(message)
        return self._parsed(message, message.body, headers, message_id=message.message_id)

    async def decode_message(self, message: StreamMessage[Any]) -> Any:
        return decode_message(message)

    async def parse_batch(self, messages: list[StoredMessage]) -> RocketStreamMessage:
        headers = [headers_of(message) for message in messages]
        bodies = [message.body for message in messages]
        first, last = messages[0].message_id, messages[-1].message_id
        return self._parsed(messages, bodies, headers[0], batch_headers=headers, message_id=f"{first}-{last}")

    async def decode_batch(self, message: StreamMessage[Any]) -> Any:
        return [decode_message(await self.parse_message(each)) for each in message.raw_message]

    def _parsed(self, raw: Raw, body: object, headers: dict[str, str], **fields: Any) -> RocketStreamMessage:
        first = raw[0] if isinstance(raw, list) else raw
        return RocketStreamMessage(
            raw,
            body,
            delivery=DELIVERY.get() if self._has_delivery else None,
            headers=headers,
            reply_to=headers.get(REPLY_TO) or first.properties.get(REPLY_TO_CLIENT, ""),
            content_type=headers.get(CONTENT_TYPE),
            correlation_id=headers.get(CORRELATION_ID),
            **fields,
        )


def headers_of(message: StoredMessage) -> dict[str, str]:
    """The properties without those of RocketMQ itself."""
    return {name: value for name, value in message.properties.items() if name not in RESERVED}


class RocketResponse(Response):
    """What a handler returns to choose more than the body of its reply or published message."""

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        tags: str | None = None,
        keys: str | list[str] = (),  # type: ignore[assignment]
        sharding_key: str | None = None,
        delay_ms: int | None = None,
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.options = message_options(tags=tags, keys=keys, sharding_key=sharding_key, delay_ms=delay_ms)

    def as_publish_command(self) -> "RocketPublishCommand":
        return RocketPublishCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            options=self.options,
            _publish_type=PublishType.PUBLISH,
        )


class RocketPublishCommand(BatchPublishCommand):
    """A message, or several, on the way to a topic. `options` are keyword arguments of `pocketmq.Message`."""

    def __init__(
        self,
        message: Any,
        /,
        *messages: Any,
        _publish_type: PublishType,
        topic: str = "",
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        options: Mapping[str, Any] | None = None,
        timeout_s: float = 3.0,
        request: StoredMessage | None = None,
    ) -> None:
        super().__init__(
            message,
            *messages,
            destination=topic,
            headers=headers,
            correlation_id=correlation_id,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        self.options = dict(options or {})
        self.timeout_s = timeout_s
        self.request = request
        """The request that this is the reply to."""

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> "RocketPublishCommand":
        if isinstance(cmd, RocketPublishCommand):
            return cmd
        body, more = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *more,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )

    def properties(self, content_type: str | None) -> dict[str, str]:
        """The headers as properties, which are text and not empty."""
        named = {CONTENT_TYPE: content_type, CORRELATION_ID: self.correlation_id, REPLY_TO: self.reply_to}
        found = {**named, **self.headers}
        return {name: str(value) for name, value in found.items() if value not in (None, "")}


def message_options(**options: Any) -> dict[str, Any]:
    """Keyword arguments of `pocketmq.Message` without those that are not set."""
    return {name: value for name, value in options.items() if value not in (None, (), "")}


class RocketProducer(ProducerProto[RocketPublishCommand]):
    """Sends with the client's producer, which exists while the broker is connected."""

    def __init__(self, parser: CustomCallable | None, decoder: CustomCallable | None) -> None:
        default = RocketParser(has_delivery=False)
        self._parser = cast("Any", ParserComposition(parser, default.parse_message))
        self._decoder = cast("Any", ParserComposition(decoder, default.decode_message))
        self.codec: CodecProto = DefaultCodec()
        self._serializer: SerializerProto | None = None
        self._client: AsyncProducer | None = None

    def connect(self, client: AsyncProducer, serializer: SerializerProto | None, codec: CodecProto | None) -> None:
        self._client, self._serializer, self.codec = client, serializer, codec or DefaultCodec()

    def disconnect(self) -> None:
        self._client = None

    @property
    def _connected(self) -> AsyncProducer:
        if self._client is None:
            raise IncorrectState("the broker is not connected; call `await broker.connect()` or start the application")
        return self._client

    async def publish(self, cmd: RocketPublishCommand) -> SendResult:
        client = self._connected
        if cmd.request is None:
            return await client.send((await self._messages(cmd))[0])
        body, properties = await self._encoded(cmd, cmd.body)
        return await client.reply(cmd.request, body, properties=properties)

    async def publish_batch(self, cmd: RocketPublishCommand) -> list[SendResult]:
        return await self._connected.send_many(await self._messages(cmd))

    async def request(self, cmd: RocketPublishCommand) -> StoredMessage:
        return await self._connected.request((await self._messages(cmd))[0], timeout_s=cmd.timeout_s)

    async def _messages(self, cmd: RocketPublishCommand) -> list[Message]:
        made = []
        for each in cmd.batch_bodies or (None,):
            body, properties = await self._encoded(cmd, each)
            made.append(Message(cmd.destination, body, properties=properties, **cmd.options))
        return made

    async def _encoded(self, cmd: RocketPublishCommand, body: Any) -> tuple[bytes, dict[str, str]]:
        """The body as bytes, and the properties. Brokers refuse an empty body, so None is sent as JSON."""
        if body is None:
            return b"null", cmd.properties(_JSON)
        data, content_type = await self.codec.encode(body, self._serializer)
        return data, cmd.properties(content_type)
