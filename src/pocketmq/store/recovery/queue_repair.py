"""Rebuilds damaged entries of consume queues from the log, while the store is in use.

    offset:     … sound ┃ damaged  ?  ?  damaged  ? ┃ sound …       sound neighbours are searched in growing steps
    log:        … record ┃ records of all queues … ┃ record …       this part is read; records of the queue get entries

A short part of the log is read at once, and the reader gets its messages as usual. A long part is read in slices, one at
every tick; until it is done, readers of the damaged entries are refused as busy, and no message is skipped. An offset
whose message is not in the log gets an entry that means "no message". At most one file of entries is rebuilt at a time;
later damage is found by later reads.
"""

import logging
from collections.abc import Generator
from contextlib import ExitStack
from math import inf

from pocketmq.errors import QueueDamaged, StoreError
from pocketmq.model import LMQ_PREFIX, StoredMessage
from pocketmq.store.log.log_scan import LogScan, Unreadable, list_log_files
from pocketmq.store.log.segments import OpenFiles
from pocketmq.store.parts import StoreParts
from pocketmq.store.queues.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    NOTHING_HERE_SIZE,
    ConsumeQueue,
    enters_queue,
    is_message,
    tags_code_of,
)
from pocketmq.store.queues.queue_entries import Placing, QueueSeries
from pocketmq.store.queues.queues import QueueKey
from pocketmq.store.queues.sound_entries import points_to_message

log = logging.getLogger("pocketmq.store")

INLINE_S = 0.005
"""How long the reader that finds the damage waits for its repair."""
SLICE_S = 0.005
"""How long one tick may spend on repairs."""
LOOK_STEP = 16
"""Records that are read between two checks of the clock."""


