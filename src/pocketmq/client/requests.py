"""Request and reply over topics: a message that wants an answer, and the answer.

    asker ── request(message) ──► topic ──► a consumer ── reply(message, answer) ──► <cluster>_REPLY_TOPIC
      ▲                                                                                     │
      └────────────── the broker pushes it to the client that asked, on its line ◄──────────┘

A broker can only push to a client that it has heard a heartbeat of, and the reply may come over any broker of the cluster. So
before the first request every broker with a reply topic is greeted.
"""

import asyncio
import uuid

from pocketmq.client.instance import Instance
from pocketmq.client.outgoing import Packer, replaced
from pocketmq.client.queue_choice import ANY_QUEUE, Wish
from pocketmq.client.received import readable
from pocketmq.client.results import SendResult
from pocketmq.client.sending import Sender
from pocketmq.client.settings import ProducerSettings
from pocketmq.errors import CallTimedOut, NetworkError, TopicNotFound, UsageError
from pocketmq.model import properties as names
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.names import reply_topic, wrap

REPLY_TYPE = "reply"
_ASKED_WITH = (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL)


class Requests:
    """The requests and replies of one producer."""

    def __init__(self, instance: Instance, sender: Sender, packer: Packer, settings: ProducerSettings) -> None:
        self._instance = instance
        self._sender = sender
        self._packer = packer
        self._settings = settings

    async def request(self, message: Message, wish: Wish, timeout_s: float) -> StoredMessage:
        """The reply; CallTimedOut when none came in time, though the request may have been carried out."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._be_known(wrap(self._settings.namespace, message.topic), deadline)
        except TimeoutError:
            raise CallTimedOut(
                f"{message.topic}: no broker could be greeted within {timeout_s} s; nothing was sent"
            ) from None
        asked = self._asking(message, timeout_s)
        correlation_id = asked.properties[names.CORRELATION_ID]
        reply = self._instance.replies.expect(correlation_id, self._settings.max_waiting_requests)
        try:
            await self._sender.deliver_in_room(self._packer.pack(asked), wish, deadline - loop.time())
            async with asyncio.timeout_at(deadline):
                return readable(await reply, self._settings.namespace)
        except TimeoutError as error:
            if isinstance(error, CallTimedOut):
                raise
            raise CallTimedOut(
                f"{message.topic}: the request was sent, and no reply came within {timeout_s} s"
            ) from None
        finally:
            reply.cancel()

    async def reply(self, request: StoredMessage, body: object, timeout_s: float | None) -> SendResult:
        """Answer a request that a consumer got; UsageError when it is none."""
        asked = request.properties
        cluster = asked.get(names.CLUSTER)
        missing = [name for name in (names.CLUSTER, *_ASKED_WITH) if name not in asked]
        if cluster is None or missing:
            raise UsageError(f"message {request.message_id} wants no reply: it has no {', '.join(missing)}")
        answer = Message(reply_topic(cluster), body)
        answer.properties = {names.MESSAGE_TYPE: REPLY_TYPE, **{name: asked[name] for name in _ASKED_WITH}}
        return await self._sender.deliver_in_room(self._packer.pack_reply(answer), ANY_QUEUE, timeout_s)

    def _asking(self, message: Message, timeout_s: float) -> Message:
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

    async def _be_known(self, topic: str, deadline: float) -> None:
        """To the brokers of the topic, and to all that may bring the reply."""
        routes = self._instance.routes
        route = await self._sender.choice.route(topic, deadline)
        brokers = {broker.broker_name for broker in route.data.broker_datas}
        for cluster in {broker.cluster for broker in route.data.broker_datas if broker.cluster}:
            try:
                replies = await routes.find(reply_topic(cluster))
            except TopicNotFound:
                continue  # a cluster without request and reply: the broker will say so
            brokers |= {broker.broker_name for broker in replies.data.broker_datas}
        await asyncio.gather(*(self._greet(name) for name in brokers if name))

    async def _greet(self, broker_name: str) -> None:
        brokers = self._instance.brokers
        try:
            address = brokers.master(broker_name)
            await brokers.peer(address)
        except NetworkError:
            return  # a reply over this one would be lost; others may live
        await self._instance.heartbeats.wait_heard(address)
