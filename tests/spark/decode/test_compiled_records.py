"""The C twin reads regular buffers in one pass, with the same result as Python, and declines all others."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.spark.made_records import QUEUE, V6, compressed, made, property_texts
from tests.twins import compiled_or_skip, using

from pocketmq.codes import SysFlag
from pocketmq.model.queue import QueueRange
from pocketmq.spark.decode.compiled import CompiledRecords, read_regular, wanted_bits
from pocketmq.spark.decode.decoding import Decoder, Pulled
from pocketmq.spark.schema import Name

ALL = tuple(Name)
EVERYTHING = QueueRange(QUEUE, 0, 2**62)
MOST_ENTRIES = 64


def read(
    run: bytes | memoryview,
    columns: Sequence[Name] = ALL,
    wanted: QueueRange = EVERYTHING,
    irregular_flags: int = SysFlag.COMPRESSED,
    *,
    check_crc: bool = False,
) -> CompiledRecords | None:
    return read_regular(compiled_or_skip(), wanted, run, irregular_flags, wanted_bits(columns, check_crc=check_crc))


def by_python(run: bytes, columns: Sequence[Name] = ALL) -> Any:
    with using("python"):
        (batch,) = Decoder(columns).batches([Pulled(EVERYTHING, run)])
    return batch


_regular_texts = property_texts.filter(lambda text: b"\xff" not in text)
_numbers = st.integers(-(2**63), 2**63 - 1)


@st.composite
def regular_runs(draw: st.DrawFn) -> bytes:
    """Records of one topic with bodies, times and properties of all kinds; some properties may be malformed."""
    topic = draw(st.sampled_from(["t", "orders", "x" * 127]))
    flag = draw(st.sampled_from([0, SysFlag.TRANSACTION_COMMIT, SysFlag.MULTI_TAGS]))
    offsets = range(draw(st.integers(1, 20)))
    return b"".join(
        made(
            offset,
            draw(st.binary(max_size=80)),
            draw(_regular_texts),
            topic,
            flag,
            born_ms=draw(_numbers),
            reconsume_times=draw(st.integers(-(2**31), 2**31 - 1)),
        )
        for offset in offsets
    )


@given(regular_runs(), st.lists(st.sampled_from(ALL), min_size=1, unique=True), st.booleans())
def test_columns_equal_those_of_python(run: bytes, columns: list[Name], check_crc: bool) -> None:
    found = read(run, columns, check_crc=check_crc)
    expected = by_python(run, columns)

    if found is None:  # malformed properties, which matter only to columns made of them
        assert not {Name.MSG_ID, Name.KEYS, Name.TAGS, Name.PROPERTIES}.isdisjoint(columns)
        return
    for name in columns:
        column = found.column(name)
        column.validate(full=True)
        assert column.type == expected.schema.field(name.value).type
        assert column.equals(expected.column(name.value))


@given(regular_runs())
def test_columns_do_not_refer_to_the_buffer(run: bytes) -> None:
    memory = bytearray(run)
    found = read(memoryview(memory))
    memory[:] = bytes(len(memory))

    if found is not None:
        again = read(run)
        assert again is not None
        assert all(found.column(name).equals(again.column(name)) for name in ALL)


MANY = b"".join(b"n%d\x01v\x02" % number for number in range(MOST_ENTRIES + 1))
DECLINED = {
    "nothing": b"",
    "compressed": made(0) + compressed(1, b"body"),
    "hosts of IPv6": made(0, born_host=V6),
    "undecided": made(0, sys_flag=SysFlag.TRANSACTION_PREPARED),
    "rolled back": made(0, sys_flag=SysFlag.TRANSACTION_ROLLBACK),
    "a whole batch": made(0, sys_flag=SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP),
    "version 2": made(0, topic="y" * 200),
    "two topics": made(0) + made(1, topic="another"),
    "a topic beyond ASCII": made(0, topic="größe"),
    "malformed properties": made(0, properties=b"no separator"),
    "properties that are not UTF-8": made(0, properties=b"a\x01\xff\x02"),
    "too many properties": made(0, properties=MANY),
    "cut": made(0) + made(1)[:-1],
    "too long": made(0) + b"\x00",
    "no record": bytes(200),
}


@pytest.mark.parametrize("run", DECLINED.values(), ids=DECLINED.keys())
def test_irregular_records_are_declined(run: bytes) -> None:
    assert read(run) is None


@pytest.mark.parametrize("wanted", [QueueRange(QUEUE, 0, 2), QueueRange(QUEUE, 1, 3), QueueRange(QUEUE, 3, 9)])
def test_records_outside_the_range_are_declined(wanted: QueueRange) -> None:
    run = b"".join(made(offset) for offset in range(3))

    assert read(run) is not None
    assert read(run, wanted=wanted) is None


def test_more_records_than_offsets_are_declined() -> None:
    assert read(made(0) * 3, wanted=QueueRange(QUEUE, 0, 2)) is None


def test_a_wrong_checksum_is_left_to_python_if_checked() -> None:
    damaged = bytearray(made(0, b"a body"))
    damaged[90] ^= 1

    assert read(bytes(damaged)) is not None
    assert read(bytes(damaged), check_crc=True) is None


def test_a_compressed_body_is_regular_if_not_requested() -> None:
    found = read(compressed(7, b"body"), (Name.QUEUE_OFFSET,), irregular_flags=0)

    assert found is not None
    assert found.column(Name.QUEUE_OFFSET).to_pylist() == [7]


@given(regular_runs(), st.data())
def test_damaged_bytes_cause_no_crash(run: bytes, data: st.DataObject) -> None:
    damaged = bytearray(run)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))

    found = read(bytes(damaged))

    if found is not None:
        for name in ALL:
            found.column(name).validate(full=True)


def test_wrong_arguments_are_refused() -> None:
    twin = compiled_or_skip()
    run = made(0)

    for wrong in (
        ("a text", 0, 9, 0, 1, ()),
        (run, None, 9, 0, 1, ()),
        (run, 0, 9, 0, 1, [b"a"]),
        (run, 0, 9, 0, 1, ("a",)),
    ):
        with pytest.raises(TypeError):
            twin.read_columns(*wrong)
    with pytest.raises(ValueError, match="at most 8 names"):
        twin.read_columns(run, 0, 9, 0, 4, (b"a",) * 9)
    with pytest.raises(ValueError, match="a name must not be empty"):
        twin.read_columns(run, 0, 9, 0, 4, (b"",))
    with pytest.raises(OverflowError):
        twin.read_columns(run, 2**63, 2**64, 0, 4, ())
    with pytest.raises(TypeError, match="takes 6 arguments"):
        twin.read_columns(run)  # type: ignore[call-arg]
    assert twin.read_columns(run, -1, 9, 0, 1, ()) is None
    assert twin.read_columns(run, 9, 0, 0, 1, ()) is None
