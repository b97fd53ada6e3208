"""A connection for one thread at a time: write a request, wait for its answer. No loop, no second thread.

    exchange(number, frame) ──► socket ──► looked for, then slept for ──► frames ── the answer with this number ──► Command
                                                                             └─ anything else: late answers, which nobody waits for, and requests

A thread that waits for every answer has nothing to gain from a loop, and a hand-over to one and back costs more than the call.
Whatever goes wrong ends the line: where the next answer would begin can no longer be told.

A connection on which one thread asks ahead and takes the answers as they come, their bodies straight into memory of its own.

    ask ──► request, request, request
    head ◄── | prefix | header |                what is read beyond it is held, some kilobytes at most
    body_into(room) ◄──────────── body ──►      the rest of it goes from the socket to its place, and is copied nowhere else

For who reads megabytes: a loop would put each body together from pieces, in another thread. Whatever goes wrong ends the line, as
with `blocking_line`.

Lines that no thread uses at the moment, kept for the next one.

take ──► the one used last, if it is still alive, or a new one ──► give ──► kept, unless it was closed
            └─ `most` are open to this address: None      └─ all that died meanwhile, to any address, are closed first

Looking for an answer before sleeping: whether that is worth it.

    request ──► look, look, look … ── it is there ──► look again with the next request
                   └─ 200 us are over ──► sleep, and also with the next 1, 2, 4 … 1024 requests

To wake a thread on an idle core takes longer than a broker on the same machine takes to answer. Where answers are far, or no core is free
to make them, looking is work for nothing, so each time that it fails the next try is put off for twice as long.
"""

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from typing import Final, Generic, TypeVar

from pocketmq.clock import Clock
from pocketmq.errors import CallTimedOut, ConnectFailed, ConnectionLost
from pocketmq.net.address import Address
from pocketmq.protocol.command import Command, decode_command
from pocketmq.protocol.frames import DEFAULT_LIMITS, PREFIX_SIZE, FrameSplitter, prefix_failure

LOOK_S: Final = 0.000_2
"""The longest look. Answers that take longer gain little from it."""
MOST_PUT_OFF: Final = 1024
"""Waits without a look after many looks for nothing; then it is tried again."""


def can_watch() -> bool:
    """Whether there is a second core that could make an answer while this one looks for it."""
    allowed = getattr(os, "sched_getaffinity", None)
    cores = (os.cpu_count() or 1) if allowed is None else len(allowed(0))
    return cores > 1 and hasattr(select, "poll")


class PeerWatch:
    """The looks of one thread at a time at one socket, which is open for as long."""

    def __init__(self, descriptor: int, clock: Clock) -> None:
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._clock = clock
        self._missed = 0
        self._put_off = 0

    def look(self) -> None:
        """Return when something can be read, or when it is time to sleep. Other threads may run meanwhile."""
        if self._put_off:
            self._put_off -= 1
            return
        poll, monotonic = self._poll.poll, self._clock.monotonic
        end = monotonic() + LOOK_S
        while not poll(0):
            if monotonic() >= end:
                self._put_off = min(2**self._missed, MOST_PUT_OFF)
                self._missed += 1
                return
        self._missed = 0


RECEIVE_BYTES: Final = 64 * 1024
FRESH_S: Final = 1.0
"""A line that was used within this time is taken to be alive; an older one is looked at first."""


class BlockingConnection:
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
        self._watch = PeerWatch(self._socket.fileno(), clock) if can_watch() else None
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


HEAD_BYTES: Final = 16 * 1024
"""What is read at once where a header is expected; a longer header makes it more."""


