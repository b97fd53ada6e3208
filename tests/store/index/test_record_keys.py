"""Keys of records: the fast and the careful code return the same for any bytes in the log."""

from pathlib import Path
from random import Random

import pytest
from tests.golden import needs_golden
from tests.store.golden_store import STORES, read_log, restore
from tests.twins import using

from pocketmq.codes import SysFlag
from pocketmq.model.java_hash import java_hash
from pocketmq.protocol.record import encode_record, host_flags
from pocketmq.store.index import index_builder as record_keys
from pocketmq.store.index.index_builder import KNOWN_PARTS, LEARN_EVERY, RecordKeys, parts_of
from pocketmq.store.index.index_file import KeyEntry
from pocketmq.store.index.key_index import KeyIndex
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock, FaultyFiles

BASE = 1 << 33
NOW_MS = 1_700_000_000_000
V4, V6 = b"\x7f\0\0\1\0\0\x2a\x9f", bytes(20)
UNIQUE = b"UNIQ_KEY\x017F00000100012A139A5514E1B2C3%04X"
SUFFIX = b"\x02WAIT\x01true\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster\x02"


def new_index() -> KeyIndex:
    return KeyIndex(
        StoreSettings(folder=Path("/store"), index_slots=100, index_entries=1000), FaultyFiles(), FakeClock()
    )


def record(
    properties: bytes,
    *,
    topic: bytes = b"Orders",
    body: bytes = b"body",
    sys_flag: int = 0,
    born: bytes = V4,
    store: bytes = V4,
    store_ms: int = NOW_MS,
) -> bytes:
    sys_flag |= host_flags(born, store)
    return encode_record(topic, 3, 5, 0, body, properties, 0, sys_flag, NOW_MS, born, store_ms, store)


def usual(count: int, first: int = 0) -> list[bytes]:
    """What one producer sends."""
    return [record(UNIQUE % number + SUFFIX) for number in range(first, first + count)]


def read_carefully(chunk: bytes, most: int) -> tuple[list[KeyEntry], int, int]:
    """The contract of `RecordKeys.read`, with its own cache and with the slow path alone."""
    keys: list[KeyEntry] = []
    at = done = 0
    keys_of = new_index().keys_of
    while done < most and (parts := parts_of(chunk, at)) is not None:
        size, sys_flag, store_ms, topic, properties = parts
        keys += keys_of(topic, properties, sys_flag, BASE + at, store_ms)
        at += size
        done += 1
    return keys, done, at


@pytest.fixture
def reader() -> RecordKeys:
    """In Python: the C twin parses every record, and has no cache."""
    with using("python"):
        return RecordKeys(new_index())


@pytest.fixture
def learns_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_keys, "LEARN_EVERY", 1)


def check(reader: RecordKeys, chunk: bytes, most: int = 10_000) -> None:
    expected = read_carefully(chunk, most)
    assert reader.read(chunk, BASE, most) == expected
    keys, *ends = RecordKeys(new_index()).read(memoryview(chunk), BASE, most)
    assert (list(keys), *ends) == expected, "by the compiled twin, where there is one"


# the quick road


def test_records_like_earlier_ones_are_not_parsed(reader: RecordKeys) -> None:
    check(reader, b"".join(usual(LEARN_EVERY)))
    taken_apart = reader._decoded

    check(reader, b"".join(usual(3000, LEARN_EVERY)))

    assert reader._decoded == taken_apart


def test_several_producers_topics_and_tags_are_cached(reader: RecordKeys) -> None:
    other = UNIQUE.replace(b"7F000001", b"0A0000FE")
    kinds = [
        (topic, unique, SUFFIX.replace(b"TagA", tag))
        for topic in (b"Orders", b"Bills")
        for unique in (UNIQUE, other)
        for tag in (b"TagA", b"TagB", b"another")
    ]
    records = [
        record(unique % number + suffix, topic=topic) for number in range(100) for topic, unique, suffix in kinds
    ]
    check(reader, b"".join(records))
    taken_apart = reader._decoded

    check(reader, b"".join(records))

    assert reader._decoded == taken_apart
    assert taken_apart < len(records) / 2


def test_of_two_layouts_with_one_length_the_newer_is_cached(reader: RecordKeys) -> None:
    older = [record(UNIQUE % number + b"\x02TAGS\x01long\x02") for number in range(50)]
    newer = [record(b"a\x01b\x02" + UNIQUE % number + b"\x02TAGS\x01\x02") for number in range(50)]
    assert len(older[0]) == len(newer[0])

    check(reader, b"".join(older + newer))

    assert reader._decoded == 2 * LEARN_EVERY


