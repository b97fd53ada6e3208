"""The progress of timers as it is kept: our timers.json, and RocketMQ's timercheck for a store that was its own before.

timercheck   | read until ms 8 | timerlog bytes 8 | next queue offset 8 | …     messages before both are done

The frontier: which of the timed messages that were read are done, in a few numbers however many there are.

Messages are delivered in the order of (TIMER_OUT_MS, log offset), and read in the order of their log offsets. So all before the
last delivered one are done; except that a message may be read which belongs before it, because the wall clock was set back or
its write took long. From there on a new step begins, in which nothing is done yet:

    log offset   0 …                  5000 …               read next
                 │ done before        │ done before        │
    step 1       │ (12:00:07, 4711)   │                    │
    step 2                            │ (11:00:03, 5100)   │

When a later step catches up with the one before it, both are one again. Before the first step all is done: delivered, or rolled.

What a record of the timer topic asks for, and what is added to its properties when it leaves the topic or is rolled.

Waiting: the log offsets of timed messages, by the time for which they wait.

    1700000007000 ──► [4711, 4900, 5013 …]     arrays of 64-bit numbers, each in the order of the log
    1700000008000 ──► [4800]                   a heap of the times says which is next

    log, in stretches of 1 MiB:  | 12 wait | 0 | 3 wait | …      how far back the oldest one lies, without looking at all

A message is taken from the beginning of its array, so none is ever searched for. What was rolled stays where it is until its time
comes, and is left out then.
"""

import heapq
import struct
from array import array
from typing import Final, NamedTuple

from pocketmq.errors import InvalidMessage, ProtocolError
from pocketmq.model import properties as names
from pocketmq.model.message import StoredMessage
from pocketmq.model.properties import MAX_BYTES, raw_property
from pocketmq.protocol.bodies.body import Body
from pocketmq.protocol.fields import Int64
from pocketmq.protocol.java_json import read_body, write_pretty_json
from pocketmq.protocol.record import properties_start

MAX_STEPS: Final = 32
"""More than that, and the last two become one that is less far: some messages may be delivered again after a restart."""


class Step(NamedTuple):
    """From log offset `start` on, messages before (`out_ms`, `log_offset`) are done."""

    start: int
    out_ms: int = 0
    log_offset: int = 0

    @property
    def done_before(self) -> tuple[int, int]:
        return self.out_ms, self.log_offset


class Frontier:
    """Answers for messages that were read before; `admit` each one when it is read."""

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
        """A message was read for the first time, so it is not done."""
        if (out_ms, log_offset) < self._steps[-1].done_before:
            self.begin(log_offset)

    def begin(self, log_offset: int) -> None:
        """Nothing from here on is done."""
        if self._steps[-1].done_before == (0, 0):
            return
        self._steps.append(Step(log_offset))
        if len(self._steps) > MAX_STEPS:
            last, before = self._steps.pop(), self._steps.pop()
            self._steps.append(Step(before.start, *min(before.done_before, last.done_before)))

    def advance(self, out_ms: int, log_offset: int) -> None:
        """This message is done, and so are all that wait for an earlier time, or as long and lie before it."""
        last = self._steps[-1]
        done_before = max(last.done_before, (out_ms, log_offset + 1))
        while len(self._steps) > 1 and self._steps[-2].done_before <= done_before:
            self._steps.pop()
        self._steps[-1] = Step(self._steps[-1].start, *done_before)

    def forget_before(self, log_offset: int) -> None:
        """All before `log_offset` are done, whatever their time."""
        while len(self._steps) > 1 and self._steps[1].start <= log_offset:
            del self._steps[0]
        if self._steps[0].start < log_offset:
            self._steps[0] = self._steps[0]._replace(start=log_offset)


_TIMERCHECK = struct.Struct(">qqq")


class DoneStep(Body, frozen=True):
    start: Int64
    out_ms: Int64
    log_offset: Int64


class TimerProgress(Body, frozen=True):
    """The file timers.json; log offsets all. Messages are read again from `oldest` on; new are those from `read_to` on."""

    oldest: Int64 = 0
    read_to: Int64 = 0
    done: tuple[DoneStep, ...] = ()

    @classmethod
    def of(cls, oldest: int, read_to: int, frontier: Frontier) -> "TimerProgress":
        return cls(oldest, read_to, tuple(DoneStep(*step) for step in frontier.steps))

    @classmethod
    def parse(cls, data: bytes) -> "TimerProgress":
        """Raises ProtocolError for bytes that are none."""
        return read_body(cls, data)

    def json(self) -> bytes:
        return write_pretty_json(self)

    def frontier(self) -> Frontier:
        """As of a broker that goes on: what was not read when this was saved is not done."""
        frontier = Frontier(tuple(Step(step.start, step.out_ms, step.log_offset) for step in self.done))
        frontier.begin(self.read_to)
        return frontier


