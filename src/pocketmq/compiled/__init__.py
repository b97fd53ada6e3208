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
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol

try:
    from pocketmq.compiled import _turn  # type: ignore[attr-defined]
except ImportError:
    _turn = None

log = logging.getLogger("pocketmq.compiled")

PURE: Final = "POCKETMQ_PURE"
"""The variable of the environment that leaves the compiled twin out."""

Frame = tuple[int, bytes, bytes]
"""As `protocol.frames` has it: header encoding, header, body."""

Place = tuple[Any, Any, int, bytes]
"""A queue that may be sent to, its tally, the magic of its records, and its topic as it stands in them."""

SendPlan = tuple[bytes, tuple[bytes, ...], bytes, bytes, int, bool]
"""What all sends have in common: suffix of the properties, parts of an answer, first half of the message ids, packed host of the
store, largest body, and whether sends wait for the disk."""

SendRun = tuple[int, bytes, int, list[tuple[Place, bytes, int, int]], bytes]
"""How many frames, their records, where these end in the log, for each queue its entries, bytes of bodies and number of messages,
and the responses."""


class ReadBounds(NamedTuple):
    """What a read goes by at one moment. The struct `ReadBounds` of `turn.h` has the same fields."""

    log_start: int
    log_end: int
    cold_below: int
    """Messages before this log offset are read from the disk, and a reader gets fewer of them at a time."""
    hot_count: int
    cold_count: int
    hot_bytes: int
    cold_bytes: int
    entries: int
    """Queue entries that one read may scan."""
    max_count: int
    """Messages that one read may ask for."""


class Picked(NamedTuple):
    """Which messages of a queue one read gets."""

    stopped: bool
    """Whether there was more than it may have."""
    removed: bool
    """Whether messages of entries are not in the log."""
    scanned: int
    """How many entries were scanned."""
    last_offset: int
    """The log offset of the last scanned entry."""
    messages: int
    size: int
    found: bytes | list[tuple[int, int]]
    """The records, or the log offset and size of each range of them."""


PullPlace = tuple[Any, Any, str, Collection[int] | None, tuple[bytes, ...], tuple[bytes, ...], list[Any], Any]
"""A pull whose checks were made: who it is, its queue, its group and topic as resets know them, the tags it wants, parts of an answer
for who is near and for who is far behind, offset and bytes of queue entries that were read ahead, and a function that reads entries:
it takes an offset, how many are needed, and how many with those ahead."""

PulledRow = tuple[Any, int, int, int, int, int]
"""Who pulled, next offset, commit offset, and how many pulls, messages and bytes of these. Pulls that follow one another, of one kind and
with the same commit offset, are one row, with the next offset of the last."""

PullRun = tuple[int, list[PulledRow], list[bytes | memoryview]]
"""How many pulls, their rows, and the pieces of the answers, one behind the other: bytes, and views of packs of bodies and of large ranges of
the log."""

TextColumn = tuple[bytearray | None, bytearray, bytearray]
"""Buffers of Arrow: a bit for each text that is there, None when all are; where each begins; the texts."""

MapColumn = tuple[bytearray, TextColumn, TextColumn]
"""Where the entries of each row begin, their names, and their values."""

RecordColumns = tuple[
    int,
    bytes,
    TextColumn | None,
    tuple[bytearray, ...] | None,
    tuple[TextColumn, ...] | None,
    MapColumn | None,
]
"""How many records, their topic, and what was wanted: bodies; queue ids, offsets, microseconds of birth and of storing, and how often consumed
in vain; a column for each name; properties."""


class Wanted:
    """What `Twin.read_columns` makes, and whether it compares the checksums of bodies."""

    VALUES = 1
    NUMBERS = 2
    TEXTS = 4
    MAP = 8
    CHECKED_BODIES = 16