def test_properties_before_the_unique_key_may_be_cached(reader: RecordKeys) -> None:
    records = [record(b"colour\x01red\x02" + UNIQUE % number) for number in range(50)]

    check(reader, b"".join(records))

    assert reader._decoded == LEARN_EVERY


@pytest.mark.parametrize(
    "odd",
    [
        record(UNIQUE % 7 + b"\x02KEYS\x01a b\x02"),
        record(b"KEYS\x01a b\x02" + UNIQUE % 7),
        record(b"UNIQ_KEY\x01first-of-two-unique-keys\x02" + UNIQUE % 7 + SUFFIX),
        record(UNIQUE % 7 + b"\x02XUNIQ_KEY\x01not-the-unique-key" + SUFFIX),
        record(b"XUNIQ_KEY\x01not-the-unique-key" + SUFFIX),
        record(b"UNIQ_KEY\x01short" + SUFFIX),
        record(b"UNIQ_KEY\x01twelve-bytes" + SUFFIX),
        record(b"UNIQ_KEY\x01" + SUFFIX),
        record("UNIQ_KEY\x01Schlüsselwörter-ohne-Ende".encode() + SUFFIX),
        record("UNIQ_KEY\x01family-of-keys-einzwölf-12".encode() + SUFFIX),
        record(b"UNIQ_KEY\x01no-text-\xff\xfe-and-so-on" + SUFFIX),
        record(UNIQUE % 7),
        record(UNIQUE % 7 + SUFFIX, sys_flag=SysFlag.TRANSACTION_ROLLBACK),
        record(UNIQUE % 7 + SUFFIX, sys_flag=SysFlag.TRANSACTION_PREPARED),
        record(UNIQUE % 7 + SUFFIX, born=V6),
        record(UNIQUE % 7 + SUFFIX, store=V6),
        record(UNIQUE % 7 + SUFFIX, topic=b"%RETRY%" + b"g" * 140),
        record(UNIQUE % 7 + SUFFIX, topic="Ünï".encode()),
        record(UNIQUE % 7 + SUFFIX, topic=b"\xff"),
        record(UNIQUE % 7 + SUFFIX, topic=b""),
        record(UNIQUE % 7 + SUFFIX, body=b""),
        record(UNIQUE % 7 + b"\x02user\x01" + b"x" * 2000 + b"\x02"),
        record(b""),
    ],
)
@pytest.mark.usefixtures("learns_all")
def test_irregular_records_among_regular_ones_have_their_own_keys(reader: RecordKeys, odd: bytes) -> None:
    chunk = b"".join([*usual(3), odd, odd, *usual(3, 100), odd, odd, *usual(3, 200)])

    check(reader, chunk)
    check(reader, chunk)


@pytest.mark.usefixtures("learns_all")
def test_a_value_with_a_separator_is_not_mistaken_for_a_key(reader: RecordKeys) -> None:
    known = record(b"UNIQ_KEY\x01family-of-keys" + b"0123456789AB" + b"\x02a\x01b\x02")
    cut_in_middle = record(b"UNIQ_KEY\x01family-of-keys" + b"01\x02KEYS\x01abcd" + b"\x02a\x01b\x02")
    cut_in_tail = record(b"UNIQ_KEY\x01family-of-keys" + b"012345678\x02=\x01" + b"\x02a\x01b\x02")
    assert len(known) == len(cut_in_middle) == len(cut_in_tail)

    check(reader, known * 3 + cut_in_middle + known + cut_in_tail + known)


