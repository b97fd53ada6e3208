"""The progress of timers as it is kept: our timers.json, and RocketMQ's timercheck for a store that was its own before.

timercheck   | read until ms 8 | timerlog bytes 8 | next queue offset 8 | …     messages before both are done
"""

import struct
from typing import NamedTuple

from pocketmq.broker.timers.frontier import Frontier, Step
from pocketmq.errors import ProtocolError
from pocketmq.protocol.bodies.body import Body
from pocketmq.protocol.header import Int64
from pocketmq.protocol.java_json import read_body, write_pretty_json

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
