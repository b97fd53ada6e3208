"""A PostgreSQL of its own, on loopback, in a temporary folder: Debian's package, without a password.

As root it is started as the user `postgres`, since PostgreSQL refuses root.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from conformance.apache import free_ports

_PROGRAMS: Final = Path("/usr/lib/postgresql")
USER: Final = "postgres"
PATIENCE_S: Final = 120
SETTINGS: Final = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "timezone": "UTC",
}


def programs() -> Path | None:
    """The folder of the programs of PostgreSQL, the newest one; None if it is not installed."""
    found = sorted(_PROGRAMS.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    here = shutil.which("postgres")
    return Path(here).resolve().parent if here else None


class Database:
    """A running server with one database."""

    def __init__(self) -> None:
        folder = programs()
        assert folder is not None, "PostgreSQL is not installed"
        self._programs = folder
        self._data = Path(tempfile.mkdtemp(prefix="pocketmq-postgres-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam(USER)
            os.chown(self._data, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.port = free_ports()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        data = str(self._data / "db")
        made = [str(self._programs / "initdb"), "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "-N"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd="/", **self._as)
        told = [part for name, text in SETTINGS.items() for part in ("-c", f"{name}={text}")]
        command = [str(self._programs / "postgres"), "-D", data, "-p", str(self.port), *told]
        with (self._data / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._as)
        self._process = process
        asked = [str(self._programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "--quiet"]
        for _ in range(PATIENCE_S):
            if subprocess.run(asked, check=False).returncode == 0:
                return self
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
                break
        raise RuntimeError(f"PostgreSQL does not start: {(self._data / 'log').read_text('utf-8')[-2000:]}")

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE_S)
        shutil.rmtree(self._data, ignore_errors=True)

    def command(self, sql: str) -> list[str]:
        """The program that runs some SQL, each statement in a transaction of its own unless the SQL says otherwise."""
        program = str(self._programs / "psql")
        return [
            program,
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            USER,
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            sql,
        ]

    def run(self, *statements: str) -> str:
        """Run statements, one after the other; returns what the last one printed."""
        said = ""
        for sql in statements:
            done = subprocess.run(self.command(sql), check=False, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{sql[:200]}: {done.stderr.strip()}")
            said = done.stdout
        return said.strip()

    def rows(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query."""
        text = self.run(f"SELECT coalesce(json_agg(row_to_json(t)), '[]') FROM ({query}) t")
        found: list[dict[str, Any]] = msgspec.json.decode(text)
        return found
