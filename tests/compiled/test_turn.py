"""The compiled functions one by one, beside their twins in Python: any bytes, at any limit."""

import json
from array import array
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.compiled.requests import damaged, items
from tests.twins import compiled_or_skip, using

from pocketmq import compiled
from pocketmq.errors import ProtocolError
from pocketmq.model.delay import DELAY_LEVELS
from pocketmq.protocol.batch import decode_batch, encode_batch
from pocketmq.protocol.frames import Frame, join_frame, split_whole
from pocketmq.protocol.record import encode_record
from pocketmq.store.index.growing_index_file import PackedKeys
from pocketmq.store.index.index_builder import RecordKeys
from pocketmq.store.index.index_file import ENTRY as INDEX_ENTRY
from pocketmq.store.index.key_index import KeyIndex
from pocketmq.store.log.segments import OpenFiles
from pocketmq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue, tags_code_of
from pocketmq.store.queues.sound_entries import SoundEntries
from pocketmq.store.reading import ReadLimits, read_queue
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock, FaultyFiles

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
SUFFIX = b"MSG_REGION\x01DefaultRegion\x02"
PREFIX = HOST.hex().upper().encode()
PARTS = (b"a", b"b", b"c", b"d", b"e", b"f")
KEY = PackedKeys.of([(1, 2, 3)]).raw
MAX_BODY = 300
BORN_MS, STORE_MS = 1_700_000_000_123, 1_700_000_000_999


@pytest.fixture(scope="module")
def turn() -> compiled.Twin:
    return compiled_or_skip()


def plan(max_body_bytes: int = 100) -> compiled.SendPlan:
    return SUFFIX, PARTS, PREFIX, HOST, max_body_bytes, False


def new_queue(next_offset: int = 0, topic: str = "T") -> ConsumeQueue:
    queue = ConsumeQueue(topic, 3, Path("/q"), OpenFiles(FaultyFiles(), 4), 100)
    queue.next_offset = next_offset
    return queue


def send_queue_of(queue: ConsumeQueue) -> compiled.SendQueue:
    return queue, None, queue.record_magic, queue.topic_field


# frames

streams = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.builds(join_frame, st.sampled_from([0, 1, 2, 255]), st.binary(max_size=12), st.binary(max_size=12)),
    ),
    max_size=6,
).map(b"".join)


@given(data=streams, total=st.integers(0, 40), header=st.integers(0, 16))
def test_frames_are_split_as_in_python(turn: compiled.Twin, data: bytes, total: int, header: int) -> None:
    assert turn.split_whole(data, total, header, 1) == split_whole(data, total, header, 1)


# batches


@st.composite
def batch_bodies(draw: st.DrawFn) -> bytes:
    body = encode_batch(draw(items))
    return draw(damaged(body)) if draw(st.booleans()) else body


def batch_frame(body: bytes, topic: str, sys_flag: int) -> Frame:
    """A batch for queue 3, with its unique key."""
    ext = {
        "a": "PG",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": str(sys_flag),
        "g": str(BORN_MS),
        "h": "0",
        "i": "UNIQ_KEY\x01K\x02",
        "j": "0",
        "k": "false",
        "m": "true",
    }
    header = {"code": 320, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 9, "version": 401}
    return 0, json.dumps(header, separators=(",", ":")).encode(), body


