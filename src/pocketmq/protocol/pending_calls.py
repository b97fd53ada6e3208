"""One end of a conversation: which calls are open, whose answer this is, whose time is up. No socket, no clock.

    ours     call ──────► bytes       the number is in flight until its answer, its deadline, `forget` or `close`
             response ──► take ──► who waits for it; nobody's response is counted and ignored
    theirs   request
             reply ─────► bytes       carries the request's number back; a one-way request is never answered

Each side numbers its own requests, so the same number may be open in both directions of one line at the same moment:
the response bit tells them apart. A number is a signed 32-bit integer that wraps.

Deadlines lie in a heap that is cleaned lazily: most calls are answered long before, and an answer touches the table only. Calls that
were opened together share a deadline and one place in the heap.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NoReturn, TypeVar

from pocketmq.codes import ResponseCode
from pocketmq.errors import ConnectionLost, PocketMQError, RemoteError, TooManyCalls, UsageError, WrongState
from pocketmq.protocol.command import ONEWAY, RESPONSE, Command, encode_command
from pocketmq.protocol.frames import DEFAULT_LIMITS

W = TypeVar("W")
"""What the caller keeps to hear about a call again: a future, a callback, a test's label."""

MAX_IN_FLIGHT: Final = 65_535
"""Calls open at once unless told otherwise, as many as a Java client allows."""

_LARGEST_NUMBER = 2**31 - 1
_SMALLEST_NUMBER = -(2**31)
_SPARE_DEADLINES = 1024


