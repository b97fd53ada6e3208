"""One consume queue: entries in files and in memory, and what a full disk or a power loss does to them."""

import errno
from bisect import bisect_left
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.store.consume_queue_kit import FOLDER, Fixture
from tests.store.queue_kit import FILE_BYTES, FILE_ENTRIES, file_name, fill

from pocketmq.errors import StoreError
from pocketmq.store.log.segments import OpenFiles
from pocketmq.store.queues.consume_queue import ConsumeQueue, Entry, is_entry, is_head, is_message, log_offset_of

EMPTY = (0, 0, 0)


@pytest.fixture
def box() -> Fixture:
    return Fixture()


# what an entry says


@pytest.mark.parametrize(
    ("entry", "entered", "message", "head", "points_to"),
    [
        ((0, 1, 0), True, True, False, 0),
        ((5, 0x7FFFFFFE, -1), True, True, False, 5),
        ((0, 0x7FFFFFFF, 0), True, False, True, -1),
        ((0, 0x7FFFFFFF, 77), True, False, False, 77),
        ((0, 0, 0), False, False, False, 0),
        ((9, -1, 0), False, False, False, 9),
        ((-1, 5, 0), False, False, False, -1),
    ],
)
def test_an_entry_points_to_a_message_or_marks_its_absence(
    entry: Entry, entered: bool, message: bool, head: bool, points_to: int
) -> None:
    assert (is_entry(entry), is_message(entry), is_head(entry), log_offset_of(entry)) == (
        entered,
        message,
        head,
        points_to,
    )


# what a queue knows of its topic


def test_only_the_delay_topic_is_a_delay_queue(box: Fixture) -> None:
    delay = ConsumeQueue("SCHEDULE_TOPIC_XXXX", 3, FOLDER, box.open_files, FILE_ENTRIES)

    assert (delay.is_delay, delay.key, delay.folder) == (True, ("SCHEDULE_TOPIC_XXXX", 3), FOLDER)
    assert not box.queue.is_delay


@pytest.mark.parametrize(("length", "overhead"), [(1, 92), (127, 91 + 127), (128, 92 + 128), (255, 92 + 255)])
def test_a_record_contains_its_topic_and_a_second_length_byte_for_long_ones(
    box: Fixture, length: int, overhead: int
) -> None:
    queue = ConsumeQueue("t" * length, 0, FOLDER, box.open_files, FILE_ENTRIES)

    assert queue.record_overhead == overhead


# entries in memory and in files


def test_entries_are_readable_before_they_are_written(box: Fixture) -> None:
    entries = fill(box.queue, 3)

    assert list(box.queue.entries(0, 100)) == entries
    assert (box.queue.min_offset, box.queue.flushed_offset, box.queue.max_offset) == (0, 0, 3)
    assert box.files() == []


def test_staged_messages_are_not_readable(box: Fixture) -> None:
    box.queue.next_offset += 1

    assert box.queue.entry(0) is None
    assert box.queue.max_offset == 0


def test_a_flush_writes_files_named_by_their_first_byte(box: Fixture) -> None:
    entries = fill(box.queue, 25)

    box.queue.flush()

    assert box.files() == [f"{number * FILE_BYTES:020d}" for number in range(3)]
    assert box.file(0) + box.file(1) + box.file(2) == [*entries, *[EMPTY] * 5]
    assert (box.queue.flushed_offset, box.queue.max_offset, len(box.queue.pending)) == (25, 25, 0)
    assert box.open_files.take_written() == [Path(file_name(box.queue, number)) for number in range(3)]


@pytest.mark.parametrize("count", [FILE_ENTRIES - 1, FILE_ENTRIES, FILE_ENTRIES + 1])
def test_a_file_is_created_with_its_first_entry(box: Fixture, count: int) -> None:
    entries = fill(box.queue, count)

    box.queue.flush()

    assert len(box.files()) == (2 if count > FILE_ENTRIES else 1)
    assert list(box.queue.entries(0, 100)) == entries


@pytest.mark.parametrize("flushed", range(8, 13))
def test_a_read_continues_from_files_to_memory(box: Fixture, flushed: int) -> None:
    entries = fill(box.queue, flushed)
    box.queue.flush()
    entries += fill(box.queue, 25 - flushed)

    for start in range(26):
        for count in (1, 2, FILE_ENTRIES, 30):
            assert list(box.queue.entries(start, count)) == entries[start : start + count]


