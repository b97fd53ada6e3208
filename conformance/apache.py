"""A real Apache RocketMQ broker with its name server, on loopback, on a store of our choice.

    DATADIR/store/…       the store, written by either side
    DATADIR/logs/…        what the Java programs say

`peers/rocketmq/run` downloads the jars from Maven Central, and starts and stops both programs. If the broker is killed, `run`
stops the name server and ends.
"""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from conformance.report import Say

ROOT: Final = Path(__file__).parents[1]
PEERS: Final = Path(os.environ.get("POCKETMQ_PEERS") or ROOT.parent / "shared" / "peers" / "rocketmq").absolute()
GOLDEN: Final = PEERS.parents[1] / "golden"
"""What the real programs said and printed, as it was captured."""
VERSIONS: Final = ("5.3.3", "4.9.7")

NEEDED_JAVA: Final = 17
FETCH_S: Final = 1800
"""Fetching the jars, once."""
START_S: Final = 240
STOP_S: Final = 120
_PORT_STEPS: Final = (0, 8, 10, 11)
"""Ports that a broker and its name server listen on, counted from the first."""
_given: Final[set[int]] = set()
"""Ports that are reserved for servers that do not listen yet."""


class ApacheRefused(Exception):
    """The broker did not start; the text is what it said."""


def reason_to_skip() -> str:
    """Why no Apache broker can be started here; empty when one can."""
    if not (PEERS / "run").exists():
        return f"no {PEERS / 'run'}, which starts the real brokers; POCKETMQ_PEERS may name its folder"
    if missing := [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]:
        return f"not installed: {', '.join(missing)}"
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', shown)
    if found is None or int(found[1]) < NEEDED_JAVA:
        return f"needs Java {NEEDED_JAVA}, found {found[1] if found else 'an unknown one'}"
    return ""


def unable(version: str) -> str:
    """Why a version cannot be run here; empty when it can, and its jars are there."""
    return reason_to_skip() or fetch(version)


def fetch(version: str) -> str:
    """Get the jars of a version, from Maven Central the first time; why that failed, or nothing."""
    command = [sys.executable, "-c", f"import kit; kit.classpath({version!r})"]
    try:
        done = subprocess.run(command, cwd=PEERS, capture_output=True, text=True, check=False, timeout=FETCH_S)
    except subprocess.TimeoutExpired:
        return f"Maven did not bring the jars within {FETCH_S} s"
    return "" if done.returncode == 0 else f"Maven could not bring the jars: {_last_line(done.stdout + done.stderr)}"


class ApacheBroker:
    """A running broker; as a context manager, one that is stopped in any case."""

    def __init__(
        self, version: str, data: Path, settings: Mapping[str, object], say: Say, *, java_options: Sequence[str] = ()
    ) -> None:
        self.version = version
        self.data = data
        self._settings = [f"{name}={value}" for name, value in settings.items()]
        self._say = say
        self._environment = {"JAVA_TOOL_OPTIONS": " ".join(java_options)} if java_options else {}
        self._process: subprocess.Popen[str] | None = None
        self.name_server_port = free_ports()
        self.port = self.name_server_port + 10

    @property
    def name_server(self) -> str:
        return f"127.0.0.1:{self.name_server_port}"

    def register_also_with(self, name_server: str) -> None:
        """Before it starts: tell another name server, too."""
        self._settings.append(f"namesrvAddr={self.name_server};{name_server}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start and wait until it answers; ApacheRefused when it does not."""
        self._say(f"starting Apache {self.version} on port {self.port}")
        self.data.mkdir(parents=True, exist_ok=True)
        for name in ("broker.out", "run.err"):  # what earlier runs said would be taken for this one's words
            (self.data / name).unlink(missing_ok=True)
        with (self.data / "run.err").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, PEERS / "run", self.version, str(self.name_server_port), self.data, *self._settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **self._environment},
                text=True,
            )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():  # it ends by itself when a server does not come up in time
            self._process.wait(START_S)
            self._process = None
            raise ApacheRefused(self._last_words())

    def stop(self) -> None:
        """Stop cleanly, as an administrator would; harmless when it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            self._say(f"stopping Apache {self.version}")
            process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            for pid in [*_children(process.pid), process.pid]:
                _kill(pid)
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def kill(self) -> None:
        """Kill the broker's own process, so that it has no chance to write anything more."""
        assert self._process is not None
        (broker,) = [pid for pid in _children(self._process.pid) if b"BrokerStartup" in _command_line(pid)]
        self._say(f"kill -9 of Apache {self.version}")
        _kill(broker)
        self._process.wait(STOP_S)
        self.stop()

    def _last_words(self) -> str:
        """What the programs said, without the stack traces."""
        said = "".join(
            path.read_text(errors="replace")
            for path in (self.data / "broker.out", self.data / "run.err")
            if path.exists()
        )
        return " | ".join(line for line in said.splitlines() if line.strip() and not line.startswith("\tat "))


def free_ports() -> int:
    """A port from which on all that a broker needs are free, below those that the system gives to clients."""
    for first in random.sample(range(21_000, 32_000, 20), k=200):
        if first not in _given and not any(_listens(first + step) for step in _PORT_STEPS):
            _given.add(first)
            return first
    raise ApacheRefused("no free ports between 21000 and 32000")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def kill_group(pid: int) -> None:
    """Kill a process that leads a group, and all that belong to it."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing was said"
