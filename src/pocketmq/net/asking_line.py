"""A connection on which one thread asks ahead and takes the answers as they come, their bodies straight into memory of its own.

    ask ──► request, request, request
    head ◄── | prefix | header |                what is read beyond it is held, some kilobytes at most
    body_into(room) ◄──────────── body ──►      the rest of it goes from the socket to its place, and is copied nowhere else

For who reads megabytes: a loop would put each body together from pieces, in another thread. Whatever goes wrong ends the line, as
with `blocking_line`.
"""

from typing import Final

from pocketmq.clock import Clock
from pocketmq.errors import CallTimedOut, ConnectionLost
from pocketmq.net.address import Address
from pocketmq.net.blocking_line import BlockingLine
from pocketmq.protocol.command import Command, decode_command
from pocketmq.protocol.frames import DEFAULT_LIMITS, PREFIX_SIZE, prefix_failure

HEAD_BYTES: Final = 16 * 1024
"""What is read at once where a header is expected; a longer header makes it more."""


class AskingLine(BlockingLine):
    """Not for two threads at once. `timeout_s` is for the whole of a head or a body, without which nothing can follow."""

    def __init__(self, address: Address, clock: Clock, *, connect_s: float) -> None:
        super().__init__(address, clock, connect_s=connect_s)
        self._read = bytearray(HEAD_BYTES)
        self._at, self._end = 0, 0  # of what was read and is held
        self._body_bytes = 0

    def ask(self, frame: bytes, timeout_s: float) -> None:
        """Write a request; its answer is one of the heads that come."""
        try:
            self._limit(timeout_s)
            self._socket.sendall(frame)
        except BaseException as error:
            self._fail(error, timeout_s)
            raise

    def head(self, timeout_s: float) -> tuple[Command, int]:
        """The next command without its body, and how long that is. It has to be taken before the next head."""
        assert not self._body_bytes, "a body is taken before the next head"
        try:
            self._limit(timeout_s)
            deadline = self._clock.monotonic() + timeout_s
            self._fill(PREFIX_SIZE, deadline)
            prefix = bytes(self._read[self._at : self._at + PREFIX_SIZE])
            if (failure := prefix_failure(prefix, DEFAULT_LIMITS)) is not None:
                raise failure
            header_bytes = int.from_bytes(prefix[5:8], "big")
            self._fill(PREFIX_SIZE + header_bytes, deadline)
            start = self._at + PREFIX_SIZE
            self._at = start + header_bytes
            self._body_bytes = int.from_bytes(prefix[:4], "big") - 4 - header_bytes
            return decode_command((prefix[4], bytes(self._read[start : self._at]), b"")), self._body_bytes
        except BaseException as error:
            self._fail(error, timeout_s)
            raise

    def body_into(self, room: memoryview, timeout_s: float) -> None:
        """The body of the last head, which fills `room` exactly."""
        assert len(room) == self._body_bytes, "a body has the size that its head told"
        try:
            at = min(len(room), self._end - self._at)
            room[:at] = memoryview(self._read)[self._at : self._at + at]
            self._at += at
            self._used_at = self._clock.monotonic()
            deadline = self._used_at + timeout_s
            while at < len(room):
                at += self._received(room[at:], deadline)
        except BaseException as error:
            self._fail(error, timeout_s)
            raise
        self._body_bytes = 0

    def _fill(self, wanted: int, deadline: float) -> None:
        """Hold `wanted` bytes at least."""
        if self._end - self._at >= wanted:
            return
        if self._at + wanted > len(self._read):
            rest = self._read[self._at : self._end]
            self._read = rest + bytes(max(HEAD_BYTES, wanted) - len(rest))
            self._at, self._end = 0, len(rest)
        elif self._at == self._end:
            self._at = self._end = 0
        while self._end - self._at < wanted:
            self._end += self._received(memoryview(self._read)[self._end :], deadline)

    def _received(self, room: memoryview, deadline: float) -> int:
        if self._clock.monotonic() >= deadline:
            raise TimeoutError
        count = self._socket.recv_into(room)
        if not count:
            raise ConnectionLost(f"{self.address}: closed by the peer")
        return count

    def _fail(self, error: BaseException, timeout_s: float) -> None:
        """The line ends with any failure, Ctrl-C as well: where the next answer would begin can no longer be told."""
        self.close()
        if isinstance(error, TimeoutError):
            raise CallTimedOut(f"{self.address}: no answer within {timeout_s} s") from None
        if isinstance(error, OSError):
            raise ConnectionLost(f"{self.address}: {error.strerror or error}") from error