class PendingCalls(Generic[W]):
    """The calls of one line. `unmatched` counts responses that belong to no open call: late, twice, or invented."""

    __slots__ = ("_deadlines", "_ended", "_frame_bytes", "_in_flight", "_max_in_flight", "_next", "unmatched")

    def __init__(
        self,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        frame_bytes: int = DEFAULT_LIMITS.frame_bytes,
        first_number: int = 0,
    ) -> None:
        self._max_in_flight = max_in_flight
        self._frame_bytes = frame_bytes
        self._next = first_number
        self._in_flight: dict[int, tuple[float, W]] = {}
        self._deadlines: list[tuple[float, int, int]] = []
        """When, the first number, and how many numbers from there on."""
        self._ended: PocketMQError | None = None
        self.unmatched = 0

    @property
    def in_flight(self) -> int:
        """Calls that wait for their answer."""
        return len(self._in_flight)

    def begin(self, deadline: float, waiter: W) -> int:
        """Open a call and give its number, for a caller that writes the frame itself."""
        in_flight = self._in_flight
        if self._ended is not None or len(in_flight) >= self._max_in_flight:
            self._refuse(1)
        number = self._next
        if number in in_flight or number == _LARGEST_NUMBER:
            number = self._take_number()
        else:
            self._next = number + 1
        in_flight[number] = (deadline, waiter)
        self._note_deadline(deadline, number, 1)
        return number

    def begin_many(self, deadline: float, waiters: Sequence[W]) -> Sequence[int]:
        """Open a call for each waiter and give their numbers, in this order; all or none."""
        first, count = self._next, len(waiters)
        if self._ended is not None or count > self.spare:
            self._refuse(count)
        numbers = range(first, first + count)
        if not count or numbers[-1] >= _LARGEST_NUMBER or not self._in_flight.keys().isdisjoint(numbers):
            return [self.begin(deadline, waiter) for waiter in waiters]
        self._next = first + count
        self._in_flight.update(zip(numbers, [(deadline, waiter) for waiter in waiters], strict=True))
        self._note_deadline(deadline, first, count)
        return numbers

    @property
    def spare(self) -> int:
        """How many more calls may be opened now."""
        return self._max_in_flight - len(self._in_flight)

    def call(self, command: Command, deadline: float, waiter: W) -> bytes:
        """Open a call; the bytes to send. Number and flag are written into `command`."""
        command.flag = 0
        command.opaque = number = self.begin(deadline, waiter)
        try:
            return self._encode(command)
        except BaseException:
            self.forget(number)
            raise

    def oneway(self, command: Command) -> bytes:
        """The bytes of a request that must not be answered. Number and flag are written into `command`."""
        if self._ended is not None:
            raise ConnectionLost(str(self._ended))
        command.flag = ONEWAY
        command.opaque = self._take_number()
        return self._encode(command)

    def reply(self, request: Command, response: Command) -> bytes:
        """The bytes that answer `request`. Number, flag and encoding are written into `response`."""
        if request.is_oneway or request.is_response:
            kind = "one-way request" if request.is_oneway else "response"
            raise WrongState(
                f"a {kind} (code {request.code}) must not be answered: its sender would take it for garbage"
            )
        response.flag = RESPONSE
        response.opaque = request.opaque
        response.encoding = request.encoding
        return self._encode(response)

    def take(self, response: Command) -> W | None:
        """Who waits for this response; None when nobody does."""
        return self.take_number(response.opaque)

    def take_number(self, number: int) -> W | None:
        """The same for who knows nothing of the response but its number."""
        found = self._in_flight.pop(number, None)
        if found is None:
            self.unmatched += 1
            return None
        return found[1]

    def forget(self, number: int) -> bool:
        """Nobody waits for this call any more; its answer will be one of the unmatched."""
        return self._in_flight.pop(number, None) is not None

    def next_deadline(self) -> float | None:
        """When `expire` will have something to say at the earliest; None while no call is open."""
        deadlines = self._deadlines
        while deadlines and not self._any_open(*deadlines[0]):
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def expire(self, now: float) -> list[W]:
        """The waiters whose deadline is `now` or earlier; their calls are closed."""
        expired: list[W] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            deadline, first, count = heappop(deadlines)
            numbers = range(first, first + count)
            expired += [self._in_flight.pop(number)[1] for number in numbers if self._is_open(deadline, number)]
        return expired

    def close(self, error: PocketMQError) -> list[W]:
        """End the conversation because of `error`: all waiters, to be failed. Harmless when done twice."""
        if self._ended is None:
            self._ended = error
        waiters = [waiter for _, waiter in self._in_flight.values()]
        self._in_flight.clear()
        self._deadlines.clear()
        return waiters

    def _take_number(self) -> int:
        number = self._next
        while number in self._in_flight:
            number = _following(number)
        self._next = _following(number)
        return number

    def _is_open(self, deadline: float, number: int) -> bool:
        # The deadline is compared too: a number that wrapped around may be open again for another call.
        found = self._in_flight.get(number)
        return found is not None and found[0] == deadline

    def _any_open(self, deadline: float, first: int, count: int) -> bool:
        return any(self._is_open(deadline, number) for number in range(first, first + count))

    def _refuse(self, count: int) -> NoReturn:
        """Say why `count` more calls cannot be opened."""
        if self._ended is not None:
            raise ConnectionLost(str(self._ended))
        in_flight = len(self._in_flight)
        raise TooManyCalls(f"{in_flight} calls wait for their answer, the limit of this line; try again later")

    def _note_deadline(self, deadline: float, first: int, count: int) -> None:
        heappush(self._deadlines, (deadline, first, count))
        if len(self._deadlines) > 2 * len(self._in_flight) + _SPARE_DEADLINES:
            self._drop_stale_deadlines()

    def _drop_stale_deadlines(self) -> None:
        self._deadlines = [(deadline, number, 1) for number, (deadline, _) in self._in_flight.items()]
        heapify(self._deadlines)

    def _encode(self, command: Command) -> bytes:
        data = encode_command(command)
        if len(data) > self._frame_bytes:
            raise UsageError(
                f"command {command.code} takes {len(data)} bytes; the other side reads at most {self._frame_bytes} in one frame"
            )
        return data


def failure_reply(request: Command, error: Exception) -> Command:
    """The response that tells `error`. What is not one of ours becomes a system error with its kind and text."""
    if isinstance(error, RemoteError):
        return request.reply(error.response_code, error.remark)
    if isinstance(error, PocketMQError):
        return request.reply(error.code, str(error))
    return request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def _following(number: int) -> int:
    return number + 1 if number != _LARGEST_NUMBER else _SMALLEST_NUMBER
