"""Subscribers and publishers, and the push consumers of the groups.

    broker ── messages of a group ──► one push consumer ──► the subscriber of the topic ──► handlers
                                                                 └── ack, nack, reject ──► done, retried, dead letter

All members of a group must have the same subscriptions, so the subscribers of a group share one consumer.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from logging import getLogger
from typing import Any, TypedDict, cast

from faststream._internal.configs import (
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
)
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.publisher import PublisherProto, PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream._internal.producer import ProducerProto
from faststream._internal.types import PublisherMiddleware
from faststream.message import StreamMessage
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand, Response
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec, SubscriberSpec

from pocketmq.client import AsyncLitePullConsumer, AsyncPushConsumer, DeadLetter, RetryLater, SendResult
from pocketmq.client.consumer.settings import StartAt
from pocketmq.errors import InvalidSetting, ServerFailed, UsageError
from pocketmq.integrations.faststream.messages import (
    DELIVERY,
    Delivery,
    Raw,
    RocketParser,
    RocketPublishCommand,
    RocketStreamMessage,
    message_options,
)
from pocketmq.model import StoredMessage
from pocketmq.model.properties import REPLY_TO_CLIENT

log = getLogger("pocketmq.faststream")

EARLY = (AckPolicy.ACK_FIRST, AckPolicy.MANUAL)
"""With these, an ack has its effect at once; with the others, at the end of the handler."""


class ConsumerOptions(TypedDict, total=False):
    """Options of the push consumer of a group; see `pocketmq.client.PushSettings`."""

    start_at: StartAt
    broadcast: bool
    max_reconsume_times: int
    consume_timeout_ms: int
    suspend_ms: int
    max_queue_messages: int
    pull_batch: int


class GroupConsumers:
    """The push consumers of one broker, by group. They start together, so that each starts with all its subscriptions."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._joined: dict[str, tuple[AsyncPushConsumer, dict[str, RocketSubscriber]]] = {}
        self._are_started = False

    async def join(self, subscriber: "RocketSubscriber") -> None:
        """Add a subscriber to the consumer of its group."""
        group, topic = subscriber.group, subscriber.topic
        if group not in self._joined:
            options = {**self._options, **subscriber.consumer_options}
            self._joined[group] = AsyncPushConsumer(group=group, **options), {}
        consumer, members = self._joined[group]
        _refuse_contradiction(subscriber, members)
        members[topic] = subscriber
        listener = subscriber.listen_to_batch if subscriber.batch_size else subscriber.listen
        await consumer.subscribe(
            topic, listener, tags=subscriber.tags, sql=subscriber.sql, batch_size=subscriber.batch_size
        )
        if self._are_started and not consumer.is_running:
            await consumer.start()

    async def leave(self, subscriber: "RocketSubscriber") -> None:
        consumer, members = self._joined.get(subscriber.group, (None, {}))
        if consumer is None or members.get(subscriber.topic) is not subscriber:
            return
        del members[subscriber.topic]
        if members:
            await consumer.unsubscribe(subscriber.topic)
        else:
            del self._joined[subscriber.group]
            await consumer.stop()

    async def start(self) -> None:
        self._are_started = True
        await asyncio.gather(*(consumer.start() for consumer, _ in self._joined.values() if not consumer.is_running))

    async def stop(self) -> None:
        """Stop all consumers after their running handlers."""
        self._are_started = False
        stopped = [consumer for consumer, _ in self._joined.values()]
        self._joined.clear()
        await asyncio.gather(*(consumer.stop() for consumer in stopped))


def _refuse_contradiction(subscriber: "RocketSubscriber", others: Mapping[str, "RocketSubscriber"]) -> None:
    if subscriber.topic in others:
        raise UsageError(
            f"topic {subscriber.topic!r} has two subscribers in group {subscriber.group!r}, and a group delivers each message "
            "once; give one of them another group=…, or filter inside of one subscriber"
        )
    for other in others.values():
        if other.consumer_options != subscriber.consumer_options:
            raise InvalidSetting(
                f"the subscribers of group {subscriber.group!r} share a consumer, so {subscriber.topic!r} and {other.topic!r} "
                f"need the same options: {subscriber.consumer_options} and {other.consumer_options}"
            )


@dataclass(kw_only=True)
class RocketSubscriberConfig(SubscriberUsecaseConfig):
    """What `broker.subscriber(…)` was called with."""

    topic: str
    group: str | None = None
    tags: str | None = None
    sql: str | None = None
    batch_size: int | None = None
    max_workers: int = 20
    consumer_options: dict[str, Any] = field(default_factory=dict)

    @property
    def ack_policy(self) -> AckPolicy:
        for chosen in (self._ack_policy, self._outer_config.ack_policy):
            if chosen is not EMPTY:
                return chosen
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class RocketSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    """The part of a subscriber that its description needs."""

    topic: str


