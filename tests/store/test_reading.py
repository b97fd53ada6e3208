"""Reading a queue: statuses, limits, filters, and where the next read begins."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.kit import LOG_FILE_BYTES, HandWorker
from tests.store.queue_kit import FILE_ENTRIES, Store, code_of

from pocketmq.clock import SystemClock
from pocketmq.errors import QueueDamaged
from pocketmq.files import DiskFiles
from pocketmq.protocol.frames import DEFAULT_LIMITS
from pocketmq.protocol.record import decode_records, encode_record
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.preparing import FilePreparer
from pocketmq.store.queues.consume_queue import ConsumeQueue
from pocketmq.store.queues.queues import Queues
from pocketmq.store.queues.sound_entries import SoundEntries
from pocketmq.store.reading import HasTime, Matches, ReadLimits, ReadResult, ReadStatus, read_queue
from pocketmq.store.settings import GIB, KIB, MAX_ANSWER_BYTES, StoreSettings

pytestmark = pytest.mark.usefixtures("twin")

LIMITS = ReadLimits.of(StoreSettings(folder=Path("/store")), GIB)
HOST = bytes(8)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def queue(store: Store) -> ConsumeQueue:
    return store.queues.get("T", 0)


def limits(**changes: int) -> ReadLimits:
    return msgspec.structs.replace(LIMITS, **changes)


def read(
    store: Store,
    queue: ConsumeQueue | None,
    offset: int,
    max_count: int = 32,
    tags: set[int] | None = None,
    matches: Matches | None = None,
    bounds: ReadLimits = LIMITS,
    has_time: HasTime | None = None,
) -> ReadResult:
    codes = None if tags is None else {code_of(tag) for tag in tags}
    result = read_queue(queue, store.sound, bounds, offset, max_count, codes, matches, has_time=has_time)
    assert result.size == sum(len(piece) for piece in result.pieces) == len(result.body())
    assert len(decode_records(result.body())) == result.count
    return result


def offsets(result: ReadResult) -> list[int]:
    """The queue offsets of the messages that were found."""
    return [message.queue_offset for message in decode_records(result.body())]


def fill(store: Store, queue: ConsumeQueue, count: int, size: int = 200) -> None:
    for number in range(count):
        store.put(queue, size, tag=number % 3)
    store.end_turn()


# where the offset lies


def test_limits_of_a_read_are_those_of_the_settings() -> None:
    settings = StoreSettings(folder=Path("/store"))

    assert ReadLimits.of(settings, 1000 * KIB) == ReadLimits(
        entries=800,
        hot_bytes=256 * KIB,
        hot_count=32,
        cold_bytes=64 * KIB,
        cold_count=8,
        memory_bytes=400 * KIB,
    )


def test_no_read_exceeds_the_largest_answer_for_any_setting() -> None:
    settings = StoreSettings(folder=Path("/store"), hot_read_bytes=GIB, cold_read_bytes=GIB)

    limits = ReadLimits.of(settings, GIB)

    assert limits.hot_bytes == limits.cold_bytes == MAX_ANSWER_BYTES < DEFAULT_LIMITS.frame_bytes


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_a_missing_queue_has_a_status_of_its_own(store: Store, offset: int) -> None:
    result = read(store, None, offset)

    assert (result.status, result.next_offset, result.min_offset, result.max_offset) == (ReadStatus.NO_QUEUE, 0, 0, 0)


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_a_queue_without_messages_has_its_own_status(store: Store, queue: ConsumeQueue, offset: int) -> None:
    result = read(store, queue, offset)

    assert (result.status, result.next_offset, result.min_offset, result.max_offset) == (ReadStatus.NO_MESSAGE, 0, 0, 0)


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (-5, ReadStatus.OFFSET_TOO_SMALL, 7),
        (0, ReadStatus.OFFSET_TOO_SMALL, 7),
        (6, ReadStatus.OFFSET_TOO_SMALL, 7),
        (7, ReadStatus.FOUND, 12),
        (8, ReadStatus.FOUND, 12),
        (11, ReadStatus.FOUND, 12),
        (12, ReadStatus.OVERFLOW_ONE, 12),
        (13, ReadStatus.OVERFLOW_BADLY, 12),
        (1 << 40, ReadStatus.OVERFLOW_BADLY, 12),
    ],
)
def test_the_status_shows_the_relation_of_the_offset_to_the_queue(
    store: Store, queue: ConsumeQueue, offset: int, status: ReadStatus, following: int
) -> None:
    queue.begin_anew(7)
    fill(store, queue, 5)

    result = read(store, queue, offset)

    assert (result.status, result.next_offset) == (status, following)
    assert (result.min_offset, result.max_offset) == (7, 12)
    assert offsets(result) == (list(range(offset, 12)) if status is ReadStatus.FOUND else [])


def test_a_queue_with_only_expired_messages_is_read_to_its_end(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 5)
    queue.min_offset = 5

    assert read(store, queue, 5).status is ReadStatus.OVERFLOW_ONE
    assert read(store, queue, 0).status is ReadStatus.OFFSET_TOO_SMALL


@pytest.mark.parametrize("flushed", [0, 3, 10, 17, 25])
def test_messages_are_read_from_files_and_from_memory(store: Store, queue: ConsumeQueue, flushed: int) -> None:
    fill(store, queue, flushed)
    store.queues.flush()
    fill(store, queue, 25 - flushed)

    for offset in range(25):
        assert offsets(read(store, queue, offset)) == list(range(offset, 25))


def test_staged_messages_are_not_read(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 2)
    store.put(queue)

    assert offsets(read(store, queue, 0)) == [0, 1]
    assert read(store, queue, 2).status is ReadStatus.OVERFLOW_ONE


# how much


@pytest.mark.parametrize(("asked", "given"), [(-1, 1), (0, 1), (1, 1), (2, 2), (7, 7), (31, 31), (32, 32), (33, 32)])
def test_a_read_returns_at_most_the_requested_number_and_the_limit(
    store: Store, queue: ConsumeQueue, asked: int, given: int
) -> None:
    fill(store, queue, 40)

    result = read(store, queue, 2, asked)

    assert (result.count, result.next_offset) == (given, 2 + given)


@pytest.mark.parametrize(("most", "given"), [(599, 2), (600, 3), (601, 3), (799, 3), (800, 4)])
def test_a_read_has_a_byte_limit(store: Store, queue: ConsumeQueue, most: int, given: int) -> None:
    fill(store, queue, 10, size=200)

    for bounds in (limits(hot_bytes=most), limits(cold_bytes=most, memory_bytes=0)):
        result = read(store, queue, 0, bounds=bounds)
        assert (result.count, result.size, result.next_offset) == (given, given * 200, given)


def test_the_first_message_is_returned_at_any_size(store: Store, queue: ConsumeQueue) -> None:
    store.put(queue, 3000)
    store.put(queue, 100)
    store.end_turn()

    result = read(store, queue, 0, bounds=limits(hot_bytes=10, cold_bytes=10))

    assert (offsets(result), result.size, result.next_offset) == ([0], 3000, 1)


def test_the_first_matching_message_is_returned_at_any_size(store: Store, queue: ConsumeQueue) -> None:
    for size, code in ((100, 1), (3000, 2), (100, 2)):
        store.put(queue, size, code)
    store.end_turn()

    result = read(store, queue, 0, tags={2}, bounds=limits(hot_bytes=10))

    assert (offsets(result), result.next_offset) == ([1], 2)


def test_reads_far_from_the_end_of_the_log_return_less(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 40, size=100)
    last = queue.entry(39)
    assert last is not None
    distance = store.log.written - last[0]

    by_count = read(store, queue, 0, bounds=limits(memory_bytes=0))
    by_bytes = read(store, queue, 0, bounds=limits(memory_bytes=0, cold_bytes=350))

    assert (by_count.count, by_count.far_behind) == (8, True)
    assert (by_bytes.count, by_bytes.far_behind) == (3, True)
    assert read(store, queue, 39, bounds=limits(memory_bytes=distance - 1)).far_behind
    assert not read(store, queue, 39, bounds=limits(memory_bytes=distance)).far_behind


@pytest.mark.parametrize(("edge", "given"), [(5, 32), (8, 32), (9, 8), (20, 8)])
def test_each_message_counts_as_in_memory_or_on_disk(store: Store, queue: ConsumeQueue, edge: int, given: int) -> None:
    fill(store, queue, 40, size=100)
    entry = queue.entry(edge)
    assert entry is not None
    memory = store.log.written - entry[0]

    result = read(store, queue, 0, bounds=limits(memory_bytes=memory))

    assert result.count == given
    assert result.far_behind == (given == 8)


def test_the_last_examined_message_decides_whether_a_read_is_far_behind(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 10, size=100)
    entry = queue.entry(3)
    assert entry is not None
    memory = store.log.written - entry[0]

    assert read(store, queue, 0, 3, bounds=limits(memory_bytes=memory)).far_behind
    assert not read(store, queue, 0, 4, bounds=limits(memory_bytes=memory)).far_behind


# filters


def test_only_messages_with_one_of_the_tags_are_returned(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 10)

    result = read(store, queue, 0, tags={1, 2})

    assert offsets(result) == [1, 2, 4, 5, 7, 8]
    assert (result.status, result.next_offset) == (ReadStatus.FOUND, 10)


def test_the_next_offset_follows_filtered_messages(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 10)

    assert read(store, queue, 0, 1, tags={1}).next_offset == 2
    assert read(store, queue, 2, 1, tags={1}).next_offset == 5
    nothing = read(store, queue, 0, tags={99})
    assert (nothing.status, nothing.next_offset, nothing.pieces) == (ReadStatus.NO_MATCH, 10, [])


def test_a_full_answer_does_not_skip_unexamined_messages(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 10)

    result = read(store, queue, 0, 2, tags={0})

    assert (offsets(result), result.next_offset) == ([0, 3], 4)


@pytest.mark.parametrize(("entries", "asked", "looked_at"), [(5, 1, 5), (5, 8, 8), (800, 1, 40)])
def test_one_read_examines_a_limited_number_of_entries(
    store: Store, queue: ConsumeQueue, entries: int, asked: int, looked_at: int
) -> None:
    fill(store, queue, 40)

    result = read(store, queue, 0, asked, tags={99}, bounds=limits(entries=entries))

    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCH, looked_at)


def test_the_tag_is_checked_before_the_record_is_read(
    store: Store, queue: ConsumeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, queue, 10)
    monkeypatch.setattr(store.log, "view", None)

    def never(_: bytes) -> bool:
        raise AssertionError("the record was asked for")

    result = read_queue(queue, store.sound, LIMITS, 0, 32, {99}, never)

    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCH, 10)


def test_a_predicate_gets_complete_records_with_matching_tags(store: Store, queue: ConsumeQueue) -> None:
    for number in range(10):
        store.put(queue, body=b"%d" % number, tag=number % 2)
    store.end_turn()
    seen: list[bytes] = []

    def is_large(record: bytes) -> bool:
        (message,) = decode_records(record)
        seen.append(message.body)
        return message.body > b"4"

    result = read(store, queue, 0, tags={1}, matches=is_large)

    assert seen == [b"1", b"3", b"5", b"7", b"9"]
    assert (offsets(result), result.next_offset) == ([5, 7, 9], 10)
    assert read(store, queue, 0, 2, matches=is_large).next_offset == 7
    nothing = read(store, queue, 0, matches=lambda _: False)
    assert (nothing.status, nothing.next_offset) == (ReadStatus.NO_MATCH, 10)


def test_a_slow_predicate_examines_only_a_part(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 10)
    looks = iter([True, True, False])

    result = read(store, queue, 0, matches=lambda _: False, has_time=lambda: next(looks))

    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCH, 3)
    found = read(store, queue, 3, tags={0, 1}, matches=lambda record: record[27] == 3, has_time=lambda: False)
    assert (found.status, offsets(found), found.next_offset) == (ReadStatus.FOUND, [3], 5)


# what is not there any more


def test_messages_of_a_deleted_log_file_are_skipped(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 30, size=1000)
    store.drop_first_log_file()
    assert (store.log.start, queue.min_offset) == (LOG_FILE_BYTES, 0)

    result = read(store, queue, 0)

    assert result.status is ReadStatus.FOUND
    assert offsets(result) == list(range(4, 30))
    assert result.next_offset == 30


def test_a_reader_at_deleted_messages_continues_after_them(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 10, size=1000)
    store.drop_first_log_file()

    result = read(store, queue, 1, bounds=limits(entries=2), max_count=1)

    assert (result.status, result.next_offset, result.count, result.pieces) == (ReadStatus.REMOVED, 3, 0, [])


def test_empty_entries_are_skipped(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 2)
    assert queue.skip_to(5, store.log.end)
    fill(store, queue, 1)

    assert offsets(read(store, queue, 0)) == [0, 1, 5]
    nothing = read(store, queue, 2, 1, bounds=limits(entries=2))
    assert (nothing.status, nothing.next_offset) == (ReadStatus.REMOVED, 4)


@pytest.mark.parametrize("entry", [(0, 0, 0), (100, -1, 0), (-1, 100, 0), (1 << 40, 100, 0), (300, 1 << 30, 0)])
def test_an_impossible_entry_is_skipped(store: Store, queue: ConsumeQueue, entry: tuple[int, int, int]) -> None:
    fill(store, queue, 3)
    queue.append(*entry)
    queue.next_offset += 1
    fill(store, queue, 1)

    result = read(store, queue, 0)
    assert (offsets(result), result.next_offset) == ([0, 1, 2, 4], 5)
    assert read(store, queue, 3, 1, bounds=limits(entries=1)).status is ReadStatus.REMOVED


@pytest.mark.parametrize("offset", [FILE_ENTRIES, 15, 19])
def test_a_missing_queue_file_is_damage_and_not_skipped(store: Store, queue: ConsumeQueue, offset: int) -> None:
    fill(store, queue, 30)
    store.queues.flush()
    store.queues.close()
    store.files.unlink(queue.file_of(10))

    with pytest.raises(QueueDamaged, match=f"T:0 is damaged at offset {offset}"):
        read(store, queue, offset)
    assert offsets(read(store, queue, 20)) == list(range(20, 30))
    before = read(store, queue, 8)
    assert (offsets(before), before.next_offset) == ([8, 9], 10)


# pieces


def test_adjacent_messages_are_returned_as_one_range(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 5, size=200)

    result = read(store, queue, 1)

    assert [len(piece) for piece in result.pieces] == [800]
    assert result.pieces[0] == store.log.view(200, 800)


def test_messages_of_other_queues_separate_ranges(store: Store, queue: ConsumeQueue) -> None:
    other = store.queues.get("Other", 0)
    for who in (queue, queue, other, queue, other, other, queue, queue):
        store.put(who, 100)
    store.end_turn()

    assert [len(piece) for piece in read(store, queue, 0).pieces] == [200, 100, 200]
    assert [len(piece) for piece in read(store, other, 0).pieces] == [100, 200]


def test_filtered_messages_separate_ranges(store: Store, queue: ConsumeQueue) -> None:
    fill(store, queue, 6, size=100)

    assert [len(piece) for piece in read(store, queue, 0, tags={0, 1}).pieces] == [200, 200]


def test_a_range_never_crosses_files(store: Store, queue: ConsumeQueue) -> None:
    store.put(queue, 1000)
    store.put(queue, LOG_FILE_BYTES - 1008)
    store.put(queue, 1000)
    store.end_turn()

    result = read(store, queue, 0)

    assert [len(piece) for piece in result.pieces] == [LOG_FILE_BYTES - 8, 1000]
    assert offsets(result) == [0, 1, 2]


def test_returned_messages_stay_valid_when_the_log_file_is_deleted(tmp_path: Path) -> None:
    settings = StoreSettings(folder=tmp_path, log_file_bytes=LOG_FILE_BYTES)
    log = CommitLog(settings, DiskFiles())
    log.load()
    making = HandWorker()
    log.begin(FilePreparer(settings, DiskFiles(), SystemClock(), log.segments, making))
    making.run()
    queues = Queues(settings, DiskFiles())
    queue = queues.get("T", 0)
    for number in range(2):
        body = bytes([65 + number]) * 3000
        size = queue.record_overhead + len(body)
        at = log.reserve(size)
        log.put((encode_record(b"T", 0, number, at, body, b"", 0, 0, 1, HOST, 1, HOST),))
        queue.append(at, size, 0)
    log.write()
    result = read_queue(queue, SoundEntries(log, settings.delay_levels, GIB, None), LIMITS, 0, 32)

    log.synced = log.written
    log.drop_first()
    log.close()

    assert not (tmp_path / "commitlog" / f"{0:020d}").exists()
    assert [message.body[:2] for message in decode_records(result.body())] == [b"AA", b"BB"]


# all of it, against plain words


def naive(
    messages: list[tuple[int, int]], offset: int, max_count: int, tag_codes: set[int] | None, bounds: ReadLimits
) -> tuple[list[int], int]:
    """Offsets found and the next offset, of messages given as size and tags code."""
    found: list[int] = []
    total = 0
    stop = min(len(messages), offset + max(bounds.entries, max_count, 1))
    while offset < stop:
        size, code = messages[offset]
        if found and (len(found) >= min(max(1, max_count), bounds.hot_count) or total + size > bounds.hot_bytes):
            break
        if tag_codes is None or code in tag_codes:
            found.append(offset)
            total += size
        offset += 1
    return found, offset


@given(
    messages=st.lists(st.tuples(st.integers(100, 900), st.integers(0, 3)), min_size=1, max_size=25),
    flushed=st.integers(0, 25),
    max_count=st.integers(-1, 12),
    tag_codes=st.none() | st.sets(st.integers(0, 3)),
    hot_bytes=st.integers(1, 3000),
    hot_count=st.integers(1, 10),
    entries=st.integers(1, 12),
)
def test_reading_a_queue_from_end_to_end_returns_every_message_once(
    messages: list[tuple[int, int]],
    flushed: int,
    max_count: int,
    tag_codes: set[int] | None,
    hot_bytes: int,
    hot_count: int,
    entries: int,
) -> None:
    store = Store()
    queue = store.queues.get("T", 0)
    bounds = limits(hot_bytes=hot_bytes, hot_count=hot_count, entries=entries)
    for number, (size, code) in enumerate(messages):
        store.put(queue, size, code)
        store.end_turn()
        if number + 1 == flushed:
            store.queues.flush()

    def pulls() -> Iterator[int]:
        offset = 0
        while offset < len(messages):
            result = read(store, queue, offset, max_count, tag_codes, bounds=bounds)
            assert (offsets(result), result.next_offset) == naive(messages, offset, max_count, tag_codes, bounds)
            assert result.status is (ReadStatus.FOUND if result.count else ReadStatus.NO_MATCH)
            offset = result.next_offset
            yield from offsets(result)

    assert list(pulls()) == [n for n, (_, code) in enumerate(messages) if tag_codes is None or code in tag_codes]
