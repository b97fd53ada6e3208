"""The programs of guests: what they need is fetched once, by each language's own tool, into the cache of the Java programs."""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from conformance import apache
from conformance.programs import WORK

HERE: Final = Path(__file__).parent
CACHE: Final = WORK.parent / "guests"
FETCH_S: Final = 600
STOP_S: Final = 30


class Language(NamedTuple):
    """How a guest is started, and what it can do besides sending and consuming."""

    tools: Sequence[str]
    prepare: Callable[[], None]
    command: Callable[[], list[str]]
    environment: Callable[[], Mapping[str, str]]
    talents: frozenset[str]


def _go_program() -> Path:
    sources = b"".join((HERE / "go" / name).read_bytes() for name in ("go.mod", "main.go"))
    return CACHE / f"go-{hashlib.sha256(sources).hexdigest()[:12]}"


def _prepare_go() -> None:
    if not _go_program().exists():
        _fetch(["go", "build", "-o", str(_go_program()), "."], cwd=HERE / "go")


def _prepare_node() -> None:
    folder = CACHE / "node"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = (HERE / "node" / "package.json").read_bytes()
    if not (folder / "node_modules").is_dir() or (folder / "package.json").read_bytes() != wanted:
        (folder / "package.json").write_bytes(wanted)
        _fetch(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=folder)


def _prepare_cpp() -> None:
    folder = CACHE / "cpp"
    if not (folder / "rocketmq").is_dir():
        _fetch([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), CPP], cwd=HERE)
    # The library in it is for one kind of machine: whether it loads here is found by loading it.
    _fetch([sys.executable, "-c", "import rocketmq.client"], cwd=folder)


CPP: Final = "rocketmq==0.4.4"
GUESTS: Final = {
    "Go 2.1.2": Language(
        ("go",),
        _prepare_go,
        lambda: [str(_go_program())],
        dict,
        frozenset({"ordered sends", "batches", "one-way", "sql", "orderly", "dead letters", "transactions"}),
    ),
    "C++ 1.2 (PyPI rocketmq 0.4.4)": Language(
        (),
        _prepare_cpp,
        lambda: [sys.executable, str(HERE / "cpp" / "guest.py")],
        lambda: {"PYTHONPATH": str(CACHE / "cpp")},
        frozenset({"ordered sends", "one-way", "orderly"}),
    ),
    "Node (ali-ons 3.12.0)": Language(
        ("node", "npm"),
        _prepare_node,
        lambda: ["node", str(HERE / "node" / "guest.js")],
        lambda: {"NODE_PATH": str(CACHE / "node" / "node_modules")},
        frozenset({"dead letters"}),
    ),
}


def unable(column: str) -> str:
    """Why a guest cannot come; empty when it can, and all that it needs is there."""
    language = GUESTS[column]
    if missing := [tool for tool in language.tools if shutil.which(tool) is None]:
        return f"not installed: {', '.join(missing)}"
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        language.prepare()
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return f"what it needs could not be fetched: {str(said).strip().splitlines()[-1]}"
    return ""


def _fetch(command: list[str], cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=FETCH_S)


class Guest:
    """A running program. `said` is what it printed, in its order: pairs of a word and a value."""

    def __init__(self, column: str, name_server: str, *arguments: str) -> None:
        language = GUESTS[column]
        self.said: list[tuple[str, Any]] = []
        self._process = subprocess.Popen(
            [*language.command(), name_server, *arguments],
            cwd=CACHE,
            env={**os.environ, **language.environment(), "HOME": str(CACHE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.said += msgspec.json.decode(line, type=dict[str, Any]).items()

    def all_of(self, word: str) -> list[Any]:
        return [value for said, value in list(self.said) if said == word]

    def is_there(self, word: str) -> bool:
        """Whether it said so; RuntimeError when it failed or ended instead."""
        if found := self.all_of(word):
            return bool(found)
        if failed := self.all_of("failed"):
            raise RuntimeError(str(failed[0]))
        if self._process.poll() is not None and not self._reader.is_alive():
            raise RuntimeError(f"it ended with {self._process.returncode} and did not say {word!r}")
        return False

    def leave(self) -> None:
        """Let it stop by itself; killed when it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            apache.kill_group(self._process.pid)
            self._process.wait()
        self._reader.join(STOP_S)
