"""What timers keep in memory and on disk: progress files, delivered messages, waiting messages.

timercheck, of a store that RocketMQ used before:

    | read until ms 8 | timerlog bytes 8 | next queue offset 8 | …     messages before both are delivered

`Frontier`: which of the timed messages that were read are delivered, in few numbers.

Messages are read in the order of their log offsets and delivered in the order of (TIMER_OUT_MS, log offset). So all
messages before the last delivered one are delivered, with one exception: a message may be read that belongs before it,
because the wall clock was set back or its write took long. A new step begins there, in which nothing is delivered yet:

    log offset   0 …                  5000 …               read next
                 │ done before        │ done before        │
    step 1       │ (12:00:07, 4711)   │                    │
    step 2                            │ (11:00:03, 5100)   │

When a later step catches up with the one before it, they merge. Before the first step, all messages are delivered or
rolled.

`WaitingTimers`: the log offsets of waiting messages, by due time.

    1700000007000 ──► [4711, 4900, 5013 …]     arrays of 64-bit numbers, each in the order of the log
    1700000008000 ──► [4800]                   a heap of the times returns the next one

    log, in ranges of 1 MiB:  | 12 wait | 0 | 3 wait | …      finds the oldest waiting message without a search

Messages are removed from the beginning of an array, so none is searched for. A rolled message stays in its array until
its time comes, and is skipped then.
"""

import heapq
import struct
from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

from pocketmq.errors import InvalidMessage, ProtocolError
from pocketmq.model import StoredMessage
from pocketmq.model import properties as names
from pocketmq.model.properties import MAX_BYTES, raw_property
from pocketmq.protocol.fields import Int64
from pocketmq.protocol.java_json import Body, write_pretty_json
from pocketmq.protocol.record import properties_start

MAX_STEPS: Final = 32
"""Limit on steps. Above it, the last two merge, and some messages may be delivered again after a restart."""


class Step(NamedTuple):
    """From log offset `start` on, messages before (`out_ms`, `log_offset`) are delivered."""

    start: int
    out_ms: int = 0
    log_offset: int = 0

    @property
    def done_before(self) -> tuple[int, int]:
        return self.out_ms, self.log_offset


class Frontier:
    """Knows which messages are delivered. Call `admit` for each message when it is read."""

    def __init__(self, steps: tuple[Step, ...] = (Step(0),)) -> None:
        self._steps = list(steps) or [Step(0)]

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(self._steps)

    def is_done(self, out_ms: int, log_offset: int) -> bool:
        for step in reversed(self._steps):
            if log_offset >= step.start:
                return (out_ms, log_offset) < step.done_before
        return True

    def admit(self, out_ms: int, log_offset: int) -> None:
        """A message was read for the first time, so it is not delivered."""
        if (out_ms, log_offset) < self._steps[-1].done_before:
            self.begin(log_offset)

    def begin(self, log_offset: int) -> None:
        """No message from this log offset on is delivered."""
        if self._steps[-1].done_before == (0, 0):
            return
        self._steps.append(Step(log_offset))
        if len(self._steps) > MAX_STEPS:
            last, before = self._steps.pop(), self._steps.pop()
            self._steps.append(Step(before.start, *min(before.done_before, last.done_before)))

    def advance(self, out_ms: int, log_offset: int) -> None:
        """This message is delivered, and so are all messages with an earlier (time, log offset)."""
        last = self._steps[-1]
        done_before = max(last.done_before, (out_ms, log_offset + 1))
        while len(self._steps) > 1 and self._steps[-2].done_before <= done_before:
            self._steps.pop()
        self._steps[-1] = Step(self._steps[-1].start, *done_before)

    def forget_before(self, log_offset: int) -> None:
        """All messages before `log_offset` are finished, whatever their time."""
        while len(self._steps) > 1 and self._steps[1].start <= log_offset:
            del self._steps[0]
        if self._steps[0].start < log_offset:
            self._steps[0] = self._steps[0]._replace(start=log_offset)


_TIMERCHECK = struct.Struct(">qqq")
_CHECK_POINT = struct.Struct(">7q")


class DoneStep(Body, frozen=True):
    start: Int64
    out_ms: Int64
    log_offset: Int64


