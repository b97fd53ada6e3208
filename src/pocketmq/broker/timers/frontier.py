"""The frontier: which of the timed messages that were read are done, in a few numbers however many there are.

Messages are delivered in the order of (TIMER_OUT_MS, log offset), and read in the order of their log offsets. So all before the
last delivered one are done; except that a message may be read which belongs before it, because the wall clock was set back or
its write took long. From there on a new step begins, in which nothing is done yet:

    log offset   0 …                  5000 …               read next
                 │ done before        │ done before        │
    step 1       │ (12:00:07, 4711)   │                    │
    step 2                            │ (11:00:03, 5100)   │

When a later step catches up with the one before it, both are one again. Before the first step all is done: delivered, or rolled.
"""

from typing import Final, NamedTuple

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
