"""A running producer: a member of its producer group, with its requests and replies, and its calls of `send_many`.

    send, submit ──────────────────┐
    bulk, requests, transactions ──┴──► outbox ──► brokers

It belongs to the event loop on which it is created. Requests of brokers to its group arrive here, see `heartbeats.ProducerMember`.

Requests and replies over topics:

    request(message) ──► topic ──► a consumer ── reply(message, body) ──► <cluster>_REPLY_TOPIC
          ▲                                                                        │
          └──────── the broker pushes the reply over the client's connection ◄─────┘

A broker pushes a reply only to a client that has sent it a heartbeat, and the reply may be on any broker of the cluster. So
before the first request, the client connects to every broker with a reply topic.

`send_many` packs many messages of one call into large batches, which are sent one after the other:

    messages ── all packed first ──► groups by topic, queue and kind ──► batches ≤ 1 MiB ──► sent in order ──► a result for each

Messages to the same chosen queue, by name or by sharding key, are stored in their order: a message that cannot share the batch of the
messages before it ends that batch. Messages without a chosen queue do not wait for one another.
"""

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from pocketmq.client.cluster.heartbeats import ProducerMember
from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.client.hooks import HookList
from pocketmq.client.producer.batches import batch_length
from pocketmq.client.producer.fault_strategy import PROBE_SECONDS
from pocketmq.client.producer.outbox import Outbox
from pocketmq.client.producer.outgoing import BatchKind, Outgoing, replaced
from pocketmq.client.producer.pending import InFlightLimit
from pocketmq.client.producer.queue_choice import ANY_QUEUE, Destination, destination_of
from pocketmq.client.producer.results import SendResult, split_result
from pocketmq.client.producer.transactions import Check, Transactions
from pocketmq.client.received import readable
from pocketmq.client.settings import MIB, ProducerSettings
from pocketmq.client.telemetry.tracing import Tracer
from pocketmq.errors import CallTimedOut, NetworkError, PartlySent, PocketMQError, TopicNotFound, UsageError
from pocketmq.model import Message, MessageQueue, StoredMessage
from pocketmq.model import properties as names
from pocketmq.model.names import HALF_TOPIC, reply_topic, unwrap, wrap
from pocketmq.net import Peer, Repeating
from pocketmq.protocol.api.messages import CheckTransactionState

MAX_BATCH_BYTES: Final = MIB
"""The largest batch that RocketMQ recommends."""

_Group = tuple[str, BatchKind, MessageQueue | None]
_Numbered = tuple[int, Outgoing]
"""A message and its index in the call."""
_Request = tuple[Sequence[int], Outgoing, Destination]
"""The indexes of its messages in the call, the request, and its destination."""


