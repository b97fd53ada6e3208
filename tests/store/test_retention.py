"""Which log files go, and when writes are refused."""

import logging
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.retention import AgedFile, Retention, Verdict, decide
from pocketmq.store.settings import StoreSettings

SETTINGS = StoreSettings(folder=Path("/store"))
HOUR_MS = 60 * 60 * 1000
AGE_MS = 72 * HOUR_MS


def at_hour(hour: int, minute: int = 30) -> int:
    """A moment at that hour of the machine's own time."""
    return int(datetime(2024, 5, 17, hour, minute).timestamp() * 1000)


NIGHT_MS, DAY_MS = at_hour(4), at_hour(15)


def files(now_ms: int, *ages_ms: int) -> list[AgedFile]:
    return [AgedFile(number * 1000, now_ms - age_ms) for number, age_ms in enumerate(ages_ms)]


def dropped(now_ms: int, used: float, *ages_ms: int, **changes: float | tuple[int, ...]) -> int:
    settings = msgspec.structs.replace(SETTINGS, **changes)
    return decide(files(now_ms, *ages_ms), now_ms, used, settings).drop


# by age, at the hour


@pytest.mark.parametrize(
    ("hour", "minute", "count"), [(3, 59, 0), (4, 0, 2), (4, 59, 2), (5, 0, 0), (0, 0, 0), (16, 30, 0)]
)
def test_old_files_are_deleted_at_the_deletion_hour(hour: int, minute: int, count: int) -> None:
    assert dropped(at_hour(hour, minute), 0.1, AGE_MS, AGE_MS, AGE_MS) == count


@pytest.mark.parametrize("hour", [0, 23])
def test_the_deletion_hour_is_a_setting(hour: int) -> None:
    assert dropped(at_hour(hour), 0.1, AGE_MS, 0, delete_hours=(hour,)) == 1
    assert dropped(at_hour(12), 0.1, AGE_MS, 0, delete_hours=(hour,)) == 0


@pytest.mark.parametrize(("hour", "count"), [(3, 0), (4, 1), (5, 0), (15, 0), (16, 1), (17, 0)])
def test_several_deletion_hours_can_be_set(hour: int, count: int) -> None:
    assert dropped(at_hour(hour), 0.1, AGE_MS, 0, delete_hours=(4, 16)) == count


@pytest.mark.parametrize(("age_ms", "count"), [(AGE_MS - 1, 0), (AGE_MS, 1), (AGE_MS + 1, 1), (-5, 0)])
def test_the_age_of_a_file_starts_at_its_last_write(age_ms: int, count: int) -> None:
    assert dropped(NIGHT_MS, 0.1, age_ms, 0) == count


