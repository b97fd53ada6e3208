"""`TestRocketBroker`: runs the handlers of a broker in a test, without a server or with one.

    TestRocketBroker(broker)                    in memory: `publish` calls the handlers, one after the other
    TestRocketBroker(broker, with_server=True)  a server inside the test, on a free port
    TestRocketBroker(broker, with_real=True)    the servers that the broker is configured for

In memory, each group of a topic gets a message once; tags select messages, SQL92 filters do not, and nothing is retried.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, cast

import anyio
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound
from faststream.response.response import Response

from pocketmq import Server
from pocketmq.client import SendResult, SendStatus
from pocketmq.integrations.faststream.broker import RocketBroker
from pocketmq.integrations.faststream.endpoints import RocketPublisher, RocketSubscriber
from pocketmq.integrations.faststream.messages import RocketProducer, RocketPublishCommand
from pocketmq.model import Message, MessageQueue, StoredMessage
from pocketmq.model.properties import format_properties

QUEUE = "memory"
"""The broker name of messages in memory."""


class TestRocketBroker(TestBroker[RocketBroker, EnterType], broker=RocketBroker):
    """`async with TestRocketBroker(broker) as test:` patches the broker for the block. Handlers have a `mock`."""

    __test__ = False

    def __init__(
        self,
        *brokers: RocketBroker,
        with_real: bool = False,
        with_server: bool = False,
        connect_only: bool | None = None,
    ) -> None:
        super().__init__(*brokers, with_real=with_real or with_server, connect_only=connect_only)
        self._server = Server() if with_server else None
        self._own_servers: list[Any] = []

    async def __aenter__(self) -> EnterType:
        if self._server is not None:
            await self._server.__aenter__()
            self._own_servers = [self._point(broker, self._server.name_server) for broker in self.brokers]
        try:
            return await super().__aenter__()
        except BaseException:
            await self._end_server()
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        try:
            await super().__aexit__(exc_type, exc_val, exc_tb)
        finally:
            await self._end_server()

    async def _end_server(self) -> None:
        if self._server is not None:
            for broker, name_servers in zip(self.brokers, self._own_servers, strict=True):
                self._point(broker, name_servers)
            await self._server.__aexit__()

    @staticmethod
    def _point(broker: RocketBroker, name_servers: Any) -> Any:
        """Set the name servers of a broker; returns the former ones."""
        options = broker.config.broker_config.client_options
        former, options["name_servers"] = options["name_servers"], name_servers
        return former

    @contextmanager
    def _patch_producer(self, broker: RocketBroker) -> Generator[None, None, None]:
        with change_producer(broker.config.broker_config, ProducerInMemory(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: RocketBroker, *args: Any, **kwargs: Any) -> None:
        """There is nothing to connect to."""

    def create_publisher_fake_subscriber(
        self, broker: RocketBroker, publisher: RocketPublisher
    ) -> tuple[RocketSubscriber, bool]:
        for subscriber in _subscribers(self.brokers):
            if subscriber.topic == publisher.topic:
                return subscriber, True
        prefix = broker.config.prefix
        topic = publisher.topic.removeprefix(prefix)
        batch_size = 1024 if publisher.is_batch else None
        made = broker.subscriber(
            topic, group=f"test-{topic}", start_at="first", batch_size=batch_size, persistent=False
        )
        return made, False


class ProducerInMemory(RocketProducer):
    """Passes messages to the subscribers of brokers."""

    def __init__(self, broker: RocketBroker, brokers: Sequence[RocketBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        config = broker.config
        self.codec = config.broker_codec or self.codec
        self._serializer = config.fd_config._serializer
        self._brokers = brokers
        self._sent = 0

    async def publish(self, cmd: RocketPublishCommand) -> SendResult:
        message = (await self._messages(cmd))[0] if cmd.request is None else None
        if message is None:
            raise AssertionError("a reply in memory is the result of request()")
        return (await self._consume([message]))[0]

    async def publish_batch(self, cmd: RocketPublishCommand) -> list[SendResult]:
        return await self._consume(await self._messages(cmd))

    async def request(self, cmd: RocketPublishCommand) -> StoredMessage:
        message = (await self._messages(cmd))[0]
        stored = self._stored(message)
        for subscriber in self._interested(message):
            with anyio.fail_after(cmd.timeout_s):
                response = await subscriber.process_message([stored] if subscriber.batch_size else stored)
            return self._stored(await self._reply(message, response))
        raise SubscriberNotFound(f"no subscriber of topic {message.topic!r}")

    async def _consume(self, messages: list[Message]) -> list[SendResult]:
        stored = [self._stored(message) for message in messages]
        for subscriber in self._interested(messages[0]):
            if subscriber.batch_size:
                await subscriber.process_message(stored)
                continue
            for each in stored:
                await subscriber.process_message(each)
        return [_result(each) for each in stored]

    def _interested(self, message: Message) -> Iterator[RocketSubscriber]:
        """One subscriber of each group whose tags match."""
        groups = set()
        for subscriber in _subscribers(self._brokers):
            wanted = [tag.strip() for tag in (subscriber.tags or "*").split("||")]
            if subscriber.topic == message.topic and ("*" in wanted or message.tags in wanted):
                group = subscriber._group
                if group is None or group not in groups:
                    groups.add(group)
                    yield subscriber

    async def _reply(self, request: Message, response: Response) -> Message:
        cmd = RocketPublishCommand.from_cmd(response.as_publish_command())
        body, properties = await self._encoded(cmd, cmd.body)
        return Message(request.topic, body, properties=properties)

    def _stored(self, message: Message) -> StoredMessage:
        self._sent += 1
        properties = {**message.properties, "UNIQ_KEY": f"{self._sent:032X}"}
        return StoredMessage(
            topic=message.topic,
            queue_id=0,
            queue_offset=self._sent,
            sys_flag=0,
            body=message.body,
            raw_properties=format_properties(properties).encode(),
            head=bytes(88),
            size=88 + len(message.body),
            _queue=MessageQueue(message.topic, QUEUE, 0),
        )


def _subscribers(brokers: Sequence[RocketBroker]) -> Iterator[RocketSubscriber]:
    return (cast("RocketSubscriber", each) for broker in brokers for each in broker.subscribers)


def _result(message: StoredMessage) -> SendResult:
    return SendResult(
        status=SendStatus.SEND_OK,
        message_id=message.message_id,
        offset_id="",
        queue=message.queue,
        queue_offset=message.queue_offset,
    )
