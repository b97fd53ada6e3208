"""From a record to its queue entry."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import needs_golden
from tests.store.golden_store import read_log, restore

from pocketmq.codes import SysFlag
from pocketmq.model.delay import DELAY_LEVELS, DelayLevels
from pocketmq.model.java_hash import java_hash
from pocketmq.model.properties import format_properties, parse_properties
from pocketmq.store.log.log_scan import RecoveryScan
from pocketmq.store.queues.consume_queue import (
    KNOWN_TAGS,
    LONGEST_KNOWN_TAG,
    _known_codes,
    delay_level_of,
    enters_queue,
    tags_code_of,
)

NOW_MS = 1_700_000_000_000


def code_of(raw: bytes, *, is_delay: bool = False) -> int:
    return tags_code_of(raw, is_delay, NOW_MS, DELAY_LEVELS)


# which records


@pytest.mark.parametrize(
    ("flag", "enters"),
    [
        (0, True),
        (SysFlag.TRANSACTION_PREPARED, False),
        (SysFlag.TRANSACTION_COMMIT, True),
        (SysFlag.TRANSACTION_ROLLBACK, False),
    ],
)
@pytest.mark.parametrize("others", [0, SysFlag.COMPRESSED | SysFlag.MULTI_TAGS, 0x30, 0x7F3])
def test_prepared_and_rolled_back_records_are_in_no_queue(flag: int, enters: bool, others: int) -> None:
    assert enters_queue(flag | others) is enters


# tags


@pytest.mark.parametrize(
    "raw",
    [
        b"TAGS\x01TagA\x02",
        b"TAGS\x01TagA",
        b"TAGS\x01TagA\x02KEYS\x01k\x02",
        b"KEYS\x01k\x02TAGS\x01TagA\x02",
        b"KEYS\x01k\x02TAGS\x01TagA",
        b"KEYS\x01k\x02TAGS\x01TagA\x02MYTAGS\x01other\x02",
        b"MYTAGS\x01other\x02TAGS\x01TagA\x02",
        b"TAGS\x01other\x02TAGS\x01TagA\x02",
    ],
)
def test_the_tags_code_is_the_hash_of_the_tag(raw: bytes) -> None:
    assert code_of(raw) == java_hash("TagA") == 2598919


@pytest.mark.parametrize(
    "raw",
    [b"", b"KEYS\x01TAGS\x02", b"TAGS\x01\x02", b"TAGS", b"TAGS\x02", b"MYTAGS\x01x\x02", b"KEYS\x01k\x02ATAGS\x01x"],
)
def test_without_a_tag_the_tags_code_is_zero(raw: bytes) -> None:
    assert code_of(raw) == 0


@pytest.mark.parametrize("tag", ["标签", "étiquette", "🙂", "a🙂b", "\N{GREEK SMALL LETTER ALPHA}"])
def test_tags_are_hashed_by_their_utf16_units(tag: str) -> None:
    assert code_of(f"TAGS\x01{tag}\x02".encode()) == java_hash(tag)


def test_a_negative_hash_stays_negative() -> None:
    code = code_of(b"TAGS\x01polygenelubricants\x02")

    assert code == -(2**31)
    assert struct.pack(">q", code) == b"\xff\xff\xff\xff\x80\x00\x00\x00"


def test_invalid_utf8_is_accepted() -> None:
    assert code_of(b"TAGS\x01\xff\xfe\x02") == java_hash("\ufffd\ufffd")


@pytest.mark.parametrize("length", [LONGEST_KNOWN_TAG - 1, LONGEST_KNOWN_TAG, LONGEST_KNOWN_TAG + 1, 30_000])
def test_long_tags_are_hashed_like_short_ones(length: int) -> None:
    tag = "x" * length

    assert code_of(f"TAGS\x01{tag}\x02".encode()) == java_hash(tag)


@given(
    st.dictionaries(
        st.sampled_from(["TAGS", "XTAGS", "KEYS", "TAGSX", "DELAY"]),
        st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=6),
    )
)
def test_any_properties_give_the_hash_of_their_tag(properties: dict[str, str]) -> None:
    text = format_properties(properties)

    assert code_of(text.encode()) == java_hash(parse_properties(text).get("TAGS", ""))


# delayed messages


@pytest.mark.parametrize(
    ("level", "delay_ms"), [(1, 1000), (2, 5000), (3, 10_000), (17, 3_600_000), (18, 7_200_000), (19, 7_200_000)]
)
def test_in_the_delay_topic_the_tags_code_is_the_due_time(level: int, delay_ms: int) -> None:
    raw = b"TAGS\x01TagA\x02DELAY\x01%d\x02" % level

    assert code_of(raw, is_delay=True) == NOW_MS + delay_ms
    assert code_of(raw) == java_hash("TagA")


def test_the_table_of_levels_comes_from_the_settings() -> None:
    assert tags_code_of(b"DELAY\x012\x02", True, 5, DelayLevels("1s 7s")) == 7005
    assert tags_code_of(b"DELAY\x013\x02", True, 5, DelayLevels("1s 7s")) == 7005


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "-", "+", "++3", "x", "3x", " 3", "1.5", "٣", "2147483648", "9" * 11, "9" * 30_000]
)
def test_an_invalid_level_keeps_the_tag(text: str) -> None:
    raw = f"DELAY\x01{text}\x02TAGS\x01TagA\x02".encode()

    assert delay_level_of(raw) == 0
    assert code_of(raw, is_delay=True) == java_hash("TagA")


@pytest.mark.parametrize(("text", "level"), [("3", 3), ("+3", 3), ("03", 3), ("99", 99), ("2147483647", 2147483647)])
def test_a_level_is_parsed_as_by_java(text: str, level: int) -> None:
    assert delay_level_of(f"DELAY\x01{text}\x02".encode()) == level


def test_without_a_level_a_message_of_the_delay_topic_has_its_tag() -> None:
    assert code_of(b"TAGS\x01TagA\x02", is_delay=True) == java_hash("TagA")
    assert delay_level_of(b"TAGS\x01TagA\x02") == 0


# the real broker


@needs_golden
@pytest.mark.parametrize("version", ["5.3.3", "4.9.7"])
def test_the_captured_logs_hold_commits_tags_and_delayed_messages(version: str, tmp_path: Path) -> None:
    settings = restore(version, "clean", tmp_path)
    size = settings.log_file_bytes
    walk = RecoveryScan(lambda offset, count: read_log(tmp_path, size, offset, count), size, 0, 2 * size)
    messages = [message for _, message in walk]

    delayed = [message for message in messages if message.topic == "SCHEDULE_TOPIC_XXXX"]
    assert {delay_level_of(message.raw_properties) for message in delayed} == {1, 18}
    assert any(message.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT for message in messages)
    assert {java_hash(tag) for message in messages if (tag := message.properties.get("TAGS"))} == {
        code_of(message.raw_properties) for message in messages
    } - {0}


def test_the_cache_of_tags_is_limited() -> None:
    for number in range(2 * KNOWN_TAGS):
        assert code_of(b"TAGS\x01t%d\x02" % number) == java_hash(f"t{number}")

    assert len(_known_codes) <= KNOWN_TAGS
