"""Connections for threads, without an event loop.

`BlockingConnection`: one thread writes a request and waits for its response.

    exchange(number, frame) ──► socket ──► poll briefly, then sleep ──► frames ── the response with this number ──► Command
                                                                            └─ requests and late responses are dropped

`BlockingCalls`: one thread sends several requests ahead, and reads bodies into its own memory, for reads of megabytes.

    send ──► request, request, request
    head ◄── | prefix | header |                at most some kilobytes beyond it are buffered
    body_into(buffer) ◄──────── body ──►        the rest is read from the socket straight into the buffer

Any failure closes the connection: the position of the next response in the stream is unknown after it.

`IdleConnections`: connections that no thread uses now. `take` returns the one used last if it is still open, or a new one.

`PeerWatch` polls for a response before the thread sleeps. Waking a thread on an idle core takes longer than a broker on the same
machine takes to respond. With a distant broker, or without a free core, polling is wasted: after each failure it is suspended for
twice as many requests, up to 1024.
"""

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from typing import Final, Generic, TypeVar

from pocketmq import system
from pocketmq.clock import Clock
from pocketmq.errors import CallTimedOut, ConnectFailed, ConnectionLost
from pocketmq.net.address import Address
from pocketmq.protocol.command import Command, decode_command
from pocketmq.protocol.frames import DEFAULT_LIMITS, PREFIX_SIZE, FrameSplitter, prefix_failure

POLL_S: Final = 0.000_2
"""The longest time to poll. Responses that take longer gain little from it."""
MAX_SUSPENDED: Final = 1024
"""The most requests without polling after polling has failed."""


def can_watch() -> bool:
    """Whether a second core could produce a response while this one polls."""
    return system.usable_cores() > 1 and hasattr(select, "poll")


class PeerWatch:
    """Polls one open socket, for one thread at a time."""

    def __init__(self, descriptor: int, clock: Clock) -> None:
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._clock = clock
        self._missed = 0
        self._suspended = 0

    def poll(self) -> None:
        """Return when the socket is readable or polling is over. Other threads may run meanwhile."""
        if self._suspended:
            self._suspended -= 1
            return
        poll, monotonic = self._poll.poll, self._clock.monotonic
        end = monotonic() + POLL_S
        while not poll(0):
            if monotonic() >= end:
                self._suspended = min(2**self._missed, MAX_SUSPENDED)
                self._missed += 1
                return
        self._missed = 0


RECEIVE_BYTES: Final = 64 * 1024
FRESH_S: Final = 1.0
"""A connection that was used within this time is assumed to be open; an older one is checked first."""


class BlockingConnection:
    """Not for two threads at once."""

    def __init__(self, address: Address, clock: Clock, *, connect_s: float) -> None:
        """Connect. ConnectFailed says why not."""
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
        self._watch = PeerWatch(self._socket.fileno(), clock) if can_watch() else None
        self._used_at = clock.monotonic()

    @property
    def is_open(self) -> bool:
        """Whether this side has not closed it."""
        return self._socket.fileno() >= 0

    def next_number(self) -> int:
        """The correlation number of the next request."""
        self._number = number = self._number + 1 & 0x7FFFFFFF
        return number

    def exchange(self, number: int, frame: bytes, timeout_s: float, *, watches: bool = False) -> Command:
        """The response to the request with this number, with any code. After an error the connection is closed.

        With `watches`, poll for it before sleeping (`PeerWatch`).
        """
        deadline = self._clock.monotonic() + timeout_s
        try:
            self._limit(timeout_s)
            self._socket.sendall(frame)
            if watches and self._watch is not None:
                self._watch.poll()
            answer = None
            while answer is None:
                answer = self._receive(number)
                if answer is None:
                    self._limit(max(deadline - self._clock.monotonic(), 0.001))
        except (TimeoutError, BlockingIOError):  # the second with a timeout of 0
            self.close()
            raise CallTimedOut(
                f"{self.address}: no response within {timeout_s} s; the request may have been executed"
            ) from None
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {error.strerror or error}") from error
        except BaseException:  # after Ctrl-C the response may still arrive
            self.close()
            raise
        self._used_at = self._clock.monotonic()
        return answer

    def is_usable(self) -> bool:
        """Whether the other side has not closed it, as far as this side knows."""
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
        """Idempotent."""
        self._socket.close()

    def _limit(self, seconds: float) -> None:
        """Set the socket timeout. Repeating the same value would cost a system call."""
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


HEAD_BYTES: Final = 16 * 1024
"""The read buffer for headers. It grows with longer headers."""


