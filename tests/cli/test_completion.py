"""Completion in shells, as the shells request it."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner
from tests.cli.program import SRC
from tests.cli.running_cluster import RunningCluster

from pocketmq.cli import main
from pocketmq.cli.cluster_options import COMPLETION_TIMEOUT_MS, SHELLS, VARIABLE


def completed(*words: str, incomplete: str = "", name_server: str = "127.0.0.1:1") -> list[str]:
    """The completions of bash when a user presses Tab after these words."""
    variables = {
        VARIABLE: "bash_complete",
        "COMP_WORDS": " ".join(("pocketmq", *words, incomplete)),
        "COMP_CWORD": str(len(words) + 1),
        "NAMESRV_ADDR": name_server,
    }
    result = CliRunner().invoke(main, [], env=variables, prog_name="pocketmq")
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_its_script(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])

    assert result.exit_code == 0
    assert VARIABLE in result.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_can_read_its_script() -> None:
    script = CliRunner().invoke(main, ["completion", "bash"]).stdout

    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_refused() -> None:
    assert CliRunner().invoke(main, ["completion", "cmd"]).exit_code == 64


def test_commands_and_options_are_completed() -> None:
    assert "doctor" in completed(incomplete="do")
    assert completed("topic", incomplete="st") == ["stats"]
    assert "--json" in completed("topic", "ls", incomplete="--j")


def test_names_are_completed_from_the_cluster(cluster: RunningCluster) -> None:
    cluster.create("completed-topic")
    cluster.stand("completed-group", "completed-topic", 0)

    assert completed("topic", "show", incomplete="comp", name_server=cluster.name_server) == ["completed-topic"]
    assert completed("group", "lag", incomplete="comp", name_server=cluster.name_server) == ["completed-group"]
    assert completed("doctor", "--topic", incomplete="comp", name_server=cluster.name_server) == ["completed-topic"]
    assert completed("cluster", "config", incomplete="b", name_server=cluster.name_server) == ["broker-a"]


def test_the_console_is_completed_by_its_own_program() -> None:
    assert completed("console", incomplete="--read") == ["--read-only"]
    assert completed("console", incomplete="us") == ["user"]
    assert completed("console", "user", incomplete="") == ["add", "ls", "rm"]


def test_an_unreachable_cluster_is_no_error() -> None:
    assert completed("topic", "show", incomplete="o") == []
    assert COMPLETION_TIMEOUT_MS < 1000


# in the shells themselves


@pytest.fixture
def program(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds `pocketmq`, without the variables of the user who runs the tests."""
    folder = tmp_path / "bin"
    folder.mkdir()
    found = folder / "pocketmq"
    found.write_text(f'#!/bin/sh\nPYTHONPATH="{SRC}" exec "{sys.executable}" -m pocketmq "$@"\n')
    found.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb", "PS1": "ready> "}


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_completes_commands(program: dict[str, str]) -> None:
    story = "pocketmq completion fish | source; for line in $argv; complete -C $line; echo .; end"
    lines = ["pocketmq topic st", "pocketmq topic ls --j", "pocketmq do"]

    done = subprocess.run(
        ["fish", "--no-config", "-c", story, *lines], env=program, capture_output=True, text=True, timeout=120
    )

    stats, json, doctor = done.stdout.split("\n.\n")[:3]
    assert stats.startswith("stats\tShow how many messages go into a topic,")
    assert json.startswith("--json\t")
    assert doctor.startswith("doctor\t")
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
@pytest.mark.parametrize("begin", ["", "autoload -Uz compinit && compinit -u; "], ids=["new", "that completes already"])
def test_zsh_completes_commands(program: dict[str, str], begin: str) -> None:
    with Typist(["zsh", "-f", "-i"], program) as typist:
        typist.wait_for("ready> ")
        typist.type(f'{begin}eval "$(pocketmq completion zsh)"; echo "over"\n')
        assert "not found" not in typist.wait_for("\nover")
        typist.wait_for("ready> ")

        typist.type("pocketmq topic st\t")
        typist.wait_for("topic stats ")
        typist.type("\x15pocketmq do\t")
        typist.wait_for("pocketmq doctor ")


class Typist:
    """A user at a terminal."""

    def __init__(self, command: list[str], variables: dict[str, str]) -> None:
        self._keys, theirs = pty.openpty()
        self._shell = subprocess.Popen(
            command, env=variables, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._shell.kill()
        self._shell.wait(20)
        os.close(self._keys)

    def type(self, keys: str) -> None:
        os.write(self._keys, keys.encode())

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """All output until then; later output is for the next call."""
        deadline = time.monotonic() + seconds
        while text not in self._shown:
            assert time.monotonic() < deadline, f"{text!r} does not come: {self._shown!r}"
            if select.select([self._keys], [], [], 0.2)[0]:
                self._shown += os.read(self._keys, 65_536).decode(errors="replace")
        before, _, self._shown = self._shown.partition(text)
        return before
