"""Frames: splits a byte stream into commands.

    | total 4 | encoding 1 | header length 3 | header … | body … |
      total = bytes after this field      encoding: 0 JSON, 1 ROCKETMQ (binary)

A frame is a plain tuple (encoding, header, body): one is created per message, and a class would double the cost. Limits are checked on the
prefix, before any byte of the frame is buffered.
"""

import struct
from typing import Final

import msgspec

from pocketmq import compiled
from pocketmq.codes import HeaderEncoding
from pocketmq.errors import ProtocolError

Frame = tuple[int, bytes, bytes]
"""Header encoding, header, body. A missing body is empty."""

_PREFIX = struct.Struct(">II")
PREFIX_SIZE: Final = 8
_unpack_prefix = _PREFIX.unpack_from
_LARGEST_ENCODING: Final = int(max(HeaderEncoding))
_LARGE_PIECE: Final = 16 * 1024


HTTP_ANSWER: Final = "these bytes are an HTTP response; this is the port of a web server, such as the console"
_OTHER_PROTOCOLS: Final = (
    (b"HTTP", HTTP_ANSWER),
    (b"\x15\x03", "these bytes are a TLS alert; the peer requires TLS"),
    (b"\x16\x03", "these bytes begin a TLS connection, but TLS is not enabled here"),
    (b"GET ", "these bytes are an HTTP request; the peer is a web client"),
    (b"POST", "these bytes are an HTTP request; the peer is a web client"),
)
"""First bytes of other protocols. As a frame length they are always too large."""


class FrameLimits(msgspec.Struct, frozen=True):
    """Largest frame (prefix included) and header that are accepted, in bytes."""

    frame_bytes: int = 16 * 1024 * 1024
    header_bytes: int = 1024 * 1024


DEFAULT_LIMITS = FrameLimits()


class FrameSplitter:
    """Splits a byte stream into frames, and buffers an incomplete one.

    Bytes that cannot be a frame end the stream: the frames before them are returned, `failure` is set, and nothing more is read.
    """

    __slots__ = ("_buffered", "_limits", "_more", "_needed", "_split", "_tail", "failure")

    def __init__(self, limits: FrameLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        twin = compiled.twin()
        self._split = split_whole if twin is None else twin.split_whole
        self._tail = b""
        self._more: list[bytes | bytearray] = []
        self._buffered = 0
        self._needed = 0
        self.failure: ProtocolError | None = None

    @property
    def pending(self) -> int:
        """Buffered bytes of an incomplete frame."""
        return self._buffered

    def feed(self, data: bytes) -> list[Frame]:
        """Add `data`, and return the frames that are now complete."""
        if self.failure is not None:
            return []
        if self._buffered:
            if self._buffered + len(data) < self._needed:
                self._hold(data)
                return []
            if self._more and (frame := self._completed(data)) is not None:
                rest = data[self._needed - self._buffered :]
                self.clear()
                return [frame, *self.feed(rest)] if rest else [frame]
            data = b"".join((self._tail, *self._more, data))
            self.clear()
        frames, at = self._split(data, self._limits.frame_bytes - 4, self._limits.header_bytes, _LARGEST_ENCODING)
        if at < len(data):
            self._keep(data[at:])
        return frames

    def _keep(self, tail: bytes) -> None:
        """Buffer an incomplete frame, unless its prefix is invalid."""
        self._tail = tail
        self._buffered = len(tail)
        if len(tail) < 4:
            self._needed = 4
            return
        self._needed = PREFIX_SIZE if len(tail) < PREFIX_SIZE else 4 + int.from_bytes(tail[:4], "big")
        self.failure = prefix_failure(tail, self._limits)
        if self.failure is not None:
            self.clear()

    def clear(self) -> None:
        """Drop the bytes of an incomplete frame."""
        self._tail = b""
        self._more = []
        self._buffered = 0

    def _hold(self, data: bytes) -> None:
        """Buffer large blocks as they are and join small ones, so that time and memory stay linear."""
        self._buffered += len(data)
        if len(data) >= _LARGE_PIECE:
            self._more.append(data)
        elif self._more and isinstance(self._more[-1], bytearray):
            self._more[-1] += data
        else:
            self._more.append(bytearray(data))

    def _completed(self, data: bytes) -> Frame | None:
        """The frame that `data` completes, copying its body once. None if its header is split."""
        if len(self._tail) < PREFIX_SIZE:
            return None
        _, word = _unpack_prefix(self._tail)
        header_end = PREFIX_SIZE + (word & 0xFFFFFF)
        if len(self._tail) < header_end:
            return None
        last = memoryview(data)[: self._needed - self._buffered]
        body = b"".join((memoryview(self._tail)[header_end:], *self._more, last))
        return word >> 24, self._tail[PREFIX_SIZE:header_end], body


def prefix_failure(prefix: bytes, limits: FrameLimits) -> ProtocolError | None:
    """The error in the first bytes of a frame, at least four; None if they are valid."""
    total = int.from_bytes(prefix[:4], "big")
    if total < 4:
        return ProtocolError(f"frame of {total} bytes: too short for its own length fields")
    if total + 4 > limits.frame_bytes:
        return ProtocolError(
            f"frame of {total + 4} bytes exceeds the limit of {limits.frame_bytes}{_other_protocol(total)}"
        )
    if len(prefix) < PREFIX_SIZE:
        return None
    encoding, header = prefix[4], int.from_bytes(prefix[5:8], "big")
    if encoding > _LARGEST_ENCODING:
        return ProtocolError(f"unknown header encoding {encoding}")
    if header > total - 4:
        return ProtocolError(f"header of {header} bytes in a frame with {total - 4}")
    if header > limits.header_bytes:
        return ProtocolError(f"header of {header} bytes exceeds the limit of {limits.header_bytes}")
    return None


def split_whole(
    data: bytes, largest_total: int, largest_header: int, largest_encoding: int, /
) -> tuple[list[Frame], int]:
    """The complete frames at the beginning of `data`, and their size. Errors in the next one are not reported."""
    frames: list[Frame] = []
    at, end = 0, len(data)
    largest_word = largest_encoding << 24 | 0xFFFFFF
    while end - at >= PREFIX_SIZE:
        total, word = _unpack_prefix(data, at)
        header_at = at + PREFIX_SIZE
        header_end = header_at + (word & 0xFFFFFF)
        frame_end = at + 4 + total
        if not header_end <= frame_end <= end or total > largest_total:
            break
        # The header word of a JSON header equals its size, so one comparison is enough for most frames.
        if word > largest_header and (word > largest_word or header_end - header_at > largest_header):
            break
        frames.append((word >> 24, data[header_at:header_end], data[header_end:frame_end]))
        at = frame_end
    return frames, at


def split_frames(data: bytes, limits: FrameLimits = DEFAULT_LIMITS) -> list[Frame]:
    """The frames in `data`, which must contain nothing else."""
    splitter = FrameSplitter(limits)
    frames = splitter.feed(data)
    if splitter.failure is not None:
        raise splitter.failure
    if splitter.pending:
        raise ProtocolError(f"{splitter.pending} bytes after the last complete frame")
    return frames


def join_frame(encoding: int, header: bytes, body: bytes = b"") -> bytes:
    """Encode one frame."""
    return b"".join((_PREFIX.pack(4 + len(header) + len(body), encoding << 24 | len(header)), header, body))


def _other_protocol(total: int) -> str:
    first = total.to_bytes(4, "big")
    return next((f"; {words}" for start, words in _OTHER_PROTOCOLS if first.startswith(start)), "")
