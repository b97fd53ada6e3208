"""Who shoots: a generator in C where there is a compiler, otherwise our own. Both understand the same options."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import NamedTuple

from bench.broker.machine import children_cpu_s, cpu_s, disturbed, moment
from bench.broker.servers import PEERS, ROOT, Target, compiled
from bench.broker.shots import NotMeasured, Shape, Shot, read_shot

SETTLE_S = 0.1
"""Between waking a frozen server and shooting at it."""
GRACE_S = 60.0
"""A generator that takes so much longer than it should has hung."""
QUEUES = 8
"""Of the topics that are sent to."""


class Pace(NamedTuple):
    """How long one shot is measured, and how long it runs before."""

    seconds: float
    warm_s: float


class Generator(NamedTuple):
    """A program that prints one line of JSON for each shot."""

    name: str
    command: tuple[str, ...]

    def fire(self, target: Target, shape: Shape, pace: Pace, *words: str) -> Shot:
        """One shot; further words of the generator's own options come last."""
        sleep(SETTLE_S)
        before, own = moment(), children_cpu_s() + cpu_s(target.pids)
        shot = self._run(target, [*shape.words(), *_time_words(pace), *_topic_words(shape), *words], pace)
        shot.disturbed = disturbed(before, moment(), children_cpu_s() + cpu_s(target.pids) - own)
        return shot

    def fill(self, target: Target, shape: Shape, requests: int, *words: str) -> Shot:
        """A number of requests, however long they take."""
        pace = Pace(GRACE_S, 0)
        return self._run(target, [*shape.words(), "--count", str(requests), *_time_words(pace), *words], pace)

    def _run(self, target: Target, words: Sequence[str], pace: Pace) -> Shot:
        whom = ["--port", str(target.port), "--pid", "+".join(map(str, target.pids))]
        try:
            done = subprocess.run(
                [*self.command, *whom, *words],
                capture_output=True,
                text=True,
                check=False,
                cwd=ROOT,
                timeout=pace.seconds + pace.warm_s + GRACE_S,
            )
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"{target.name}: the generator did not end: {' '.join(words)}") from None
        if done.returncode:
            raise NotMeasured(f"{target.name}: {done.stderr.strip()[:300] or 'the generator failed'}")
        return read_shot(done.stdout)


def our_generator() -> Generator:
    return Generator("bench.broker.load, in Python", (sys.executable, "-m", "bench.broker.load", "--json"))


def best_generator(folder: Path) -> tuple[Generator, str]:
    """The one in C, or ours and why it is not the other. Compiled programs go into `folder`."""
    try:
        return Generator(f"{PEERS.name}/loadgen.c", (str(compiled("loadgen", folder)),)), ""
    except NotMeasured as reason:
        return our_generator(), str(reason)


def _time_words(pace: Pace) -> list[str]:
    return ["--seconds", str(pace.seconds), "--warm", str(pace.warm_s)]


def fill_topic(body_bytes: int) -> str:
    """The topic with one queue that is pulled from."""
    return f"fill{body_bytes}"


def _topic_words(shape: Shape) -> list[str]:
    if shape.mode == "pull":
        return ["--topic", fill_topic(shape.body_bytes), "--queues", "1"]
    return ["--topic", f"bench{shape.body_bytes}", "--queues", str(QUEUES)]