class QueueRepair:
    """The repairs in progress. Owned by the store's thread."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._under_way: dict[QueueKey, _Range] = {}

    def repair_now(self, damage: QueueDamaged, *, waits: bool = False) -> bool:
        """Repair the damaged entries. Returns False if that takes longer, unless the caller `waits`, or if the disk
        fails. Ticks continue it.
        """
        topic, queue_id, offset = damage.topic, damage.queue_id, damage.offset
        queue = self._parts.queues.find(topic, queue_id)
        if queue is None or topic.startswith(LMQ_PREFIX):
            return False  # a light queue of RocketMQ has entries for records of other topics, which only RocketMQ can rebuild
        repair = self._under_way.get(queue.key)
        if repair is None:
            log.warning(
                "consume queue %s:%d does not match the log at offset %d; rebuilding its entries from the log",
                *queue.key,
                offset,
            )
            self._parts.damaged_ranges += 1
            repair = self._under_way[queue.key] = _Range(self._parts, queue, offset)
        try:
            return self._work_on(repair, inf if waits else self._parts.clock.monotonic() + INLINE_S)
        except (OSError, StoreError) as error:
            log.warning("consume queue %s:%d cannot be rebuilt yet; retrying: %s", *queue.key, error)
            return False

    def close(self) -> None:
        """Cancel running repairs; reads after the next start find the damage again."""
        while self._under_way:
            self._under_way.popitem()[1].close()

    @property
    def is_busy(self) -> bool:
        return bool(self._under_way)

    def work(self) -> None:
        """Continue repairs for a limited time. Raises OSError or StoreError if the disk fails: the next call retries."""
        stop_at = self._parts.clock.monotonic() + SLICE_S
        for repair in list(self._under_way.values()):
            if not self._work_on(repair, stop_at):
                return

    def _work_on(self, repair: "_Range", stop_at: float) -> bool:
        """Whether the repair is done."""
        queue = repair.queue
        if self._parts.queues.find(*queue.key) is not queue:  # its topic was deleted
            self._under_way.pop(queue.key).close()
            return False
        with ExitStack() as undo:
            undo.callback(repair.close)  # after any failure: a log that was partly read must not count as read
            if is_read := repair.read_log(stop_at):
                repair.finish()
            undo.pop_all()
        if not is_read:
            return False
        self._under_way.pop(queue.key).close()
        return True


class _Range:
    """Entries of one queue to rebuild: from `first` up to, not including, `end`."""

    def __init__(self, parts: StoreParts, queue: ConsumeQueue, offset: int) -> None:
        self._parts = parts
        self._log = parts.log
        self.queue = queue
        self._at = offset
        self._records: Generator[StoredMessage, None, None] | None = None

    def _begin(self) -> Generator[StoredMessage, None, None]:
        """Find valid neighbours, and begin to read the log between them."""
        queue, log_, parts = self.queue, self._log, self._parts
        before, behind = self._neighbour(-1), self._neighbour(1)
        end = queue.flushed_offset if behind is None else behind
        self.is_anchored = before is not None
        self.first = queue.min_offset if before is None else before + 1
        self.end = min(end, self.first + parts.settings.queue_file_entries)
        begin = max(log_.start, parts.deleted_topics.get(queue.topic, 0))
        sound = None if before is None else queue.entry(before)
        if sound is not None:
            begin = sound[0] + sound[1]
        following = queue.entry(end) if end < queue.max_offset else None
        self._stop = log_.written if following is None or not is_message(following) else following[0]
        self._made = _Scratch(parts, queue, self.first)
        self._beyond: list[int] = []
        self._series = QueueSeries(self._made, {queue.key} if self.is_anchored else ())
        return self._read_from(begin)

    def _neighbour(self, direction: int) -> int | None:
        """A valid entry near by: the steps grow, because a whole file of entries may be damaged."""
        queue, step = self.queue, 1
        while True:
            offset = self._at + direction * step
            if not queue.min_offset <= offset < queue.flushed_offset:
                return None
            entry = queue.entry(offset)
            if entry is not None and is_message(entry) and points_to_message(self._log, queue, offset, entry):
                return offset
            step *= 2

    # reading the log

    def close(self) -> None:
        """Close the current log file. The next step opens it again."""
        if self._records is not None:
            self._records.close()
        self._records = None

    def _read_from(self, begin: int) -> Generator[StoredMessage, None, None]:
        segments = self._log.segments
        files = list_log_files(self._parts.files, segments.folder)
        for message in LogScan(self._parts.files, files, segments.file_bytes, begin):
            if not isinstance(message, Unreadable):
                yield message

    def read_log(self, stop_at: float) -> bool:
        """Read until `stop_at`, but at least one record. Returns whether everything necessary was read."""
        monotonic = self._parts.clock.monotonic
        if self._records is None:
            self._records = self._begin()
        for number, message in enumerate(self._records):
            if message.log_offset >= self._stop or not self._take(message):
                break
            if number % LOOK_STEP == 0 and monotonic() >= stop_at:
                return False
        self._series.finish()
        return True

    def _take(self, message: StoredMessage) -> bool:
        """Add a record if it belongs to the queue. Returns whether to continue."""
        queue = self.queue
        if message.topic != queue.topic or message.queue_id != queue.queue_id or not enters_queue(message.sys_flag):
            return True
        if message.queue_offset >= self.end:
            self._beyond.append(message.queue_offset)
            return message.queue_offset > self.end and len(self._beyond) < 2  # an offset far beyond may be wrong
        levels = self._parts.settings.delay_levels
        code = tags_code_of(message.raw_properties, queue.is_delay, message.store_ms, levels)
        placing = Placing(message.queue_offset, message.log_offset, message.size, code)
        self._series.assign(self._made.queue, placing)
        return self._made.queue.max_offset < self.end

    # writing the queue

    def finish(self) -> None:
        """Write the entries. Raises OSError if the disk fails."""
        queue, made, parts = self.queue, self._made.queue, self._parts
        first = made.min_offset if made.pending else self.end
        entries = bytes(made.pending[max(0, self.first - first) * ENTRY_BYTES :])
        if not self.is_anchored:  # messages before the first one found are no longer in the log
            found = first if made.pending else min(self._beyond, default=self.end)
            queue.min_offset = max(queue.min_offset, min(found, queue.max_offset))
        following = ENTRY.unpack_from(entries)[0] if entries else self._stop
        whole = ENTRY.pack(0, NOTHING_HERE_SIZE, following) * (first - self.first) + entries
        missing = self.end - self.first - len(whole) // ENTRY_BYTES
        whole += ENTRY.pack(0, NOTHING_HERE_SIZE, self._stop) * missing
        whole = whole[: (self.end - self.first) * ENTRY_BYTES]
        changed = queue.rewrite(self.first, whole)
        queue.irregular_offsets = queue.irregular_offsets.difference(range(self.first, self.end)) | self._irregular(
            whole
        )
        parts.queues.mark_dirty(queue)
        parts.repaired_entries += changed
        numbered = enumerate(ENTRY.iter_unpack(whole), self.first)
        lost = sum(offset >= queue.min_offset and not is_message(entry) for offset, entry in numbered)
        log.warning(
            "consume queue %s:%d: %d %s between offsets %d and %d %s rebuilt from the log%s",
            *queue.key,
            changed,
            "entry" if changed == 1 else "entries",
            self.first,
            self.end - 1,
            "was" if changed == 1 else "were",
            f"; {lost} {'message is' if lost == 1 else 'messages are'} not in the log" if lost else "",
        )

    def _irregular(self, entries: bytes) -> frozenset[int]:
        """Records with another queue offset."""
        queue, wrong = self.queue, set()
        for offset, entry in enumerate(ENTRY.iter_unpack(entries), self.first):
            if is_message(entry) and not points_to_message(self._log, queue, offset, entry):
                wrong.add(offset)
        return frozenset(wrong)


class _Scratch:
    """A queue that is being rebuilt: in memory, without files."""

    def __init__(self, parts: StoreParts, queue: ConsumeQueue, first: int) -> None:
        unused = OpenFiles(parts.files, 1)
        self.queue = ConsumeQueue(*queue.key, queue.folder, unused, parts.settings.queue_file_entries)
        self.queue.begin_anew(first)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        return self.queue

    def mark_dirty(self, queue: ConsumeQueue) -> None:
        """It is never written in this form."""

    def remove_files(self, queue: ConsumeQueue) -> None:
        """It has no files."""
