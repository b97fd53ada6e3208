"""`RocketBroker` and `RocketRouter`: where subscribers and publishers are registered, and what connects them to RocketMQ."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Unpack, cast

from fast_depends import Provider, dependency_provider
from fast_depends.dependencies import Dependant
from fast_depends.library.serializer import SerializerProto
from faststream._internal.basic_types import LoggerProto
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.configs import BrokerConfig
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.security import BaseSecurity, SASLPlaintext
from faststream.specification.schema import BrokerSpec
from faststream.specification.schema.extra import Tag, TagDict

from pocketmq.client import AsyncAdmin, AsyncProducer, Credentials, SendResult
from pocketmq.client.settings import ClientOptions
from pocketmq.errors import InvalidSetting, PocketMQError
from pocketmq.integrations.faststream.endpoints import (
    ConsumerOptions,
    GroupConsumers,
    RocketPublisher,
    RocketPublisherConfig,
    RocketPublisherSpecification,
    RocketPublisherSpecificationConfig,
    RocketSubscriber,
    RocketSubscriberConfig,
    RocketSubscriberSpecification,
    RocketSubscriberSpecificationConfig,
    log_context,
)
from pocketmq.integrations.faststream.messages import (
    RocketProducer,
    RocketPublishCommand,
    RocketStreamMessage,
    message_options,
)


@dataclass(kw_only=True)
class RocketBrokerConfig(BrokerConfig):
    """What the endpoints of a broker need. Those of a router get it when the router is included."""

    group: str | None = None
    client_options: dict[str, Any] = field(default_factory=dict)
    consumers: GroupConsumers = field(default_factory=lambda: GroupConsumers({}))


class RocketRegistrator(Registrator[Any, RocketBrokerConfig]):
    """Registers subscribers and publishers: the common part of broker and router."""

    def subscriber(  # type: ignore[override]
        self,
        topic: str,
        *,
        group: str | None = None,
        tags: str | None = None,
        sql: str | None = None,
        ordered: bool = False,
        batch_size: int | None = None,
        max_workers: int = 20,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
        **options: Unpack[ConsumerOptions],
    ) -> RocketSubscriber:
        """Decorator: handle the messages of `topic` that arrive for `group`, or else for the group of the broker.

        `tags` or `sql` select messages. With `ordered`, the messages of a queue are handled one after the other. With `batch_size`, a
        handler gets lists. At most `max_workers` handlers run at once. What follows when a handler raises is `ack_policy`:
        NACK_ON_ERROR (the default) retries, REJECT_ON_ERROR makes a dead letter. Other options are those of `PushConsumer`.
        """
        calls: CallsCollection[Any] = CallsCollection()
        config = cast("Any", self.config)
        _refuse_unknown(options)
        subscriber = RocketSubscriber(
            RocketSubscriberConfig(
                topic=topic,
                group=group,
                tags=tags,
                sql=sql,
                batch_size=batch_size,
                max_workers=max_workers,
                consumer_options={**options, "ordered": ordered},
                no_reply=no_reply,
                _ack_policy=ack_policy,
                _outer_config=config,
            ),
            RocketSubscriberSpecification(
                config,
                RocketSubscriberSpecificationConfig(
                    topic=topic, title_=title, description_=description, include_in_schema=include_in_schema
                ),
                calls,
            ),
            calls,
        )
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        batch: bool = False,
        headers: dict[str, str] | None = None,
        reply_to: str = "",
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        sharding_key: str | None = None,
        delay_ms: int | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
    ) -> RocketPublisher:
        """Decorator: publish what a handler returns to `topic`. Also an object with `publish` and `request`."""
        config = cast("Any", self.config)
        publisher = RocketPublisher(
            RocketPublisherConfig(
                topic=topic,
                batch=batch,
                headers=headers or {},
                reply_to=reply_to,
                options=message_options(tags=tags, keys=keys, sharding_key=sharding_key, delay_ms=delay_ms),
                _outer_config=config,
            ),
            RocketPublisherSpecification(
                config,
                RocketPublisherSpecificationConfig(
                    topic=topic,
                    schema_=schema,
                    title_=title,
                    description_=description,
                    include_in_schema=include_in_schema,
                ),
            ),
        )
        super().publisher(publisher, persistent=persistent)
        return publisher


def _refuse_unknown(options: Iterable[str]) -> None:
    known = ConsumerOptions.__annotations__
    for name in options:
        if name not in known:
            raise InvalidSetting(
                f"subscriber() has no option {name!r}; options of the consumer: {', '.join(sorted(known))}"
            )


class RocketPublisherRoute(ArgsContainer):
    """The arguments of `publisher`, for a `RocketRoute`."""

    def __init__(self, topic: str, **options: Any) -> None:
        super().__init__(topic, **options)


class RocketRoute(SubscriberRoute):
    """A handler and the arguments of `subscriber`, for `RocketRouter(handlers=…)`."""

    def __init__(
        self, call: Callable[..., Any], topic: str, *, publishers: Iterable[RocketPublisherRoute] = (), **options: Any
    ) -> None:
        super().__init__(call, topic, publishers=publishers, **options)


class RocketRouter(RocketRegistrator, BrokerRouter[Any, RocketBrokerConfig]):
    """Subscribers and publishers that a broker includes. Topics get the `prefix`."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[RocketRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RocketRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
    ) -> None:
        config = RocketBrokerConfig(
            prefix=prefix,
            ack_policy=ack_policy,
            broker_dependencies=dependencies,
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            include_in_schema=include_in_schema,
        )
        super().__init__(config=config, handlers=handlers, routers=routers)


