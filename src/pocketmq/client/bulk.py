"""Many messages in one call: packed into batches as large as they may be, and sent one after the other.

messages ── all checked first ──► lanes: one topic, queue, wish to wait ──► batches ≤ 1 MiB ──► one by one ──► a result for each
                             └──► alone: delayed, compressed

Messages to a queue that was chosen, by name or by a sharding key, lie there in their order: whatever cannot share the batch of those
before it ends that batch. All others go to any queue, so they need not wait for one another.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from pocketmq.client.batching import chunks
from pocketmq.client.outgoing import BatchMember, Outgoing, Packer, can_share_a_batch
from pocketmq.client.queue_choice import Wish, wish_for
from pocketmq.client.results import SendResult, split_result
from pocketmq.client.sending import Sender
from pocketmq.client.settings import MIB, ProducerSettings
from pocketmq.errors import PartlySent, PocketMQError
from pocketmq.model import properties as names
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue

MAX_BATCH_BYTES: Final = MIB
"""RocketMQ advises not to make batches larger."""

_Lane = tuple[str, str | None, MessageQueue | None]
_Parcel = tuple[list[int], Outgoing, Wish]
"""What is sent at once, the places of its messages in the call, and where it goes."""


class Bulk:
    """Sends many messages for one producer."""

    def __init__(self, settings: ProducerSettings, packer: Packer, sender: Sender) -> None:
        self._packer = packer
        self._sender = sender
        self._timeout_s = settings.send_timeout_ms / 1000
        self._compress_over = settings.compress_over_bytes
        self._batch_bytes = min(MAX_BATCH_BYTES, settings.max_message_bytes)

    async def send(
        self, messages: Sequence[Message], queue: MessageQueue | None, timeout_s: float | None
    ) -> list[SendResult]:
        """The results in the order of the messages; PartlySent when some were stored and the rest was not."""
        seconds = self._timeout_s if timeout_s is None else timeout_s
        queues = await self._queues(messages, queue, asyncio.get_running_loop().time() + seconds)
        results: list[SendResult | None] = [None] * len(messages)
        for places, out, wish in self._parcels(messages, queues):
            try:
                result = await self._sender.deliver_in_room(out, wish, timeout_s)
            except PocketMQError as error:
                if not any(results):
                    raise
                raise PartlySent(tuple(results)) from error
            stored = [result] if out.members is None else split_result(result, out.message_ids)
            for place, own in zip(places, stored, strict=True):
                results[place] = own
        return [result for result in results if result is not None]

    async def _queues(
        self, messages: Sequence[Message], queue: MessageQueue | None, deadline: float
    ) -> list[MessageQueue | None]:
        """The one that was chosen for each, by name or by its sharding key; None for any."""
        queues = [queue] * len(messages)
        if queue is None:
            for place, message in enumerate(messages):
                if names.SHARDING_KEY in message.properties:
                    wish = wish_for(message, None, None, None)
                    queues[place] = (await self._sender.choice.pinned(message, wish, deadline)).queue
        return queues

    def _parcels(self, messages: Sequence[Message], queues: Sequence[MessageQueue | None]) -> list[_Parcel]:
        """In the order of their first messages."""
        lanes: dict[_Lane, list[tuple[int, BatchMember]]] = {}
        open_lanes: dict[MessageQueue, _Lane | None] = {}
        parcels: list[_Parcel] = []
        last: _Lane | None = None
        for place, message in enumerate(messages):
            lane, queue = None, queues[place]
            if len(message.body) < self._compress_over and can_share_a_batch(message):
                lane = message.topic, message.properties.get(names.WAIT), queue
            if lane is None or lane != last:  # mostly it is that of the message before
                last = lane
                if queue is not None:
                    before = open_lanes.get(queue)
                    if before is not None and before != lane:
                        parcels += self._close(queue, lanes.pop(before))
                    open_lanes[queue] = lane
                if lane is None:
                    parcels.append(([place], self._packer.pack(message), Wish(queue)))
                    continue
                waiting = lanes.setdefault(lane, [])
            waiting.append((place, self._packer.pack_member(message)))
        for (_, _, queue), waiting in lanes.items():
            parcels += self._close(queue, waiting)
        return sorted(parcels, key=lambda parcel: parcel[0][0])

    def _close(self, queue: MessageQueue | None, waiting: list[tuple[int, BatchMember]]) -> list[_Parcel]:
        """What waits in a lane, as batches."""
        parcels: list[_Parcel] = []
        rest = [place for place, _ in waiting]
        for members in chunks([member for _, member in waiting], self._batch_bytes):
            places, rest = rest[: len(members)], rest[len(members) :]
            alone = len(members) == 1
            out = self._packer.pack_alone(members[0]) if alone else self._packer.pack_batch(members)
            parcels.append((places, out, Wish(queue)))
        return parcels
