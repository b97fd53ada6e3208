"""The hash of index keys: always Java's, with any content of the cache."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.model.java_hash import java_hash
from pocketmq.store.index.index_file import KNOWN_HEADS, KNOWN_TAILS, KNOWN_TOPICS, KeyHashes, key_hash

REMEMBERS = KeyHashes()
TOPICS = st.sampled_from(["T", "Orders", "%RETRY%group", "Ünï"])
KEYS = st.one_of(
    st.text(min_size=1, max_size=200),
    st.text("ABC012", min_size=1, max_size=60),
    st.from_regex(r"\A7F00000100012A139A55[0-9A-F]{12}\Z"),
)


def key_with_hash(wanted: int, topic: str) -> str:
    """A key for which Java's hash of `topic#key` is `wanted`: its characters are the digits of a number to base 31."""
    size = 7
    start = java_hash(f"{topic}#") * 31**size + sum(ord("@") * 31**power for power in range(size))
    rest = (wanted - start) % 2**32
    return "".join(chr(ord("@") + rest // 31**power % 31) for power in reversed(range(size)))


@given(TOPICS, KEYS)
def test_the_hash_is_javas_without_its_sign(topic: str, key: str) -> None:
    expected = abs(java_hash(f"{topic}#{key}")) % 2**31

    assert key_hash(topic, key) == expected
    assert REMEMBERS.of(topic.encode(), key.encode()) == expected


def test_a_cached_hash_is_reused() -> None:
    hashes = KeyHashes()
    keys = [f"7F00000100012A139A5514E1B2C3{counter:04X}" for counter in range(0, 6000, 7)]

    first = [hashes.of(b"Orders", key.encode()) for key in keys]
    again = [hashes.of(b"Orders", key.encode()) for key in keys]

    assert first == again == [key_hash("Orders", key) for key in keys]


@pytest.mark.parametrize(("javas", "ours"), [(-(2**31), 0), (2**31 - 1, 2**31 - 1), (-1, 1), (0, 0)])
def test_the_smallest_int_of_java_counts_as_zero(javas: int, ours: int) -> None:
    key = key_with_hash(javas, "Orders")

    assert java_hash(f"Orders#{key}") == javas
    assert key_hash("Orders", key) == ours
    assert KeyHashes().of(b"Orders", key.encode()) == ours


def test_invalid_utf8_is_hashed_as_java_decodes_it() -> None:
    assert KeyHashes().of(b"T", b"ab\xffcd") == key_hash("T", "ab�cd")
    assert KeyHashes().of(b"\xff", b"abcd") == key_hash("�", "abcd")


def test_keys_of_one_producer_share_a_cached_prefix_in_all_topics() -> None:
    hashes = KeyHashes()
    keys = [f"7F00000100012A139A5514E1B2C3{counter:04X}".encode() for counter in range(2)]

    for topic in range(100):
        for key in keys:
            assert hashes.of(b"T%d" % topic, key) == key_hash(f"T{topic}", key.decode())

    assert len(hashes._heads) == 2


def test_the_cache_is_limited() -> None:
    hashes, random = KeyHashes(), Random(1)

    for number in range(40_000):
        tail = chr(48 + number % 40) + chr(48 + number // 40 % 40) + chr(48 + number // 1600)
        hashes.of(b"T%d" % number, b"%040x" % random.getrandbits(160))
        assert hashes.of(b"T", tail.encode()) == key_hash("T", tail)

    assert len(hashes._topics) <= KNOWN_TOPICS
    assert len(hashes._heads) <= KNOWN_HEADS
    assert len(hashes._tails) <= KNOWN_TAILS


@pytest.mark.parametrize("size", [3, 12, 13, 64, 76, 77, 100, 128, 129, 1000])
def test_long_keys_with_a_common_prefix_are_hashed_as_others(size: int) -> None:
    hashes = KeyHashes()

    for number in range(200, 210):
        key = f"{number:0{size}d}"
        assert hashes.of(b"T", key.encode()) == key_hash("T", key)


def test_a_few_very_long_keys_are_not_cached() -> None:
    hashes = KeyHashes()

    assert hashes.of(b"T", b"x" * 30_000) == key_hash("T", "x" * 30_000)
    assert hashes._topics == {}
