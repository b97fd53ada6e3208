"""A pack of bodies: what a broker answers with, instead of whole records, to a pull that wants nothing else.

    | size 4 | magic 4 | count 4 | 0 4 | where each body begins, and the last ends: (count + 1) × 4 | body | body | … | zeros up to a multiple of 8 |
      in network order                   from the first body on, the least octet first: as Arrow has a column

Small messages are mostly properties and numbers: a body of 100 bytes lies in a record of 350. Who asks says so with `PullFlag.ONLY_BODIES`. That is
no rule of RocketMQ: its brokers pass the flag over and answer with records. So does one of ours where a record is odd (compressed, undecided, a whole
batch, hosts of IPv6), where messages are passed over, as bodies have no offsets to tell them by, or where little would be saved. So who asks has to
take both; the magic, which stands where a record has its own, tells which.
"""

import struct
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from pocketmq.errors import ProtocolError
from pocketmq.model.flags import SysFlag
from pocketmq.protocol.record import HOSTS_V6, MAGIC_V1, SMALLEST_RECORD

MAGIC: Final = 0x504D5142
ODD_FLAGS: Final = (
    SysFlag.COMPRESSED | SysFlag.TRANSACTION_PREPARED | SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP | HOSTS_V6
)
"""Of records that are never packed."""

_ALIGNED: Final = 8
_START_BYTES: Final = 4
_LARGEST: Final = 2**31 - 1
_head: Final = struct.Struct(">IIII")
_record: Final = struct.Struct(">II28xI44xI")
_RECORD_HEAD: Final = _record.size


class Pack(NamedTuple):
    """Where the parts of a pack lie in a buffer: `rows + 1` starts, then the bodies, with some zeros behind them up to `end`."""

    rows: int
    starts: int
    bodies: int
    end: int


def is_pack(buffer: bytes | memoryview) -> bool:
    """Whether an answer begins with a pack, and not with a record."""
    return len(buffer) >= _head.size and _head.unpack_from(buffer)[1] == MAGIC


def packs_in(buffer: bytes | memoryview) -> Iterator[Pack]:
    """The packs that lie in a buffer back to back; ProtocolError when they do not fill it. Starts are not looked at."""
    at = 0
    while at < len(buffer):
        size, magic, rows, _ = _head.unpack_from(buffer, at) if len(buffer) - at >= _head.size else (0, 0, 0, 0)
        bodies = at + _head.size + _START_BYTES * (rows + 1)
        if magic != MAGIC or size % _ALIGNED or not bodies <= at + size <= len(buffer):
            raise ProtocolError(f"there is no pack of bodies at byte {at} of {len(buffer)}")
        yield Pack(rows, at + _head.size, bodies, at + size)
        at += size


def pack_bodies(pieces: list[bytes | memoryview], count: int, size: int) -> bytes | None:
    """The bodies of `count` whole records of `size` bytes; None where these had better be sent. The compiled twin does the same."""
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
    """False when a record is odd, or when little would be saved by the first: others of a topic are mostly like it."""
    is_first = not any(map(len, bodies))
    at, end = 0, len(records)
    while at < end:
        if end - at < SMALLEST_RECORD:
            return False
        size, magic, flags, body_bytes = _record.unpack_from(records, at)
        if magic != MAGIC_V1 or flags & ODD_FLAGS:
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
    """The most that a pack may have of the bytes of its records, or of one of them."""
    return record_bytes // 4 * 3
