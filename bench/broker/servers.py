"""The servers that are measured: ours, the Apache broker, and one that does nothing. Each is stopped when its block ends.

Their stores are deleted, so there is no clean shutdown: stopped and running servers are killed.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from time import monotonic, sleep
from typing import IO, NamedTuple

from bench.broker.machine import children
from bench.broker.shots import NotMeasured

ROOT = Path(__file__).parents[2]
PEERS = ROOT.parent / "shared" / "peers" / "bench"
"""Tools that measure brokers of any make: a generator and a null server in C, and a starter of the Apache broker."""

OURS = "PocketMQ"
APACHE = "Apache"
NULL = "null"

START_S = 120.0
STOP_S = 40.0
SETTINGS = (
    f"mappedFileSizeCommitLog={1024 * 1024 * 1024}",
    "waitTimeMillsInSendQueue=5000",
    "sendThreadPoolQueueCapacity=100000",
)
"""As the Apache broker is started: log files of a gigabyte, which is the default of both except where ours is embedded; and sends
may wait long and in large numbers, because on a busy machine refusals would be measured, not work."""
_STEPS = (-20, -2, 0, 1)
"""Ports that the Apache broker and its name server use, counted from the broker's."""


class Target(NamedTuple):
    """A server to shoot at. The CPU of `pids` is the server's; `all_pids` has those of its name server too."""

    name: str
    port: int
    pids: tuple[int, ...]
    all_pids: tuple[int, ...]


class Wishes(NamedTuple):
    """How a broker is started."""

    flush: str = "async"
    heap: str = "4g"
    """Of Java."""


@contextmanager
def pocketmq(folder: Path, wishes: Wishes, tree: Path = ROOT) -> Iterator[Target]:
    """A name server and a broker in one process, started by the command that users type. `tree`: whose source."""
    # As installed without extras: this program measures the remoting protocol.
    command = [sys.executable, "-m", "pocketmq", "serve", "--no-grpc", "--json", "--data", str(folder / "data")]
    command += ["--namesrv-port", "0", "--broker-port", "0", "--flush", wishes.flush]
    for setting in SETTINGS:
        command += ["--set", setting]
    with _running(command, folder, tree) as (process, ready):
        port = int(json.loads(ready)["brokers"][0]["address"].rpartition(":")[2])
        yield Target(OURS, port, (process.pid,), (process.pid,))


def environment(tree: Path) -> dict[str, str]:
    """In which Python finds the source of `tree`, whatever is installed."""
    return {**os.environ, "PYTHONPATH": str(tree / "src")}


@contextmanager
def apache(folder: Path, wishes: Wishes) -> Iterator[Target]:
    """A broker and its name server, with the settings under which it is fastest; see the starter for them."""
    settings = (f"flushDiskType={wishes.flush.upper()}_FLUSH", f"heap={wishes.heap}")
    with started_by_peers("rocketmq", folder, *settings) as target:
        yield target._replace(name=APACHE)


@contextmanager
def started_by_peers(kind: str, folder: Path, *settings: str) -> Iterator[Target]:
    """A server of another make, by the starter beside the repository."""
    command = [sys.executable, str(PEERS / "servers.py"), kind, str(free_port()), str(folder / "data"), *settings]
    with _running(command, folder) as (process, ready):
        _, _, place = ready.strip().partition("=")
        _, port, pid = place.split(":")
        yield Target(kind, int(port), (int(pid),), tuple(children(process.pid)))


@contextmanager
def null_server(folder: Path, program: Path) -> Iterator[Target]:
    """Answers each frame with the same words: what is left is the machine and the generator."""
    port = free_port()
    folder.mkdir(parents=True)
    with _started([str(program), str(port)], folder) as process:
        _until_open(port, process)
        yield Target(NULL, port, (process.pid,), (process.pid,))


def reason_without_apache() -> str:
    """Why the Apache broker cannot be measured here; empty when it can."""
    if not (PEERS / "servers.py").exists():
        return f"there is no {_shown(PEERS)} beside the repository, which starts it"
    return "" if shutil.which("java") else "Java is not installed"


def compiled(name: str, folder: Path) -> Path:
    """One of the C programs of the peers, compiled into `folder`."""
    source = PEERS / f"{name}.c"
    if not source.exists():
        raise NotMeasured(f"there is no {_shown(source)} beside the repository")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NotMeasured("there is no C compiler")
    program = folder / name
    done = subprocess.run(
        [compiler, "-O2", "-o", program, source], capture_output=True, text=True, check=False, timeout=START_S
    )
    if done.returncode:
        raise NotMeasured(f"{name}.c could not be compiled: {done.stderr.strip()[:300]}")
    return program


@contextmanager
def frozen(targets: Sequence[Target]) -> Iterator[None]:
    """These get no CPU meanwhile."""
    pids = [pid for target in targets for pid in target.all_pids]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def free_port() -> int:
    """One that is free with its neighbours, below the range from which the system deals out ports."""
    for _ in range(200):
        port = random.randrange(21_000, 31_000, 50)
        if all(_is_free(port + step) for step in _STEPS):
            return port
    raise NotMeasured("no free ports between 21000 and 31000")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@contextmanager
def _running(command: Sequence[str], folder: Path, tree: Path = ROOT) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and the line by which it said that it is ready."""
    folder.mkdir(parents=True)
    with _started(command, folder, tree) as process:
        assert process.stdout is not None
        yield process, _first_line(process.stdout, process, folder / "errors.out")


@contextmanager
def _started(command: Sequence[str], folder: Path, tree: Path = ROOT) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own: ctrl-C reaches the benchmark, and that ends it."""
    with (folder / "errors.out").open("ab") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=tree,
            env=environment(tree),
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        yield process
    finally:
        _end(process)
        process.stdout.close()


def _end(process: subprocess.Popen[str]) -> None:
    """Kill what a starter started, and it ends by itself; kill it too when it does not."""
    started = children(process.pid)
    for pid in started or [process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _first_line(stream: IO[str], process: subprocess.Popen[str], errors: Path) -> str:
    with DefaultSelector() as selector:
        selector.register(stream, EVENT_READ)
        is_there = bool(selector.select(START_S))
    line = stream.readline() if is_there else ""
    if line:
        return line
    said = errors.read_text("utf-8", errors="replace").strip().splitlines()
    how = "was not ready in time" if process.poll() is None else "ended before it was ready"
    raise NotMeasured(f"{process.args[2] if isinstance(process.args, list) else ''} {how}: {said[-1] if said else ''}")


def _until_open(port: int, process: subprocess.Popen[str]) -> None:
    deadline = monotonic() + START_S
    while monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        sleep(0.01)
    raise NotMeasured(f"nothing answers on port {port}")


def _shown(path: Path) -> str:
    return os.path.relpath(path, ROOT)
