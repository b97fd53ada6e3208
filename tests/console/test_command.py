"""`python -m pocketmq.console`, as `pocketmq console` starts it."""

import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.console.running_console import running_console

from pocketmq.console.users_file import Role, read_users
from pocketmq.files import DiskFiles


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pocketmq.console", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=variables, check=False)


def test_it_says_where_it_is_and_answers_there(name_server: str) -> None:
    with running_console(name_server) as url, urllib.request.urlopen(url, timeout=20) as answer:
        assert b"Overview" in answer.read()


def test_it_refuses_to_be_open_without_a_login() -> None:
    done = run("--host", "0.0.0.0")

    assert done.returncode == 64
    assert "there is no login" in done.stderr


def test_an_option_that_is_none_is_told() -> None:
    done = run("--colour", "blue")

    assert done.returncode == 64
    assert "No such option" in done.stderr


def test_users_are_added_listed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "users"
    secret = {"POCKETMQ_CONSOLE_PASSWORD": "correct horse"}

    assert run("user", "add", "ada", "--users", str(path), **secret).returncode == 0
    assert run("user", "add", "tim", "--viewer", "--users", str(path), **secret).returncode == 0
    assert [user.role for user in read_users(DiskFiles(), path).values()] == [Role.OPERATOR, Role.VIEWER]
    assert "correct horse" not in path.read_text()

    assert run("user", "rm", "ada", "--users", str(path)).returncode == 0
    assert run("user", "ls", "--users", str(path)).stdout == "tim  viewer\n"
    wrong = run("user", "rm", "ada", "--users", str(path))
    assert wrong.returncode == 64
    assert "names no user 'ada'" in wrong.stderr
