"""Other clients for comparison, measured by tools beside this repository: redis-py, nats-py, and RocketMQ's Java client with its own broker.

A tool that is not installed is skipped with a reason. The tools start and stop their own servers.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.broker.servers import PEERS, Wishes, apache, free_port
from bench.broker.shots import NotMeasured
from bench.client.rows import Row
from bench.client.stage import Pace

REDIS = "redis-py"
NATS = "nats-py"
JAVA = "Java"
PYTHON_SYSTEMS = {REDIS: ("redis", "redis"), NATS: ("nats", "nats")}
"""By name: the argument of `pybench.py`, and the required module."""
NAME_SERVER_STEP = -20
"""Offset from the Apache broker's port to its name server's."""


class Beside(NamedTuple):
    """Messages per second of another client, and CPU time per message."""

    rate: float
    client_us: float


Rates = Mapping[tuple[str, int], Beside]
"""By row of the tool and body size."""


class Peer(NamedTuple):
    """The results of another client; `problem` is the reason for missing ones."""

    name: str
    rates: Rates
    problem: str = ""


def measure(names: Iterable[str], rows: Sequence[Row], sizes: Sequence[int], pace: Pace, most_s: float) -> list[Peer]:
    """Measure each client for at most `most_s`."""
    return [_measure(name, rows, sizes, pace, most_s) for name in names]


def _measure(name: str, rows: Sequence[Row], sizes: Sequence[int], pace: Pace, most_s: float) -> Peer:
    try:
        if name == JAVA:
            return Peer(name, _java(rows, sizes, pace, most_s))
        return Peer(name, _python(name, rows, sizes, pace, most_s))
    except NotMeasured as reason:
        return Peer(name, {}, f"{name}: {reason}")


def _python(name: str, rows: Sequence[Row], sizes: Sequence[int], pace: Pace, most_s: float) -> Rates:
    system, module = PYTHON_SYSTEMS[name]
    if not (PEERS / "pybench.py").exists():
        raise NotMeasured("pybench.py is not installed beside the repository")
    if importlib.util.find_spec(module) is None:
        raise NotMeasured(f"the module {module} is not installed")
    wanted = sorted({row.python_peer for row in rows if row.python_peer})
    with tempfile.TemporaryDirectory(prefix="pocketmq-bench-") as folder:
        words = ["--systems", system, "--rows", ",".join(wanted), "--port", str(free_port()), "--data", folder]
        return _rates("pybench.py", ["run", *words], "", sizes, pace, most_s, Path(folder))


def _java(rows: Sequence[Row], sizes: Sequence[int], pace: Pace, most_s: float) -> Rates:
    if not (PEERS / "javabench").exists():
        raise NotMeasured("javabench is not installed beside the repository")
    if shutil.which("java") is None:
        raise NotMeasured("Java is not installed")
    wanted = sorted({row.java_peer for row in rows if row.java_peer})
    with tempfile.TemporaryDirectory(prefix="pocketmq-bench-") as place:
        folder = Path(place)
        with apache(folder / "apache", Wishes()) as target:
            name_server = f"127.0.0.1:{target.port + NAME_SERVER_STEP}"
            where = [name_server, f"127.0.0.1:{target.port}:{target.pids[0]}"]
            words = [*where, "--rows", ",".join(wanted), "--warm", "5", "--count", str(pace.messages)]
            return _rates("javabench", words, "java ", sizes, pace, most_s, folder)


def _rates(
    tool: str, words: Sequence[str], prefix: str, sizes: Sequence[int], pace: Pace, most_s: float, folder: Path
) -> Rates:
    """Run a tool and parse its output."""
    written = folder / "shots.jsonl"
    command = [sys.executable, str(PEERS / tool), *words, "--sizes", ",".join(map(str, sizes))]
    command += ["--shots", str(pace.shots), "--seconds", str(max(1, round(pace.seconds))), "--json", str(written)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=most_s, cwd=PEERS)
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"time limit of {most_s:.0f} s reached") from None
    if done.returncode or not written.exists():
        said = (done.stderr or done.stdout).strip().splitlines()
        raise NotMeasured(said[-1][:200] if said else f"{tool} failed without output")
    return middle_rates(written.read_text("utf-8").splitlines(), prefix)


def middle_rates(lines: Iterable[str], prefix: str) -> Rates:
    """The shot with the median rate of each row and size, from JSON lines. Rows start with `prefix`."""
    found: dict[tuple[str, int], list[Beside]] = {}
    for line in lines:
        shot = json.loads(line)
        row = str(shot["row"]).removeprefix(prefix).split()[-1]
        found.setdefault((row, int(shot["size"])), []).append(Beside(float(shot["rate"]), float(shot["client_us"])))
    return {key: sorted(shots)[len(shots) // 2] for key, shots in found.items()}
