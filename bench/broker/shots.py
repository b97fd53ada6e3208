"""What is asked of a broker, what one shot at it found, and the middle of several shots.

Shape ── a generator fires for a second ──► Shot      again, in turn with the other brokers
[Shot, Shot, Shot] ── median of each number ──► Result
"""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class NotMeasured(Exception):
    """Something could not be measured; the text says why."""


class Shape(NamedTuple):
    """A load: how many connections, how many requests each has under way, how large bodies are."""

    mode: str
    """send, oneway, batch or pull, as the generators call it."""
    connections: int
    window: int
    body_bytes: int
    per_request: int = 1
    """Messages in one batch or pull."""

    def __str__(self) -> str:
        many = f" of {self.per_request}" if self.per_request > 1 else ""
        size = f"{self.body_bytes // 1024} KB" if self.body_bytes % 1024 == 0 else f"{self.body_bytes} B"
        in_flight = "" if self.mode == "oneway" else f" {self.connections:,} × {self.window}"
        return f"{self.mode}{many}{in_flight}, {size}"

    def words(self) -> list[str]:
        """For the command line of a generator."""
        words = ["--mode", self.mode, "--conns", str(self.connections), "--window", str(self.window)]
        if self.mode in ("batch", "pull"):
            words += ["--batch" if self.mode == "batch" else "--pull-max", str(self.per_request)]
        return [*words, "--size", str(self.body_bytes)]


class Shot(msgspec.Struct):
    """The line that a generator prints. `acked` and `stored` count the whole shot, the others its measured time."""

    rate: float
    p50_us: float
    p99_us: float
    p999_us: float
    server_us: float
    """CPU of the server per message: user and system, all threads."""
    errors: int
    lost: int
    acked: int
    stored: int
    """By how much the ends of the queues advanced; -1 if they were not queried."""
    generator_cpu: float
    first_error: str = ""
    disturbed: float = 0.0
    """The share of the machine that neither the server nor the generator had."""

    @property
    def wrong(self) -> int:
        """Refused, lost, or acknowledged without being stored."""
        return self.errors + self.lost + (abs(self.stored - self.acked) if self.stored >= 0 else 0)


class Result(NamedTuple):
    """Medians of some shots, of each number by itself."""

    rate: float
    p50_us: float
    p99_us: float
    p999_us: float
    server_us: float
    wrong: int
    """In all shots together."""
    shots: int
    disturbed: float
    generator_cpu: float


def read_shot(printed: str) -> Shot:
    """The shot in the first line of JSON that a generator printed."""
    for line in printed.splitlines():
        if line.startswith("{"):
            try:
                return msgspec.json.decode(line, type=Shot)
            except msgspec.MsgspecError as error:
                raise NotMeasured(f"the generator printed what is no shot ({error}): {line[:200]}") from None
    raise NotMeasured(f"the generator printed no result: {printed[:200]!r}")


def middle(shots: Sequence[Shot]) -> Result:
    """At least one shot is needed."""

    def median(name: str) -> float:
        return float(statistics.median(getattr(shot, name) for shot in shots))

    return Result(
        rate=median("rate"),
        p50_us=median("p50_us"),
        p99_us=median("p99_us"),
        p999_us=median("p999_us"),
        server_us=median("server_us"),
        wrong=sum(shot.wrong for shot in shots),
        shots=len(shots),
        disturbed=median("disturbed"),
        generator_cpu=median("generator_cpu"),
    )
