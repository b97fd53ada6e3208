"""A running producer: a member of its producer group, with its requests and replies.

    send, submit ──────────────────┐
    bulk, requests, transactions ──┴──► outbox ──► brokers

It belongs to the event loop on which it is created. Requests of brokers to its group arrive here, see `heartbeats.ProducerMember`.

Requests and replies over topics:

    request(message) ──► topic ──► a consumer ── reply(message, body) ──► <cluster>_REPLY_TOPIC
          ▲                                                                        │
          └──────── the broker pushes the reply over the client's connection ◄─────┘

A broker pushes a reply only to a client that has sent it a heartbeat, and the reply may be on any broker of the cluster. So
before the first request, the client connects to every broker with a reply topic.
"""

import asyncio
import logging
import uuid

from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.client.hooks import HookList
from pocketmq.client.producer.bulk import Bulk
from pocketmq.client.producer.fault_strategy import PROBE_SECONDS
from pocketmq.client.producer.in_flight import InFlightLimit
from pocketmq.client.producer.outbox import Outbox
from pocketmq.client.producer.outgoing import replaced
from pocketmq.client.producer.queue_choice import ANY_QUEUE, Destination
from pocketmq.client.producer.results import SendResult
from pocketmq.client.producer.transactions import Check, Transactions
from pocketmq.client.received import readable
from pocketmq.client.settings import ProducerSettings
from pocketmq.client.telemetry.tracing import Tracer
from pocketmq.errors import CallTimedOut, NetworkError, TopicNotFound, UsageError
from pocketmq.model import Message, StoredMessage
from pocketmq.model import properties as names
from pocketmq.model.names import reply_topic, unwrap, wrap
from pocketmq.net.loops import Repeating
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.messages import CheckTransactionState

REPLY_TYPE = "reply"
_REPLY_PROPERTIES = (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL)


class Requests:
    """The requests and replies of one producer."""

    def __init__(self, instance: Instance, outbox: Outbox, settings: ProducerSettings) -> None:
        self._instance = instance
        self._outbox = outbox
        self._settings = settings

    async def request(self, message: Message, destination: Destination, timeout_s: float) -> StoredMessage:
        """The reply; CallTimedOut when no reply arrives in time. A consumer may have processed the request."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._connect_all(wrap(self._settings.namespace, message.topic), deadline)
        except TimeoutError:
            raise CallTimedOut(
                f"{message.topic}: no connection to its brokers within {timeout_s} s; nothing was sent"
            ) from None
        sent = self._request_of(message, timeout_s)
        correlation_id = sent.properties[names.CORRELATION_ID]
        reply = self._instance.replies.expect(correlation_id, self._settings.max_waiting_requests)
        try:
            await self._outbox.deliver_by(deadline, self._outbox.packer.pack(sent), destination)
            async with asyncio.timeout_at(deadline):
                return readable(await reply, self._settings.namespace)
        except TimeoutError as error:
            if isinstance(error, CallTimedOut):
                raise
            raise CallTimedOut(
                f"{message.topic}: the request was sent, but no reply arrived within {timeout_s} s"
            ) from None
        finally:
            reply.cancel()

    async def reply(self, request: StoredMessage, body: object, timeout_s: float | None) -> SendResult:
        """Send the reply to a received request; UsageError when the message is not a request."""
        properties = request.properties
        cluster = properties.get(names.CLUSTER)
        missing = [name for name in (names.CLUSTER, *_REPLY_PROPERTIES) if name not in properties]
        if cluster is None or missing:
            raise UsageError(f"message {request.message_id} is not a request: it has no {', '.join(missing)}")
        answer = Message(reply_topic(cluster), body)
        answer.properties = {names.MESSAGE_TYPE: REPLY_TYPE, **{name: properties[name] for name in _REPLY_PROPERTIES}}
        return await self._outbox.deliver(self._outbox.packer.pack_reply(answer), ANY_QUEUE, timeout_s)

    def _request_of(self, message: Message, timeout_s: float) -> Message:
        return replaced(
            message,
            message.body,
            {
                **message.properties,
                names.CORRELATION_ID: str(uuid.UUID(int=self._instance.dice.getrandbits(128), version=4)),
                names.REPLY_TO_CLIENT: self._instance.client_id,
                names.TTL: str(round(timeout_s * 1000)),
            },
        )

    async def _connect_all(self, topic: str, deadline: float) -> None:
        """Connect to the brokers of the topic, and to all brokers that may push the reply."""
        routes = self._instance.routes
        route = await self._outbox.choice.route(topic, deadline)
        brokers = {broker.broker_name for broker in route.data.broker_datas}
        for cluster in {broker.cluster for broker in route.data.broker_datas if broker.cluster}:
            try:
                replies = await routes.find(reply_topic(cluster))
            except TopicNotFound:
                continue  # a cluster without reply topics: the broker will refuse the request
            brokers |= {broker.broker_name for broker in replies.data.broker_datas}
        await asyncio.gather(*(self._on_connected(name) for name in brokers if name))

    async def _on_connected(self, broker_name: str) -> None:
        brokers = self._instance.brokers
        try:
            address = brokers.master(broker_name)
            await brokers.peer(address)
        except NetworkError:
            return  # a reply over this broker would be lost, but others may work
        await self._instance.heartbeats.wait_answered(address)


log = logging.getLogger("pocketmq.client")


class SendMember:
    """A running producer. Creating it does not connect to servers."""

    def __init__(
        self,
        settings: ProducerSettings,
        hooks: HookList,
        limit: InFlightLimit,
        tracer: Tracer | None,
        check: Check | None,
        dependencies: Dependencies,
    ) -> None:
        self._settings = settings
        self._tracer = tracer
        self._check = check
        self.instance = instance = Instance.join(settings, dependencies)
        self.outbox = Outbox(instance, settings, hooks, limit)
        self.bulk = Bulk(settings, self.outbox)
        self.requests = Requests(instance, self.outbox, settings)
        self.transactions = Transactions(instance, self.outbox, settings, hooks, check)
        self._probing = Repeating("probing of brokers", PROBE_SECONDS, self.outbox.attempts.probe, log)
        if settings.avoid_slow_brokers:
            self._probing.start()
        if tracer is not None:
            tracer.start()
        instance.add_producer(self)

    async def stop(self) -> None:
        """Wait for messages in flight, at most `stop_timeout_ms`, and leave the group."""
        outbox = self.outbox
        outbox.plain_buffers.clear()
        try:
            async with asyncio.timeout(self._settings.stop_timeout_ms / 1000):
                await outbox.flush()
                await outbox.limit.wait_empty()
        except TimeoutError:
            log.warning("producer stopped with %d messages in flight; unsent ones fail", outbox.limit.count)
        outbox.abandon()
        await self._probing.stop()
        await self.transactions.close()
        await self.instance.remove_producer(self)
        if self._tracer is not None:
            await self._tracer.stop()
        await self.instance.leave()

    # as `heartbeats.ProducerMember`

    @property
    def wire_group(self) -> str:
        return wrap(self._settings.namespace, self._settings.group)

    @property
    def decides_transactions(self) -> bool:
        return self._check is not None

    def topic_forgotten(self, topic: str) -> None:
        self.outbox.forget(unwrap(self._settings.namespace, topic), topic)

    def check_transaction(
        self, peer: Peer, header: CheckTransactionState, message: StoredMessage, broker_name: str | None
    ) -> None:
        self.transactions.handle_check(peer, header, message, broker_name)
