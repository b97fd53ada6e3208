"""Pending calls of one connection: matches responses to requests and expires calls. No socket, no clock.

    ours     call ──────► bytes       the number is in flight until its response, its deadline, `forget` or `close`
             response ──► take ──► the waiter of the call; a response without a call is counted and ignored
    theirs   request
             reply ─────► bytes       has the number of the request; a one-way request gets none

Each side numbers its own requests, so the same number may be in flight in both directions; the response bit distinguishes them. A number
is a signed 32-bit integer that wraps. Deadlines are in a heap that is cleaned lazily, because most calls end long before. Calls that were
started together share a deadline and one entry in the heap.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NoReturn, TypeVar

from pocketmq.codes import ResponseCode
from pocketmq.errors import ConnectionLost, PocketMQError, RemoteError, TooManyCalls, UsageError, WrongState
from pocketmq.protocol.command import ONEWAY, RESPONSE, Command, encode_command
from pocketmq.protocol.frames import DEFAULT_LIMITS

W = TypeVar("W")
"""The caller's object for a call: a future, a callback, a label in a test."""

MAX_IN_FLIGHT: Final = 65_535
"""The default limit of pending calls, as in Java clients."""

_LARGEST_NUMBER = 2**31 - 1
_SMALLEST_NUMBER = -(2**31)
_SPARE_DEADLINES = 1024


class PendingCalls(Generic[W]):
    """The calls of one connection. `unmatched` counts responses without a pending call: late, duplicate, or invalid."""

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
        """Deadline, first number, count of numbers."""
        self._ended: PocketMQError | None = None
        self.unmatched = 0

    @property
    def in_flight(self) -> int:
        """Calls that wait for their response."""
        return len(self._in_flight)

    def begin(self, deadline: float, waiter: W) -> int:
        """Start a call and return its number, for a caller that writes the frame itself."""
        in_flight = self._in_flight
        if self._ended is not None or len(in_flight) >= self._max_in_flight:
            self._refuse(1)
        number = self._next
        if number in in_flight or number == _LARGEST_NUMBER:
            number = self._take_number()
        else:
            self._next = number + 1
        in_flight[number] = (deadline, waiter)
        self._add_deadline(deadline, number, 1)
        return number

    def begin_many(self, deadline: float, waiters: Sequence[W]) -> Sequence[int]:
        """Start a call for each waiter and return their numbers in order. All start, or none."""
        first, count = self._next, len(waiters)
        if self._ended is not None or count > self.spare:
            self._refuse(count)
        numbers = range(first, first + count)
        if not count or numbers[-1] >= _LARGEST_NUMBER or not self._in_flight.keys().isdisjoint(numbers):
            return [self.begin(deadline, waiter) for waiter in waiters]
        self._next = first + count
        self._in_flight.update(zip(numbers, [(deadline, waiter) for waiter in waiters], strict=True))
        self._add_deadline(deadline, first, count)
        return numbers

    @property
    def spare(self) -> int:
        """How many more calls can be started now."""
        return self._max_in_flight - len(self._in_flight)

    def call(self, command: Command, deadline: float, waiter: W) -> bytes:
        """Start a call and return its frame. Sets number and flag in `command`."""
        command.flag = 0
        command.opaque = number = self.begin(deadline, waiter)
        try:
            return self._encode(command)
        except BaseException:
            self.forget(number)
            raise

    def oneway(self, command: Command) -> bytes:
        """The frame of a one-way request. Sets number and flag in `command`."""
        if self._ended is not None:
            raise ConnectionLost(str(self._ended))
        command.flag = ONEWAY
        command.opaque = self._take_number()
        return self._encode(command)

    def reply(self, request: Command, response: Command) -> bytes:
        """The frame of a response to `request`. Sets number, flag and encoding in `response`."""
        if request.is_oneway or request.is_response:
            kind = "one-way request" if request.is_oneway else "response"
            raise WrongState(f"a {kind} (code {request.code}) must not get a response")
        response.flag = RESPONSE
        response.opaque = request.opaque
        response.encoding = request.encoding
        return self._encode(response)

    def take(self, response: Command) -> W | None:
        """End the call of this response and return its waiter, or None."""
        return self.take_number(response.opaque)

    def take_number(self, number: int) -> W | None:
        """Like `take`, by number."""
        found = self._in_flight.pop(number, None)
        if found is None:
            self.unmatched += 1
            return None
        return found[1]

    def forget(self, number: int) -> bool:
        """Drop a call. Its response will count as unmatched."""
        return self._in_flight.pop(number, None) is not None

    def next_deadline(self) -> float | None:
        """The earliest deadline; None without pending calls."""
        deadlines = self._deadlines
        while deadlines and not self._any_open(*deadlines[0]):
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def expire(self, now: float) -> list[W]:
        """End the calls with a deadline up to `now` and return their waiters."""
        expired: list[W] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            deadline, first, count = heappop(deadlines)
            numbers = range(first, first + count)
            expired += [self._in_flight.pop(number)[1] for number in numbers if self._is_open(deadline, number)]
        return expired

    def close(self, error: PocketMQError) -> list[W]:
        """End all calls and return their waiters. New calls raise `error`. Idempotent."""
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
        # The deadline is compared too: after a wrap-around, the number may belong to another call.
        found = self._in_flight.get(number)
        return found is not None and found[0] == deadline

    def _any_open(self, deadline: float, first: int, count: int) -> bool:
        return any(self._is_open(deadline, number) for number in range(first, first + count))

    def _refuse(self, count: int) -> NoReturn:
        """Raise the reason why `count` more calls cannot be started."""
        if self._ended is not None:
            raise ConnectionLost(str(self._ended))
        in_flight = len(self._in_flight)
        raise TooManyCalls(f"{in_flight} calls are pending, the limit of this connection; try again later")

    def _add_deadline(self, deadline: float, first: int, count: int) -> None:
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
                f"command {command.code} takes {len(data)} bytes; the limit of a frame is {self._frame_bytes}"
            )
        return data


def failure_reply(request: Command, error: Exception) -> Command:
    """The response for `error`. An error outside our tree becomes a system error with its type and text."""
    if isinstance(error, RemoteError):
        return request.reply(error.response_code, error.remark)
    if isinstance(error, PocketMQError):
        return request.reply(error.code, str(error))
    return request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def _following(number: int) -> int:
    return number + 1 if number != _LARGEST_NUMBER else _SMALLEST_NUMBER
