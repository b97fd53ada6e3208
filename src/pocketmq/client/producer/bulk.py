"""`send_many`: many messages in one call, packed into large batches that are sent one after the other.

messages ── all packed first ──► groups by topic, queue and kind ──► batches ≤ 1 MiB ──► sent in order ──► a result for each

Messages to the same chosen queue, by name or by sharding key, are stored in their order: a message that cannot share the batch of the
messages before it ends that batch. Messages without a chosen queue do not wait for one another.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from pocketmq.client.producer.batches import batch_length
from pocketmq.client.producer.outbox import Outbox
from pocketmq.client.producer.outgoing import BatchKind, Outgoing
from pocketmq.client.producer.queue_choice import Destination, destination_of
from pocketmq.client.producer.results import SendResult, split_result
from pocketmq.client.settings import MIB, ProducerSettings
from pocketmq.errors import PartlySent, PocketMQError
from pocketmq.model import Message, MessageQueue
from pocketmq.model import properties as names

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
