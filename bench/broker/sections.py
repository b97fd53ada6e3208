"""What a section of the benchmark has at hand, and how brokers are set up for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from bench.broker.budget import Budget
from bench.broker.contest import Contest, Say, warm_up
from bench.broker.generators import Generator, Pace, fill_topic
from bench.broker.machine import cpu_s
from bench.broker.scale import Scale
from bench.broker.servers import OURS, Target, Wishes, apache, frozen, pocketmq
from bench.broker.sheets import Sheet
from bench.broker.shots import NotMeasured, Shape

FILL_BATCH = 32
QUIET_SHARE = 0.2
"""Of a core: the Apache broker at rest uses a tenth."""
QUIET_S = 0.5
MOST_UNREST_S = 10.0
REST_SHARE = 0.03
REST_S = 12.0
"""Longer than queues wait for their files, so that those to come are not overlooked."""
JAVA_START_S = 5.0
"""About; on a busy machine it takes twice that."""


class Bench(NamedTuple):
    """`folder` is the section's own and is removed after it."""

    folder: Path
    scale: Scale
    generator: Generator
    budget: Budget
    say: Say
    why_no_apache: str
    """Empty when there is one."""
    programs: Path
    """Where compiled programs are."""

    def contest(self, *targets: Target, pace: Pace | None = None) -> Contest:
        pace = pace or self.scale.pace
        return Contest(targets, self.generator, pace, self.scale.shots, self.budget, self.say)

    def ours(self, stack: ExitStack, flush: str = "async", name: str = OURS) -> Target:
        """A new broker of ours, until `stack` ends."""
        self.budget.check()
        return stack.enter_context(pocketmq(self.folder / name, Wishes(flush)))._replace(name=name)

    def apache_beside(self, stack: ExitStack, target: Target, flush: str) -> Target:
        """An Apache broker, warmed up while `target` waits; NotMeasured says why there is none."""
        if self.why_no_apache:
            raise NotMeasured(self.why_no_apache)
        self.budget.check(JAVA_START_S + self.scale.java_warm_s)
        self.say(f"starting the Apache broker, and {self.scale.java_warm_s:.0f} s of load to warm it up")
        with frozen([target]):
            started = stack.enter_context(apache(self.folder / "apache", Wishes(flush)))
            warm_up(self.generator, started, self.scale.java_warm_s)
        return started

    def fill(self, target: Target, body_bytes: int) -> None:
        """Store what is pulled later."""
        words = ("--topic", fill_topic(body_bytes), "--queues", "1")
        shape = Shape("batch", 1, 8, body_bytes, FILL_BATCH)
        self.generator.fill(target, shape, self.scale.fill_messages // FILL_BATCH, *words)


Section = Callable[[Bench], Iterator[Sheet]]


def until_quiet(target: Target) -> None:
    """Wait until the server rests: what comes after growing is measured, not the growing."""
    deadline = monotonic() + MOST_UNREST_S
    while monotonic() < deadline:
        before = cpu_s(target.pids)
        sleep(QUIET_S)
        if cpu_s(target.pids) - before <= QUIET_SHARE * QUIET_S:
            return


def until_at_rest(target: Target, most_s: float) -> bool:
    """Wait until the server has nothing left to do, but no longer than `most_s`; whether it rests."""
    deadline = monotonic() + most_s
    rested_s = 0.0
    while rested_s < REST_S:
        if monotonic() >= deadline:
            return False
        before = cpu_s(target.pids)
        sleep(1)
        rested_s = rested_s + 1 if cpu_s(target.pids) - before <= REST_SHARE else 0.0
    return True
