"""A pack of bodies: the response to a pull that needs bodies only.

    | size 4 | magic 4 | count 4 | 0 4 | offsets of all bodies and of the end: (count + 1) × 4 | body | body | … | zeros up to a multiple of 8 |
      big-endian                         little-endian, relative to the first body: the layout of an Arrow column

A record of a small message is mostly properties and numbers: 350 bytes for a body of 100 bytes. A client requests packs with
`PullFlag.ONLY_BODIES`, which is not part of RocketMQ: its brokers ignore the flag and send records. So do ours if a record is irregular
(compressed, undecided, an inner batch, IPv6 hosts), if messages are filtered out, because bodies have no offsets, or if the pack would
save little. A client therefore accepts both. The magic, at the same position as in a record, distinguishes them.
"""

import struct
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from pocketmq.codes import SysFlag
from pocketmq.errors import ProtocolError
from pocketmq.protocol.record import HOSTS_V6, MAGIC_V1, SMALLEST_RECORD

MAGIC: Final = 0x504D5142
IRREGULAR_FLAGS: Final = (
    SysFlag.COMPRESSED | SysFlag.TRANSACTION_PREPARED | SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP | HOSTS_V6
)
"""Flags of records that are never packed."""

_ALIGNED: Final = 8
_START_BYTES: Final = 4
_LARGEST: Final = 2**31 - 1
_head: Final = struct.Struct(">IIII")
_record: Final = struct.Struct(">II28xI44xI")
_RECORD_HEAD: Final = _record.size


class Pack(NamedTuple):
    """The positions of a pack in a buffer: `rows + 1` offsets, the bodies, and padding up to `end`."""

    rows: int
    starts: int
    bodies: int
    end: int


def is_pack(buffer: bytes | memoryview) -> bool:
    """Whether a response contains packs instead of records."""
    return len(buffer) >= _head.size and _head.unpack_from(buffer)[1] == MAGIC


def packs_in(buffer: bytes | memoryview) -> Iterator[Pack]:
    """The packs in a buffer. ProtocolError if they do not fill it exactly. Offsets of bodies are not checked."""
    at = 0
    while at < len(buffer):
        size, magic, rows, _ = _head.unpack_from(buffer, at) if len(buffer) - at >= _head.size else (0, 0, 0, 0)
        bodies = at + _head.size + _START_BYTES * (rows + 1)
        if magic != MAGIC or size % _ALIGNED or not bodies <= at + size <= len(buffer):
            raise ProtocolError(f"no pack of bodies at byte {at} of {len(buffer)}")
        yield Pack(rows, at + _head.size, bodies, at + size)
        at += size


def pack_bodies(pieces: list[bytes | memoryview], count: int, size: int) -> bytes | None:
    """Pack the bodies of `count` records of `size` bytes; None if the records should be sent. The C twin does the same."""
    bodies: list[bytes | memoryview] = []
    for piece in pieces:
        if not _add_bodies(bodies, piece):
            return None
    starts = [*accumulate(map(len, bodies), initial=0)]
    packed = -(-(_head.size + _START_BYTES * len(starts) + starts[-1]) // _ALIGNED) * _ALIGNED
    if not bodies or len(bodies) != count or size > _LARGEST or packed > _share_of(size):
        return None
    start = _head.pack(packed, MAGIC, count, 0) + struct.pack(f"<{len(starts)}I", *starts)
    return b"".join((start, *bodies)).ljust(packed, b"\0")


def _add_bodies(bodies: list[bytes | memoryview], records: bytes | memoryview) -> bool:
    """False if a record is irregular, or if packing the first one would save little."""
    is_first = not any(map(len, bodies))
    at, end = 0, len(records)
    while at < end:
        if end - at < SMALLEST_RECORD:
            return False
        size, magic, flags, body_bytes = _record.unpack_from(records, at)
        if magic != MAGIC_V1 or flags & IRREGULAR_FLAGS:
            return False
        if not SMALLEST_RECORD <= size <= end - at or body_bytes > size - SMALLEST_RECORD:
            return False
        if is_first and body_bytes > _share_of(size):
            return False
        is_first = is_first and not body_bytes
        bodies.append(records[at + _RECORD_HEAD : at + _RECORD_HEAD + body_bytes])
        at += size
    return True


def _share_of(record_bytes: int) -> int:
    """The maximum size of a pack for records of this size."""
    return record_bytes // 4 * 3
