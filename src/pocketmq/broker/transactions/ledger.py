"""The ledger: which half messages are open. One byte for each half message since the first open one.

    half topic   ── done ──┤ 1 1 0 1 1 1 0 0 ├── end         1 closed, 0 open; all after the last closed one are open
                         start                                start: everything before it is closed

A half message is closed when it is decided, copied to the end of the topic, or given up. Closed offsets are written to
the op topic, several in one op message. Copies are stored with the op message that closes the previous copy, in this
order and with one write: a crash in between leaves two open copies, never none.

`start`, and the first op message with an offset behind it, are the committed offsets of group CID_RMQ_SYS_TRANS. Both
are saved only when the log is synced that far: the offsets must not outlive the messages that they refer to.
"""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

from pocketmq.broker.messages import Draft, StoredPosition
from pocketmq.broker.state import BrokerState
from pocketmq.broker.transactions.half import message_at
from pocketmq.errors import StoreError
from pocketmq.model import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_GROUP
from pocketmq.model import properties as names
from pocketmq.model.transactions import OP_TAG, format_op, parse_op

log = logging.getLogger("pocketmq.broker")

_OPEN, _CLOSED = 0, 1


class Ledger:
    """Open and closed half messages. Call `load` first, and `advance` regularly, or memory grows."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._closed = bytearray()
        self._unwritten: list[int] = []
        self._unwritten_bytes = 0
        self._ops: deque[tuple[int, int]] = deque()  # an op message's own offset, and the largest that it closes
        self._unsynced = 0
        self._saved = 0, 0
        self.start = 0

    def load(self) -> None:
        """Begin at the committed offsets, and read the op messages since then."""
        # Save nothing before the first transaction: the group would be listed as a consumer of both topics.
        self._saved = self._stored(HALF_TOPIC), self._stored(OP_HALF_TOPIC)
        self.start = self._committed(HALF_TOPIC)
        for offset in range(self._committed(OP_HALF_TOPIC), self._state.store.max_offset(OP_HALF_TOPIC, 0)):
            op = message_at(self._state.store, OP_HALF_TOPIC, offset, waits=True)
            if op is not None and op.tags == OP_TAG:
                closed = [half_offset for half_offset in parse_op(op.body) if half_offset < self.end]
                self._mark(closed)
                self._ops.append((offset, max(closed, default=0)))

    def _committed(self, topic: str) -> int:
        """An offset may be missing, or beyond the end of a log that a crash made shorter."""
        low, high = self._state.store.min_offset(topic, 0), self._state.store.max_offset(topic, 0)
        return min(max(self._stored(topic), low), high)

    def _stored(self, topic: str) -> int:
        return self._state.offsets.stored(TRANSACTION_CHECK_GROUP, topic, 0) or 0

    # queries

    @property
    def end(self) -> int:
        return self._state.store.max_offset(HALF_TOPIC, 0)

    @property
    def open_count(self) -> int:
        known = min(len(self._closed), self.end - self.start)
        return self.end - self.start - known + self._closed.count(_OPEN, 0, known)

    def is_open(self, offset: int) -> bool:
        index = offset - self.start
        return index >= 0 and offset < self.end and (index >= len(self._closed) or self._closed[index] == _OPEN)

    def next_open(self, offset: int, end: int) -> int:
        """The first open one from `offset` on; `end` if there is none before it."""
        index = max(offset - self.start, 0)
        if index < len(self._closed):
            found = self._closed.find(_OPEN, index)
            index = found if found >= 0 else len(self._closed)
        return min(self.start + index, end)

    # closing

    def close(self, offsets: Iterable[int]) -> None:
        """Mark these as decided. The op message is written when enough offsets are collected, or by `write_ops`."""
        for offset in offsets:
            if self.is_open(offset):
                self._mark((offset,))
                self._unwritten.append(offset)
                self._unwritten_bytes += len(str(offset)) + 1
        if self._unwritten_bytes >= self._state.settings.now.transaction.op_batch_bytes:
            self.try_write_ops()

    def close_with(self, drafts: Sequence[Draft], offsets: Sequence[int]) -> list[StoredPosition]:
        """Store the drafts that replace these half messages, and the op message that closes them. Return the positions."""
        ops = self._op_messages([*self._unwritten, *offsets])
        positions = self._state.appender.append_all([*drafts, *(draft for draft, _ in ops)])
        self._unwritten.clear()
        self._unwritten_bytes = 0
        self._mark(offsets)
        for position, (_, largest) in zip(positions[len(drafts) :], ops, strict=True):
            self._ops.append((position.queue_offset, largest))
        return positions[: len(drafts)]

    def forget(self, offset: int) -> None:
        """Close a half message that is no longer in the log."""
        self._mark((offset,))

    def write_ops(self) -> None:
        """Write the offsets that were closed since the last time to the op topic."""
        if self._unwritten:
            self.close_with((), ())

    def try_write_ops(self) -> None:
        """Write op messages, and log a failure only: the decisions themselves are stored, and are found without them."""
        try:
            self.write_ops()
        except StoreError as error:
            log.warning(
                "Cannot write op messages of %d decided transactions yet: %s; retrying", len(self._unwritten), error
            )

    def _op_messages(self, offsets: list[int]) -> list[tuple[Draft, int]]:
        """Op messages that close these, each with the largest offset in it."""
        per_message = max(
            1, self._state.settings.now.transaction.op_batch_bytes // (len(str(max(offsets, default=0))) + 1)
        )
        parts = [offsets[at : at + per_message] for at in range(0, len(offsets), per_message)]
        return [(self._op_message(part), max(part)) for part in parts]

    def _op_message(self, offsets: list[int]) -> Draft:
        return Draft(
            topic=OP_HALF_TOPIC,
            queue_id=0,
            body=format_op(offsets),
            properties={names.TAGS: OP_TAG, names.WAIT: "true"},
            born_ms=self._state.clock.now_ms(),
            born_host=self._state.store.store_host,
        )

    def _mark(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            index = offset - self.start
            if index >= len(self._closed):
                self._closed.extend(bytes(index + 1 - len(self._closed)))
            if index >= 0:
                self._closed[index] = _CLOSED

    # progress

    def advance(self) -> None:
        """Move the start to the first open half message, and save the offsets when the log is synced."""
        first = max(self.start, self.next_open(self.start, self.end), self._state.store.min_offset(HALF_TOPIC, 0))
        del self._closed[: first - self.start]
        self.start = first
        while self._ops and self._ops[0][1] < first:
            self._ops.popleft()
        reached = first, self._ops[0][0] if self._ops else self._state.store.max_offset(OP_HALF_TOPIC, 0)
        if reached != self._saved:
            self._unsynced += 1
            self._state.store.when_synced(self._state.store.end, partial(self._synced, reached))

    @property
    def is_settled(self) -> bool:
        """Whether the saved offsets are current: none waits for a sync."""
        return not self._unsynced

    def _synced(self, reached: tuple[int, int], safe: bool) -> None:
        self._unsynced -= 1
        if safe:
            self._save(*reached)

    def _save(self, half_offset: int, op_offset: int) -> None:
        self._saved = half_offset, op_offset
        self._state.offsets.commit(TRANSACTION_CHECK_GROUP, HALF_TOPIC, 0, half_offset)
        self._state.offsets.commit(TRANSACTION_CHECK_GROUP, OP_HALF_TOPIC, 0, op_offset)
