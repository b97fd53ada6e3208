"""Which log files may go. The oldest first, never the newest, a few at a time.

    disk in use     0 ────────── 75 % ─────────── 85 % ─────────── 90 % ───────
    files go        aged ones,   aged ones,       any               any
                    at hour 4    at once
    writes          accepted     accepted         accepted          refused, until below again

The decision is pure and told everything; `Retention` acts on it. Queue files and index files follow the log.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from pocketmq.store.settings import StoreSettings

log = logging.getLogger(__name__)

HOUR_MS = 3_600_000


class AgedFile(NamedTuple):
    """A log file: where it begins, and when it was last written."""

    first_offset: int
    modified_ms: int


class Verdict(NamedTuple):
    """How many of the oldest files go now, and whether writes are refused."""

    drop: int
    refuse_writes: bool
    why: str


def decide(
    files: Sequence[AgedFile], now_ms: int, used_ratio: float, settings: StoreSettings, *, by_hand: bool = False
) -> Verdict:
    """What to do about these files, oldest first, on a disk that is this full.

    `by_hand`: somebody asks for it. Then the aged ones go at any hour, and no others, however full the disk is.
    """
    refuse = used_ratio > settings.disk_full_ratio
    any_age = used_ratio > settings.disk_force_ratio and not by_hand
    in_hour = by_hand or datetime.fromtimestamp(now_ms / 1000).hour == settings.delete_hour
    if not any_age and not in_hour and used_ratio <= settings.disk_clean_ratio:
        return Verdict(0, refuse, "")
    oldest_kept_ms = now_ms - settings.retention_hours * HOUR_MS
    droppable = 0
    for file in files[:-1][: settings.max_deletes_per_run]:
        if not any_age and file.modified_ms > oldest_kept_ms:
            break
        droppable += 1
    why = f"disk {used_ratio:.0%} full" if any_age else f"older than {settings.retention_hours} h"
    return Verdict(droppable, refuse, why)


class Retention:
    """Applies verdicts: `drop_first` removes the oldest log file, `follow` lets the derived files follow it.

    `aged_files` gives the files that may be dropped, oldest first, and then one that may not: the newest, or one that is not safe.
    """

    def __init__(
        self,
        settings: StoreSettings,
        aged_files: Callable[[], list[AgedFile]],
        used_ratio: Callable[[], float],
        drop_first: Callable[[], None],
        follow: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._aged_files = aged_files
        self._used_ratio = used_ratio
        self._drop_first = drop_first
        self._follow = follow
        self.dropped_files = 0
        self.refuses_writes = False

    def run(self, now_ms: int) -> None:
        """Look once, and act."""
        self._look(now_ms)

    def run_by_hand(self, now_ms: int, most: int) -> int:
        """Let aged files go, as long as there are any, up to `most`; how many went."""
        dropped = 0
        while dropped < most and (some := self._look(now_ms, by_hand=True)):
            dropped += some
        return dropped

    def _look(self, now_ms: int, *, by_hand: bool = False) -> int:
        used = self._used_ratio()
        verdict = decide(self._aged_files(), now_ms, used, self._settings, by_hand=by_hand)
        for _ in range(verdict.drop):
            self._drop_first()
        if verdict.drop:
            self.dropped_files += verdict.drop
            log.info("dropped %d log files: %s", verdict.drop, verdict.why)
            self._follow()
        if verdict.refuse_writes != self.refuses_writes:
            self.refuses_writes = verdict.refuse_writes
            if verdict.refuse_writes:
                log.error("the disk is %.0f %% full: writes are refused until space returns", used * 100)
            else:
                log.warning("the disk is %.0f %% full: writes are accepted again", used * 100)
        return verdict.drop