class Bulk:
    """Sends many messages for one producer."""

    def __init__(self, settings: ProducerSettings, outbox: Outbox) -> None:
        self._outbox = outbox
        self._batch_bytes = min(MAX_BATCH_BYTES, settings.max_message_bytes)

    async def send(
        self, messages: Sequence[Message], queue: MessageQueue | None, timeout_s: float | None
    ) -> list[SendResult]:
        """The results in the order of the messages; PartlySent when only some were stored."""
        seconds = self._outbox.timeout_s if timeout_s is None else timeout_s
        queues = await self._queues(messages, queue, asyncio.get_running_loop().time() + seconds)
        results: list[SendResult | None] = [None] * len(messages)
        for indexes, out, destination in self._requests(messages, queues):
            try:
                result = await self._outbox.deliver(out, destination, timeout_s)
            except PocketMQError as error:
                if not any(results):
                    raise
                raise PartlySent(tuple(results)) from error
            stored = [result] if out.members is None else split_result(result, out.message_ids)
            for index, own in zip(indexes, stored, strict=True):
                results[index] = own
        return [result for result in results if result is not None]

    async def _queues(
        self, messages: Sequence[Message], queue: MessageQueue | None, deadline: float
    ) -> list[MessageQueue | None]:
        """The chosen queue of each message, by name or by sharding key; None for any queue."""
        queues = [queue] * len(messages)
        if queue is None:
            for index, message in enumerate(messages):
                if names.SHARDING_KEY in message.properties:
                    destination = destination_of(message, None, None, None)
                    queues[index] = (await self._outbox.choice.pinned(message, destination, deadline)).queue
        return queues

    def _requests(self, messages: Sequence[Message], queues: Sequence[MessageQueue | None]) -> list[_Request]:
        """The requests, in the order of their first messages."""
        groups: dict[_Group, list[_Numbered]] = {}
        last_of_queue: dict[MessageQueue, _Group] = {}
        requests: list[_Request] = []
        pack, last = self._outbox.packer.pack, None
        for index, (message, queue) in enumerate(zip(messages, queues, strict=True)):
            out = pack(message)
            group = message.topic, out.batch_kind, queue
            if group != last:  # most messages belong to the group of the one before
                if queue is not None:
                    before = last_of_queue.get(queue, group)
                    if before != group:  # it must not overtake the earlier group of its queue
                        requests += self._batches(groups.pop(before), queue)
                    last_of_queue[queue] = group
                last, numbered = group, groups.setdefault(group, [])
            numbered.append((index, out))
        for (_, _, queue), numbered in groups.items():
            requests += self._batches(numbered, queue)
        return sorted(requests, key=lambda request: request[0][0])

    def _batches(self, numbered: Sequence[_Numbered], queue: MessageQueue | None) -> list[_Request]:
        """The messages of one group in as few requests as possible."""
        if numbered[0][1].batch_kind is BatchKind.ALONE:
            return [([index], out, Destination(queue)) for index, out in numbered]
        requests: list[_Request] = []
        indexes, outs = zip(*numbered, strict=True)
        sizes = [out.batch_bytes for out in outs]
        while outs:
            count = batch_length(sizes, self._batch_bytes)
            requests.append((indexes[:count], self._outbox.packer.pack_batch(outs[:count]), Destination(queue)))
            indexes, outs, sizes = indexes[count:], outs[count:], sizes[count:]
        return requests


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

    async def reply(
        self, request: StoredMessage, body: object, more: Mapping[str, str] | None, timeout_s: float | None
    ) -> SendResult:
        """Send the reply to a received request; UsageError when the message is not a request."""
        properties = request.properties
        cluster = properties.get(names.CLUSTER)
        missing = [name for name in (names.CLUSTER, *_REPLY_PROPERTIES) if name not in properties]
        if cluster is None or missing:
            raise UsageError(f"message {request.message_id} is not a request: it has no {', '.join(missing)}")
        answer = Message(reply_topic(cluster), body, properties=more)
        answer.properties[names.MESSAGE_TYPE] = REPLY_TYPE
        answer.properties.update((name, properties[name]) for name in _REPLY_PROPERTIES)
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


class SendMember(ProducerMember):
    """A running producer. Creating it does not wait for servers."""

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
        self.decides_transactions = check is not None
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
        if self.decides_transactions:
            instance.start(self._meet_brokers())

    async def _meet_brokers(self) -> None:
        """Connect to brokers that may check a transaction of an earlier process, also if this one sends nothing. If this fails, the
        next poll of routes does it.
        """
        for topic in self.topics():
            with suppress(PocketMQError):
                await self.instance.routes.find(topic)
        self.instance.heartbeat_soon()

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

    def topics(self) -> tuple[str, ...]:
        return (HALF_TOPIC, self._settings.template_topic) if self.decides_transactions else ()

    def topic_forgotten(self, topic: str) -> None:
        self.outbox.forget(unwrap(self._settings.namespace, topic), topic)

    def check_transaction(
        self, peer: Peer, header: CheckTransactionState, message: StoredMessage, broker_name: str | None
    ) -> None:
        self.transactions.handle_check(peer, header, message, broker_name)
