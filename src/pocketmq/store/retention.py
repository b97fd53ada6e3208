"""Retention: decides which log files are deleted. The oldest first, never the newest, a few at a time.

    disk in use     0 ────────── 75 % ─────────── 85 % ─────────── 90 % ───────
    delete          old files,   old files,       any file         any file
                    at hour 4    at once
    pinned files    stay         stay             deleted, logged
    writes          accepted     accepted         accepted         refused, until below again

A file is pinned while a delayed message in it must still be delivered. Such files exist only after a long pause of
the machine: the broker normally moves delayed messages to newer files in time. A file is released when its messages
have been stored again.

The decision is a pure function; `Retention` applies it. Queue files and index files are deleted after the log files.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice, pairwise
from typing import NamedTuple

from pocketmq.store.settings import StoreSettings

log = logging.getLogger(__name__)

HOUR_MS = 3_600_000


class AgedFile(NamedTuple):
    """A log file: its first offset, and the time of its last write."""

    first_offset: int
    modified_ms: int


QueueRanges = dict[tuple[str, int], tuple[int, int]]
"""Topic and queue id to the first offset and the end offset of a range."""


class Dropped(NamedTuple):
    """Log files that retention deleted: their log offsets, their messages, and the reason."""

    first_offset: int
    end_offset: int
    why: str
    ranges: QueueRanges


class Verdict(NamedTuple):
    """How many of the oldest files to delete now, and whether to reject writes."""

    drop: int
    refuse_writes: bool
    why: str
    needed: bool = False
    """Whether one more file would be deleted if its messages were not needed."""
    overruled: int = 0
    """How many of the deleted files are still needed, but the disk is too full to keep them."""


def decide(
    files: Sequence[AgedFile],
    now_ms: int,
    used_ratio: float,
    settings: StoreSettings,
    *,
    by_hand: bool = False,
    pinned_from: int | None = None,
) -> Verdict:
    """Decide about these files, oldest first, at this disk usage. `by_hand`: at the request of an administrator.
    Expired files are then deleted at any hour, and no others. `pinned_from`: the log offset of the first message that
    is still needed; None if there is none.
    """
    refuse = used_ratio > settings.disk_full_ratio
    any_age = used_ratio > settings.disk_force_ratio and settings.force_clean and not by_hand
    in_hour = by_hand or datetime.fromtimestamp(now_ms / 1000).hour in settings.delete_hours
    if not any_age and not in_hour and used_ratio <= settings.disk_clean_ratio:
        return Verdict(0, refuse, "")
    oldest_kept_ms = now_ms - settings.retention_hours * HOUR_MS
    why = f"disk {used_ratio:.0%} full" if any_age else f"older than {settings.retention_hours} h"
    drop = overruled = 0
    for file, following in islice(pairwise(files), settings.max_deletes_per_run):
        if not any_age and file.modified_ms > oldest_kept_ms:
            break
        is_pinned = pinned_from is not None and following.first_offset > pinned_from
        if is_pinned and not any_age:
            return Verdict(drop, refuse, why, needed=True)
        drop += 1
        overruled += is_pinned
    return Verdict(drop, refuse, why, overruled=overruled)


class Retention:
    """Applies verdicts: `drop_first` deletes the oldest log file, `follow` updates the derived files.

    `follow(first_offset, end_offset, why)` is called for the dropped files. `aged_files` returns the files that may
    be dropped, oldest first, and then one that may not: the newest, or one that is not synced. Each of `holders`
    returns the log offset of the first message that it still needs; None if it needs none.
    """

    def __init__(
        self,
        settings: StoreSettings,
        aged_files: Callable[[], list[AgedFile]],
        used_ratio: Callable[[], float],
        drop_first: Callable[[], None],
        follow: Callable[[int, int, str], None],
    ) -> None:
        self._settings = settings
        self._aged_files = aged_files
        self._used_ratio = used_ratio
        self._drop_first = drop_first
        self._follow = follow
        self.holders: list[Callable[[], int | None]] = []
        self.dropped_files = 0
        self.dropped_needed_files = 0
        """Pinned files that were deleted because the disk was too full."""
        self.holds_files = False
        """Whether pinned files were kept that would otherwise be deleted."""
        self.refuses_writes = False

    def apply(self, settings: StoreSettings) -> None:
        """Apply these settings from now on."""
        self._settings = settings

    def run(self, now_ms: int) -> None:
        """Check once, and act."""
        self._look(now_ms)

    def run_by_hand(self, now_ms: int, most: int) -> int:
        """Delete aged files, up to `most`. Returns their number."""
        dropped = 0
        while dropped < most and (some := self._look(now_ms, by_hand=True)):
            dropped += some
        return dropped

    def _look(self, now_ms: int, *, by_hand: bool = False) -> int:
        used, files = self._used_ratio(), self._aged_files()
        pinned_from = self._pinned_from() if len(files) > 1 else None
        verdict = decide(files, now_ms, used, self._settings, by_hand=by_hand, pinned_from=pinned_from)
        for _ in range(verdict.drop):
            self._drop_first()
        if verdict.drop:
            self.dropped_files += verdict.drop
            self.dropped_needed_files += verdict.overruled
            first, end = files[0].first_offset, files[verdict.drop].first_offset
            log.info(
                "dropped %d log files, log offsets %d to %d, %d bytes: %s",
                verdict.drop,
                first,
                end,
                end - first,
                verdict.why,
            )
            self._follow(first, end, verdict.why)
        self._report(verdict, used)
        return verdict.drop

    def _pinned_from(self) -> int | None:
        needed = (needed_from() for needed_from in self.holders)
        return min((offset for offset in needed if offset is not None), default=None)

    def _report(self, verdict: Verdict, used: float) -> None:
        """Log unusual states, once each."""
        if verdict.overruled:
            log.error(
                "%d of the dropped log files had undelivered delayed messages: the disk is %.0f %% full",
                verdict.overruled,
                used * 100,
            )
        if verdict.needed and not self.holds_files:
            log.warning("keeping log files %s: delayed messages in them are not delivered yet", verdict.why)
        self.holds_files = verdict.needed
        if verdict.refuse_writes != self.refuses_writes:
            self.refuses_writes = verdict.refuse_writes
            if verdict.refuse_writes:
                log.error("disk is %.0f %% full; rejecting writes until space is free", used * 100)
            else:
                log.warning("disk is %.0f %% full; accepting writes again", used * 100)
