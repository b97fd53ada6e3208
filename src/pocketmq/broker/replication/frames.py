"""The bytes of RocketMQ's replication stream.

    slave ──► master    | log offset 8 |                         "I have everything before it"; the first one is a request
    master ──► slave    | log offset 8 | size 4 | bytes of the log |   size 0 is a heartbeat

Frames have no relation to records: a record may be split between frames. A frame never spans two files of the log.
"""

import struct
from collections.abc import Iterator
from typing import Final

from pocketmq.errors import ProtocolError

_HEAD: Final = struct.Struct(">qi")
_REPORT: Final = struct.Struct(">q")
HEAD_BYTES: Final = _HEAD.size
REPORT_BYTES: Final = _REPORT.size
LARGEST_FRAME_BYTES: Final = 64 * 1024 * 1024
"""A slave closes a connection with a larger frame: the other side is no master."""


def frame(log_offset: int, data: bytes) -> bytes:
    """A frame with bytes of the log; without them, a heartbeat."""
    return _HEAD.pack(log_offset, len(data)) + data


def report(log_offset: int) -> bytes:
    return _REPORT.pack(log_offset)


def last_report(unread: bytearray) -> int | None:
    """The last whole report in `unread`, which keeps the rest of the next one; None without a whole report."""
    whole = len(unread) - len(unread) % REPORT_BYTES
    if not whole:
        return None
    found: int = _REPORT.unpack_from(unread, whole - REPORT_BYTES)[0]
    del unread[:whole]
    return found


def frames(unread: bytearray) -> Iterator[tuple[int, bytes]]:
    """The whole frames in `unread`, each as log offset and bytes. They are removed from it. ProtocolError if it is no stream."""
    while len(unread) >= HEAD_BYTES:
        log_offset, size = _HEAD.unpack_from(unread)
        if log_offset < 0 or not 0 <= size <= LARGEST_FRAME_BYTES:
            raise ProtocolError(f"the stream has a frame of {size} bytes for log offset {log_offset}")
        if len(unread) < HEAD_BYTES + size:
            return
        data = bytes(memoryview(unread)[HEAD_BYTES : HEAD_BYTES + size])
        del unread[: HEAD_BYTES + size]
        yield log_offset, data
