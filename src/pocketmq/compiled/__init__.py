"""The compiled twin of the broker's hot path, where there is one.

    frames of a turn ── usual? ─┬─ yes ──► compiled: records, queue entries and answers in one call ─┐
                                └─ no ───► Python, one by one. Without a compiled twin all of them ──┴──► Python commits

It is made from the C files of this folder when the package is installed, if a C compiler is there; nothing is lost without it
but time. `POCKETMQ_PURE=1` leaves it out, when installing and when running. Both are held to the same tests.

The compiled functions know no rule. Which queues may be sent to, whether the log takes more, what is counted, and what is answered
when something fails is decided in Python, and whatever is unusual is left to it.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

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

SendRun = tuple[int, bytes, int, list[tuple[Place, bytes, int]], bytes]
"""How many frames, their records, where these end in the log, each place with its queue entries and bytes of bodies, and the answers."""

BatchRun = tuple[int, bytes, int, bytes, bytes]
"""How many messages, their records, where these end in the log, queue entries, and message ids joined by commas."""

Picked = tuple[bool, bool, int, int, int, int, bytes | list[tuple[int, int]]]
"""Whether there was more than may be had, whether messages were missing, entries looked at, log offset of the last, messages, their
bytes, and these, or where they lie."""

PlacedKey = tuple[int, int, int]
"""As `store.index_file` has it: hash, log offset, store time."""


class Twin(Protocol):
    """The compiled functions. Each computes what its twin in Python would; all but the last change nothing."""

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
        /,
    ) -> SendRun | None:
        """Twin of `Sending.stage`, for up to `most` usual sends that follow one another from `at` on; None when the first is none."""
        ...

    def lay_out_batch(
        self,
        body: bytes,
        most: int,
        place: Place,
        plan: SendPlan,
        born_host: bytes,
        sys_flag: int,
        born_ms: int,
        store_ms: int,
        log_offset: int,
        limit: int,
        /,
    ) -> BatchRun | None:
        """Twin of `protocol.batch.decode_batch` and `store.record_run.lay_out`; None when anything about it is unusual."""
        ...

    def pick_entries(
        self,
        entries: bytes,
        limits: tuple[int, int, int, int, int, int, int],
        tag_codes: Collection[int] | None,
        map_at: Callable[[int], tuple[memoryview | None, int]],
        /,
    ) -> Picked:
        """Twin of the loop of `store.reading`. `limits`: log start and end, from where on it is hot, count and bytes of hot and cold.

        What was found is copied together if it is in several pieces and all of them lie in one file: `map_at` gives its bytes.
        """
        ...

    def read_keys(self, chunk: bytes, at: int, base: int, most: int, /) -> tuple[list[PlacedKey], int, int]:
        """Twin of `store.record_keys.RecordKeys.read`, up to the first record that is not a usual one."""
        ...

    def enter_keys(
        self,
        keys: Sequence[PlacedKey],
        at: int,
        pages: list[Any],
        dirty: bytearray,
        slots: int,
        number: int,
        begin_ms: int,
        /,
    ) -> tuple[int, int, bytes]:
        """Twin of the loop of `store.growing_index_file.GrowingIndexFile.put`: it writes to slots, and stops at a page that is None.

        How many keys were entered, how many slots were empty before, and the entries.
        """
        ...


REVISION: Final = 1
"""Of what the compiled functions take and give: see `module.c`."""


def _of_this_revision(found: Any) -> Twin | None:
    """A library that was left from other sources would be called in a way that it does not know."""
    if found is not None and found.REVISION != REVISION:
        log.warning(
            "the compiled twin is of revision %d, not %d, and is left out: install again", found.REVISION, REVISION
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
