"""A broker in a process of its own, and the shots that run against it."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from bench.broker.machine import cpu_s
from bench.broker.servers import ROOT, environment
from bench.broker.shots import NotMeasured
from bench.client.measured import Measured, decode
from bench.client.rows import Row, is_consuming, is_end_to_end
from pocketmq import Admin

QUEUES = 8
MOST_S = 90.0
"""Time limit of one shot."""


class Pace(NamedTuple):
    """Duration and amount of the shots."""

    seconds: float
    warm_s: float
    messages: int
    """Messages of a consuming row."""
    shots: int


class Result(NamedTuple):
    """A shot, and the broker's CPU time per message."""

    measured: Measured
    broker_us: float


class Stage:
    """Runs shots against one broker."""

    def __init__(self, name_server: str, broker_pid: int, pace: Pace, tree: Path = ROOT) -> None:
        self._tree = tree
        self._name_server = name_server
        self._broker_pid = broker_pid
        self._pace = pace
        self._filled: set[int] = set()
        self._topics = 0

    def fire(self, row: Row, size: int) -> Result:
        """One shot of a row; NotMeasured when its process fails."""
        before = cpu_s([self._broker_pid])
        if is_end_to_end(row):
            measured = self._end_to_end(row, size)
        elif is_consuming(row):
            self._fill(size)
            before = cpu_s([self._broker_pid])
            measured = self._finish(self._start(row.mode, row.number, _full(size), size))
        else:
            measured = self._finish(self._start(row.mode, row.number, self._new_topic(), size))
        spent_s = cpu_s([self._broker_pid]) - before
        return Result(measured, spent_s * 1e6 / max(1, measured.messages))

    def _end_to_end(self, row: Row, size: int) -> Measured:
        """Timed from the first send to the last message in the listener; CPU time is that of both clients."""
        topic = self._new_topic()
        receiver = self._start("receive", 1, topic, size)
        sender = self._start("send_many" if row.mode == "e2e_many" else "send", row.number, topic, size)
        try:
            for process in (receiver, sender):
                _expect_ready(process)
            assert sender.stdin is not None
            sender.stdin.write("go\n")
            sender.stdin.flush()
            sent, received = self._finish(sender), self._finish(receiver)
        finally:
            for process in (receiver, sender):
                _end(process)
        return Measured(
            messages=received.messages,
            seconds=(received.to_ns - sent.from_ns) / 1e9,
            client_us=sent.client_us + received.client_us,
            p50_us=received.p50_us,
            p99_us=received.p99_us,
            errors=sent.errors + received.errors,
        )

    def _fill(self, size: int) -> None:
        if size not in self._filled:
            self._make_topic(_full(size))
            self._finish(self._start("fill", 320, _full(size), size))
            self._filled.add(size)

    def _new_topic(self) -> str:
        self._topics += 1
        name = f"bench{self._topics}"
        self._make_topic(name)
        return name

    def _make_topic(self, name: str) -> None:
        with Admin(self._name_server) as admin:
            admin.topics.create(name, queues=QUEUES)

    def _start(self, mode: str, number: int, topic: str, size: int) -> subprocess.Popen[str]:
        pace = self._pace
        words = [mode, number, self._name_server, topic, size, pace.seconds, pace.warm_s, pace.messages]
        return subprocess.Popen(
            [sys.executable, "-m", "bench.client.shot", *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._tree,
            env=environment(self._tree),
        )

    def _finish(self, process: subprocess.Popen[str]) -> Measured:
        try:
            said, errors = process.communicate(timeout=MOST_S)
        except subprocess.TimeoutExpired:
            _end(process)
            raise NotMeasured(f"shot exceeded its time limit of {MOST_S:.0f} s") from None
        if process.returncode:
            raise NotMeasured(f"shot failed: {errors.strip().splitlines()[-1] if errors.strip() else 'no output'}")
        return decode(said.strip().splitlines()[-1])


def _full(size: int) -> str:
    return f"full{size}"


def _expect_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise NotMeasured("client ended before it was ready")


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


@contextmanager
def our_broker(
    folder: Path, settings: Mapping[str, object] | None = None, tree: Path = ROOT
) -> Iterator[tuple[str, int]]:
    """Start a broker by its command line, from the source in `tree`; yields name server address and broker pid."""
    command = [sys.executable, "-m", "pocketmq", "serve", "--json", "--data", str(folder), "--namesrv-port", "0"]
    for key, value in (settings or {}).items():
        command += ["--set", f"{key}={value}"]
    with ExitStack() as stack:
        process = subprocess.Popen(
            [*command, "--broker-port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=tree,
            env=environment(tree),
        )
        stack.callback(_stop, process)
        stream: IO[str] | None = process.stdout
        assert stream is not None
        line = stream.readline()
        if not line:
            raise NotMeasured("the broker did not start")
        yield json.loads(line)["name_server"], process.pid


def _stop(process: subprocess.Popen[str]) -> None:
    process.kill()  # its data is temporary
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
