"""The store of a slave: its log is the copy of a master's log, from which it derives queues and index like any other.

    bytes of the master's log ──► whole records ──► one turn: written to the log, entered into their queues
                              └─► the rest waits in memory for more bytes

    log    | record | record | filler |        received: record 3, half of record 4
                                      ▲ end    ▲ received_to

Only whole records are written, so the log always ends where a record ends. What waits in memory is received again
after a restart. A filler is written with the record after it, which begins the next file.

An empty log may begin at a later offset: masters send an empty slave their newest file. Queues then begin at the offset of
their first record.
"""

import logging
import struct
from typing import Any, Final

from pocketmq.errors import InvalidName, ProtocolError, StoreBusy, SystemBusy
from pocketmq.model import StoredMessage, parse_topic
from pocketmq.protocol.record import BLANK_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, SMALLEST_RECORD, decode_record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.consume_queue import ENTRY, ConsumeQueue, enters_queue, tags_code_of
from pocketmq.store.queues.queues import MAX_QUEUE_ID, MAX_QUEUE_OFFSET

log = logging.getLogger("pocketmq.store")

_HEAD: Final = struct.Struct(">II")
DRAIN_S: Final = 1.0
"""How long a queue that begins again waits for a write to its files."""


class SlaveStore(MessageStore):
    """Accepts the log of a master, and no other messages."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unfinished = bytearray()
        self._filler = b""

    def _begin_turn(self) -> int:
        raise SystemBusy("[REJECTREQUEST]system busy, start flow control for a while, cause: this broker is a slave")

    # receiving

    @property
    def received_to(self) -> int:
        """The log offset of the next byte to receive."""
        return self._log.end + len(self._filler) + len(self._unfinished)

    @property
    def begins(self) -> bool:
        """Whether nothing was ever received, so that the log may begin anywhere."""
        return self.received_to == 0

    def begin_at(self, log_offset: int) -> None:
        """The first byte has this offset: the start of a file. StoreBusy while a file is being created: try again."""
        if log_offset % self._file_bytes:
            raise ProtocolError(
                f"the master sends its log from offset {log_offset} on, which is not the start of a file of {self._file_bytes} "
                "bytes. mappedFileSizeCommitLog must be the same on both"
            )
        if log_offset:
            self._parts.preparer.begin_at(log_offset)
            self._log.start = log_offset
            self._log.set_end(log_offset)
            self._parts.opened_at = log_offset
            log.info("the log begins at offset %d, with the newest file of the master", log_offset)

    def forget_unfinished(self) -> None:
        """Forget the bytes that are not written: they will be received again."""
        self._unfinished = bytearray()
        self._filler = b""

    def receive(self, data: bytes) -> bool:
        """Add the next bytes. Returns False while the store cannot write all of them: call it again soon, without bytes.

        ProtocolError if they are no log; StoreError if the disk fails. Then unfinished bytes are forgotten.
        """
        self._unfinished += data
        if self.busy_since is not None:
            return False
        try:
            while True:
                is_busy = goes_on = False
                try:
                    goes_on = self._stage_records()
                except StoreBusy:
                    is_busy = True
                if not self.end_turn() or is_busy:
                    return False
                if not goes_on:
                    return True
        except BaseException:
            self.abandon_turn()
            self.forget_unfinished()
            raise

    def _stage_records(self) -> bool:
        """Stage whole records. Returns whether the turn must end before the next one."""
        if not self._size_at(self._unfinished, 0):
            return False
        self._check_accepts()
        data, at = bytes(self._unfinished), 0
        try:
            while size := self._size_at(data, at):
                if data[at + 4 : at + BLANK_SIZE] == _BLANK_MAGIC:
                    self._filler = data[at : at + size]
                    at += size
                    continue
                message = decode_record(data, at)
                if not self._is_next(message) and self._staged:
                    return True
                self._stage_record(message, data[at : at + size])
                at += size
        finally:
            del self._unfinished[:at]
        return False

    def _size_at(self, data: bytes | bytearray, at: int) -> int:
        """The size of the whole record or filler at this position; 0 if it is not whole yet."""
        if len(data) - at < BLANK_SIZE:
            return 0
        size, magic = _HEAD.unpack_from(data, at)
        offset = self._log.end + len(self._filler)
        left = self._file_bytes - offset % self._file_bytes
        if magic == MAGIC_BLANK:
            is_sound = size == left
        else:
            is_sound = magic in (MAGIC_V1, MAGIC_V2) and SMALLEST_RECORD <= size <= left - BLANK_SIZE
        if not is_sound:
            raise ProtocolError(f"the master sent no record at log offset {offset}: size {size}, magic {magic:#010x}")
        return size if size <= len(data) - at else 0

    def _check_accepts(self) -> None:
        """Raises if the store cannot accept more. The times of a turn are those of its records, not of this machine."""
        parts = self._parts
        before = parts.last_store_ms
        super()._begin_turn()
        self._turn_ms = parts.last_store_ms = before

    def _stage_record(self, message: StoredMessage, record: bytes) -> None:
        store_log = self._log
        if self._filler:
            used = max(len(self._filler.rstrip(b"\0")), BLANK_SIZE)
            store_log.roll(len(record), self._filler[:used])
            self._filler = b""
        if message.log_offset != store_log.end:
            raise ProtocolError(f"the record at log offset {store_log.end} contains log offset {message.log_offset}")
        queue = self._queue_of(message)
        at = store_log.reserve(len(record))
        store_log.put((record,))
        if queue is not None:
            code = tags_code_of(message.raw_properties, queue.is_delay, message.store_ms, self._levels)
            self._staged.append((queue, ENTRY.pack(at, len(record), code)))
            queue.next_offset = message.queue_offset + 1
        self.last_staged = at
        self._turn_ms = self._parts.last_store_ms = max(self._parts.last_store_ms, message.store_ms)

    # queues

    def _is_next(self, message: StoredMessage) -> bool:
        """Whether the message needs only an entry at the end of its queue, or none."""
        if not enters_queue(message.sys_flag):
            return True
        queue = self._queues.find(message.topic, message.queue_id)
        return queue is not None and queue.next_offset == message.queue_offset

    def _queue_of(self, message: StoredMessage) -> ConsumeQueue | None:
        """The queue of a record, ready for its entry; None if it has none."""
        if not enters_queue(message.sys_flag):
            return None
        offset = message.queue_offset
        queue = self._queues.find(message.topic, message.queue_id)
        if queue is None:
            if not (0 <= message.queue_id <= MAX_QUEUE_ID and 0 <= offset <= MAX_QUEUE_OFFSET):
                return None
            try:
                queue = self._queues.get(parse_topic(message.topic), message.queue_id)
            except InvalidName:
                return None
        if offset == queue.next_offset:
            return queue
        return self._moved(queue, offset, message.log_offset)

    def _moved(self, queue: ConsumeQueue, offset: int, log_offset: int) -> ConsumeQueue | None:
        """The queue with its end at another offset. No entry of this turn is in it."""
        if 0 < offset < queue.next_offset:
            log.warning(
                "the record at log offset %d has no entry: %s has passed offset %d", log_offset, queue.key, offset
            )
            return None
        if queue.min_offset == queue.max_offset:
            queue.begin_anew(offset)
        elif offset == 0 or not queue.skip_to(offset, log_offset):
            # The master deleted the topic and created it again.
            if not self._parts.queue_writer.drain(DRAIN_S):
                raise StoreBusy(f"the files of {queue.key} are being written")
            self._queues.remove_files(queue)
            queue.begin_anew(offset)
        self._queues.mark_dirty(queue)
        return queue


_BLANK_MAGIC: Final = MAGIC_BLANK.to_bytes(4, "big")