def laid_out_in_python(
    body: bytes, most: int, queue: ConsumeQueue, sys_flag: int, log_offset: int, limit: int
) -> compiled.SendRun | None:
    try:
        found = decode_batch(body, most)
    except ProtocolError:
        return None
    topic, at, first = queue.topic.encode(), log_offset, queue.next_offset
    records, entries, ids = b"", b"", []
    for number, (flag, each, properties) in enumerate(found, first):
        properties += (b"\x02" if properties[-1:] not in (b"", b"\x02") else b"") + SUFFIX
        if len(each) > MAX_BODY or len(properties) > 32_767 or 0 in properties:
            return None
        fields = topic, queue.queue_id, number, at, each, properties, flag, sys_flag
        record = encode_record(*fields, BORN_MS, HOST, STORE_MS, HOST)
        entries += ENTRY.pack(at, len(record), tags_code_of(properties, False, 0, DELAY_LEVELS))
        ids.append(b"%b%016X" % (PREFIX, at))
        records += record
        at += len(record)
    if not found or at > limit or len(body) > MAX_BODY:
        return None
    header = b"a%bb3c%dd" % (b",".join(ids), first) + b"Ke9f"
    answer = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    return 1, records, at, [(send_queue_of(queue), entries, len(body), len(found) - 1)], answer


def laid_out_batch(
    turn: compiled.Twin, body: bytes, most: int, queue: ConsumeQueue, sys_flag: int, log_offset: int, limit: int
) -> compiled.SendRun | None:
    send_queues = {f"{queue.topic}/3".encode(): send_queue_of(queue)}
    frames = [batch_frame(body, queue.topic, sys_flag)]
    return turn.lay_out_sends(frames, 0, 1, send_queues, plan(MAX_BODY), HOST, STORE_MS, log_offset, limit, most, bytes)


@given(
    body=batch_bodies(),
    most=st.integers(1, 8),
    topic=st.sampled_from(["T", "t" * 127, "t" * 128]),
    sys_flag=st.sampled_from([0, 1, 0x300]),
    next_offset=st.sampled_from([0, 7, 2**40]),
    log_offset=st.sampled_from([0, 12345, 2**40]),
    room=st.sampled_from([200, 500, 10_000]),
)
def test_a_batch_is_encoded_as_in_python(
    turn: compiled.Twin,
    body: bytes,
    most: int,
    topic: str,
    sys_flag: int,
    next_offset: int,
    log_offset: int,
    room: int,
) -> None:
    queue = new_queue(next_offset, topic)
    arguments = body, most, queue, sys_flag, log_offset, log_offset + room

    found = laid_out_batch(turn, *arguments)

    expected = laid_out_in_python(*arguments)
    if found is not None or expected is None:  # a tag that is no UTF-8 is left to Python
        assert found == expected
    else:
        with pytest.raises(UnicodeDecodeError):
            _ = [properties.decode() for _, _, properties in decode_batch(body)]
    assert queue.next_offset == next_offset


# keys

properties = st.lists(
    st.sampled_from(
        [
            *(b"UNIQ_KEY\x01", b"UNIQ_KEY\x017F00000100012A139A5514E1B2C300A1", b"UNIQ_KEY\x01\xff", b"XUNIQ_KEY\x01x"),
            *(
                b"KEYS\x01",
                b"KEYS\x01a",
                b"KEYS\x01 a  b ",
                b"KEYS\x01\xc3\xa9 \xf0\x9f\x98\x80",
                b"KEYS",
                b"XKEYS\x01x",
            ),
            *(b"TAGS\x01A", b"", b"\x01"),
        ]
    ),
    max_size=5,
).map(b"\x02".join)


@st.composite
def log_chunks(draw: st.DrawFn) -> bytes:
    records = [
        encode_record(
            draw(st.sampled_from([b"T", b"t" * 127, b"t" * 128, "é".encode(), b"\xff"])),
            *(3, 5, 0, draw(st.binary(max_size=30)), draw(properties)),
            0,
            draw(st.sampled_from([0, 0, 4, 8, 12, 1])),
            BORN_MS,
            HOST,
            STORE_MS,
            HOST,
        )
        for _ in range(draw(st.integers(0, 4)))
    ]
    chunk = b"".join(records)
    return draw(damaged(chunk)) if draw(st.booleans()) else chunk + draw(st.binary(max_size=100))


