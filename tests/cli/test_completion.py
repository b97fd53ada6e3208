"""Completion in shells, as shells ask for it."""

import shutil
import subprocess

import pytest
from click.testing import CliRunner
from tests.cli.running_cluster import RunningCluster

from pocketmq.cli import main
from pocketmq.cli.completion import PATIENCE_MS, SHELLS, VARIABLE


def completed(*words: str, incomplete: str = "", name_server: str = "127.0.0.1:1") -> list[str]:
    """What bash is told when somebody presses Tab behind these words."""
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


def test_a_shell_that_is_none_is_refused() -> None:
    assert CliRunner().invoke(main, ["completion", "cmd"]).exit_code == 64


def test_commands_and_options_are_completed() -> None:
    assert "doctor" in completed(incomplete="do")
    assert completed("topic", incomplete="st") == ["stats"]
    assert "--json" in completed("topic", "ls", incomplete="--j")


def test_names_come_from_the_cluster(cluster: RunningCluster) -> None:
    cluster.create("completed-topic")
    cluster.stand("completed-group", "completed-topic", 0)

    assert completed("topic", "show", incomplete="comp", name_server=cluster.name_server) == ["completed-topic"]
    assert completed("group", "lag", incomplete="comp", name_server=cluster.name_server) == ["completed-group"]
    assert completed("doctor", "--topic", incomplete="comp", name_server=cluster.name_server) == ["completed-topic"]
    assert completed("cluster", "config", incomplete="b", name_server=cluster.name_server) == ["broker-a"]


def test_a_cluster_that_does_not_answer_is_no_error() -> None:
    assert completed("topic", "show", incomplete="o") == []
    assert PATIENCE_MS < 1000
