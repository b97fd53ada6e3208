"""Records of a buffer as columns: their starts, their fixed fields, and the positions of their parts.

    | size 4 … queue offset @20 … log offset @28 | sysFlag @36 | … | body length @84 | body | 1 | topic | 2 | properties |
    ╰────────────────── the head: 88 bytes ──────────────────────╯

Finding the starts takes one step per record; the C twin does it faster. Then numpy copies all heads at once and reads each
field of all records as one strided view. That works for regular records: version 1 and IPv4 hosts. `regular_layout` finds them;
records whose lengths do not add up count as irregular, too. `decode_record` decodes irregular records one by one.
"""

import struct
from typing import Any, Final, NamedTuple

from pocketmq.compiled import Twin
from pocketmq.protocol.record import HOSTS_V6, MAGIC_V1, SMALLEST_RECORD, decode_record
from pocketmq.spark.arrow import np

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Switches = np.ndarray[Any, np.dtype[np.bool_]]
Heads = np.ndarray[Any, np.dtype[np.void]]

HEAD: Final = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("log_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_ms", ">i8"),
        ("born_host", "V8"),
        ("store_ms", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_offset", ">i8"),
        ("body_size", ">i4"),
    ]
)
"""The head of a record with IPv4 hosts. Up to sysFlag it is the same for all records."""

_RAW_HEAD = f"V{HEAD.itemsize}"
_unpack_size = struct.Struct(">I").unpack_from


class Layout(NamedTuple):
    """The positions of the parts of records in their buffer. A length byte precedes a topic, two precede properties."""

    body_at: Numbers
    body_end: Numbers
    topic_end: Numbers
    end: Numbers


class Records:
    """The records of a buffer, in its order: their starts and their heads."""

    __slots__ = ("buffer", "heads", "starts")

    def __init__(self, buffer: bytes | memoryview, starts: Numbers, heads: Heads) -> None:
        self.buffer = buffer
        self.starts = starts
        self.heads = heads

    @classmethod
    def find(cls, buffer: bytes | memoryview, twin: Twin | None = None) -> "Records":
        """All records of a buffer; ProtocolError if it contains other bytes or ends within a record."""
        assert len(buffer) < 2**31, "buffers are a few megabytes, and Arrow's offsets are 32-bit numbers"
        found = None if twin is None else twin.record_starts(buffer, SMALLEST_RECORD)
        starts = np.array(_starts(buffer), np.int64) if found is None else np.frombuffer(found, np.int64)
        if not len(starts):
            return cls(buffer, starts, np.empty(0, HEAD))
        # One item at each byte, so that starts are indexes: copy 88 raw bytes each, then view them as fields.
        raw: Any = np.ndarray((len(buffer) - HEAD.itemsize + 1,), _RAW_HEAD, buffer, strides=(1,))
        return cls(buffer, starts, raw[starts].view(HEAD))

    def __len__(self) -> int:
        return len(self.starts)

    def chosen(self, which: Any) -> "Records":
        """The records of a mask, a slice or indexes."""
        return Records(self.buffer, self.starts[which], self.heads[which])

    def field(self, name: str) -> Numbers:
        """One field of all heads, in the machine's byte order."""
        return self.heads[name].astype(np.int64)

    def one(self, row: int) -> bytes:
        """The bytes of one record."""
        start = int(self.starts[row])
        return bytes(self.buffer[start : start + int(self.heads["size"][row])])

    def octets(self) -> Bytes:
        return np.frombuffer(self.buffer, np.uint8)


def _starts(buffer: bytes | memoryview) -> list[int]:
    starts: list[int] = []
    found = starts.append
    at, end = 0, len(buffer)
    last = end - 4
    while at <= last and (size := _unpack_size(buffer, at)[0]) >= SMALLEST_RECORD:
        found(at)
        at += size
    if at != end:
        decode_record(bytes(buffer), starts[-1] if at > end else at)
        raise AssertionError("a record that does not fit into its buffer was decoded")
    return starts


def regular_layout(records: Records, irregular_flags: int) -> tuple[Switches, Layout]:
    """Which records are regular (version 1, whole, without `irregular_flags`), and the positions of their parts."""
    starts, heads = records.starts, records.heads
    sizes, body_sizes = records.field("size"), records.field("body_size")
    regular: Switches = (
        (heads["magic"] == MAGIC_V1)
        & ((heads["sys_flag"] & (irregular_flags | HOSTS_V6)) == 0)
        & (body_sizes >= 0)
        & (body_sizes <= sizes - SMALLEST_RECORD)
    )
    body_at = starts + HEAD.itemsize
    layout = _measured(records, Layout(body_at, body_at + np.where(regular, body_sizes, 0), starts, starts + sizes))
    properties_sizes = _two_octets(records, layout.topic_end)
    regular &= layout.topic_end + 2 + properties_sizes == layout.end
    if regular.all():
        return regular, layout
    return regular, Layout(*(part[regular] for part in layout))


def _measured(records: Records, layout: Layout) -> Layout:
    """The layout with the ends of the topics, read from the length byte before each."""
    topic_sizes = records.octets()[layout.body_end].astype(np.int64)
    return layout._replace(topic_end=layout.body_end + 1 + topic_sizes)


def _two_octets(records: Records, at: Numbers) -> Numbers:
    """The 16-bit numbers at these positions. Positions beyond the buffer give a number that fits no length."""
    octets = records.octets()
    safe = np.minimum(at, len(octets) - 2)
    high: Numbers = octets[safe].astype(np.int64)
    low: Numbers = octets[safe + 1].astype(np.int64)
    return (high << 8) | low