class TimerProgress(Body, frozen=True):
    """The file timers.json. Reading continues at log offset `oldest`; messages from `read_to` on are new."""

    oldest: Int64 = 0
    read_to: Int64 = 0
    done: tuple[DoneStep, ...] = ()

    @classmethod
    def of(cls, oldest: int, read_to: int, frontier: Frontier) -> "TimerProgress":
        return cls(oldest, read_to, tuple(DoneStep(*step) for step in frontier.steps))

    @classmethod
    def parse(cls, data: bytes) -> "TimerProgress":
        """Raises ProtocolError for invalid bytes."""
        return cls.decode(data)

    def json(self) -> bytes:
        return write_pretty_json(self)

    def frontier(self) -> Frontier:
        """The frontier after a restart: messages that were not read when this was saved are not delivered."""
        frontier = Frontier(tuple(Step(step.start, step.out_ms, step.log_offset) for step in self.done))
        frontier.begin(self.read_to)
        return frontier


class TimerCheck(NamedTuple):
    """RocketMQ's own progress: messages before `queue_offset` that are due before `out_ms` are delivered."""

    out_ms: int
    queue_offset: int

    @classmethod
    def parse(cls, data: bytes) -> "TimerCheck":
        """Raises ProtocolError for invalid bytes."""
        if len(data) < _TIMERCHECK.size:
            raise ProtocolError(f"timercheck has {len(data)} bytes, fewer than its three numbers need")
        out_ms, _, queue_offset = _TIMERCHECK.unpack_from(data)
        if out_ms < 0 or queue_offset < 0:
            raise ProtocolError(f"timercheck has an invalid time {out_ms} or queue offset {queue_offset}")
        return cls(out_ms, queue_offset)

    def encode(self) -> bytes:
        """RocketMQ's 56 bytes, of which only these two numbers and a copy of the second are used."""
        return _CHECK_POINT.pack(self.out_ms, 0, self.queue_offset, self.queue_offset, 0, 0, 0)


_OUT_MS: Final = names.TIMER_OUT_MS.encode()
_DEL_UNIQKEY: Final = names.TIMER_DEL_UNIQKEY.encode()
_UNIQ_KEY: Final = names.UNIQ_KEY.encode()
_ENQUEUE_MS: Final = names.TIMER_ENQUEUE_MS.encode()
_ROLL_TIMES: Final = names.TIMER_ROLL_TIMES.encode()
_LONGEST_TIME: Final = 18
"""Digits of a time that always fits into 64 bits."""


class TimerRequest(NamedTuple):
    """A request to deliver a message after `out_ms`. With `recalled`, a request not to deliver another message."""

    out_ms: int
    recalled: bytes | None


def read_timer_request(record: bytes) -> TimerRequest:
    """The request in a whole record. InvalidMessage if it is not valid."""
    try:
        raw = record[properties_start(record) :]
    except ProtocolError as error:
        raise InvalidMessage(str(error)) from None
    out_ms = raw_property(raw, _OUT_MS) or b""
    if not out_ms.isdigit() or len(out_ms) > _LONGEST_TIME:
        raise InvalidMessage(f"{names.TIMER_OUT_MS} = {out_ms[:40]!r} is not a time")
    return TimerRequest(int(out_ms), raw_property(raw, _DEL_UNIQKEY))


def recalls(raw_properties: bytes) -> bool:
    """Whether this is a recall, which is not delivered."""
    return raw_property(raw_properties, _DEL_UNIQKEY) is not None


def recall_key(topic: str, raw_properties: bytes) -> bytes:
    """The key by which a recall names this message of `topic`."""
    return topic.encode() + b"+" + (raw_property(raw_properties, _UNIQ_KEY) or b"")


def delivered_properties(message: StoredMessage, now_ms: int, precision_ms: int) -> bytes:
    """The properties with the times of enqueueing and dequeueing, or unchanged if they would become too long."""
    return _with(message, {names.TIMER_DEQUEUE_MS: now_ms}, precision_ms)