class BlockingCalls(BlockingConnection):
    """Not for two threads at once. `timeout_s` is for the whole of a head or a body, without which nothing can follow."""

    def __init__(self, address: Address, clock: Clock, *, connect_s: float) -> None:
        super().__init__(address, clock, connect_s=connect_s)
        self._read = bytearray(HEAD_BYTES)
        self._at, self._end = 0, 0  # of what was read and is held
        self._body_bytes = 0

    def ask(self, frame: bytes, timeout_s: float) -> None:
        """Write a request; its answer is one of the heads that come."""
        with self._closed_on_failure(timeout_s):
            self._limit(timeout_s)
            self._socket.sendall(frame)

    def head(self, timeout_s: float) -> tuple[Command, int]:
        """The next command without its body, and how long that is. It has to be taken before the next head."""
        assert not self._body_bytes, "a body is taken before the next head"
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

    def body_into(self, room: memoryview, timeout_s: float) -> None:
        """The body of the last head, which fills `room` exactly."""
        assert len(room) == self._body_bytes, "a body has the size that its head told"
        with self._closed_on_failure(timeout_s):
            at = min(len(room), self._end - self._at)
            room[:at] = memoryview(self._read)[self._at : self._at + at]
            self._at += at
            self._used_at = self._clock.monotonic()
            deadline = self._used_at + timeout_s
            while at < len(room):
                at += self._received(room[at:], deadline)
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

    @contextmanager
    def _closed_on_failure(self, timeout_s: float) -> Iterator[None]:
        """Any failure closes the connection, Ctrl-C as well: it is unknown where the next answer would begin."""
        with ExitStack() as undo:
            undo.callback(self.close)
            try:
                yield
            except TimeoutError:
                raise CallTimedOut(f"{self.address}: no answer within {timeout_s} s") from None
            except OSError as error:
                raise ConnectionLost(f"{self.address}: {error.strerror or error}") from error
            undo.pop_all()


OneConnection = TypeVar("OneConnection", bound=BlockingConnection)


class IdleConnections(Generic[OneConnection]):
    """All of it may be called from any thread. `connect` is told how many seconds it has."""

    def __init__(self, connect: Callable[[Address, float], OneConnection], *, most: int) -> None:
        self._connect = connect
        self._most = most
        self._idle: dict[Address, list[OneConnection]] = {}
        self._open: dict[Address, int] = {}
        self._lock = threading.Lock()  # guards all of the others; nothing is sent or waited for under it
        self._is_closed = False
        self.taken = 0
        """Lines in use now."""

    def take(self, address: Address, within_s: float = inf) -> OneConnection | None:
        """A line that nobody else uses; None when there are too many, or after `close`. ConnectFailed when none can be made."""
        with self._lock:
            idle = self._idle.get(address, ())
            while idle:
                connection = idle.pop()
                if connection.is_usable():
                    self.taken += 1
                    return connection
                connection.close()
                self._open[address] -= 1
            count = self._open.get(address, 0)
            if self._is_closed or count >= self._most:
                return None
            self._close_dead()
            self._open[address] = count + 1
            self.taken += 1
        with ExitStack() as undo:
            undo.callback(self._gone, address)
            connection = self._connect(address, within_s)
            undo.pop_all()
            return connection

    def give(self, connection: OneConnection) -> None:
        """Take back a line on which nothing is awaited any more, or one that is closed."""
        if connection.is_open:
            with self._lock:
                if not self._is_closed:
                    self._idle.setdefault(connection.address, []).append(connection)
                    self.taken -= 1
                    return
            connection.close()
        self._gone(connection.address)

    def close(self) -> None:
        """Close those that nobody uses; the others follow when they are given back. Harmless when done twice."""
        with self._lock:
            self._is_closed = True
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def open_connections(self) -> dict[Address, int]:
        """How many there are to each address, in use or not; those that `close` ended are still counted."""
        with self._lock:
            return {address: count for address, count in self._open.items() if count}

    def begin_anew(self) -> None:
        """In the child of a fork: a thread that the child does not have may have held the lock."""
        self._lock = threading.Lock()

    def _close_dead(self) -> None:
        """Of addresses that nobody asks for any more, nobody else would ever notice."""
        for address, connections in self._idle.items():
            dead = [connection for connection in connections if not connection.is_usable()]
            for connection in dead:
                connection.close()
                connections.remove(connection)
            self._open[address] -= len(dead)

    def _gone(self, address: Address) -> None:
        with self._lock:
            self._open[address] -= 1
            self.taken -= 1
