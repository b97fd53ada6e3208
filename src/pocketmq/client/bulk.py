"""Many messages in one call: packed into batches as large as they may be, and sent one after the other.

messages ── all checked first ──► lanes: one topic, one wish to wait ──► batches ≤ 1 MiB ──► one by one ──► a result for each
                             └──► alone: delayed, compressed
"""

from collections.abc import Iterable
from typing import Final

from pocketmq.client.batching import chunks
from pocketmq.client.outgoing import BatchMember, Outgoing, Packer, can_share_a_batch
from pocketmq.client.queue_choice import Wish
from pocketmq.client.results import SendResult, split_result
from pocketmq.client.sending import Sender
from pocketmq.client.settings import MIB, ProducerSettings
from pocketmq.errors import PartlySent, PocketMQError
from pocketmq.model import properties as names
from pocketmq.model.message import Message

MAX_BATCH_BYTES: Final = MIB
"""RocketMQ advises not to make batches larger."""

_Lane = tuple[str, str | None]


class Bulk:
    """Sends many messages for one producer."""

    def __init__(self, settings: ProducerSettings, packer: Packer, sender: Sender) -> None:
        self._packer = packer
        self._sender = sender
        self._compress_over = settings.compress_over_bytes
        self._batch_bytes = min(MAX_BATCH_BYTES, settings.max_message_bytes)

    async def send(self, messages: Iterable[Message], wish: Wish, timeout_s: float | None) -> list[SendResult]:
        """The results in the order of the messages; PartlySent when some were stored and the rest was not."""
        messages = list(messages)
        results: list[SendResult | None] = [None] * len(messages)
        for places, out in self._parcels(messages):
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

    def _parcels(self, messages: list[Message]) -> list[tuple[list[int], Outgoing]]:
        """What to send, and the places of its messages in the call; in the order of their first ones."""
        lanes: dict[_Lane, list[tuple[int, BatchMember]]] = {}
        parcels: list[tuple[list[int], Outgoing]] = []
        for place, message in enumerate(messages):
            if len(message.body) < self._compress_over and can_share_a_batch(message):
                lane = message.topic, message.properties.get(names.WAIT)
                lanes.setdefault(lane, []).append((place, self._packer.pack_member(message)))
            else:
                parcels.append(([place], self._packer.pack(message)))
        for waiting in lanes.values():
            rest = [place for place, _ in waiting]
            for members in chunks([member for _, member in waiting], self._batch_bytes):
                places, rest = rest[: len(members)], rest[len(members) :]
                alone = len(members) == 1
                out = self._packer.pack_alone(members[0]) if alone else self._packer.pack_batch(members)
                parcels.append((places, out))
        return sorted(parcels, key=lambda parcel: parcel[0][0])