class BlockingCalls(BlockingConnection):
    """Not for two threads at once. `timeout_s` covers a whole head or body."""

    def __init__(self, address: Address, clock: Clock, *, connect_s: float) -> None:
        super().__init__(address, clock, connect_s=connect_s)
        self._read = bytearray(HEAD_BYTES)
        self._at, self._end = 0, 0  # of the unread bytes in the buffer
        self._body_bytes = 0

    def send(self, frame: bytes, timeout_s: float) -> None:
        """Write a request. Its response is one of the next heads."""
        with self._closed_on_failure(timeout_s):
            self._limit(timeout_s)
            self._socket.sendall(frame)

    def head(self, timeout_s: float) -> tuple[Command, int]:
        """The next command without its body, and the length of the body, which must be read before the next head."""
        assert not self._body_bytes, "read the body before the next head"
        with self._closed_on_failure(timeout_s):
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

    def body_into(self, buffer: memoryview, timeout_s: float) -> None:
        """Read the body of the last head, which fills `buffer` exactly."""
        assert len(buffer) == self._body_bytes, "the buffer has the size of the body"
        with self._closed_on_failure(timeout_s):
            at = min(len(buffer), self._end - self._at)
            buffer[:at] = memoryview(self._read)[self._at : self._at + at]
            self._at += at
            self._used_at = self._clock.monotonic()
            deadline = self._used_at + timeout_s
            while at < len(buffer):
                at += self._received(buffer[at:], deadline)
        self._body_bytes = 0

    def _fill(self, wanted: int, deadline: float) -> None:
        """Buffer at least `wanted` bytes."""
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

    def _received(self, buffer: memoryview, deadline: float) -> int:
        if self._clock.monotonic() >= deadline:
            raise TimeoutError
        count = self._socket.recv_into(buffer)
        if not count:
            raise ConnectionLost(f"{self.address}: closed by the peer")
        return count

    @contextmanager
    def _closed_on_failure(self, timeout_s: float) -> Iterator[None]:
        """Close the connection on any failure, including Ctrl-C."""
        with ExitStack() as undo:
            undo.callback(self.close)
            try:
                yield
            except TimeoutError:
                raise CallTimedOut(f"{self.address}: no response within {timeout_s} s") from None
            except OSError as error:
                raise ConnectionLost(f"{self.address}: {error.strerror or error}") from error
            undo.pop_all()


OneConnection = TypeVar("OneConnection", bound=BlockingConnection)


class IdleConnections(Generic[OneConnection]):
    """Thread-safe. `connect(address, timeout_s)` opens a connection; at most `most` are open to one address."""

    def __init__(self, connect: Callable[[Address, float], OneConnection], *, most: int) -> None:
        self._connect = connect
        self._most = most
        self._idle: dict[Address, list[OneConnection]] = {}
        self._open: dict[Address, int] = {}
        self._lock = threading.Lock()  # guards all other attributes; no I/O under it except checks of idle sockets
        self._is_closed = False
        self.in_use = 0
        """Connections in use now."""

    def take(self, address: Address, within_s: float = inf) -> OneConnection | None:
        """A connection for the calling thread. None when the limit is reached, or after `close`. May raise ConnectFailed."""
        with self._lock:
            idle = self._idle.get(address, ())
            while idle:
                connection = idle.pop()
                if connection.is_usable():
                    self.in_use += 1
                    return connection
                connection.close()
                self._open[address] -= 1
            count = self._open.get(address, 0)
            if self._is_closed or count >= self._most:
                return None
            self._close_dead()
            self._open[address] = count + 1
            self.in_use += 1
        with ExitStack() as undo:
            undo.callback(self._count_closed, address)
            connection = self._connect(address, within_s)
            undo.pop_all()
            return connection

    def give(self, connection: OneConnection) -> None:
        """Return a connection without pending responses, or a closed one."""
        if connection.is_open:
            with self._lock:
                if not self._is_closed:
                    self._idle.setdefault(connection.address, []).append(connection)
                    self.in_use -= 1
                    return
            connection.close()
        self._count_closed(connection.address)

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they are returned. Idempotent."""
        with self._lock:
            self._is_closed = True
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def open_connections(self) -> dict[Address, int]:
        """The number of connections to each address, in use or idle. Those that `close` closed still count."""
        with self._lock:
            return {address: count for address, count in self._open.items() if count}

    def reset_after_fork(self) -> None:
        """In the child of a fork: a thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def _close_dead(self) -> None:
        """Without this, connections to addresses that are not used again would stay open."""
        for address, connections in self._idle.items():
            dead = [connection for connection in connections if not connection.is_usable()]
            for connection in dead:
                connection.close()
                connections.remove(connection)
            self._open[address] -= len(dead)

    def _count_closed(self, address: Address) -> None:
        with self._lock:
            self._open[address] -= 1
            self.in_use -= 1