@given(chunk=log_chunks(), base=st.sampled_from([0, 2**33]), most=st.integers(0, 5))
def test_keys_are_read_as_in_python(turn: compiled.Twin, chunk: bytes, base: int, most: int) -> None:
    index = KeyIndex(StoreSettings(folder=Path("/store")), FaultyFiles(), FakeClock())
    with using("python"):
        python = RecordKeys(index)
    with using("compiled"):
        twin = RecordKeys(index)

    keys, *ends = twin.read(memoryview(chunk), base, most)
    assert (list(keys), *ends) == python.read(chunk, base, most)


# reading


class AnyLog:
    """A log of two files with any content. It has the methods of `CommitLog` that `read_queue` uses."""

    def __init__(self, start: int, written: int) -> None:
        self.start, self.written = start, written
        self._files = {first: bytes(range(first % 7, first % 7 + 200)) for first in (1000, 1200)}

    def map_at(self, offset: int) -> tuple[memoryview | None, int]:
        first = offset - offset % 200
        return (memoryview(self._files[first]), first) if self.start <= offset < self.written else (None, 0)

    def view(self, offset: int, size: int) -> memoryview:
        first = offset - offset % 200
        return memoryview(self._files[first])[offset - first : offset - first + size]


@st.composite
def queue_entries(draw: st.DrawFn) -> bytes:
    """Mostly messages that are in one file of the log, and some that are not."""
    entries = []
    at = draw(st.integers(990, 1100))
    for _ in range(draw(st.integers(1, 12))):
        size = draw(st.one_of(st.integers(1, 40), st.sampled_from([0, -1, 0x7FFFFFFF])))
        at = draw(st.sampled_from([at, at, at + 10, 1200, 5, -1, 2**63 - 1]))
        if size > 0 and at // 200 != (at + size - 1) // 200:
            at = 1200
        entries.append(ENTRY.pack(at, size, draw(st.sampled_from([0, 65, -7]))))
        at = min(at + max(size, 0), 1300)
    return b"".join(entries)


@given(
    entries=queue_entries(),
    offset=st.integers(0, 12),
    most=st.integers(-1, 9),
    limits=st.builds(
        ReadLimits,
        st.integers(1, 20),
        *(st.integers(1, 200), st.integers(1, 9), st.integers(1, 200), st.integers(1, 9)),
        st.sampled_from([0, 100, 1 << 30]),
    ),
    tag_codes=st.sampled_from([None, frozenset({65}), frozenset({0, -7}), frozenset[int]()]),
    bounds=st.sampled_from([(1000, 1400), (1020, 1399), (1000, 1250)]),
)
def test_a_read_has_the_same_result_as_in_python(
    turn: compiled.Twin,
    entries: bytes,
    offset: int,
    most: int,
    limits: ReadLimits,
    tag_codes: frozenset[int] | None,
    bounds: tuple[int, int],
) -> None:
    queue = new_queue()
    queue.pending += entries
    queue.max_offset = len(entries) // ENTRY_BYTES
    log: Any = AnyLog(*bounds)
    sound = SoundEntries(log, StoreSettings(folder=Path("/store")).delay_levels, 0, None)

    python, compiled_result = (
        read_queue(queue, sound, limits, offset, most, tag_codes, None, twin) for twin in (None, turn)
    )

    assert compiled_result.body() == python.body()
    assert replace(compiled_result, pieces=[]) == replace(python, pieces=[])


