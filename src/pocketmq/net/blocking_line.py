"""A connection for one thread at a time: write a request, wait for its answer. No loop, no second thread.

    exchange(number, frame) ──► socket ──► looked for, then slept for ──► frames ── the answer with this number ──► Command
                                                                             └─ anything else: late answers, which nobody waits for, and requests

A thread that waits for every answer has nothing to gain from a loop, and a hand-over to one and back costs more than the call.
Whatever goes wrong ends the line: where the next answer would begin can no longer be told.
"""

import os
import socket
from typing import Final

from pocketmq.clock import Clock
from pocketmq.errors import CallTimedOut, ConnectFailed, ConnectionLost, ProtocolError
from pocketmq.net.address import Address
from pocketmq.net.watching import Watch, can_watch
from pocketmq.protocol.command import Command, decode_command
from pocketmq.protocol.frames import FrameSplitter

RECEIVE_BYTES: Final = 64 * 1024
FRESH_S: Final = 1.0
"""A line that was used within this time is taken to be alive; an older one is looked at first."""


class BlockingLine:
    """Not for two threads at once."""

    def __init__(self, address: Address, clock: Clock, *, connect_s: float) -> None:
        """ConnectFailed when nobody is there."""
        self.address = address
        self._clock = clock
        self._splitter = FrameSplitter()
        self._number = 0
        try:
            self._socket = socket.create_connection((address.host, address.port), connect_s)
        except (OSError, UnicodeError) as error:
            cause = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            raise ConnectFailed(f"{address}: {cause}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._limit_s = connect_s
        self._watch = Watch(self._socket.fileno(), clock) if can_watch() else None
        self._used_at = clock.monotonic()

    @property
    def is_open(self) -> bool:
        """Whether nobody has closed it here."""
        return self._socket.fileno() >= 0

    def next_number(self) -> int:
        """A number for the next request."""
        self._number = number = self._number + 1 & 0x7FFFFFFF
        return number

    def exchange(self, number: int, frame: bytes, timeout_s: float, *, watches: bool = False) -> Command:
        """The answer to the request with this number, whatever its code. After an error the line is closed.

        Who `watches` looks for it for a moment before sleeping, see `watching`.
        """
        deadline = self._clock.monotonic() + timeout_s
        try:
            self._limit(timeout_s)
            self._socket.sendall(frame)
            if watches and self._watch is not None:
                self._watch.look()
            answer = None
            while answer is None:
                answer = self._receive(number)
                if answer is None:
                    self._limit(max(deadline - self._clock.monotonic(), 0.001))
        except (TimeoutError, BlockingIOError):  # the second when there was no time at all
            self.close()
            raise CallTimedOut(
                f"{self.address}: no answer within {timeout_s} s; the request may have been carried out"
            ) from None
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {error.strerror or error}") from error
        except ProtocolError:
            self.close()
            raise
        except BaseException:  # Ctrl-C in the middle: the answer may still come, for nobody
            self.close()
            raise
        self._used_at = self._clock.monotonic()
        return answer

    def is_usable(self) -> bool:
        """Whether the other side has not hung up, as far as that can be seen from here."""
        if not self.is_open:
            return False
        if self._clock.monotonic() - self._used_at < FRESH_S:
            return True
        self._limit(0.0)
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Harmless when done twice."""
        self._socket.close()

    def _limit(self, seconds: float) -> None:
        """How long each step may take from now on. To say it again costs a call to the system, and it rarely changes."""
        if seconds != self._limit_s:
            self._socket.settimeout(max(seconds, 0.0))
            self._limit_s = seconds

    def _receive(self, number: int) -> Command | None:
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionLost("closed by the peer")
        found = None
        for frame in self._splitter.feed(data):
            command = decode_command(frame)
            if command.is_response and command.opaque == number:
                found = command
        if self._splitter.failure is not None:
            raise self._splitter.failure
        return found
