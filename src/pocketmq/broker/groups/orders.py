"""Orderly pops: the last batch of each queue of a group, and whether it blocks the queue.

    pop ──► batch ── until each message is acknowledged, or its time is over ──► blocked for other members
                                                                       └──► read again, with a larger count

The committed offset stays at the first message of the batch that is not acknowledged. A client that asks again with the
same attempt id gets the same messages: it may have lost the answer. The table is RocketMQ's consumerOrderInfo.json.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from pocketmq.broker.groups.leases import QueueOfGroup
from pocketmq.protocol.fields import Int32, Int64
from pocketmq.protocol.java_json import EMPTY_MAP, Body, write_pretty_json

IDLE_MS: Final = 24 * 3600 * 1000
"""A batch is forgotten after so long without a pop or ack."""


class OrderInfo(Body, frozen=True):
    """The last batch of a queue. The first offset is absolute, the others are distances from it. Bit i of `acked` is the
    i-th offset.
    """

    pop_ms: Int64 = msgspec.field(name="popTime")
    invisible_ms: Int64 | None = msgspec.field(default=None, name="i")
    offset_list: tuple[Int64, ...] = msgspec.field(default=(), name="o")
    visible_ms: dict[Int64, Int64] | None = msgspec.field(default=None, name="ot")
    counts: dict[Int64, Int32] | None = msgspec.field(default=None, name="oc")
    used_ms: Int64 = msgspec.field(default=0, name="l")
    acked: Int64 = msgspec.field(default=0, name="cm")
    attempt_id: str | None = msgspec.field(default=None, name="a")

    def offsets(self) -> list[int]:
        if not self.offset_list:
            return []
        first, *distances = self.offset_list
        return [first, *(first + distance for distance in distances)]

    def is_acked(self, index: int) -> bool:
        return bool(self.acked >> index & 1)

    def ends_ms(self) -> int | None:
        """When the last message of the batch that is not acknowledged is visible again; None if all are acknowledged."""
        changed = self.visible_ms or {}
        waiting = [
            changed.get(offset, self.pop_ms + (self.invisible_ms or 0))
            for index, offset in enumerate(self.offsets())
            if not self.is_acked(index)
        ]
        return max(waiting, default=None)

    def next_offset(self) -> int:
        """The first offset that is not acknowledged, or the one after the batch."""
        offsets = self.offsets()
        for index, offset in enumerate(offsets):
            if not self.is_acked(index):
                return offset
        return offsets[-1] + 1 if offsets else 0


class OrderTable(Body, frozen=True):
    """The file consumerOrderInfo.json: `topic@group` → queue id → last batch."""

    table: dict[str, dict[Int32, OrderInfo]] = EMPTY_MAP


class Orders:
    """The last batches. Callers pass the wall time, without steps."""

    def __init__(self) -> None:
        self._batches: dict[QueueOfGroup, OrderInfo] = {}
        self.is_changed = False

    def __len__(self) -> int:
        return len(self._batches)

    def find(self, queue: QueueOfGroup) -> OrderInfo | None:
        return self._batches.get(queue)

    def is_blocked(self, queue: QueueOfGroup, attempt_id: str | None, now_ms: int) -> bool:
        batch = self._batches.get(queue)
        if batch is None or (attempt_id and batch.attempt_id == attempt_id):
            return False
        ends_ms = batch.ends_ms()
        return ends_ms is not None and now_ms < ends_ms

    def free_ms(self, queue: QueueOfGroup) -> int | None:
        """When the queue is no longer blocked; None if it is not."""
        batch = self._batches.get(queue)
        return None if batch is None else batch.ends_ms()

    def begin(
        self, queue: QueueOfGroup, offsets: Sequence[int], pop_ms: int, invisible_ms: int, attempt_id: str | None
    ) -> Mapping[int, int]:
        """A batch was popped. Return how often each of its messages was popped before; 0 is left out."""
        before, counts = self._batches.get(queue), dict[int, int]()
        if before is not None:
            counts = dict(before.counts or {})
            if not attempt_id or before.attempt_id != attempt_id:
                for offset in before.offsets():
                    counts[offset] = counts.get(offset, 0) + 1
            counts = {offset: count for offset in offsets if (count := counts.get(offset, 0))}
        first = offsets[0]
        relative = (first, *(offset - first for offset in offsets[1:]))
        info = OrderInfo(pop_ms, invisible_ms, relative, None, counts or None, pop_ms, 0, attempt_id)
        self._batches[queue] = info
        self.is_changed = True
        return counts

    def acknowledge(self, queue: QueueOfGroup, offset: int, pop_ms: int, now_ms: int) -> int:
        """The offset to commit; -1 for an offset that is not in the batch, -2 for another batch."""
        batch = self._batches.get(queue)
        if batch is None or batch.pop_ms != pop_ms:
            return -2
        offsets = batch.offsets()
        if offset not in offsets:
            return -1
        acked = batch.acked | 1 << offsets.index(offset)
        batch = self._batches[queue] = msgspec.structs.replace(batch, acked=acked, used_ms=now_ms)
        self.is_changed = True
        return batch.next_offset()

    def change(self, queue: QueueOfGroup, offset: int, pop_ms: int, visible_ms: int) -> bool:
        """One message is visible at another time. False if it is not in the batch of that time."""
        batch = self._batches.get(queue)
        if batch is None or batch.pop_ms != pop_ms or offset not in batch.offsets():
            return False
        changed = {**(batch.visible_ms or {}), offset: visible_ms}
        self._batches[queue] = msgspec.structs.replace(batch, visible_ms=changed)
        self.is_changed = True
        return True

    def put_back(self, queue: QueueOfGroup, batch: OrderInfo | None) -> None:
        """The batch is what it was before."""
        if batch is None:
            self.forget_queue(queue)
        else:
            self._batches[queue] = batch
            self.is_changed = True

    def forget_queue(self, queue: QueueOfGroup) -> None:
        if self._batches.pop(queue, None) is not None:
            self.is_changed = True

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or a group was deleted."""
        for queue in [queue for queue in self._batches if queue[1] == topic or queue[0] == group]:
            self.forget_queue(queue)

    def expire(self, now_ms: int) -> None:
        """Forget unused batches."""
        for queue, batch in list(self._batches.items()):
            if now_ms - max(batch.used_ms, batch.ends_ms() or 0) > IDLE_MS:
                self.forget_queue(queue)

    # saving

    def snapshot_json(self, now_ms: int) -> bytes:
        """The bytes of consumerOrderInfo.json."""
        self.is_changed = False
        self.expire(now_ms)
        self.is_changed = False
        table: dict[str, dict[int, OrderInfo]] = {}
        for (group, topic, queue_id), batch in self._batches.items():
            table.setdefault(f"{topic}@{group}", {})[queue_id] = batch
        return write_pretty_json(OrderTable(table))

    decode = OrderTable.decode

    def load(self, saved: OrderTable | None) -> None:
        for key, batches in (saved.table if saved else {}).items():
            topic, _, group = key.partition("@")
            for queue_id, batch in batches.items():
                if topic and group and batch.offset_list:
                    self._batches[group, topic, queue_id] = batch