def test_no_message_is_before_the_first_or_after_the_last_entry(box: Fixture) -> None:
    fill(box.queue, 3)
    box.queue.flush()

    assert [box.queue.entry(offset) for offset in (-11, -1, 3, 4, 1000)] == [None] * 5
    assert box.queue.read(0, 0) == box.queue.read(0, -1) == b""


def test_a_repeated_flush_writes_only_new_entries(box: Fixture) -> None:
    entries = fill(box.queue, 7)
    box.queue.flush()
    box.open_files.take_written()
    before = box.disk.position

    box.queue.flush()
    assert box.disk.position == before
    assert box.open_files.take_written() == []

    entries += fill(box.queue, 1)
    box.queue.flush()
    written = [operation for operation in box.disk.operations[before:] if operation.kind == "write"]
    assert [(write.offset, len(write.data)) for write in written] == [(140, 20)]
    assert box.file(0)[:8] == entries


def test_a_read_ends_where_a_file_is_missing(box: Fixture) -> None:
    entries = fill(box.queue, 30)
    box.queue.flush()
    box.open_files.unlink(file_name(box.queue, 1))

    assert list(box.queue.entries(7, 100)) == entries[7:10]
    assert box.queue.entry(10) is None
    assert list(box.queue.entries(20, 100)) == entries[20:]


def test_a_gap_in_the_files_does_not_shift_pending_entries(box: Fixture) -> None:
    entries = fill(box.queue, 20)
    box.queue.flush()
    fill(box.queue, 5)
    box.open_files.unlink(file_name(box.queue, 1))

    assert list(box.queue.entries(5, 100)) == entries[5:10]


def test_a_read_of_a_short_file_ends_with_its_last_complete_entry(box: Fixture) -> None:
    entries = fill(box.queue, 20)
    box.queue.flush()
    with box.disk.open(box.queue.file_of(0)) as file:
        file.truncate(3 * 20 + 7)

    assert list(box.queue.entries(1, 100)) == entries[1:3]
    assert box.queue.entry(3) is None


def test_a_disk_that_does_not_read_is_a_store_error_that_names_the_file(box: Fixture) -> None:
    fill(box.queue, 5)
    box.queue.flush()
    box.disk.fail("read", errno.EIO)

    with pytest.raises(StoreError, match=r"cannot read .*/T/0/0{20}: .*Input/output"):
        box.queue.entry(0)

    assert box.queue.entry(0) is not None


# a disk that refuses


@pytest.mark.parametrize("call", ["create", "truncate", "write", "make_dir"])
def test_a_failed_flush_keeps_all_entries_and_is_repeated(box: Fixture, call: str) -> None:
    entries = fill(box.queue, 25)
    fault = box.disk.fail(call, errno.ENOSPC, times=None)  # type: ignore[arg-type]

    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            box.queue.flush()
        assert list(box.queue.entries(0, 100)) == entries

    fault.heal()
    box.queue.flush()
    assert box.file(0) + box.file(1) + box.file(2)[:5] == entries
    assert list(box.queue.entries(0, 100)) == entries


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_an_interrupted_flush_continues_at_its_position(box: Fixture, nth: int) -> None:
    entries = fill(box.queue, 25)
    box.disk.fail("write", errno.ENOSPC, nth=nth)

    with pytest.raises(OSError, match="No space"):
        box.queue.flush()

    assert box.queue.flushed_offset == (nth - 1) * FILE_ENTRIES
    assert list(box.queue.entries(0, 100)) == entries
    box.queue.flush()
    assert list(box.reopened(0, 25).entries(0, 100)) == entries


def test_files_written_before_a_failure_still_wait_for_their_sync(box: Fixture) -> None:
    fill(box.queue, 25)
    box.disk.fail("write", errno.ENOSPC, nth=2)
    with pytest.raises(OSError, match="No space"):
        box.queue.flush()

    box.queue.flush()

    assert len(box.open_files.take_written()) == 3


def test_entries_are_written_to_a_really_full_disk_when_it_has_space(box: Fixture) -> None:
    entries = fill(box.queue, 25)
    box.disk.resize(1)
    with pytest.raises(OSError, match="No space"):
        box.queue.flush()

    box.disk.resize(None)
    box.queue.flush()

    assert list(box.reopened(0, 25).entries(0, 100)) == entries


# against a model


