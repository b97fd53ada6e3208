"""Packs of bodies: they contain the bodies of the records, with both twins; irregular records or small savings
prevent a pack.
"""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.made_records import compressed, made, record_runs
from tests.twins import compiled_or_skip

from pocketmq.codes import SysFlag
from pocketmq.compiled import Twin
from pocketmq.errors import ProtocolError
from pocketmq.protocol.body_pack import is_pack, pack_bodies, packs_in
from pocketmq.protocol.record import decode_records

LONG = b"TAGS\x01" + b"t" * 300
"""Properties by which a record is much longer than its body."""


@pytest.fixture(scope="module")
def turn() -> Twin:
    return compiled_or_skip()


def packed(*records: bytes) -> bytes | None:
    return pack_bodies([b"".join(records)], len(records), sum(map(len, records)))


def bodies_in(buffer: bytes) -> list[bytes]:
    found = []
    for pack in packs_in(buffer):
        starts = struct.unpack_from(f"<{pack.rows + 1}I", buffer, pack.starts)
        found += [buffer[pack.bodies + start : pack.bodies + end] for start, end in pairwise(starts)]
    return found


def test_a_pack_has_a_head_the_offsets_of_the_bodies_and_the_bodies() -> None:
    pack = packed(made(0, b"hello", LONG), made(1, b"", LONG), made(2, b"you", LONG))

    assert (
        pack == bytes.fromhex("00000028 504D5142 00000003 00000000 00000000 05000000 05000000 08000000") + b"helloyou"
    )
    assert is_pack(pack)


def test_consecutive_packs_start_at_multiples_of_eight() -> None:
    packs = [packed(made(0, bytes(size), LONG)) for size in range(9)]

    whole = b"".join(pack for pack in packs if pack is not None)

    assert bodies_in(whole) == [bytes(size) for size in range(9)]
    assert all(pack.end % 8 == 0 for pack in packs_in(whole))


@given(record_runs(), st.integers(0, 12), st.integers(-1, 1))
def test_both_implementations_create_the_same_pack(turn: Twin, records: list[bytes], cut: int, off_by: int) -> None:
    pieces: list[bytes | memoryview] = [b"".join(records[:cut]), memoryview(b"".join(records[cut:]))]
    count, size = len(records) + off_by, sum(map(len, records))

    pack = pack_bodies(pieces, count, size)

    assert turn.pack_bodies(pieces, count, size) == pack
    if pack is not None:
        assert bodies_in(pack) == [message.body for message in decode_records(b"".join(records))]
        assert len(pack) <= size * 3 / 4


@given(st.binary(max_size=400), st.integers(-2, 5), st.integers(-10, 2**40))
def test_invalid_records_are_not_packed(turn: Twin, noise: bytes, count: int, size: int) -> None:
    pieces: list[bytes | memoryview] = [made(0, b"hello", LONG), noise]

    assert turn.pack_bodies(pieces, count, size) == pack_bodies(pieces, count, size) or not noise


@pytest.mark.parametrize(
    "odd",
    [
        compressed(1, b"hello"),
        made(1, b"hello", LONG, sys_flag=SysFlag.TRANSACTION_PREPARED),
        made(1, b"hello", LONG, sys_flag=SysFlag.TRANSACTION_ROLLBACK),
        made(1, b"hello", LONG, sys_flag=SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP),
        made(1, b"hello", LONG, topic="t" * 200),
    ],
    ids=["compressed", "undecided", "rolled back", "a whole batch", "of version 2"],
)
def test_one_irregular_record_prevents_a_pack(turn: Twin, odd: bytes) -> None:
    records = [made(0, b"hello", LONG), odd, made(2, b"hello", LONG)]

    assert packed(*records) is None
    assert turn.pack_bodies([*records], 3, sum(map(len, records))) is None


def test_messages_of_committed_transactions_are_regular() -> None:
    assert bodies_in(packed(made(0, b"paid", LONG, sys_flag=SysFlag.TRANSACTION_COMMIT)) or b"") == [b"paid"]


@pytest.mark.parametrize("sizes", [[1000], [1000, 1], [1, 1000, 1000], [0, 0, 1000, 1000]])
def test_a_pack_that_saves_little_is_not_used(turn: Twin, sizes: list[int]) -> None:
    records = [made(number, bytes(size)) for number, size in enumerate(sizes)]

    assert packed(*records) is None
    assert turn.pack_bodies([*records], len(sizes), sum(map(len, records))) is None


def test_a_record_is_not_a_pack() -> None:
    assert not is_pack(made(0, b"hello"))
    assert not is_pack(b"")


@pytest.mark.parametrize("cut", [1, 8, 15, 16, 20, 39])
def test_a_truncated_pack_is_an_error(cut: int) -> None:
    pack = packed(made(0, b"hello", LONG), made(1, b"", LONG), made(2, b"you", LONG)) or b""

    with pytest.raises(ProtocolError, match="no pack of bodies at byte 40 of"):
        [*packs_in(pack + pack[:cut])]


@pytest.mark.parametrize(
    "arguments", [(), ([],), ([], 1), ((), 1, 91), ([None], 1, 91), (["a"], 1, 91), ([], None, 91)]
)
def test_a_call_with_wrong_arguments_is_an_error(turn: Twin, arguments: tuple[object, ...]) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        turn.pack_bodies(*arguments)  # type: ignore[arg-type]