# what no caller should do


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("split_whole", ()),
        ("split_whole", ("text", 1, 1, 1)),
        ("split_whole", (b"", "1", 1, 1)),
        ("lay_out_sends", ()),
        ("lay_out_sends", ((), 0, 1, {}, plan(), HOST, 0, 0, 0, 9, bytes)),
        ("lay_out_sends", ([], -1, 1, {}, plan(), HOST, 0, 0, 0, 9, bytes)),
        ("lay_out_sends", ([], 0, 1, {}, (), HOST, 0, 0, 0, 9, bytes)),
        ("lay_out_sends", ([], 0, 1, {}, plan(), b"short", 0, 0, 0, 9, bytes)),
        ("lay_out_sends", ([], 0, 1, {}, (SUFFIX, (b"",), PREFIX, HOST, 1, False), HOST, 0, 0, 0, 9, bytes)),
        ("lay_out_sends", ([None], 0, 1, {}, plan(), HOST, 0, 0, 0, 9, bytes)),
        ("lay_out_sends", ([(0, "header", b"")], 0, 1, {}, plan(), HOST, 0, 0, 0, 9, bytes)),
        ("lay_out_sends", ([], 0, 1, {}, plan(), HOST, 2**70, 0, 0, 9, bytes)),
        ("pick_entries", ()),
        ("pick_entries", ("", (0,) * 9, None, None)),
        ("pick_entries", (b"", (0,) * 8, None, None)),
        ("pick_entries", (b"", (-1, *(0,) * 8), None, None)),
        ("pick_entries", (ENTRY.pack(0, 5, 0), (0, 9, *(9,) * 7), 5, None)),
        ("pick_entries", (ENTRY.pack(0, 2, 0) + ENTRY.pack(5, 2, 0), (0, 9, *(9,) * 7), None, None)),
        ("pick_entries", (ENTRY.pack(0, 2, 0) + ENTRY.pack(5, 2, 0), (0, 9, *(9,) * 7), None, str)),
        ("count_sound", ()),
        ("count_sound", ("", 0, (0, b"T"), (0, 9), None, None, None)),
        ("count_sound", (b"", -1, (0, b"T"), (0, 9), None, None, None)),
        ("count_sound", (b"", 0, (0, "T"), (0, 9), None, None, None)),
        ("count_sound", (b"", 0, (0,), (0, 9), None, None, None)),
        ("count_sound", (b"", 0, None, (0, 9), None, None, None)),
        ("count_sound", (b"", 0, (0, b"T"), (-1, 9), None, None, None)),
        ("count_sound", (ENTRY.pack(0, 100, 0), 0, (0, b"T"), (0, 900), 5, None, None)),
        ("count_sound", (ENTRY.pack(0, 100, 0), 0, (0, b"T"), (0, 900), {1}, 5, None)),
        ("count_sound", (ENTRY.pack(0, 100, 0), 0, (0, b"T"), (0, 900), None, None, None)),
        ("count_sound", (ENTRY.pack(0, 100, 0), 0, (0, b"T"), (0, 900), None, None, str)),
        ("read_keys", ()),
        ("read_keys", (b"", 1, 0, 1)),
        ("read_keys", (b"", -1, 0, 1)),
        ("read_keys", ("", 0, 0, 1)),
        ("withdraw_keys", ()),
        ("withdraw_keys", (bytes(20), (), bytearray(1), 1)),
        ("withdraw_keys", (bytes(20), [array("i", [0])], b"", 1)),
        ("withdraw_keys", (bytes(20), [array("i", [0])], bytearray(1), 0)),
        ("withdraw_keys", (bytes(19), [array("i", [0])], bytearray(1), 1)),
        ("withdraw_keys", (bytes(20), [b"read only"], bytearray(1), 1)),
        ("enter_keys", ()),
        ("enter_keys", (KEY, 0, [], bytearray(), 1, 1, 0)),
        ("enter_keys", (KEY, 0, [array("i", [0])], bytearray(), 1, 1, 0)),
        ("enter_keys", (KEY, 0, [array("i", [0])], bytearray(1), 5000, 1, 0)),
        ("enter_keys", (KEY, 0, [array("q", [0, 0])], bytearray(1), 2, 1, 0)),
        ("enter_keys", (KEY, 0, [b"read only"], bytearray(1), 2, 1, 0)),
        ("enter_keys", (PackedKeys.of([(-1, 2, 3)]).raw, 0, [array("i", [0])], bytearray(1), 1, 1, 0)),
        ("enter_keys", ([(1, 2, 3)], 0, [array("i", [0])], bytearray(1), 1, 1, 0)),
        ("enter_keys", (KEY, 2, [array("i", [0])], bytearray(1), 1, 1, 0)),
        ("enter_keys", (KEY, -1, [array("i", [0])], bytearray(1), 1, 1, 0)),
        ("enter_keys", (KEY, 0, [array("i", [0])], bytearray(1), 0, 1, 0)),
        ("enter_keys", (KEY, 0, [array("i", [0])], bytearray(1), 1, 2**31 - 1, 0)),
    ],
)
def test_a_call_with_wrong_arguments_is_an_error(turn: compiled.Twin, name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError, IndexError, AttributeError, BufferError)):
        getattr(turn, name)(*arguments)