class QueueAgainstList(RuleBasedStateMachine):
    """The queue behaves like a plain list of entries, with any errors of the disk."""

    @initialize(begin=st.integers(0, 25))
    def begin(self, begin: int) -> None:
        self.box = Fixture()
        self.queue = self.box.queue
        self.queue.begin_anew(begin)
        self.first = begin
        self.model: list[Entry] = []
        self.log_end = 500

    def _places(self) -> list[int]:
        return [log_offset_of(entry) for entry in self.model]

    @property
    def _end(self) -> int:
        return self.first + len(self.model)

    @rule(count=st.integers(1, 12), gap=st.integers(0, 3), size=st.integers(1, 300))
    def append(self, count: int, gap: int, size: int) -> None:
        for _ in range(count):
            self.log_end += gap
            self.queue.next_offset += 1
            self.queue.append(self.log_end, size, -self.log_end)
            self.model.append((self.log_end, size, -self.log_end))
            self.log_end += size

    @precondition(lambda self: self.model)
    @rule(missing=st.integers(0, FILE_ENTRIES))
    def skip(self, missing: int) -> None:
        assert self.queue.skip_to(self._end + missing, self.log_end)
        self.model += [(0, 0x7FFFFFFF, self.log_end)] * missing

    @rule()
    def flush(self) -> None:
        self.queue.flush()
        assert not self.queue.pending

    @rule(nth=st.integers(1, 4), call=st.sampled_from(["write", "create", "truncate"]))
    def flush_on_a_full_disk(self, nth: int, call: str) -> None:
        with self.box.disk.fail(call, errno.ENOSPC, nth=nth):  # type: ignore[arg-type]
            try:
                self.queue.flush()
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017

    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(self.queue.min_offset, self._end + 2))
        self.queue.cut(end)
        del self.model[max(0, end - self.first) :]

    @rule(log_offset=st.integers(0, 20_000))
    def find(self, log_offset: int) -> None:
        low = self.queue.min_offset - self.first
        expected = bisect_left(self._places(), log_offset, lo=low)
        assert self.queue.first_at_or_beyond(log_offset) == self.first + expected

    @rule(data=st.data())
    def raise_min(self, data: st.DataObject) -> None:
        log_start = data.draw(st.sampled_from([*self._places(), self.log_end]))
        low = self.queue.min_offset
        self.queue.raise_min(log_start)
        assert self.queue.min_offset == max(low, self.first + bisect_left(self._places(), log_start))

    @precondition(lambda self: not self.queue.pending)
    @rule()
    def reopen(self) -> None:
        queue = self.queue = self.box.reopened(self.queue.min_offset, self.queue.max_offset)
        assert queue.flushed_offset == self._end

    @rule(data=st.data(), count=st.integers(0, 40))
    def read(self, data: st.DataObject, count: int) -> None:
        start = data.draw(st.integers(self.queue.min_offset, self._end + 1))
        index = start - self.first
        assert list(self.queue.entries(start, count)) == self.model[index : index + count]

    @invariant()
    def bounds_are_those_of_the_list(self) -> None:
        if hasattr(self, "queue"):
            assert self.queue.max_offset == self.queue.next_offset == self._end
            assert self.first <= self.queue.min_offset <= self._end
            assert self.queue.flushed_offset <= self._end


TestQueueAgainstList = QueueAgainstList.TestCase
TestQueueAgainstList.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


# power loss


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_loss_synced_entries_exist_and_the_others_can_be_written_again(seed: int) -> None:
    box = Fixture()
    box.queue.begin_anew(4)
    entries = fill(box.queue, 13)
    box.queue.flush()
    for path in box.open_files.take_written():
        with box.disk.open(path) as file:
            file.sync()
    for path in box.open_files.take_renamed():
        for folder in path.parents:
            box.disk.sync_dir(folder)
    later = fill(box.queue, 20, start=3000)
    box.queue.flush()

    found = box.disk.crash(Random(seed), tear_bytes=True)
    queue = ConsumeQueue("T", 0, FOLDER, OpenFiles(found, 2), FILE_ENTRIES)
    queue.min_offset, queue.max_offset = 4, 17

    assert list(queue.entries(4, 100)) == entries
    for entry in later:
        queue.append(*entry)
    queue.flush()
    assert list(queue.entries(4, 100)) == entries + later
    assert {len(found.read(FOLDER / name)) for name in found.list(FOLDER)} == {FILE_BYTES}
