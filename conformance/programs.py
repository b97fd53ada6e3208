"""Programs of both sides, each in a process of its own: our servers, the real Java client and the real mqadmin.

    with OurServer.both(folder) as ours:             pocketmq serve: a name server and a broker
        drive("5.3.3", ours.name_server, "push")     the Java client holds a conversation with it
        mqadmin("5.3.3", ours.name_server, "clusterList")

The Java programs live in `peers/rocketmq`; see `apache`, which starts the real servers.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from conformance import apache
from conformance.printed import Printed
from conformance.report import Say

READY_S: Final = 60
STOP_S: Final = 60
WORK: Final = Path(os.environ.get("POCKETMQ_PEERS_CACHE") or Path.home() / ".cache" / "pocketmq-peers") / "work"
"""The working directory of the Java programs: they read some files there, and write others."""
BINARY_HEADERS: Final = "-Drocketmq.serialize.type=ROCKETMQ"


class NotReady(Exception):
    """A server of ours did not start; the text is what it said."""


class OurServer:
    """A program of ours that serves; as a context manager, one that is stopped in any case."""

    def __init__(self, say: Say, folder: Path, *arguments: str, settings: Mapping[str, object] | None = None) -> None:
        self._say = say
        self.folder = folder
        sets = [word for key, value in (settings or {}).items() for word in ("--set", f"{key}={value}")]
        self._command = [sys.executable, "-m", "pocketmq", *arguments, "--data", str(folder / "data"), *sets, "--json"]
        self._process: subprocess.Popen[str] | None = None
        self.ready: dict[str, Any] = {}

    @classmethod
    def both(cls, say: Say, folder: Path, settings: Mapping[str, object] | None = None) -> Self:
        """A name server and a broker, ten ports above it as in the recordings."""
        port = apache.free_ports()
        arguments = ("serve", "--namesrv-port", str(port), "--broker-port", str(port + 10))
        return cls(say, folder, *arguments, settings=settings)

    @classmethod
    def broker(
        cls,
        say: Say,
        folder: Path,
        name: str,
        name_server: str,
        settings: Mapping[str, object] | None = None,
        options: Sequence[str] = (),
    ) -> Self:
        port = apache.free_ports() + 10
        arguments = ("broker", "--port", str(port), "--name", name, "--namesrv", name_server, *options)
        return cls(say, folder, *arguments, settings=settings)

    @classmethod
    def name_server_alone(cls, say: Say, folder: Path) -> Self:
        return cls(say, folder, "nameserver", "--port", str(apache.free_ports()))

    @property
    def name_server(self) -> str:
        return str(self.ready.get("name_server") or self.ready["address"])

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._say(f"starting {' '.join(self._command[2:4])}")
        with (self.folder / "ours.err").open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(READY_S)
            raise NotReady((self.folder / "ours.err").read_text(errors="replace")[-2000:])
        self.ready = msgspec.json.decode(line)
        return self

    def __exit__(self, *exc: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()


def drive(version: str, name_server: str, conversation: str, *options: str, timeout_s: float) -> Printed:
    """Let the real Java client hold one of its conversations."""
    return _run([apache.PEERS / "drive", version, name_server, *options, "Conversation", conversation], timeout_s)


def mqadmin(version: str, name_server: str, *arguments: str, timeout_s: float = 120) -> Printed:
    return _run([apache.PEERS / "mqadmin", version, name_server, *arguments], timeout_s)


def _run(command: Sequence[str | Path], timeout_s: float) -> Printed:
    # A session of its own: what is started in turn ends with it.
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=timeout_s)
        return Printed(text, process.returncode)
    except subprocess.TimeoutExpired:
        apache.kill_group(process.pid)
        text, _ = process.communicate()
        return Printed(text, None)
    except BaseException:
        apache.kill_group(process.pid)
        process.wait()
        raise