@pytest.mark.parametrize(("javas", "ours"), [(-(2**31), 0), (2**31 - 1, 2**31 - 1), (-1, 1), (0, 0)])
@pytest.mark.usefixtures("learns_all")
def test_the_smallest_int_of_java_counts_as_zero(reader: RecordKeys, javas: int, ours: int) -> None:
    family = "family-of-keys-12345"
    rest = (javas - java_hash(f"Orders#{family}@@@@@@@")) % 2**32
    key = family + "".join(chr(ord("@") + rest // 31**power % 31) for power in reversed(range(7)))
    chunk = record(f"UNIQ_KEY\x01{key}\x02".encode())
    reader.read(chunk, BASE, 1)
    taken_apart = reader._decoded

    keys, _, _ = reader.read(chunk, BASE, 1)

    assert java_hash(f"Orders#{key}") == javas
    assert keys == [(ours, BASE, NOW_MS)]
    assert reader._decoded == taken_apart


# where the reading ends


def test_no_more_records_are_read_than_requested(reader: RecordKeys) -> None:
    chunk = b"".join(usual(40))

    for most in range(40):
        check(reader, chunk, most)


@pytest.mark.usefixtures("learns_all")
def test_a_truncated_record_ends_the_reading(reader: RecordKeys) -> None:
    for ending in (SUFFIX, b"", b"\x02"):
        chunk = b"".join(record(UNIQUE % number + ending) for number in range(4))
        check(reader, chunk)
        for end in range(len(chunk)):
            check(reader, chunk[:end])


@pytest.mark.usefixtures("learns_all")
def test_damage_anywhere_is_detected_by_both_implementations(reader: RecordKeys) -> None:
    chunk = b"".join(usual(4))
    check(reader, chunk)

    for at in range(len(chunk)):
        for bits in (0x01, 0x80, 0xFF):
            damaged = bytearray(chunk)
            damaged[at] ^= bits
            check(reader, bytes(damaged))


def test_a_body_of_negative_length_is_damage(reader: RecordKeys) -> None:
    damaged = bytearray(record(b"", body=bytes(400)))
    damaged[84:88] = (-4).to_bytes(4, "big", signed=True)
    topic_end = 85 + damaged[84]
    damaged[topic_end : topic_end + 2] = (len(damaged) - topic_end - 2).to_bytes(2, "big")

    assert reader.read(bytes(damaged), BASE, 1) == ([], 0, 0)


# all kinds of logs


class RandomLog:
    """Records of a few producers, tags and topics, with all kinds of oddities between."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.counter = 0

    def chunk(self, count: int) -> bytes:
        return b"".join(self.one() for _ in range(count))

    def one(self) -> bytes:
        choice = self.random.choice
        self.counter += self.random.choice((1, 1, 1, 700))
        key = choice((b"7F00000100012A139A55", b"0A0000FE77712A139A55")) + b"%012X" % self.counter
        parts = [b"UNIQ_KEY\x01" + key, b"TAGS\x01" + choice((b"A", b"B", b"green"))]
        oddity = self.random.randrange(12)
        if oddity == 0:
            parts.insert(self.random.randrange(3), b"KEYS\x01k%d other" % self.counter)
        elif oddity == 1:
            parts.insert(self.random.randrange(3), b"order\x01%d" % self.random.randrange(10**6))
        elif oddity == 2:
            parts.append(b"UNIQ_KEY\x01" + self.random.randbytes(self.random.randrange(20)))
        elif oddity == 3:
            self.random.shuffle(parts)
        return record(
            b"\x02".join(parts) + choice((b"", b"\x02")),
            topic=choice((b"Orders", b"Bills", b"Orders", b"%RETRY%" + b"g" * 140)),
            body=bytes(self.random.randrange(300)),
            sys_flag=choice((0, 0, 0, 1, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK)),
            born=choice((V4, V4, V4, V6)),
            store_ms=NOW_MS + self.counter,
        )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("learn_every", [1, LEARN_EVERY])
def test_both_implementations_give_the_same_keys(
    reader: RecordKeys, seed: int, learn_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_keys, "LEARN_EVERY", learn_every)
    log = RandomLog(seed)

    for _ in range(5):
        check(reader, log.chunk(100))

    assert reader._decoded < 500, "some were known"


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
@pytest.mark.usefixtures("learns_all")
def test_both_implementations_give_the_same_keys_of_a_captured_log(
    reader: RecordKeys, version: str, kind: str, tmp_path: Path
) -> None:
    layout = restore(version, kind, tmp_path)
    chunk = bytes(read_log(layout.folder, layout.log_file_bytes, 0, layout.log_file_bytes))

    check(reader, chunk)
    check(reader, chunk)

    assert reader.read(chunk, BASE, 10_000)[1] > 0


# memory


def test_the_cache_is_limited(monkeypatch: pytest.MonkeyPatch, reader: RecordKeys) -> None:
    monkeypatch.setattr(record_keys, "LEARN_EVERY", 1)
    monkeypatch.setattr(record_keys, "KNOWN_PARTS", 50)
    random = Random(5)

    for number in range(500):
        unique = b"UNIQ_KEY\x01%032x" % random.getrandbits(128)
        check(reader, record(unique + b"\x02order\x01%d\x02" % number))
        parts = [part for _, fronts, rests in reader._moulds.values() for part in (*fronts, *rests)]
        assert len(parts) <= 100
        assert len(reader._middles) <= 50
        assert len(reader._tails) <= 50

    assert KNOWN_PARTS > 50


@pytest.mark.usefixtures("learns_all")
def test_long_properties_are_not_cached(reader: RecordKeys) -> None:
    for number in range(5):
        check(reader, record(UNIQUE % number + b"\x02user\x01" + b"x" * 1000 + b"\x02"))

    assert reader._moulds == {}


@pytest.mark.usefixtures("learns_all")
def test_records_of_the_other_version_are_not_cached(reader: RecordKeys) -> None:
    for number in range(5):
        check(reader, record(UNIQUE % number + SUFFIX, topic=b"%RETRY%" + b"g" * 140))

    assert reader._moulds == {}
