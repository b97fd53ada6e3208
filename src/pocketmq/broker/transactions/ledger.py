"""The ledger: which half messages are open. One byte for each since the first that is.

    half topic   ── passed ──┤ 1 1 0 1 1 1 0 0 ├── end         1 closed, 0 open; behind the last closed one all are open
                           start                                start: below it, everything is closed

A half message is closed when it is decided, when it was copied to the end of the topic, and when it is given up. Closed
offsets are noted in the op topic, several at a time. Copies are stored with the note that closes the one before, in
this order and with one write: a crash in between leaves two that are open, never none.

`start`, and the first op message that speaks of something behind it, are what the group CID_RMQ_SYS_TRANS has committed. Both
are saved only when the log is synced as far as it was: the offsets must not outlive what they speak of.
"""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.messages.appending import Appender, Draft, StoredPosition
from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.transactions.half import message_at
from pocketmq.clock import Clock
from pocketmq.errors import StoreError
from pocketmq.model import properties as names
from pocketmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_GROUP
from pocketmq.model.transactions import OP_TAG, format_op, parse_op
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("pocketmq.broker")

_OPEN, _CLOSED = 0, 1


class Ledger:
    """Open and closed half messages. `load` comes first; `advance` now and then, or memory grows."""

    def __init__(
        self, store: MessageStore, appender: Appender, offsets: OffsetTable, settings: SettingsInUse, clock: Clock
    ) -> None:
        self._store = store
        self._appender = appender
        self._offsets = offsets
        self._settings = settings
        self._clock = clock
        self._closed = bytearray()
        self._unnoted: list[int] = []
        self._unnoted_bytes = 0
        self._ops: deque[tuple[int, int]] = deque()  # an op message's own offset, and the largest that it closes
        self._unsafe = 0
        self._saved = 0, 0
        self.start = 0

    def load(self) -> None:
        """Begin where the committed offsets say, and read the notes since then."""
        # As long as there is no transaction, there is nothing to save: the group would be shown as a consumer of both topics.
        self._saved = self._stored(HALF_TOPIC), self._stored(OP_HALF_TOPIC)
        self.start = self._committed(HALF_TOPIC)
        for offset in range(self._committed(OP_HALF_TOPIC), self._store.max_offset(OP_HALF_TOPIC, 0)):
            op = message_at(self._store, OP_HALF_TOPIC, offset, waits=True)
            if op is not None and op.tags == OP_TAG:
                closed = [half_offset for half_offset in parse_op(op.body) if half_offset < self.end]
                self._mark(closed)
                self._ops.append((offset, max(closed, default=0)))

    def _committed(self, topic: str) -> int:
        """An offset may be missing, or be that of a log that a crash has made shorter since."""
        low, high = self._store.min_offset(topic, 0), self._store.max_offset(topic, 0)
        return min(max(self._stored(topic), low), high)

    def _stored(self, topic: str) -> int:
        return self._offsets.stored(TRANSACTION_CHECK_GROUP, topic, 0) or 0

    # which are open

    @property
    def end(self) -> int:
        """Behind the last half message."""
        return self._store.max_offset(HALF_TOPIC, 0)

    @property
    def open_count(self) -> int:
        """How many are not decided."""
        known = min(len(self._closed), self.end - self.start)
        return self.end - self.start - known + self._closed.count(_OPEN, 0, known)

    def is_open(self, offset: int) -> bool:
        index = offset - self.start
        return index >= 0 and offset < self.end and (index >= len(self._closed) or self._closed[index] == _OPEN)

    def next_open(self, offset: int, end: int) -> int:
        """The first from `offset` on that is open; `end`, when there is none before it."""
        index = max(offset - self.start, 0)
        if index < len(self._closed):
            found = self._closed.find(_OPEN, index)
            index = found if found >= 0 else len(self._closed)
        return min(self.start + index, end)

    # closing

    def close(self, offsets: Iterable[int]) -> None:
        """These are decided. It is noted soon: when there is enough to note, or by the next `note`."""
        for offset in offsets:
            if self.is_open(offset):
                self._mark((offset,))
                self._unnoted.append(offset)
                self._unnoted_bytes += len(str(offset)) + 1
        if self._unnoted_bytes >= self._settings.now.transaction.op_batch_bytes:
            self.note_if_possible()

    def close_with(self, drafts: Sequence[Draft], offsets: Sequence[int]) -> list[StoredPosition]:
        """Store what takes the place of these half messages, and the note that they are closed; where it is stored."""
        notes = self._notes([*self._unnoted, *offsets])
        places = self._appender.append_all([*drafts, *(draft for draft, _ in notes)])
        self._unnoted.clear()
        self._unnoted_bytes = 0
        self._mark(offsets)
        for place, (_, largest) in zip(places[len(drafts) :], notes, strict=True):
            self._ops.append((place.queue_offset, largest))
        return places[: len(drafts)]

    def forget(self, offset: int) -> None:
        """This one is not in the log any more: nothing can be noted of it, nor done with it."""
        self._mark((offset,))

    def note(self) -> None:
        """Write down what was closed since the last time."""
        if self._unnoted:
            self.close_with((), ())

    def note_if_possible(self) -> None:
        """Note, where nobody must hear that it failed: the decisions themselves are stored, and are found without it."""
        try:
            self.note()
        except StoreError as error:
            log.warning("%d decided transactions cannot be noted yet: %s", len(self._unnoted), error)

    def _notes(self, offsets: list[int]) -> list[tuple[Draft, int]]:
        """Op messages that close these, each with the largest offset in it."""
        per_note = max(1, self._settings.now.transaction.op_batch_bytes // (len(str(max(offsets, default=0))) + 1))
        parts = [offsets[at : at + per_note] for at in range(0, len(offsets), per_note)]
        return [(self._op_message(part), max(part)) for part in parts]

    def _op_message(self, offsets: list[int]) -> Draft:
        return Draft(
            topic=OP_HALF_TOPIC,
            queue_id=0,
            body=format_op(offsets),
            properties={names.TAGS: OP_TAG, names.WAIT: "true"},
            born_ms=self._clock.now_ms(),
            born_host=self._store.store_host,
        )

    def _mark(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            index = offset - self.start
            if index >= len(self._closed):
                self._closed.extend(bytes(index + 1 - len(self._closed)))
            if index >= 0:
                self._closed[index] = _CLOSED

    # going on

    def advance(self) -> None:
        """Move the start to the first that is open, and have the offsets saved when the log is safe."""
        first = max(self.start, self.next_open(self.start, self.end), self._store.min_offset(HALF_TOPIC, 0))
        del self._closed[: first - self.start]
        self.start = first
        while self._ops and self._ops[0][1] < first:
            self._ops.popleft()
        reached = first, self._ops[0][0] if self._ops else self._store.max_offset(OP_HALF_TOPIC, 0)
        if reached != self._saved:
            self._unsafe += 1
            self._store.when_synced(self._store.end, partial(self._synced, reached))

    @property
    def is_settled(self) -> bool:
        """Whether the offsets say all that they may: none waits for the log to be safe."""
        return not self._unsafe

    def _synced(self, reached: tuple[int, int], safe: bool) -> None:
        self._unsafe -= 1
        if safe:
            self._save(*reached)

    def _save(self, half_offset: int, op_offset: int) -> None:
        self._saved = half_offset, op_offset
        self._offsets.commit(TRANSACTION_CHECK_GROUP, HALF_TOPIC, 0, half_offset)
        self._offsets.commit(TRANSACTION_CHECK_GROUP, OP_HALF_TOPIC, 0, op_offset)