class TimerCheck(NamedTuple):
    """RocketMQ's own progress: its messages before `queue_offset` that wait for a time before `out_ms` are done."""

    out_ms: int
    queue_offset: int

    @classmethod
    def parse(cls, data: bytes) -> "TimerCheck":
        """Raises ProtocolError for bytes that are none."""
        if len(data) < _TIMERCHECK.size:
            raise ProtocolError(f"timercheck has {len(data)} bytes, fewer than its three numbers take")
        out_ms, _, queue_offset = _TIMERCHECK.unpack_from(data)
        if out_ms < 0 or queue_offset < 0:
            raise ProtocolError(f"timercheck says time {out_ms} and queue offset {queue_offset}, which cannot be")
        return cls(out_ms, queue_offset)


_OUT_MS: Final = names.TIMER_OUT_MS.encode()
_DEL_UNIQKEY: Final = names.TIMER_DEL_UNIQKEY.encode()
_UNIQ_KEY: Final = names.UNIQ_KEY.encode()
_ENQUEUE_MS: Final = names.TIMER_ENQUEUE_MS.encode()
_ROLL_TIMES: Final = names.TIMER_ROLL_TIMES.encode()
_LONGEST_TIME: Final = 18
"""Digits of a time that surely fits into 64 bits."""


class Wish(NamedTuple):
    """To be delivered when `out_ms` is over; or, with `recalled`, that another message is not."""

    out_ms: int
    recalled: bytes | None


def read_wish(record: bytes) -> Wish:
    """What a whole record asks for; InvalidMessage when that is nothing a timer can do."""
    try:
        raw = record[properties_start(record) :]
    except ProtocolError as error:
        raise InvalidMessage(str(error)) from None
    out_ms = raw_property(raw, _OUT_MS) or b""
    if not out_ms.isdigit() or len(out_ms) > _LONGEST_TIME:
        raise InvalidMessage(f"{names.TIMER_OUT_MS} = {out_ms[:40]!r} is not a time")
    return Wish(int(out_ms), raw_property(raw, _DEL_UNIQKEY))


def recalls(raw_properties: bytes) -> bool:
    """Whether this is a recall, which is delivered to nobody."""
    return raw_property(raw_properties, _DEL_UNIQKEY) is not None


def recall_key(topic: str, raw_properties: bytes) -> bytes:
    """By which a recall would name this message of `topic`."""
    return topic.encode() + b"+" + (raw_property(raw_properties, _UNIQ_KEY) or b"")


def delivered_properties(message: StoredMessage, now_ms: int, precision_ms: int) -> bytes:
    """With when the message began to wait and when it ceased to; as they are where there is no room for that."""
    return _with(message, {names.TIMER_DEQUEUE_MS: now_ms}, precision_ms)


def rolled_properties(message: StoredMessage, precision_ms: int) -> bytes:
    """With when the message began to wait, and how often it was rolled; as they are where there is no room for that."""
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


STRETCH_BITS: Final = 20


class Waiting:
    """Add in the order of the log; take in the order of (time, log offset). Pure."""

    def __init__(self) -> None:
        self._by_time: dict[int, array[int]] = {}
        self._taken: dict[int, int] = {}
        self._times: list[int] = []
        self._stretches: dict[int, int] = {}
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
        stretch = log_offset >> STRETCH_BITS
        self._stretches[stretch] = self._stretches.get(stretch, 0) + 1
        self._count += 1

    @property
    def next_ms(self) -> int | None:
        """The earliest time for which a message waits."""
        return self._times[0] if self._times else None

    def next_offsets(self, count: int) -> "array[int]":
        """Up to `count` messages of the earliest time, in the order of the log; not taken yet."""
        if not self._times:
            return array("q")
        start = self._taken.get(self._times[0], 0)
        return self._by_time[self._times[0]][start : start + count]

    def is_rolled(self, log_offset: int) -> bool:
        return log_offset < self._rolled_to

    def take(self, count: int) -> None:
        """The first `count` messages of the earliest time are done."""
        out_ms = self._times[0]
        offsets, start = self._by_time[out_ms], self._taken.get(out_ms, 0)
        for log_offset in offsets[start : start + count]:
            if not self.is_rolled(log_offset):
                self._leave(log_offset)
        if start + count < len(offsets):
            self._taken[out_ms] = start + count
        else:
            heapq.heappop(self._times)
            del self._by_time[out_ms]
            self._taken.pop(out_ms, None)

    def roll(self, log_offset: int) -> None:
        """This message waits no more at its place; `forget_before` is told how far that was done."""
        self._leave(log_offset)

    def forget_before(self, log_offset: int) -> int:
        """Nothing before `log_offset` waits any more; of how many messages there that is news, as far as is known by now."""
        self._rolled_to = max(self._rolled_to, log_offset)
        lost = 0
        while self._stretches and (first := next(iter(self._stretches))) + 1 << STRETCH_BITS <= log_offset:
            lost += self._stretches.pop(first)
        self._count -= lost
        return lost

    def _leave(self, log_offset: int) -> None:
        stretch = log_offset >> STRETCH_BITS
        left = self._stretches.get(stretch, 0) - 1
        if left >= 0:
            self._count -= 1
        if left > 0:
            self._stretches[stretch] = left
        else:
            self._stretches.pop(stretch, None)

    @property
    def oldest(self) -> int | None:
        """A log offset before which no message waits, not far before the oldest that does; None when none waits."""
        if not self._stretches:
            return None
        return max(next(iter(self._stretches)) << STRETCH_BITS, self._rolled_to)
