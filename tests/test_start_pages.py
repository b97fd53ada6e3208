"""The pages of docs/start work as a newcomer follows them: files are saved, servers started, commands run, output compared.

A block whose first line is `# NAME` is saved under that name. In a block of the console, the lines that a page shows have
to appear in the output in their order; numbers may differ, and `…` is any text. `^C` at the end interrupts a program.
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.doc_pages import Block, blocks

from pocketmq.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BIN = Path(sys.executable).parent
PORTS = {"nameserver": "9876", "broker": "10911", "metrics": "5557"}
"""The ports of the pages; each run has free ones instead."""
ELSEWHERE = (
    r"python3 -m venv .*|\. .*|pip install .*|cd .*",
    r"curl .*",
    r"pocketmq console",
    r"pocketmq pipeline (new|run)\b.*",
)
"""Setup, another program, a browser, and commands that tests/cli/test_pipeline.py and `make spark-places` run."""


class Newcomer:
    """Follows a page in an empty folder, with servers on free ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[str, subprocess.Popen[str]] = {}
        self._ports = {shown: str(port) for shown, port in zip(PORTS.values(), free_ports(), strict=True)}
        self._env = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "NAMESRV_ADDR": f"127.0.0.1:{self._ports['9876']}",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "COLUMNS": "200",
        }

    def follow(self, block: Block) -> None:
        first, _, _ = block.text.partition("\n")
        if re.fullmatch(r"# [\w.]+", first):
            (self.folder / first.removeprefix("# ")).write_text(self.with_ports(block.text))
        elif block.language == "console":
            for command, shown in console(block.text):
                if not is_elsewhere(command):
                    self.check(command, shown)
        else:
            assert [line for line in block.text.splitlines() if not is_elsewhere(line)] == []

    def check(self, command: str, shown: list[str]) -> None:
        words = shlex.split(self.with_ports(command))
        if words[:2] in (["pocketmq", "serve"], ["pocketmq", "nameserver"], ["pocketmq", "broker"]):
            output = self.start(words)
        elif words[:2] == ["pocketmq", "store"]:
            stop(self.servers.pop("broker"))  # the page says so in a sentence
            output = self.run(words)
        elif shown[-1:] == ["^C"]:
            shown = shown[:-1]
            output = self.interrupt(words, len(shown))
        else:
            output = self.run(words)
        compare(command, self.with_ports("\n".join(shown)).splitlines(), output)

    def with_ports(self, text: str) -> str:
        for shown, port in self._ports.items():
            text = text.replace(shown, port)
        return text

    def run(self, words: list[str]) -> str:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def start(self, words: list[str]) -> str:
        """Start a server, instead of the one of this kind before it, and wait for the end of its banner."""
        kind = words[1]
        if kind in self.servers:
            stop(self.servers.pop(kind))
        if kind == "serve":
            words += ["--namesrv-port", self._ports["9876"], "--broker-port", self._ports["10911"]]
        elif kind == "nameserver":
            words += ["--port", self._ports["9876"]]
        server = self.servers[kind] = self._popen(words)
        return "".join(until(server, "Ready."))

    def interrupt(self, words: list[str], lines: int) -> str:
        program = self._popen(words)
        assert program.stdout is not None
        output = [program.stdout.readline() for _ in range(lines)]
        stop(program)
        return "".join(output)

    def _popen(self, words: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words, cwd=self.folder, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def stop(self) -> None:
        for server in reversed(self.servers.values()):
            stop(server)


class SparkNewcomer(Newcomer):
    """The same, with one session of Spark for all programs: a start takes many seconds."""

    def with_ports(self, text: str) -> str:
        return super().with_ports(text).replace("./", f"{self.folder}/")  # Java is in another folder

    def run(self, words: list[str]) -> str:
        output = io.StringIO()
        if words[0] == "python":
            with contextlib.redirect_stdout(output):
                runpy.run_path(str(self.folder / words[1]))
            return output.getvalue()
        result = CliRunner(env=self._env).invoke(main, words[1:])
        assert result.exit_code == 0, result.output
        return result.output


def free_ports() -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in PORTS]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def until(server: subprocess.Popen[str], beginning: str) -> Iterator[str]:
    assert server.stdout is not None
    for line in server.stdout:
        yield line
        if line.startswith(beginning):
            return
    raise AssertionError(f"the server ended with exit code {server.wait()}")


def stop(program: subprocess.Popen[str]) -> None:
    program.send_signal(signal.SIGINT)
    try:
        assert program.wait(60) == 0
    finally:
        program.kill()
        assert program.stdout is not None
        program.stdout.close()


def is_elsewhere(command: str) -> bool:
    return any(re.fullmatch(known, command) for known in ELSEWHERE)


def console(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines that the page shows below it."""
    for part in re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command, [line for line in shown if line.strip()]


def compare(command: str, shown: list[str], output: str) -> None:
    rest = normal(output)
    for line in map(normal, shown):
        pattern = re.escape(line).replace("…", ".*?")
        found = re.search(pattern, rest)
        assert found, f"{command} does not print {line!r}:\n{output}"
        rest = rest[found.end() :]


def normal(text: str) -> str:
    """Without differences in numbers, in spaces and in the width of lines."""
    return " ".join(re.sub(r"\d[\d,.]*", "#", text).split())


@pytest.mark.parametrize("page", ["developer", "operator"])
def test_a_newcomer_can_follow_the_page(page: str, tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    try:
        for block in blocks(f"start/{page}.md"):
            newcomer.follow(block)
    finally:
        newcomer.stop()


@pytest.mark.timeout(600)
def test_a_data_engineer_can_follow_the_page(spark: "SparkSession", tmp_path: Path) -> None:
    newcomer = SparkNewcomer(tmp_path)
    try:
        for block in blocks("start/data-engineer.md"):
            newcomer.follow(block)
    finally:
        newcomer.stop()


def test_output_that_differs_is_found() -> None:
    compare("x", ["sent 3 …", "| a  b |"], "sent 1,000 orders\nlog\n| a b |\n")
    with pytest.raises(AssertionError, match="does not print"):
        compare("x", ["second", "first"], "first\nsecond\n")
