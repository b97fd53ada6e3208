"""The commit log: every message, one record after the other. All other files can be rebuilt from it.

    | record | record | … | record | filler |        | record | … | record |  zeros …          |
    00000000000000000000 ───────────────────┘        00000000000000032768 ─────────────────────┘
    ▲ start                                                 ▲ synced   ▲ written  ▲ end

    start      first offset that is kept; retention moves it, file by file
    synced     safe on disk; the flusher moves it
    written    in the files, so readable
    end        the next offset to assign; offsets before it are reserved in this turn, or are in the transient pool

A turn is `reserve` and `put` for each record, or `put_run` for many records, then one `write`. A record never spans
files. If less than the eight bytes of a filler's head would remain after a record, the record begins the next file, and
a filler marks the rest of this one.

A failed write rolls back the whole turn. A part of the turn may be on disk, including whole records. Once the log
grows up to them, they would look like valid records. So this range is `stale`. The log assigns no offset until the
flusher has overwritten the range with zeros and synced it; a power loss cannot restore the records then.

On a slow disk a thread writes the turn (`writing`): `begin_write` starts it, `end_write` or `fail_write` ends it.
The log accepts nothing in between, so `end` may be ahead of `written` by one turn, as with the transient pool.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn

from pocketmq.errors import (
    InvalidMessage,
    PocketMQError,
    PoolEmpty,
    StoreBusy,
    StoreError,
    SyncFailed,
    WrongState,
)
from pocketmq.files import File, Files
from pocketmq.protocol.record import BLANK_SIZE, encode_blank
from pocketmq.store.log.preparing import FilePreparer
from pocketmq.store.log.readable_log import ReadableLog
from pocketmq.store.log.segments import Segment, Segments, disk_error, zero_from
from pocketmq.store.log.transient_pool import TransientPool
from pocketmq.store.settings import LOG_FOLDER, StoreSettings

log = logging.getLogger("pocketmq.store")

_CLOSED_LIMIT: Final = -1
_SCAN_BYTES: Final = 1024 * 1024


class LogRange(NamedTuple):
    """Bytes of a file, from `start` up to `end` in it."""

    file: File
    start: int
    end: int


class Piece(NamedTuple):
    """Bytes for one file, from log offset `at` on."""

    segment: Segment
    at: int
    data: bytes

    def write(self, *, wait: bool = True) -> None:
        """A thread may call it: the file of the segment is open."""
        self.segment.file.write_at(self.at - self.segment.first, self.data, wait=wait)


Pieces = Sequence[Piece]


class DiskBlocks(Exception):
    """The write of a turn would have to wait for the disk: a thread must make it. A part may be written."""

    def __init__(self, pieces: Pieces) -> None:
        super().__init__("a write to the log would have to wait for the disk")
        self.pieces = pieces


class Mark(NamedTuple):
    """A point in a turn: the end of the log, the parts of records staged since the last file, and the filled files
    before it.
    """

    end: int
    parts: int
    rolled: int


class CommitLog(ReadableLog):
    """The log. Owned by the store's thread. Before `begin`, it can be read, scanned and truncated, but not written."""

    def __init__(
        self,
        settings: StoreSettings,
        files: Files,
        *,
        writable: bool = True,
        on_written: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(Segments(files, settings.folder / LOG_FOLDER, settings.log_file_bytes, writable=writable))
        self._on_written = on_written
        self._preparer: FilePreparer | None = None
        self._pool: TransientPool | None = None
        self._refusal: PocketMQError | None = WrongState("the log is not open for writing")
        self.synced = self.end = 0
        self.stale: list[LogRange] = []
        self._stale_cause: StoreError | None = None
        self._writing: StoreError | None = None
        self._write_start = 0
        self._segment: Segment | None = None
        self._turn_start = self._staged_from = 0
        self._staged: list[bytes] = []
        self._rolled: list[Piece] = []
        self.limit = _CLOSED_LIMIT
        """Records up to this offset are accepted without further checks."""
        self.put = self._staged.extend
        """Adds the bytes of the record that was reserved last, in one or more parts."""

    # lifecycle

    def load(self) -> None:
        """Find the files. All of them count as written until recovery finds the end of the log."""
        self.segments.load()
        self.start = self.segments.start
        self.set_end(self.segments.end_of_files)

    def set_end(self, offset: int) -> None:
        """Set the end of the log: everything before it is complete, written and synced."""
        self.synced = self.written = self.end = self._turn_start = self._staged_from = offset
        self._segment = self.segments.file_at(offset)
        self._set_limit()

    def cut(self, offset: int) -> int:
        """Truncate the log at `offset`: delete later files, overwrite later bytes with zeros. Returns how many bytes
        were not zero.
        """
        try:
            dropped = sum(self._used_behind(segment, offset) for segment in self.segments.files)
            self.segments.drop_after(offset)
            last = self.segments.file_at(offset)
            if last is not None and zero_from(last.file, offset - last.first, self._file_bytes):
                last.file.sync()
        except OSError as error:
            raise disk_error(f"cannot truncate the log at offset {offset}", error) from error
        self.set_end(offset)
        return dropped

    def _used_behind(self, segment: Segment, offset: int) -> int:
        """Bytes of a file from `offset` to the last one that is not zero."""
        start = max(offset - segment.first, 0)
        used = start
        at = segment.file.next_data(start) if start < self._file_bytes else None
        while at is not None and at < self._file_bytes:
            chunk = segment.file.read_at(at, _SCAN_BYTES)
            if not_zeros := chunk.rstrip(b"\0"):
                used = at + len(not_zeros)
            at = segment.file.next_data(at + len(chunk))
        return used - start

    def sync_from(self, offset: int) -> None:
        """Wait until everything from `offset` on is synced. For recovery, which may wait; later the flusher does this."""
        try:
            # Includes the file that continues at the end, even if it is empty: its size must be safe, too.
            for file in self.files_between(offset, self.end + 1):
                file.sync()
        except OSError as error:
            raise SyncFailed(f"cannot sync the recovered log: {error}") from error

    def begin(self, preparer: FilePreparer, pool: TransientPool | None = None) -> None:
        """Open the log for writing, at its end."""
        preparer.begin()
        self._preparer, self._pool = preparer, pool
        self.start = self.segments.start
        self._is_recovered = True
        self._refusal = None
        self._set_limit()

    def tick(self) -> None:
        """Retry failed background work."""
        if self._preparer is not None:
            self._preparer.tick()
        if self._pool is not None:
            self._pool.tick()

    def halt(self, error: PocketMQError) -> None:
        """Reject every message with `error` from now on; written messages can still be read."""
        self._refusal = error
        self.limit = _CLOSED_LIMIT

    def end_writing(self) -> None:
        """Accept no more messages, write the content of the pool and end the threads. The flusher's last sync comes
        after it.
        """
        if not isinstance(self._refusal, StoreError):
            self.halt(WrongState("the log is closed"))
        self.discard()
        preparer, self._preparer = self._preparer, None
        if preparer is None:
            return
        try:
            if self._pool is not None:
                self._pool.close()
        finally:
            preparer.close()

    def close(self) -> None:
        """Close the files. Existing views stay valid."""
        try:
            self.end_writing()
        finally:
            # A thread that hangs in a write still uses its file descriptor; after a close, another file could get its
            # number.
            if self._writing is None and (self._pool is None or not self._pool.busy):
                self.segments.close()

    # appending

    def reserve(self, size: int) -> int:
        """The offset of a record of `size` bytes, which must be `put` next. Raises if the log cannot accept it."""
        at = self.end
        end = at + size
        if end > self.limit:
            return self._reserve_slowly(size)
        self.end = end
        return at

    def unreserve(self, at: int) -> None:
        """Cancel the last reservation, which was at this offset and has no `put`."""
        self.end = at

    def put_run(self, records: bytes, upto: int) -> None:
        """Add records that were encoded from `end` up to `upto`, which is within the `limit`."""
        assert upto <= self.limit, "records are encoded within the limit"
        self._staged.append(records)
        self.end = upto

    def mark(self) -> Mark:
        """The point in the turn, for `take_back`."""
        return Mark(self.end, len(self._staged), len(self._rolled))

    def take_back(self, mark: Mark) -> None:
        """Roll back everything reserved since `mark`; the rest of the turn stays."""
        if len(self._rolled) > mark.rolled:  # the turn has continued in another file since
            self._segment, self._staged_from, data = self._rolled[mark.rolled]
            self._staged[:] = [data[: mark.end - self._staged_from]]
            del self._rolled[mark.rolled :]
        else:
            del self._staged[mark.parts :]
        self.end = mark.end
        self._set_limit()

    def write(self) -> None:
        """End the turn: one write for each file. A failed write rolls back the turn and raises.

        DiskBlocks if it would have to wait: the turn is ended as by `begin_write`.
        """
        end, start, segment = self.end, self._staged_from, self._segment
        if end == self._turn_start:
            return
        assert segment is not None
        try:
            data = b"".join(self._staged)
            assert start + len(data) == end, "every reservation was put"
            pieces = [*self._rolled, Piece(segment, start, data)] if self._rolled or self._pool is not None else None
        except BaseException:
            self.discard()
            raise
        if pieces is not None:
            self._write_pieces(pieces)
            return
        try:
            segment.file.write_at(start - segment.first, data, wait=False)
            self._staged.clear()
        except BlockingIOError:
            self._pass_on([Piece(segment, start, data)])
        except BaseException as error:
            self._fail([Piece(segment, start, data)], self._turn_start, error)
        self._turn_start = self._staged_from = self.written = end

    def _write_pieces(self, pieces: list[Piece]) -> None:
        if self._pool is not None:
            self._put_into(self._pool, pieces)
            return
        start = self._turn_start
        try:
            for piece in pieces:
                piece.write(wait=False)
            self._turn_ended()
        except BlockingIOError:
            self._pass_on(pieces)
        except BaseException as error:
            self._fail(pieces, start, error)
        self.written = self.end

    def _pass_on(self, pieces: Pieces) -> NoReturn:
        start = self._turn_start
        try:
            self._hand_out(pieces)
            blocks = DiskBlocks(pieces)
        except BaseException as error:
            self._writing = None
            self._fail(pieces, start, error)
        raise blocks

    # by a thread

    @property
    def writing(self) -> bool:
        """Whether a thread has a turn to write."""
        return self._writing is not None

    def begin_write(self) -> tuple[Piece, ...]:
        """End the turn without writing it. Returns the writes, which must be done before anything else is added. Not
        for a transient pool.
        """
        assert self._segment is not None
        assert self._pool is None, "the pool has a thread of its own"
        try:
            data = b"".join(self._staged)
            pieces = (*self._rolled, Piece(self._segment, self._staged_from, data))
            self._hand_out(pieces)
        except BaseException:
            self.discard()
            raise
        return pieces

    def _hand_out(self, pieces: Pieces) -> None:
        """A thread will write these pieces, which are the whole turn."""
        busy = StoreBusy("the last write to the log is not finished")
        for piece in pieces:
            piece.segment.file  # noqa: B018 opened here, as a segment belongs to the owner's thread
        self._staged.clear()
        self._rolled.clear()
        self._writing, self._write_start = busy, self._turn_start
        self._turn_start = self._staged_from = self.end
        self.limit = _CLOSED_LIMIT

    def refuse_meanwhile(self, refusal: StoreError) -> None:
        """The turn could not be written for this reason, and is retried; reject messages meanwhile."""
        self._writing = refusal

    def end_write(self) -> None:
        """The turn is written."""
        self._writing = None
        self.written = self.end
        self._set_limit()

    def fail_write(self, pieces: Pieces, error: BaseException) -> StoreError:
        """Roll back the turn that could not be written, and return the error."""
        self._writing = None
        self.written = self._write_start
        try:
            self._fail(pieces, self._write_start, error)
        except StoreError as failure:
            return failure

    def discard(self) -> None:
        """Roll back everything reserved in this turn."""
        self._staged.clear()
        self._rolled.clear()
        self.end = self._staged_from = self._turn_start
        self._segment = self.segments.file_at(self.end)
        self._set_limit()

    def repaired(self) -> None:
        """The stale ranges are overwritten with zeros and synced: the log accepts messages again."""
        self.stale = []
        self._stale_cause = None
        self._set_limit()

    def _reserve_slowly(self, size: int) -> int:
        self._check_size(size)
        if self._pool is not None:
            self._pool.settle()
        refusal = self._why_not()
        if refusal is not None:
            raise type(refusal)(*refusal.args) from refusal
        segment = self._segment
        if segment is None or self.end + size + BLANK_SIZE > segment.end:
            self.roll(size)
        elif self.end + size > self.limit:
            raise self._pool_is_empty(size)
        at = self.end
        self.end += size
        return at

    def _check_size(self, size: int) -> None:
        most = self._file_bytes - BLANK_SIZE
        if size > most:
            raise InvalidMessage(f"a record of {size} bytes does not fit into a log file of {self._file_bytes}")
        if self._pool is not None and size > self._pool.capacity - BLANK_SIZE:
            raise InvalidMessage(
                f"a record of {size} bytes does not fit into the transient pool of {self._pool.capacity}"
            )

    def _why_not(self) -> PocketMQError | None:
        """Why no offset is assigned now."""
        pool_failure = self._pool.failure if self._pool is not None else None
        return self._refusal or self._stale_cause or self._writing or pool_failure

    def roll(self, size: int, filler: bytes = b"") -> None:
        """Continue in the next file, after this filler, or our own. Changes nothing if there is no next file."""
        assert self._preparer is not None
        if self._pool is not None and BLANK_SIZE + size > self._pool.free_bytes - self._staged_bytes():
            raise self._pool_is_empty(size)
        # A turn that was rolled back may have left the next file in the sequence.
        following = self.segments.file_at(self.end if self._segment is None else self._segment.end)
        if following is None:
            following = self._preparer.take()
        if self._segment is not None:
            self._staged.append(filler or encode_blank(self._segment.end - self.end))
            self._rolled.append(Piece(self._segment, self._staged_from, b"".join(self._staged)))
            self._staged.clear()
        self._segment = following
        self.end = self._staged_from = following.first
        self._set_limit()

    def _set_limit(self) -> None:
        """Offsets up to this one are reserved without further checks."""
        if self._segment is None or self._why_not() is not None:
            self.limit = _CLOSED_LIMIT
            return
        self.limit = self._segment.end - BLANK_SIZE
        if self._pool is not None:
            self.limit = min(self.limit, self.end + self._pool.free_bytes - self._staged_bytes())

    def _staged_bytes(self) -> int:
        return self.end - self._staged_from + sum(len(piece.data) for piece in self._rolled)

    def _turn_ended(self) -> None:
        self._staged.clear()
        self._rolled.clear()
        self._turn_start = self._staged_from = self.end

    def _fail(self, touched: Pieces, start: int, error: BaseException) -> NoReturn:
        """Roll back the turn from `start` on, which may be partly on the disk, and raise the reason."""
        self.stale = [
            LogRange(segment.file, at - segment.first, at - segment.first + len(data)) for segment, at, data in touched
        ]
        what = f"writing to the log at offset {start} failed"
        why = f"{what}: {type(error).__name__}: {error}"
        failure = disk_error(what, error) if isinstance(error, OSError) else StoreError(why)
        self._stale_cause = failure
        self._turn_start = start
        self.discard()
        if isinstance(error, Exception):
            raise failure from error
        raise error

    # the transient pool

    def _put_into(self, pool: TransientPool, pieces: list[Piece]) -> None:
        mark = pool.mark()
        try:
            for piece in pieces:
                segment = piece.segment
                upto = self.end if segment is self._segment else segment.end
                pool.put(segment.file, piece.at - segment.first, piece.data, upto)
            self._turn_ended()
        except BaseException:
            pool.take_back(mark)
            self.discard()
            raise
        self.limit = _CLOSED_LIMIT
        try:  # the turn is in the pool; after a failure here, the next tick retries
            pool.write_behind()
            self._set_limit()
        except Exception:
            log.exception("transient pool could not pass its data to its thread; retrying at the next tick")

    def written_behind(self, upto: int) -> None:
        """The transient pool has written the log up to this offset, or failed and has the old one."""
        advanced = upto > self.written
        if advanced:
            self.written = upto
        self._set_limit()
        if advanced and self._on_written is not None:
            self._on_written(upto)

    def _pool_is_empty(self, size: int) -> PoolEmpty:
        assert self._pool is not None
        free = self._pool.free_bytes - self._staged_bytes()
        return PoolEmpty(f"the transient pool has {free} bytes left, a record of {size} bytes must wait for the disk")

    # dropping

    @property
    def droppable(self) -> int:
        """How many of the oldest files may be dropped: synced files, and never the newest."""
        return sum(segment.end <= self.synced for segment in self.segments.files[:-1])

    def drop_first(self) -> None:
        """Drop the oldest file, which must be droppable. It is deleted in the background; existing views stay valid."""
        if self._preparer is None or not self.droppable:
            raise WrongState("the oldest log file cannot be dropped: it is also the newest, or not yet synced")
        self._preparer.remove(self.segments.forget_first())
        self.start = self.segments.start
