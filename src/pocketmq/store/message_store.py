"""The store as a broker uses it: append in turns, and the queries of `ReadableStore`.

    stage × n ── records made and offsets assigned, in memory
    end_turn ──► one write per log file ──► queue entries ──► arrivals
    when_synced ── for sends that must be safe before they are answered

One thread owns a store and calls all its methods. Threads inside the store return their results to it through `post`.
Readers see nothing of a turn before it ends; a turn whose write fails leaves only its error.
"""

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from enum import Enum
from functools import partial
from typing import Self, TypeVarTuple
from zlib import crc32

from pocketmq.clock import Clock, SystemClock
from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidMessage, StoreBusy, StoreError, StoreFull, WrongState
from pocketmq.files import DiskFiles, Files
from pocketmq.model import TopicName
from pocketmq.model.names import parse_topic
from pocketmq.model.properties import MAX_BYTES as MAX_PROPERTIES_BYTES
from pocketmq.protocol.batch import BatchItem
from pocketmq.protocol.record import (
    CRC_MASK,
    SMALLEST_RECORD,
    head_packer,
    host_flags,
    pack_ipv4_head,
    pack_short,
)
from pocketmq.store.log.commit_log import DiskBlocks, Mark, Pieces
from pocketmq.store.log.log_scan import looks_cut, moved_on
from pocketmq.store.log.log_writer import Store
from pocketmq.store.parts import StoreParts
from pocketmq.store.queues.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    Arrival,
    ConsumeQueue,
    Entered,
    arrivals_of,
    give_back,
    newest_log_offset,
    tags_code_of,
    take_out,
)
from pocketmq.store.queues.queues import MAX_QUEUE_ID
from pocketmq.store.readable_store import ReadableStore, StoreFacts
from pocketmq.store.reading import ReadLimits
from pocketmq.store.recovery.recovery import RecoveryReport, recover
from pocketmq.store.retention import Dropped
from pocketmq.store.settings import StoreSettings
from pocketmq.store.worker import Post, Worker

log = logging.getLogger("pocketmq.store")