class Twin(Protocol):
    """The compiled functions. Each computes what its twin in Python would. Only `enter_keys` and `withdraw_keys`
    change anything, and `serve_pulls` the entries that it has read ahead.
    """

    RECORD_FIELDS: list[tuple[str, int, int]]
    """What stands before the body of a record: name, offset and bytes of each field."""
    ENTRY_FIELDS: list[tuple[str, int, int]]
    """The same of a queue entry."""

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
        places: Mapping[bytes, Place],
        plan: SendPlan,
        born_host: bytes,
        store_ms: int,
        log_offset: int,
        limit: int,
        most_items: int,
        next_id: Callable[[], bytes],
        /,
    ) -> SendRun | None:
        """Twin of `Sending.stage` and `stage_batch`, for up to `most` usual frames that follow one another from `at` on.

        None if the first is not one of them.
        """
        ...

    def serve_pulls(
        self,
        frames: list[Frame],
        at: int,
        places: Mapping[bytes, PullPlace],
        resets: Mapping[str, object],
        bounds: ReadBounds,
        map_at: Callable[[int], tuple[memoryview | None, int]],
        room: int,
        /,
    ) -> PullRun | None:
        """Twin of `Pulling.pull`, for usual pulls that follow one another from `at` on; None if the first is not.

        It ends with the pull by which the answers have `room` bytes or more.
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
        """Twin of the loop of `store.reading`; the fields of `Picked`.

        What was found is copied together if it is in several pieces and all of them are in one file: `map_at` gives its bytes.
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
        """Twin of the loop of `store.queues.sound_entries`: how many entries from the first on match the log. `queue` is its id and its topic,
        `bounds` are the log's start and end. `known_codes` are tags codes that need no look at the record of a message that is not wanted.
        """
        ...

    def read_keys(self, chunk: bytes | memoryview, at: int, base: int, most: int, /) -> tuple[bytes, int, int]:
        """Twin of `store.index.index_builder.RecordKeys.read`, up to the first record that is not a usual one. Keys are packed."""
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
        """Twin of the loop of `store.index.growing_index_file.GrowingIndexFile.put`: it writes to slots, and stops at a missing page.

        How many keys were entered, how many slots were empty before, and the entries.
        """
        ...

    def withdraw_keys(self, entries: bytes, pages: list[Any], dirty: bytearray, slots: int, /) -> None:
        """Undo the last `enter_keys`, whose entries could not be kept for want of memory; it needs none."""
        ...

    def record_starts(self, buffer: bytes | memoryview, smallest: int, /) -> bytes | None:
        """Twin of the loop of `spark.decode.records`: 64-bit numbers of the machine; None when records do not fill the buffer exactly."""
        ...

    def read_properties(
        self, buffer: bytes | memoryview, starts: Any, ends: Any, names: tuple[bytes, ...], with_map: bool, /
    ) -> tuple[bytearray | None, MapColumn | None, tuple[TextColumn, ...] | None]:
        """Twin of `spark.decode.property_table`, for rows from `starts` to `ends`, arrays of 64-bit numbers. A byte for each row says
        whether it is odd; only when none is, there is a map, if wanted, and a column for each name.
        """
        ...

    def gather(self, buffer: bytes | memoryview, starts: Any, ends: Any, /) -> tuple[bytearray, bytearray]:
        """Twin of the `take` of `spark.decode.decoding`, for rows from `starts` to `ends`, arrays of 64-bit numbers: where each row begins in
        what was copied together, as 32-bit numbers, and that.
        """
        ...

    def read_columns(
        self,
        buffer: bytes | memoryview,
        first_offset: int,
        end_offset: int,
        odd_flags: int,
        wanted: int,
        names: tuple[bytes, ...],
        /,
    ) -> RecordColumns | None:
        """Twin of `spark.decode.records` and `spark.decode.decoding`, for records of one topic that are all usual and have these offsets; None for
        others. `wanted` are bits of `Wanted`. A record without the first of the names has the id there that its broker gave it.
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
        """Twin of the loops of `spark.write.sink_batches`: a batch of rows from `at` on, and the row behind it; None when one does not fit."""
        ...

    def pack_bodies(self, pieces: list[bytes | memoryview], count: int, size: int, /) -> bytearray | None:
        """Twin of `protocol.body_pack.pack_bodies`."""
        ...

    def row_ids(self, prefix: bytes, heads: bytes | list[bytes], bodies: list[bytes], /) -> list[str]:
        """Twin of `spark.write.sink_replays.RowIds.next`, for rows that did not come before. There is a head for each, or one for all."""
        ...


REVISION: Final = 14
"""Of what the compiled functions take and give: see `module.c`."""


def _of_this_revision(found: Any) -> Twin | None:
    """A library that was left from other sources would be called in a way that it does not know."""
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
"""What was made when the package was installed."""

_in_use: Twin | None = None if os.environ.get(PURE, "0") not in ("", "0") else built


def twin() -> Twin | None:
    """The compiled functions; None where Python does everything. Asked for once by each object that can use them."""
    return _in_use


def why_pure() -> str:
    """Why Python does everything here; empty where it does not."""
    if _in_use is not None:
        return ""
    if built is not None:
        return f"{PURE} is set"
    return f"it was installed without a C compiler, or with {PURE}; where there is one, install again"