def test_keys_that_are_withdrawn_leave_slots_as_they_were(turn: compiled.Twin) -> None:
    pages = [array("i", [0, 0, 4])]
    keys = PackedKeys.of([(0, 100, 0), (2, 200, 0), (3, 300, 0), (2, 400, 0)])

    _, _, entries = turn.enter_keys(keys.raw, 0, pages, bytearray(1), 3, 7, 0)
    assert list(pages[0]) == [9, 0, 10]
    turn.withdraw_keys(entries, pages, bytearray(1), 3)

    assert list(pages[0]) == [0, 0, 4]


def test_keys_are_entered_up_to_the_first_page_that_is_not_in_memory(turn: compiled.Twin) -> None:
    pages = [array("i", [0] * 1024), None, array("i", [9] * 1024)]
    dirty = bytearray(3)
    keys = PackedKeys.of([(5, 100, 5_000), (2048 + 5, 200, 3), (1024, 300, 0), (6, 400, 0)])

    done, unused, entries = turn.enter_keys(keys.raw, 0, pages, dirty, 3072, 7, 2_000)

    assert (done, unused, len(entries)) == (2, 1, 40)
    assert (pages[0][5], pages[2][5], pages[0][6]) == (7, 8, 0)  # type: ignore[index]
    assert list(dirty) == [1, 0, 1]
    assert entries[:20].hex() == "00000005" + "0000000000000064" + "00000003" + "00000000"
    assert entries[20:].hex() == "00000805" + "00000000000000c8" + "00000000" + "00000009"


def test_keys_with_shared_slots_are_entered_in_order(turn: compiled.Twin) -> None:
    slots = [0] * 40 + [3, 3, 3, 7] * 5
    keys = PackedKeys.of([(slot, number, 0) for number, slot in enumerate(slots)])
    pages, dirty = [array("i", [0] * 1024)], bytearray(1)

    done, unused, entries = turn.enter_keys(keys.raw, 0, pages, dirty, 1000, 1, 0)

    newest: dict[int, int] = {}
    expected = b""
    for number, slot in enumerate(slots, 1):
        expected += INDEX_ENTRY.pack(slot, number - 1, 0, newest.get(slot, 0))
        newest[slot] = number
    assert (done, unused, entries) == (60, 3, expected)
    assert [pages[0][slot] for slot in (0, 3, 7)] == [newest[slot] for slot in (0, 3, 7)]


def test_the_checksum_is_right_for_bodies_of_every_length(turn: compiled.Twin) -> None:
    random = Random(7)
    bodies = [random.randbytes(size) for size in (*range(1, 400), 1024, 4099)]
    batch = encode_batch((0, body, b"") for body in bodies)

    send_queues = {b"T/3": send_queue_of(new_queue())}
    frames = [batch_frame(batch, "T", 0)]
    run = turn.lay_out_sends(frames, 0, 1, send_queues, plan(1 << 20), HOST, STORE_MS, 0, 1 << 30, 1000, bytes)

    assert run is not None
    _, records, _, [(_, entries, _, _)], _ = run
    starts = [log_offset for log_offset, _, _ in ENTRY.iter_unpack(entries)]
    checksums = [int.from_bytes(records[start + 8 : start + 12], "big") for start in starts]
    assert checksums == [crc32(body) & 0x7FFFFFFF for body in bodies]