@pytest.mark.parametrize(("hours", "count"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_the_retention_time_is_a_setting(hours: int, count: int) -> None:
    ages = (3 * HOUR_MS - 1, 2 * HOUR_MS - 1, HOUR_MS - 1, 0)

    assert dropped(NIGHT_MS, 0.1, *ages, retention_hours=hours) == count


def test_files_are_deleted_oldest_first() -> None:
    assert dropped(NIGHT_MS, 0.1, AGE_MS, AGE_MS - 1, AGE_MS, AGE_MS, 0) == 1
    assert dropped(NIGHT_MS, 0.1, AGE_MS - 1, AGE_MS, AGE_MS, 0) == 0


# by how full the disk is


@pytest.mark.parametrize(
    ("used", "young", "aged", "refused"),
    [
        (0.0, 0, 0, False),
        (0.7499, 0, 0, False),
        (0.75, 0, 0, False),
        (0.7501, 0, 3, False),
        (0.85, 0, 3, False),
        (0.8501, 3, 3, False),
        (0.90, 3, 3, False),
        (0.9001, 3, 3, True),
        (1.0, 3, 3, True),
    ],
)
def test_on_a_full_disk_files_are_deleted_at_any_hour(used: float, young: int, aged: int, refused: bool) -> None:
    young_files, aged_files = files(DAY_MS, 3, 2, 1, 0), files(DAY_MS, *[AGE_MS] * 3, 0)

    for some, count in ((young_files, young), (aged_files, aged)):
        verdict = decide(some, DAY_MS, used, SETTINGS)
        assert (verdict.drop, verdict.refuse_writes) == (count, refused)


@pytest.mark.parametrize("ratio", [0.3, 0.5])
def test_the_disk_ratios_are_settings(ratio: float) -> None:
    clean = {"disk_clean_ratio": ratio}
    force = {**clean, "disk_force_ratio": ratio}
    full = {**force, "disk_full_ratio": ratio}

    assert dropped(DAY_MS, ratio, AGE_MS, 0, **clean) == 0
    assert dropped(DAY_MS, ratio + 0.01, AGE_MS, 0, **clean) == 1
    assert dropped(DAY_MS, ratio + 0.01, 0, 0, **force) == 1
    settings = msgspec.structs.replace(SETTINGS, **full)
    assert not decide([], DAY_MS, ratio, settings).refuse_writes
    assert decide([], DAY_MS, ratio + 0.01, settings).refuse_writes


# bounds


@pytest.mark.parametrize(("count", "going"), [(0, 0), (1, 0), (2, 1), (10, 9), (11, 10), (12, 10), (50, 10)])
@pytest.mark.parametrize(("now_ms", "used"), [(NIGHT_MS, 0.1), (DAY_MS, 0.8), (DAY_MS, 0.99)])
def test_a_few_files_are_deleted_per_run_and_never_the_newest(count: int, going: int, now_ms: int, used: float) -> None:
    assert dropped(now_ms, used, *[AGE_MS] * count) == going


@pytest.mark.parametrize(("most", "going"), [(0, 0), (1, 1), (3, 3), (4, 4), (5, 4)])
def test_the_number_of_files_per_run_is_a_setting(most: int, going: int) -> None:
    assert dropped(NIGHT_MS, 0.1, *[AGE_MS] * 5, max_deletes_per_run=most) == going


@pytest.mark.parametrize(
    ("now_ms", "used", "why"),
    [(NIGHT_MS, 0.1, "older than 72 h"), (DAY_MS, 0.8, "older than 72 h"), (DAY_MS, 0.86, "disk 86% full")],
)
def test_the_decision_has_a_reason(now_ms: int, used: float, why: str) -> None:
    assert decide(files(now_ms, AGE_MS, 0), now_ms, used, SETTINGS) == Verdict(1, False, why)


@given(
    ages_h=st.lists(st.integers(0, 200), max_size=15),
    hour=st.integers(0, 23),
    used=st.floats(0, 1),
    most=st.integers(0, 12),
)
def test_a_decision_never_deletes_the_newest_file(ages_h: list[int], hour: int, used: float, most: int) -> None:
    now_ms = at_hour(hour)
    some = files(now_ms, *(hours * HOUR_MS for hours in ages_h))
    settings = msgspec.structs.replace(SETTINGS, max_deletes_per_run=most)

    verdict = decide(some, now_ms, used, settings)

    assert 0 <= verdict.drop <= min(most, max(0, len(some) - 1))
    assert verdict.refuse_writes == (used > 0.9)
    if used <= 0.85:
        assert all(hours >= 72 for hours in ages_h[: verdict.drop])
        assert verdict.drop == 0 or used > 0.75 or hour == 4


# what is held


@pytest.mark.parametrize(
    ("pinned_from", "drop", "held"),
    [
        (None, 3, False),
        (9999, 3, False),
        (3000, 3, False),
        (2999, 2, True),
        (1000, 1, True),
        (999, 0, True),
        (-1, 0, True),
    ],
)
def test_a_file_with_a_needed_message_is_kept(pinned_from: int | None, drop: int, held: bool) -> None:
    some = files(NIGHT_MS, *[AGE_MS] * 3, 0)

    for now_ms, by_hand in ((NIGHT_MS, False), (DAY_MS + AGE_MS, True)):
        verdict = decide(some, now_ms, 0.1, SETTINGS, by_hand=by_hand, pinned_from=pinned_from)
        assert verdict == Verdict(drop, False, "older than 72 h", held)


def test_files_that_are_not_old_are_not_kept_longer() -> None:
    assert not decide(files(NIGHT_MS, 0, 0), NIGHT_MS, 0.1, SETTINGS, pinned_from=0).needed


def test_a_too_full_disk_deletes_kept_files() -> None:
    verdict = decide(files(DAY_MS, 3, 2, 1, 0), DAY_MS, 0.86, SETTINGS, pinned_from=1500)

    assert verdict == Verdict(3, False, "disk 86% full", overruled=2)


# acting


class Disk:
    """Log files of a tenth of a disk each, and the result of retention."""

    def __init__(self, count: int) -> None:
        self.files = files(DAY_MS, *[0] * count)
        self.others = 0.0
        self.done: list[str] = []

    def used_ratio(self) -> float:
        return len(self.files) / 10 + self.others

    def aged_files(self) -> list[AgedFile]:
        return self.files.copy()

    def drop_first(self) -> None:
        self.done.append(f"drop {self.files.pop(0).first_offset}")

    def follow(self, first_offset: int, end_offset: int, why: str) -> None:
        self.done.append("follow")


def retention_of(disk: Disk, **changes: float) -> Retention:
    settings = msgspec.structs.replace(SETTINGS, **changes)
    return Retention(settings, disk.aged_files, disk.used_ratio, disk.drop_first, disk.follow)


@pytest.mark.parametrize(("used", "refused"), [(0.1, False), (0.8, False), (0.89, False), (0.95, True)])
def test_a_manual_run_deletes_old_files_at_any_hour(used: float, refused: bool) -> None:
    some = files(DAY_MS, AGE_MS, AGE_MS, 0, 0)

    verdict = decide(some, DAY_MS, used, SETTINGS, by_hand=True)

    assert (verdict.drop, verdict.refuse_writes) == (2, refused)


def test_a_manual_run_deletes_old_files_up_to_a_limit() -> None:
    disk = Disk(0)
    disk.files = files(DAY_MS, *[AGE_MS] * 30, 0)
    retention = retention_of(disk, max_deletes_per_run=4)

    assert retention.run_by_hand(DAY_MS, 10) == 12
    assert retention.run_by_hand(DAY_MS, 100) == 18
    assert retention.run_by_hand(DAY_MS, 100) == 0
    assert retention.dropped_files == 30


def test_without_old_files_nothing_is_done() -> None:
    disk = Disk(5)
    retention = retention_of(disk)

    retention.run(DAY_MS)

    assert (disk.done, retention.dropped_files, retention.refuses_writes) == ([], 0, False)


def test_files_are_deleted_oldest_first_and_derived_files_follow(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(9)
    retention = retention_of(disk, max_deletes_per_run=2)

    with caplog.at_level(logging.INFO, "pocketmq.store"):
        retention.run(DAY_MS)

    assert disk.done == ["drop 0", "drop 1000", "follow"]
    assert retention.dropped_files == 2
    assert [record.getMessage() for record in caplog.records] == [
        "dropped 2 log files, log offsets 0 to 2000, 2000 bytes: disk 90% full"
    ]
    retention.run(DAY_MS)
    assert (disk.done[3:], retention.dropped_files) == ([], 2)


def test_writes_are_refused_while_the_disk_is_too_full_and_accepted_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(1)
    retention = retention_of(disk)

    refused = []
    for others in (0.0, 0.8, 0.81, 0.85, 0.81, 0.8, 0.81, 0.1):
        disk.others = others
        retention.run(DAY_MS)
        refused.append(retention.refuses_writes)

    assert refused == [False, False, True, True, True, False, True, False]
    assert disk.done == []
    assert [record.getMessage() for record in caplog.records] == [
        "disk is 91 % full; rejecting writes until space is free",
        "disk is 90 % full; accepting writes again",
        "disk is 91 % full; rejecting writes until space is free",
        "disk is 20 % full; accepting writes again",
    ]


def test_deleted_files_make_space_for_writes() -> None:
    disk = Disk(2)
    disk.others = 0.75
    retention = retention_of(disk)

    retention.run(DAY_MS)
    assert (retention.refuses_writes, disk.done) == (True, ["drop 0", "follow"])
    retention.run(DAY_MS)
    assert (retention.refuses_writes, disk.done) == (False, ["drop 0", "follow"])


def test_the_oldest_needed_file_is_kept_and_this_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(0)
    disk.files = files(NIGHT_MS, *[AGE_MS] * 4, 0)
    retention = retention_of(disk)
    needed: list[int | None] = [None, 2500, 1500]
    retention.holders += [partial(needed.__getitem__, place) for place in range(3)]

    retention.run(NIGHT_MS)
    retention.run(NIGHT_MS)
    assert (disk.done, retention.holds_files) == (["drop 0", "follow"], True)
    needed[:] = [None] * 3
    retention.run(NIGHT_MS)

    assert (retention.dropped_files, retention.dropped_needed_files, retention.holds_files) == (4, 0, False)
    assert [record.getMessage() for record in caplog.records] == [
        "keeping log files older than 72 h: delayed messages in them are not delivered yet"
    ]