_WITHOUT_HOSTS = ~(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_PREPARED = SysFlag.TRANSACTION_PREPARED
_pack_entry = ENTRY.pack
Ts = TypeVarTuple("Ts")
Later = Callable[[StoreError | None], None]
"""Called when a turn is readable, or with the reason why it is not stored."""


class _State(Enum):
    NEW = "not open yet"
    OPEN = "open"
    CLOSED = "closed"


class MessageStore(ReadableStore):
    """Messages on disk. Use it as a context manager, or `open` and `close` it."""

    def __init__(
        self,
        settings: StoreSettings,
        *,
        store_host: bytes,
        post: Post,
        files: Files | None = None,
        clock: Clock | None = None,
        on_arrivals: Callable[[Iterator[Arrival]], None] | None = None,
        on_dropped: Callable[[Dropped], None] | None = None,
        make_worker: Callable[[str, Post], Worker] = Worker,
    ) -> None:
        self.settings = settings
        self.store_host = store_host
        """Packed address of this broker, as in records. Clients connect to it for messages of an offset id."""
        self._clock = clock or SystemClock()
        super().__init__(
            StoreParts(settings, files or DiskFiles(), self._clock, post, self._written_behind, make_worker),
            on_dropped or _ignore,
        )
        self._flusher, self._writer = self._parts.flusher, self._parts.writer
        self.facts = StoreFacts(self._parts)
        self.tables = self._parts.tables
        """Topics, groups and offsets, in the same folder."""
        self._on_arrivals = on_arrivals or _ignore
        self._max_body_bytes, self._levels = settings.max_body_bytes, settings.delay_levels
        self._file_bytes = settings.log_file_bytes
        self._reserve, self._put = self._log.reserve, self._log.put
        self._staged: list[Entered] = []
        self.last_staged = -1
        """The log offset of the last record staged in this turn; -1 if there is none."""
        self._behind: deque[tuple[int, int, list[Entered]]] = deque()
        self._turn_ms = 0
        self._state = _State.NEW

    # lifecycle

    def open(self) -> RecoveryReport:
        """Lock the folder, recover, and start. Raises StoreLocked, StoreDamaged. A store can be opened once."""
        if self._state is not _State.NEW:
            raise WrongState(f"this store is {self._state.value}; create another one to open the folder again")
        self._state = _State.CLOSED
        with ExitStack() as undo:
            undo.callback(self._parts.close, clean=False)
            report = recover(self._parts)
            self._parts.start()
            undo.pop_all()
        self._upkeep.start()
        self._state = _State.OPEN
        return report

    def close(self) -> None:
        """Write and sync everything, mark the stop as clean, and unlock the folder. A second call does nothing.

        Raises an error of the disk; the next start then recovers as after a crash.
        """
        if self._state is not _State.OPEN:
            return
        self._state = _State.CLOSED
        self.abandon_turn()
        is_clean = False
        try:
            try:
                self._writer.close()
                self._log.end_writing()
            finally:  # also after a failed write: earlier writes must be synced
                try:
                    self._upkeep.end_writing()
                finally:
                    self._flusher.close()
            self._upkeep.stop()
            is_clean = True
        finally:
            self._parts.close(clean=is_clean)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def tick(self) -> None:
        """Do the due work: flushes, timeouts, checkpoint, index, retention. The owner calls this about every 10 ms."""
        self._upkeep.tick()

    @property
    def index_backlog_bytes(self) -> int:
        """How far the key index is behind the log."""
        return self._upkeep.index_backlog_bytes

    @property
    def is_flushing(self) -> bool:
        """Whether queue entries are being written, a slice at every tick."""
        return self._upkeep.is_flushing

    def hold_log(self, needed_from: Callable[[], int | None]) -> None:
        """Retention keeps the log from the offset that `needed_from` returns, unless the disk is almost full.

        `needed_from` returns the log offset of the first delayed message that is not delivered yet; None if there is
        none.
        """
        self._upkeep.retention.holders.append(needed_from)

    def hurry_index(self) -> None:
        """A caller waits for the key index: for one second, ticks work on it even while messages arrive."""
        self._upkeep.hurry_index()

    # appending

    def queue(self, topic: TopicName, queue_id: int) -> ConsumeQueue:
        """The queue for staging; created if it is new. Do not keep it: its topic may be deleted and created again."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            if not 0 <= queue_id <= MAX_QUEUE_ID:
                raise InvalidMessage(f"topic {topic} cannot have a queue {queue_id}; ids go from 0 to {MAX_QUEUE_ID}")
            queue = self._queues.get(parse_topic(topic), queue_id)
        return queue

    def stage(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        stored_before: bool = False,
    ) -> tuple[int, int]:
        """Add a message to this turn. Returns its queue offset and log offset. It is not stored before `end_turn`.
        `stored_before` skips the size limits: the broker moves a message that it accepted under an earlier limit.
        """
        if (len(body) > self._max_body_bytes and not stored_before) or len(properties) > MAX_PROPERTIES_BYTES:
            raise self.settings.too_large(len(body), len(properties))
        store_ms = self._turn_ms or self._begin_turn()
        store_host = self.store_host
        size = queue.record_overhead + len(body) + len(properties)
        sys_flag &= _WITHOUT_HOSTS
        pack_head = pack_ipv4_head
        if len(born_host) + len(store_host) != 16:
            sys_flag |= host_flags(born_host, store_host)
            size += len(born_host) + len(store_host) - 16
            pack_head = head_packer(sys_flag)
        in_queue = not sys_flag & _PREPARED
        queue_offset = queue.next_offset if in_queue else 0
        next_offset, staged = queue_offset + 1, len(self._staged)
        log_offset = self._reserve(size)
        if 0 in properties and (moved := self._moved_on(properties, log_offset, size)) is not None:
            message = body, moved, flag, sys_flag, born_ms, born_host
            return self.stage(queue, *message, reconsume_times, prepared_offset, stored_before)
        try:  # a failure from here on leaves the turn unchanged
            position = queue.queue_id, flag, queue_offset, log_offset
            origin = sys_flag, born_ms, born_host, store_ms, store_host, reconsume_times, prepared_offset
            head = pack_head(size, queue.record_magic, crc32(body) & CRC_MASK, *position, *origin, len(body))
            if in_queue:
                code = tags_code_of(properties, queue.is_delay, store_ms, self._levels)
                self._staged.append((queue, _pack_entry(log_offset, size, code)))
            # The parts of `encode_record`, which the log joins once for the whole turn.
            self._put((head, body, queue.topic_field, pack_short(len(properties)), properties))
        except BaseException as error:
            del self._staged[staged:]
            self._log.unreserve(log_offset)
            if isinstance(error, struct.error):
                raise InvalidMessage(f"a number of the message does not fit into its record: {error}") from None
            raise
        if in_queue:
            queue.next_offset = next_offset
        self.last_staged = log_offset
        return queue_offset, log_offset

    def _moved_on(self, properties: bytes, log_offset: int, size: int) -> bytes | None:
        """Shifted properties, if their zeros would look like a record truncated by a crash; the reservation is then
        cancelled. None if no change is necessary.
        """
        at = (log_offset + size - len(properties)) % self._file_bytes
        stays = False
        try:
            stays = not looks_cut(properties, at)
            found = None if stays else moved_on(properties, at)
        finally:
            if not stays:
                self._log.unreserve(log_offset)
        if found is None and not stays:
            raise InvalidMessage("the properties contain zero bytes, which recovery would treat as crash damage")
        return found

    def stage_batch(
        self, queue: ConsumeQueue, items: Iterable[BatchItem], sys_flag: int, born_ms: int, born_host: bytes
    ) -> tuple[int, list[int]]:
        """Add all messages of a batch to this turn, or none. Returns the first queue offset, and the log offsets."""
        first, mark = queue.next_offset, self.mark()
        try:
            return first, [
                self.stage(queue, body, properties, flag, sys_flag, born_ms, born_host)[1]
                for flag, body, properties in items
            ]
        except BaseException:
            self.take_back(mark)
            raise

    def mark(self) -> tuple[int, int, Mark]:
        """The point in the turn, for `take_back`."""
        return self.last_staged, len(self._staged), self._log.mark()

    def take_back(self, mark: tuple[int, int, Mark]) -> None:
        """Roll back everything staged since `mark`; the rest of the turn stays."""
        self.last_staged, staged, log_mark = mark
        give_back(self._staged[staged:])
        del self._staged[staged:]
        self._log.take_back(log_mark)

    def run_bounds(self) -> tuple[int, int, int]:
        """For `stage_run`: the store time of this turn, the log offset of the next record, and the limit of records."""
        return self._turn_ms or self._begin_turn(), self._log.end, self._log.limit

    def stage_run(self, records: bytes, end: int, entered: Sequence[Entered]) -> None:
        """Add records to this turn that were encoded from the offset of `run_bounds` up to `end`, with their queue
        entries. Each entry is of another queue. Adds all or none.
        """
        moves = [(queue, queue.next_offset + len(entries) // ENTRY_BYTES) for queue, entries in entered]
        last_staged, staged = newest_log_offset(entered), len(self._staged)
        try:
            self._staged += entered
            self._log.put_run(records, end)
        except BaseException:
            del self._staged[staged:]
            raise
        for queue, next_offset in moves:
            queue.next_offset = next_offset
        self.last_staged = last_staged

    def _begin_turn(self) -> int:
        """The store time of this turn, which never decreases. Raises if the store cannot accept more."""
        parts = self._parts
        if self._upkeep.derived_failure is not None:
            raise type(self._upkeep.derived_failure)(*self._upkeep.derived_failure.args)
        if parts.disk_full:
            raise StoreFull("the disk is full (disk_full_ratio); writes resume when space is free")
        unsynced = self._log.written - self._log.synced
        if unsynced > self.settings.max_unsynced_bytes:
            raise StoreBusy(f"{unsynced} bytes are not synced to disk yet; the limit is max_unsynced_bytes")
        parts.last_store_ms = self._turn_ms = max(self._clock.steady_ms(), parts.last_store_ms)
        return self._turn_ms

    def end_turn(self, later: Callable[[*Ts, StoreError | None], None] | None = None, *arguments: *Ts) -> bool:
        """Write the staged messages and make them readable. After any error, no message of the turn is stored.

        Returns False while the disk is slow: a thread then writes the turn, and nothing can be staged meanwhile. At
        the end, `later` is called with the arguments, and None or the error. Without `later`, the turn counts as
        stored at once, and its write is retried until it succeeds.
        """
        if self.last_staged < 0:
            self._turn_ms = 0
            return True
        staged, self._staged = self._staged, []
        store_ms, self._turn_ms = self._turn_ms, 0
        last_staged, self.last_staged = self.last_staged, -1
        upto = self._log.end
        pieces: Pieces = ()
        try:
            try:
                if self._parts.pool is not None:
                    is_ended = True
                    self._write_to_pool(staged, store_ms, upto)
                elif is_ended := self._writer.is_calm:
                    self._store(staged, store_ms, upto, self._log.write)
            except DiskBlocks as blocks:
                is_ended, pieces = False, blocks.pieces
            if not is_ended:
                ended = None if later is None else lambda error: later(*arguments, error)
                self._hand_over(partial(self._store, staged, store_ms, upto), staged, last_staged, ended, pieces)
                return False
        except BaseException as error:
            if pieces:
                self._log.fail_write(pieces, error)
            if self._log.written < upto:  # else it is stored, and what follows from that was interrupted
                give_back(staged)
                self._log.discard()
            raise
        self._parts.last_record = last_staged
        return True

    def count_slow_write(self, took_s: float) -> None:
        """The last turn took `slow_write_ms` or longer, as the caller measured: the store reads no clock for a turn."""
        self._writer.record(took_s)

    def _store(self, staged: list[Entered], store_ms: int, upto: int, finish: Callable[[], object]) -> None:
        """Enter a turn into its queues, and `finish` it: it is stored if that succeeds. It ends at log offset `upto`.

        Later failures are logged. The steps are called from here, because any call can fail if memory is short.
        """
        touched, count = self._queues.enter_all(staged)
        try:
            finish()
        except BaseException:
            left = [*staged]
            while left:
                try:
                    take_out(left)
                except MemoryError:  # the turn must not stay in its queues
                    continue
            raise
        try:
            self._parts.messages_accepted += count
            self._flusher.mark_written(upto, store_ms)
            self._upkeep.entered(touched, count, store_ms)
            self._on_arrivals(arrivals_of(staged))
        except Exception:
            log.exception("unexpected error after %d messages were stored; continuing", count)

    def _write_to_pool(self, staged: list[Entered], store_ms: int, upto: int) -> None:
        self._behind.append((upto, store_ms, staged))
        try:
            self._log.write()
        except BaseException:
            self._behind.pop()
            raise

    def _written_behind(self, upto: int) -> None:
        """The transient pool has written the log up to here: those turns become readable."""
        while self._behind and self._behind[0][0] <= upto:
            end, store_ms, staged = self._behind[0]
            self._store(staged, store_ms, end, self._behind.popleft)

    def _hand_over(self, store: Store, staged: list[Entered], last: int, later: Later | None, pieces: Pieces) -> None:
        def written() -> None:
            self._parts.last_record = last
            if later is not None:
                later(None)

        def failed(error: StoreError) -> None:
            give_back(staged)
            staged.clear()
            assert later is not None
            try:
                self._upkeep.write_failed()
            finally:
                later(error)

        self._writer.hand_over(store, written, None if later is None else failed, pieces)

    def abandon_turn(self) -> None:
        """Drop the staged messages of this turn. A turn that a thread writes is not affected."""
        give_back(self._staged)
        self._staged.clear()
        self._turn_ms, self.last_staged = 0, -1
        self._log.discard()

    def check_space(self, size: int = SMALLEST_RECORD) -> None:
        """Raises what `stage` would raise for a record of `size` bytes. Call it between two turns."""
        if self._turn_ms:
            raise WrongState("a turn is in progress, and its staged messages would be lost")
        try:
            self._begin_turn()
            self._reserve(max(size, SMALLEST_RECORD))
        finally:
            self.abandon_turn()

    # safety

    @property
    def end(self) -> int:
        """The log offset after everything acknowledged so far."""
        return self._writer.end

    @property
    def busy_since(self) -> float | None:
        """Monotonic time since which a slow disk writes a turn, and nothing can be staged; None if there is no such
        turn.
        """
        return self._writer.busy_since

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call back when the running write of a turn ends or fails; immediately if there is none."""
        self._writer.when_free(callback)

    @property
    def synced(self) -> int:
        """The log offset up to which everything is synced."""
        return self._log.synced

    def when_synced(self, upto: int, callback: Callable[[bool], None]) -> None:
        """Call back with True once the log is synced up to `upto`, or with False after the timeout."""
        self._flusher.when_synced(upto, callback)

    # maintenance

    def apply(self, settings: StoreSettings) -> None:
        """Apply these limits, intervals and retention settings from now on. File sizes cannot change."""
        self.settings = self._parts.settings = settings
        self._max_body_bytes = settings.max_body_bytes
        self._limits = ReadLimits.of(settings, self._parts.memory_bytes)
        self._flusher.apply(settings)
        self._upkeep.retention.apply(settings)

    def drop_expired(self) -> int:
        """Delete log files that are older than the retention time, at any hour; at most a few hundred. How many."""
        return self._upkeep.drop_expired()

    def drop_expired_entries(self) -> None:
        """Drop queue and index entries of deleted log files now. Retention also does this by itself."""
        self._upkeep.follow_log_start()

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic, between two turns. Its messages stay in the log until retention deletes them.
        Waits for the disk: the topic stays deleted after a crash.
        """
        if self._staged:
            raise WrongState(f"topic {topic} cannot be deleted during a turn; end the turn first")
        self._upkeep.delete_topic(topic)

    def was_deleted(self, topic: str, log_offset: int) -> bool:
        """Whether the topic was deleted after this part of the log was written. It may have been created again."""
        return log_offset < self._parts.deleted_topics.get(topic, 0)


def _ignore(_event: object) -> None:
    """The default for the callbacks for arrivals and for deletions by retention."""
