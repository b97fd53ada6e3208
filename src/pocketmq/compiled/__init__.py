"""The C twin of the broker's hot path, and of the Spark connector's, if it was built.

    frames of a turn ── regular? ─┬─ yes ──► C twin: records, queue entries and answers in one call ─┐
                                  └─ no ───► Python, one by one. Without a C twin all of them ───────┴──► Python commits

It is built from the C files of this folder when the package is installed, if a C compiler is available; without it, only
speed is lost. `POCKETMQ_PURE=1` disables it, when installing and when running. Both pass the same tests.

The compiled functions contain no rules. Python decides which queues accept sends, whether the log has space, what is
counted, and what is answered after a failure. Irregular cases are left to Python.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

try:
    from pocketmq.compiled import _turn  # type: ignore[attr-defined]
except ImportError:
    _turn = None

log = logging.getLogger("pocketmq.compiled")

PURE: Final = "POCKETMQ_PURE"
"""The environment variable that disables the C twins."""

Frame = tuple[int, bytes, bytes]
"""A frame as in `protocol.frames`: header encoding, header, body."""

SendQueue = tuple[Any, Any, int, bytes]
"""A queue that accepts sends: the queue, its tally, the magic number of its records, and its encoded topic."""

SendPlan = tuple[bytes, tuple[bytes, ...], bytes, bytes, int, bool]
"""Values that all sends share: suffix of the properties, parts of an answer, first half of the message ids, packed
store host, largest body, and whether sends wait for the disk.
"""

SendRun = tuple[int, bytes, int, list[tuple[SendQueue, bytes, int, int]], bytes]
"""The number of frames, their records, the end of these in the log, the entries, body bytes and message count of each
queue, and the responses.
"""


class ReadBounds(NamedTuple):
    """The current limits of a read. The struct `ReadBounds` of `turn.h` has the same fields."""

    log_start: int
    log_end: int
    cold_below: int
    """Messages before this log offset are read from the disk; one read returns fewer of them."""
    hot_count: int
    cold_count: int
    hot_bytes: int
    cold_bytes: int
    entries: int
    """The limit on queue entries that one read scans."""
    max_count: int
    """The limit on messages of one read."""


class Picked(NamedTuple):
    """The messages of a queue that one read returns."""

    stopped: bool
    """Whether there were more messages than the limits allow."""
    removed: bool
    """Whether messages of some entries are no longer in the log."""
    scanned: int
    """How many entries were scanned."""
    last_offset: int
    """The log offset of the last scanned entry."""
    messages: int
    size: int
    found: bytes | list[tuple[int, int]]
    """The records, or the log offset and size of each range."""


CheckedPull = tuple[Any, Any, str, Collection[int] | None, tuple[bytes, ...], tuple[bytes, ...], list[Any], Any]
"""A pull that has passed its checks: the client; the queue; group and topic for resets; wanted tags; parts of an
answer for a near and a far reader; offset and bytes of queue entries that were read ahead; and a function that reads
entries, by offset, number, and number including those ahead.
"""

PulledRow = tuple[Any, int, int, int, int, int]
"""The client, next offset, commit offset, and the numbers of pulls, messages and bytes. Consecutive pulls of one kind
with the same commit offset are one row, with the next offset of the last.
"""

PullRun = tuple[int, list[PulledRow], list[bytes | memoryview]]
"""The number of pulls, their rows, and the parts of the answers in order: bytes, and views of body packs and of large
ranges of the log.
"""

AckedLease = tuple[str, str, int, tuple[int, int, int, int, int, str], int, list[int]]
"""Group, topic and queue id; start, pop time, invisible time, revive queue, flag and broker of the receipt handle; the
number of its first frame; the offsets.
"""

AckRun = tuple[int, list[AckedLease], bytes]
"""The number of frames, the acknowledged leases, and the answers."""

LeasePlan = tuple[str, str, bytes, int, bytes]
"""Values that the records of all leases share: broker, revive topic, topic field and magic number of the timer's topic, and
the packed store host.
"""

LeasedMessages = tuple[int, int, bytes, bytes, bytes, int]
"""The number of messages and their bytes; the record of their check point and its queue entry; the answer; the rest."""

TextColumn = tuple[bytearray | None, bytearray, bytearray]
"""Arrow buffers: a validity bit for each text, None if all are valid; the offsets; the texts."""

MapColumn = tuple[bytearray, TextColumn, TextColumn]
"""The offsets of the entries of each row, their names, and their values."""

RecordColumns = tuple[
    int,
    bytes,
    TextColumn | None,
    tuple[bytearray, ...] | None,
    tuple[TextColumn, ...] | None,
    MapColumn | None,
]
"""The number of records, their topic, and the wanted parts: bodies; queue ids, offsets, birth and store times in
microseconds, and retry counts; a column for each name; properties.
"""


class Wanted:
    """The parts that `Twin.read_columns` returns, and whether it checks the checksums of bodies."""

    VALUES = 1
    NUMBERS = 2
    TEXTS = 4
    MAP = 8
    CHECKED_BODIES = 16


class Twin(Protocol):
    """The compiled functions. Each returns what its Python twin would. Only `enter_keys` and `withdraw_keys` change
    their arguments, and `serve_pulls` the entries that it has read ahead.
    """

    RECORD_FIELDS: list[tuple[str, int, int]]
    """The fields of a record before its body: name, offset and size of each."""
    ENTRY_FIELDS: list[tuple[str, int, int]]
    """The same for a queue entry."""

    def split_whole(
        self, data: bytes, largest_total: int, largest_header: int, largest_encoding: int, /
    ) -> tuple[list[Frame], int]:
        """Twin of `protocol.frames.split_whole`."""
        ...

    def lay_out_sends(
        self,
        frames: list[Frame],
        at: int,
        most: int,
        send_queues: Mapping[bytes, SendQueue],
        plan: SendPlan,
        born_host: bytes,
        store_ms: int,
        log_offset: int,
        limit: int,
        most_items: int,
        next_id: Callable[[], bytes],
        /,
    ) -> SendRun | None:
        """Twin of `Sending.stage` and `stage_batch`, for up to `most` consecutive regular frames from `at` on.
        Returns None if the first is irregular.
        """
        ...

    def serve_pulls(
        self,
        frames: list[Frame],
        at: int,
        checked_pulls: Mapping[bytes, CheckedPull],
        resets: Mapping[str, object],
        bounds: ReadBounds,
        map_at: Callable[[int], tuple[memoryview | None, int]],
        max_bytes: int,
        /,
    ) -> PullRun | None:
        """Twin of `Pulling.pull`, for consecutive regular pulls from `at` on. Returns None if the first is irregular.
        It ends when the answers have at least `max_bytes` bytes.
        """
        ...

    def pick_entries(
        self,
        entries: bytes,
        bounds: ReadBounds,
        tag_codes: Collection[int] | None,
        map_at: Callable[[int], tuple[memoryview | None, int]],
        /,
    ) -> tuple[bool, bool, int, int, int, int, bytes | list[tuple[int, int]]]:
        """Twin of the loop of `store.reading`. Returns the fields of `Picked`. Several ranges in one file are copied
        together; `map_at` returns the bytes of the file.
        """
        ...

    def read_acks(self, frames: list[Frame], at: int, most: int, answer: tuple[bytes, bytes], /) -> AckRun | None:
        """Twin of `broker.pop.acks.read_acks`, for up to `most` consecutive regular acks from `at` on. Returns None if
        the first is irregular.
        """
        ...

    def lay_out_lease(
        self,
        is_ack: bool,
        group: str,
        topic: str,
        offsets: Iterable[int],
        numbers: tuple[int, ...],
        position: tuple[int, int, int, int, int],
        plan: LeasePlan,
        /,
    ) -> tuple[bytes, bytes] | None:
        """Twin of `broker.pop.journal.Journal`'s check points and acks: the record that waits in the timer's topic, and
        its queue entry. `numbers` are queue id, start, pop time, invisible time, revive queue, due time and the second
        before it; `position` is birth time, store time, queue offset, log offset and the limit of the log. Returns None if
        a name is irregular, or if the record does not fit.
        """
        ...

    def lease_messages(
        self,
        group: str,
        topic: str,
        entries: bytes,
        bounds: ReadBounds,
        map_at: Callable[[int], tuple[memoryview | None, int]],
        numbers: tuple[int, ...],
        position: tuple[int, int, int, int, int],
        plan: LeasePlan,
        answer: tuple[int, int, int, int],
        parts: tuple[bytes, ...],
        /,
    ) -> LeasedMessages | None:
        """Twin of `broker.pop.reading`, `Journal.begin` and the answer, for a pop without a filter that gets messages of
        one queue. `numbers`, `position` and `plan` are those of `lay_out_lease`; `answer` is opaque, flag, rest of other
        queues and end of this one. Returns None if anything is irregular.
        """
        ...

    def count_sound(
        self,
        entries: bytes,
        queue_offset: int,
        queue: tuple[int, bytes],
        bounds: tuple[int, int],
        tag_codes: Collection[int] | None,
        known_codes: Collection[int] | None,
        map_at: Callable[[int], tuple[memoryview | None, int]],
        /,
    ) -> int:
        """Twin of the loop of `store.queues.sound_entries`: how many entries from the first on match the log. `queue`
        is its id and its topic, `bounds` are the log's start and end. For an unwanted message whose tags code is in
        `known_codes`, the record is not checked.
        """
        ...

    def read_keys(self, chunk: bytes | memoryview, at: int, base: int, most: int, /) -> tuple[bytes, int, int]:
        """Twin of `store.index.index_builder.RecordKeys.read`, up to the first irregular record. Returns packed keys."""
        ...

    def enter_keys(
        self,
        keys: bytes,
        at: int,
        pages: list[Any],
        dirty: bytearray,
        slots: int,
        number: int,
        begin_ms: int,
        /,
    ) -> tuple[int, int, bytes]:
        """Twin of the loop of `store.index.growing_index_file.GrowingIndexFile.put`: it writes to slots, and stops at
        a missing page. Returns the numbers of added keys and of slots that were empty before, and the entries.
        """
        ...

    def withdraw_keys(self, entries: bytes, pages: list[Any], dirty: bytearray, slots: int, /) -> None:
        """Undo the last `enter_keys`, whose entries could not be kept for lack of memory. It allocates no memory."""
        ...

    def record_starts(self, buffer: bytes | memoryview, smallest: int, /) -> bytes | None:
        """Twin of the loop of `spark.decode.records`. Returns native 64-bit numbers; None if records do not fill the
        buffer exactly.
        """
        ...

    def read_properties(
        self, buffer: bytes | memoryview, starts: Any, ends: Any, names: tuple[bytes, ...], with_map: bool, /
    ) -> tuple[bytearray | None, MapColumn | None, tuple[TextColumn, ...] | None]:
        """Twin of `spark.decode.property_table`, for rows from `starts` to `ends`, arrays of 64-bit numbers. Returns
        a byte for each row: whether it is irregular. Only if none is, it returns a map, if wanted, and a column for
        each name.
        """
        ...

    def gather(self, buffer: bytes | memoryview, starts: Any, ends: Any, /) -> tuple[bytearray, bytearray]:
        """Twin of the `take` of `spark.decode.decoding`, for rows from `starts` to `ends`, arrays of 64-bit numbers.
        Returns the start of each row as 32-bit numbers, and the joined rows.
        """
        ...

    def read_columns(
        self,
        buffer: bytes | memoryview,
        first_offset: int,
        end_offset: int,
        irregular_flags: int,
        wanted: int,
        names: tuple[bytes, ...],
        /,
    ) -> RecordColumns | None:
        """Twin of `spark.decode.records` and `spark.decode.decoding`, for regular records of one topic with these
        offsets. Returns None for others. `wanted` are bits of `Wanted`. If a record lacks the first of the names, its
        offset id is used.
        """
        ...

    def pack_rows(
        self,
        bodies: list[bytes],
        at: int,
        numbers: list[int],
        beginning: bytes,
        common: bytes,
        own: list[str] | None,
        mark: bytes,
        row_ids: list[str] | None,
        most_properties: int,
        batch_bytes: int,
        /,
    ) -> tuple[bytes, int] | None:
        """Twin of the loops of `spark.write.sink_batches`: returns a batch of rows from `at` on, and the next row;
        None if a row does not fit.
        """
        ...

    def pack_bodies(self, pieces: list[bytes | memoryview], count: int, size: int, /) -> bytearray | None:
        """Twin of `protocol.body_pack.pack_bodies`."""
        ...

    def row_ids(self, prefix: bytes, heads: bytes | list[bytes], bodies: list[bytes], /) -> list[str]:
        """Twin of `spark.write.sink_replays.RowIds.next`, for new rows. There is one head for each row, or one for all."""
        ...


REVISION: Final = 15
"""Version of the arguments and results of the compiled functions: see `module.c`."""


def _of_this_revision(found: Any) -> Twin | None:
    """A library built from other sources has other arguments, so it is not used."""
    if found is not None and found.REVISION != REVISION:
        log.warning(
            "the C twins have revision %d, expected %d; using pure Python instead. Install PocketMQ again",
            found.REVISION,
            REVISION,
        )
        return None
    twin: Twin | None = found
    return twin


built: Final[Twin | None] = _of_this_revision(_turn)
"""The library that was built at the installation."""

_in_use: Twin | None = None if os.environ.get(PURE, "0") not in ("", "0") else built


def twin() -> Twin | None:
    """The compiled functions; None in pure Python. Each object that can use them asks once."""
    return _in_use


def why_pure() -> str:
    """Why pure Python is used; empty if the C twins are used."""
    if _in_use is not None:
        return ""
    if built is not None:
        return f"{PURE} is set"
    return f"it was installed without a C compiler, or with {PURE}; install a compiler, then install PocketMQ again"