def rolled_properties(message: StoredMessage, precision_ms: int) -> bytes:
    """The properties with the time of enqueueing and the number of rolls, or unchanged if they would become too long."""
    times = raw_property(message.raw_properties, _ROLL_TIMES) or b"0"
    rolls = int(times) + 1 if times.isdigit() and len(times) < _LONGEST_TIME else 1
    return _with(message, {names.TIMER_ROLL_TIMES: rolls}, precision_ms)


def _with(message: StoredMessage, added: dict[str, int], precision_ms: int) -> bytes:
    raw = message.raw_properties
    if raw_property(raw, _ENQUEUE_MS) is None:
        added = {names.TIMER_ENQUEUE_MS: message.store_ms // precision_ms * precision_ms, **added}
    more = "".join(f"{name}\x01{value}\x02" for name, value in added.items()).encode()
    longer = raw + more if raw.endswith(b"\x02") else raw + b"\x02" + more
    return longer if len(longer) <= MAX_BYTES else raw


RANGE_BITS: Final = 20


class WaitingTimers:
    """Add messages in the order of the log; remove them in the order of (time, log offset). Pure."""

    def __init__(self) -> None:
        self._by_time: dict[int, array[int]] = {}
        self._removed: dict[int, int] = {}
        self._times: list[int] = []
        self._ranges: dict[int, int] = {}
        self._rolled_to = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, out_ms: int, log_offset: int) -> None:
        offsets = self._by_time.get(out_ms)
        if offsets is None:
            offsets = self._by_time[out_ms] = array("q")
            heapq.heappush(self._times, out_ms)
        offsets.append(log_offset)
        range_index = log_offset >> RANGE_BITS
        self._ranges[range_index] = self._ranges.get(range_index, 0) + 1
        self._count += 1

    def has(self, out_ms: int, log_offset: int) -> bool:
        """Whether this message waits, or was rolled before its time."""
        offsets, start = self._by_time.get(out_ms), self._removed.get(out_ms, 0)
        if offsets is None:
            return False
        at = bisect_left(offsets, log_offset, start)
        return at < len(offsets) and offsets[at] == log_offset

    @property
    def next_ms(self) -> int | None:
        """The earliest due time of a waiting message."""
        return self._times[0] if self._times else None

    def next_offsets(self, count: int) -> "array[int]":
        """Up to `count` messages of the earliest due time, in the order of the log. They stay."""
        if not self._times:
            return array("q")
        start = self._removed.get(self._times[0], 0)
        return self._by_time[self._times[0]][start : start + count]

    def is_rolled(self, log_offset: int) -> bool:
        return log_offset < self._rolled_to

    def remove(self, count: int) -> None:
        """Remove the first `count` messages of the earliest due time."""
        out_ms = self._times[0]
        offsets, start = self._by_time[out_ms], self._removed.get(out_ms, 0)
        for log_offset in offsets[start : start + count]:
            if not self.is_rolled(log_offset):
                self._leave(log_offset)
        if start + count < len(offsets):
            self._removed[out_ms] = start + count
        else:
            heapq.heappop(self._times)
            del self._by_time[out_ms]
            self._removed.pop(out_ms, None)

    def roll(self, log_offset: int) -> None:
        """This message was stored again. `forget_before` then receives the end of the rolled part."""
        self._leave(log_offset)

    def forget_before(self, log_offset: int) -> int:
        """No message before `log_offset` waits any longer. Return how many of them still counted as waiting."""
        self._rolled_to = max(self._rolled_to, log_offset)
        lost = 0
        while self._ranges and (first := next(iter(self._ranges))) + 1 << RANGE_BITS <= log_offset:
            lost += self._ranges.pop(first)
        self._count -= lost
        return lost

    def _leave(self, log_offset: int) -> None:
        range_index = log_offset >> RANGE_BITS
        left = self._ranges.get(range_index, 0) - 1
        if left >= 0:
            self._count -= 1
        if left > 0:
            self._ranges[range_index] = left
        else:
            self._ranges.pop(range_index, None)

    @property
    def oldest(self) -> int | None:
        """A log offset shortly before the oldest waiting message; no message waits before it. None if none waits."""
        if not self._ranges:
            return None
        return max(next(iter(self._ranges)) << RANGE_BITS, self._rolled_to)