class RocketSubscriberSpecification(SubscriberSpecification[Any, Any]):
    """A subscriber in the AsyncAPI document."""

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        return [self.topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        message = Message(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads()))
        operation = Operation(message=message, bindings=None)
        return {
            self.name: SubscriberSpec(
                address=self.topic, description=self.description, operation=operation, bindings=None
            )
        }


class RocketSubscriber(SubscriberUsecase[Any]):
    """Handlers of the messages of a topic in a group."""

    def __init__(
        self,
        config: RocketSubscriberConfig,
        specification: RocketSubscriberSpecification,
        calls: CallsCollection[Any],
    ) -> None:
        parser = RocketParser(has_delivery=True)
        is_batch = config.batch_size is not None
        config.parser = parser.parse_batch if is_batch else parser.parse_message
        config.decoder = parser.decode_batch if is_batch else parser.decode_message
        super().__init__(config, specification, calls)
        self._topic = config.topic
        self._group = config.group
        self.tags = config.tags
        self.sql = config.sql
        self.batch_size = config.batch_size
        self.consumer_options = {**config.consumer_options, "workers": config.max_workers}
        self._turns = asyncio.Semaphore(config.max_workers)
        self._handling: set[asyncio.Task[None]] = set()
        self._leaving: asyncio.Task[None] | None = None
        self._polled: AsyncLitePullConsumer | None = None
        """Reads for `get_one` and for `async for`, if there are no handlers."""
        self._waiting: deque[StoredMessage] = deque()

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self._topic}"

    @property
    def group(self) -> str:
        if not (group := self._group_or_none):
            raise InvalidSetting(
                f"the subscriber of topic {self.topic!r} needs group=…, here or in RocketBroker(…): the members of a group "
                "share the messages of their topics"
            )
        return group

    @property
    def _group_or_none(self) -> str | None:
        return self._group or cast("str | None", getattr(self._outer_config, "group", None))

    # lifecycle

    async def start(self) -> None:
        await super().start()
        self._post_start()
        if self.calls:
            await self._consumers.join(self)

    async def stop(self) -> None:
        """Leave the topic, after the running handlers. In a handler, this does not wait for the handler itself."""
        if DELIVERY.get() is None:
            await self._leave()
        else:
            self.running = False
            self._leaving = asyncio.get_running_loop().create_task(self._leave())
        await super().stop()

    async def _leave(self) -> None:
        polled, self._polled = self._polled, None
        if polled is not None:
            await polled.stop()
        if self.calls:
            await self._consumers.leave(self)

    @property
    def _consumers(self) -> GroupConsumers:
        return cast("GroupConsumers", self._outer_config.consumers)  # type: ignore[attr-defined]

    # messages

    async def listen(self, message: StoredMessage) -> RetryLater | DeadLetter | None:
        """The listener of the push consumer."""
        return await self._deliver(message)

    async def listen_to_batch(self, messages: list[StoredMessage]) -> RetryLater | DeadLetter | None:
        return await self._deliver(list(messages))

    async def _deliver(self, raw: Raw) -> RetryLater | DeadLetter | None:
        delivery = Delivery()
        if self.ack_policy not in EARLY:
            await self._handle(raw, delivery)
            return delivery.result
        await self._turns.acquire()
        loop = asyncio.get_running_loop()
        handling = loop.create_task(self._handle(raw, delivery))
        self._handling.add(handling)
        handling.add_done_callback(self._handled)
        acked = loop.create_task(delivery.acked.wait())
        try:
            await asyncio.wait((handling, acked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            acked.cancel()
        return delivery.result

    def _handled(self, handling: "asyncio.Task[None]") -> None:
        self._handling.discard(handling)
        self._turns.release()

    async def _handle(self, raw: Raw, delivery: Delivery) -> None:
        token = DELIVERY.set(delivery)
        try:
            await self.consume(raw)
        finally:
            DELIVERY.reset(token)

    async def process_message(self, msg: Any) -> Response:
        try:
            return await super().process_message(msg)
        except Exception as error:
            if (delivery := DELIVERY.get()) is not None:
                delivery.error = error
            raise

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Sequence[PublisherProto]:
        raw = message.raw_message
        first = raw[0] if isinstance(raw, list) else raw
        request = first if REPLY_TO_CLIENT in first.properties else None
        return (RocketReply(self._outer_config.producer, message.reply_to, request),)

    async def get_one(self, *, timeout: float = 5.0) -> RocketStreamMessage | None:
        """The next message, or None after the time. Only for a subscriber without handlers; it is committed when it is read."""
        if self.calls:
            raise UsageError("get_one() is for a subscriber without handlers")
        if self._polled is None:
            options = {
                name: value for name, value in self.consumer_options.items() if name in ("start_at", "broadcast")
            }
            polled = AsyncLitePullConsumer(group=self.group, **self._consumer_defaults, **options)
            await polled.subscribe(self.topic, tags=self.tags, sql=self.sql)
            await polled.start()
            self._polled = polled
        if not self._waiting:
            self._waiting.extend(await self._polled.poll(timeout))
        raw = self._waiting.popleft() if self._waiting else None
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        middlewares = (each(raw, context=context) for each in self._broker_middlewares)
        message = await process_msg(raw, middlewares=middlewares, parser=cast("Any", parser), decoder=decoder)
        return cast("RocketStreamMessage | None", message)

    @property
    def _consumer_defaults(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self._outer_config.client_options)  # type: ignore[attr-defined]

    async def __aiter__(self) -> AsyncIterator[RocketStreamMessage]:
        while True:
            message = await self.get_one()
            if message is not None:
                yield message

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        return log_context(message, self.topic, self._group_or_none or "")


def log_context(message: StreamMessage[Any] | None, topic: str, group: str) -> dict[str, str]:
    return {"topic": topic, "group": group, "message_id": getattr(message, "message_id", "")}


class RocketReply(FakePublisher):
    """Publishes what a handler returns to the sender of its message: to a waiting request, or to the topic `reply_to`."""

    def __init__(self, producer: ProducerProto[Any], topic: str, request: StoredMessage | None) -> None:
        super().__init__(producer=producer)
        self._topic = topic
        self._request = request

    def patch_command(self, cmd: PublishCommand) -> RocketPublishCommand:
        made = RocketPublishCommand.from_cmd(super().patch_command(cmd))
        made.destination, made.request = self._topic, self._request
        return made

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> Any:
        """Reply. If the program that asked has ended, that is no error of the handler: another attempt would not help."""
        try:
            return await super()._publish(cmd, _extra_middlewares=_extra_middlewares)
        except ServerFailed as error:
            if self._request is None:
                raise
            log.warning("the reply to request %s does not arrive: %s", self._request.message_id, error)


@dataclass(kw_only=True)
class RocketPublisherConfig(PublisherUsecaseConfig):
    """What `broker.publisher(…)` was called with."""

    topic: str
    batch: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    reply_to: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class RocketPublisherSpecificationConfig(PublisherSpecificationConfig):
    """The part of a publisher that its description needs."""

    topic: str


class RocketPublisherSpecification(PublisherSpecification[Any, Any]):
    """A publisher in the AsyncAPI document."""

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        operation = Operation(message=Message(title=f"{self.name}:Message", payload=payload), bindings=None)
        return {
            self.name: PublisherSpec(
                address=self.topic, description=self.config.description_, operation=operation, bindings=None
            )
        }


class RocketPublisher(PublisherUsecase):
    """Publishes what handlers return, or what `publish` gets. With `batch`, a returned list is a message for each element."""

    def __init__(self, config: RocketPublisherConfig, specification: RocketPublisherSpecification) -> None:
        super().__init__(config, specification)
        self._topic = config.topic
        self.is_batch = config.batch
        self._headers = config.headers
        self._reply_to = config.reply_to
        self._options = config.options

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self._topic}"

    async def publish(
        self,
        *messages: Any,
        topic: str = "",
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        sharding_key: str | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
    ) -> SendResult | list[SendResult]:
        """Publish a message; with `batch`, one for each argument. The arguments are those of `RocketBroker.publish`."""
        if not self.is_batch and len(messages) != 1:
            raise UsageError(f"publish() takes one message, not {len(messages)}; several need publisher(…, batch=True)")
        options = message_options(
            tags=tags, keys=keys, sharding_key=sharding_key, delay_ms=delay_ms, deliver_at_ms=deliver_at_ms
        )
        cmd = RocketPublishCommand(
            *(messages or (None,)),
            topic=topic or self.topic,
            headers={**self._headers, **(headers or {})},
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or self._reply_to,
            options={**self._options, **options},
            _publish_type=PublishType.PUBLISH,
        )
        return cast("SendResult | list[SendResult]", await self._send(cmd, ()))

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> Any:
        made = RocketPublishCommand.from_cmd(cmd, batch=self.is_batch)
        made.destination = self.topic
        made.add_headers(self._headers, override=False)
        made.reply_to = made.reply_to or self._reply_to
        made.options = {**self._options, **made.options}
        return await self._send(made, _extra_middlewares)

    async def _send(self, cmd: RocketPublishCommand, middlewares: Iterable[PublisherMiddleware]) -> Any:
        send = self._basic_publish_batch if self.is_batch else self._basic_publish
        return await send(cmd, producer=self._outer_config.producer, _extra_middlewares=middlewares)

    async def request(
        self,
        message: Any,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        timeout: float = 3.0,
    ) -> RocketStreamMessage:
        """Send a request and wait for its reply."""
        cmd = RocketPublishCommand(
            message,
            topic=topic or self.topic,
            headers={**self._headers, **(headers or {})},
            correlation_id=correlation_id or self._outer_config.id_generator(),
            options=self._options,
            timeout_s=timeout,
            _publish_type=PublishType.REQUEST,
        )
        return cast("RocketStreamMessage", await self._basic_request(cmd, producer=self._outer_config.producer))