class RocketBroker(RocketRegistrator, BrokerUsecase[Any, AsyncProducer, RocketBrokerConfig]):
    """FastStream's broker for RocketMQ.

    `name_servers` and further options are those of all clients, see `pocketmq.client.ClientSettings`. `group` is the group of subscribers that
    have none. All other arguments are those of FastStream's brokers.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        graceful_timeout: float | None = 15.0,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RocketRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        id_generator: Callable[[], str] = gen_cor_id,
        security: BaseSecurity | None = None,
        specification_url: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        client_options = _client_options(name_servers, options, security, graceful_timeout)
        super().__init__(
            routers=routers,
            config=RocketBrokerConfig(
                group=group,
                client_options=client_options,
                consumers=GroupConsumers(client_options),
                producer=RocketProducer(parser, decoder),
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                logger=make_logger_state(logger=logger, log_level=log_level, default_storage_cls=RocketLoggers),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                description=description,
                url=[specification_url] if specification_url else _urls(name_servers),
                protocol="rocketmq",
                protocol_version=None,
                tags=tags,
                security=security,
            ),
        )

    # lifecycle

    async def _connect(self) -> AsyncProducer:
        config = self.config.broker_config
        producer = AsyncProducer(**config.client_options)
        await producer.start()
        cast("RocketProducer", config.producer).connect(producer, config.fd_config._serializer, config.broker_codec)
        return producer

    async def start(self) -> None:
        """Connect, and join the groups of all subscribers."""
        await self.connect()
        await super().start()
        await self.config.broker_config.consumers.start()
        self.config.logger.log("Joined the groups", logging.INFO, log_context(None, "", ""))

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Leave the groups after the running handlers, at most `graceful_timeout`; then disconnect."""
        config = self.config.broker_config
        async with AsyncExitStack() as ending:
            if self._connection is not None:
                ending.push_async_callback(self._connection.stop)
                ending.callback(cast("RocketProducer", config.producer).disconnect)
                self._connection = None
            ending.push_async_callback(super().stop, exc_type, exc_val, exc_tb)
            await config.consumers.stop()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether a name server answers, and knows a broker."""
        options = {**self.config.broker_config.client_options, "stop_timeout_ms": 1000}
        try:
            async with asyncio.timeout(timeout), AsyncAdmin(**options) as admin:
                return bool(await admin.cluster.brokers())
        except (PocketMQError, TimeoutError):
            return False

    # messages

    async def publish(
        self,
        message: Any,
        topic: str,
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        sharding_key: str | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
    ) -> SendResult:
        """Publish a message and wait until it is stored. `headers` are properties of the message."""
        options = message_options(
            tags=tags, keys=keys, sharding_key=sharding_key, delay_ms=delay_ms, deliver_at_ms=deliver_at_ms
        )
        cmd = self._command(message, topic=topic, headers=headers, correlation_id=correlation_id, options=options)
        cmd.reply_to = reply_to
        return cast("SendResult", await self._basic_publish(cmd, producer=self._producer))

    async def publish_batch(  # type: ignore[override]
        self,
        *messages: Any,
        topic: str,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        tags: str | None = None,
    ) -> list[SendResult]:
        """Publish several messages in batches, in their order."""
        options = message_options(tags=tags)
        cmd = self._command(*messages, topic=topic, headers=headers, correlation_id=correlation_id, options=options)
        return cast("list[SendResult]", await self._basic_publish_batch(cmd, producer=self._producer))

    async def request(  # type: ignore[override]
        self,
        message: Any,
        topic: str,
        *,
        timeout: float = 3.0,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        tags: str | None = None,
    ) -> RocketStreamMessage:
        """Send a request and wait for what a handler of the topic returns."""
        options = message_options(tags=tags)
        cmd = self._command(message, topic=topic, headers=headers, correlation_id=correlation_id, options=options)
        cmd.timeout_s, cmd.publish_type = timeout, PublishType.REQUEST
        return cast("RocketStreamMessage", await self._basic_request(cmd, producer=self._producer))

    def _command(
        self,
        *messages: Any,
        topic: str,
        headers: dict[str, str] | None,
        correlation_id: str | None,
        options: dict[str, Any],
    ) -> RocketPublishCommand:
        return RocketPublishCommand(
            *(messages or (None,)),
            topic=topic,
            headers=dict(headers or {}),
            correlation_id=correlation_id or self.config.id_generator(),
            options=options,
            _publish_type=PublishType.PUBLISH,
        )


def _client_options(
    name_servers: str | Sequence[str] | None,
    options: ClientOptions,
    security: BaseSecurity | None,
    graceful_timeout: float | None,
) -> dict[str, Any]:
    """The options of all clients of a broker. A stop waits for running handlers."""
    drain_ms = 2**31 - 1 if graceful_timeout is None else max(1, round(graceful_timeout * 1000))
    return {"name_servers": name_servers, "stop_timeout_ms": drain_ms, **options, **_secured(security)}


def _urls(name_servers: str | Sequence[str] | None) -> list[str]:
    """The name servers in the AsyncAPI document."""
    addresses = name_servers.split(";") if isinstance(name_servers, str) else name_servers or ("",)
    return [f"rocketmq://{address}" for address in addresses]


def _secured(security: BaseSecurity | None) -> dict[str, Any]:
    """The options of clients that FastStream's security object stands for."""
    if security is None:
        return {}
    found: dict[str, Any] = {"tls": security.ssl_context or security.use_ssl}
    if isinstance(security, SASLPlaintext):
        found["credentials"] = Credentials(security.username, security.password)
    elif type(security) is not BaseSecurity:
        raise InvalidSetting(
            f"security={type(security).__name__} is not possible with RocketMQ; use BaseSecurity for TLS, SASLPlaintext for an "
            "access key and its secret, or the options credentials and tls"
        )
    return found


class RocketLoggers(DefaultLoggerStorage):
    """FastStream's logger with columns for group and topic."""

    def __init__(self) -> None:
        super().__init__()
        self.logger_log_level = logging.INFO
        self._widths = {"group": 0, "topic": 5}

    def set_level(self, level: int) -> None:
        self.logger_log_level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name) or ""))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        logger = self._get_logger_ref()
        if logger is None:
            columns = "".join(f"%({name})-{width}s | " for name, width in self._widths.items())
            logger = get_broker_logger(
                name="rocketmq",
                default_context={"topic": "", "group": ""},
                message_id_ln=10,
                fmt=f"%(asctime)s %(levelname)-8s - {columns}%(message_id)-10s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger
