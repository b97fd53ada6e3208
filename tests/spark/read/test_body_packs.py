"""Packs of bodies become batches unchanged, and invalid packs are refused before Arrow reads them."""

import struct

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.spark.made_records import QUEUE, made

from pocketmq.errors import ProtocolError
from pocketmq.model.queue import QueueRange
from pocketmq.protocol.body_pack import pack_bodies
from pocketmq.spark.arrow import arrow_schema
from pocketmq.spark.decode.decoding import Pulled
from pocketmq.spark.read.chunks import LARGE_ROWS, unpacked
from pocketmq.spark.schema import NULLS_ANYWHERE, Name

SCHEMA = arrow_schema([Name.VALUE], NULLS_ANYWHERE)


def pack_of(*bodies: bytes) -> bytes:
    records: list[bytes | memoryview] = [made(at, body, b"p\x01" + bytes(3) * 99) for at, body in enumerate(bodies)]
    pack = pack_bodies(records, len(records), sum(map(len, records)))
    assert pack is not None
    return pack


def batches_of(records: bytes, wanted: int = 100_000) -> list[list[bytes]]:
    pulled = Pulled(QueueRange(QUEUE, 0, wanted), memoryview(records))
    return [batch.column("value").to_pylist() for batch in unpacked(pulled, SCHEMA)]


def test_a_pack_is_a_batch() -> None:
    assert batches_of(pack_of(b"a", b"", b"ccc")) == [[b"a", b"", b"ccc"]]


def test_small_packs_are_joined_to_one_batch() -> None:
    assert batches_of(pack_of(b"a") + pack_of(b"", b"b") + pack_of(b"c")) == [[b"a", b"", b"b", b"c"]]


def test_large_packs_are_separate_batches() -> None:
    first, second = [b"%d" % number for number in range(LARGE_ROWS)], [b"x"] * LARGE_ROWS

    assert batches_of(pack_of(*first) + pack_of(*second)) == [first, second]


def test_more_bodies_than_requested_messages_are_refused() -> None:
    with pytest.raises(ProtocolError, match="returned 3 bodies for 2 messages"):
        batches_of(pack_of(b"a", b"b", b"c"), wanted=2)


@pytest.mark.parametrize("starts", [(1, 2, 3), (0, 3, 2), (0, -1, 3), (0, 1, 99), (0, 2**31 - 1, 3), (-5, 1, 3)])
def test_invalid_offsets_of_bodies_are_refused(starts: tuple[int, int, int]) -> None:
    pack = bytearray(pack_of(b"a", b"bc"))
    struct.pack_into("<3i", pack, 16, *starts)

    with pytest.raises(ProtocolError, match="the offsets of a body pack are not in ascending order"):
        batches_of(bytes(pack))


def test_bytes_that_are_not_a_pack_are_refused() -> None:
    with pytest.raises(ProtocolError, match="no pack of bodies at byte"):
        batches_of(pack_of(b"a") + made(0, b"b"))
