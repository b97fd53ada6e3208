"""`python -m pocketmq.console`, as `pocketmq console` starts it."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from click.testing import CliRunner, Result
from tests.console.running_console import running_console

import pocketmq
from pocketmq.console.command import console
from pocketmq.console.users_file import Role, read_users
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pocketmq.console", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=variables, check=False)


def test_it_says_where_it_is_and_answers_there(name_server: str) -> None:
    with running_console(name_server) as url, urllib.request.urlopen(url, timeout=20) as answer:
        assert b"Overview" in answer.read()


def test_a_page_is_kept_up_to_date_by_events(name_server: str) -> None:
    with running_console(name_server) as url, urllib.request.urlopen(f"{url}live?at=/", timeout=20) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = [stream.readline() for _ in range(4)]

    assert lines[0] == b"retry: 3000\n"
    assert lines[2] == b"event: live\n"
    assert "Overview" in json.loads(lines[3].removeprefix(b"data: "))


def test_a_dead_broker_turns_pages_grey_with_a_sentence() -> None:
    with pocketmq.Server() as server:
        name_server = server.name_server
        started = running_console(name_server)
        url = started.__enter__()
    try:
        deadline = time.monotonic() + 30
        while b"The cluster does not answer" not in (page := _page(url)):
            assert time.monotonic() < deadline, page
            time.sleep(0.1)
        assert b"Traceback" not in _page(f"{url}topics/orders")
    finally:
        started.__exit__(None, None, None)


def _page(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            read: bytes = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.read()
    return read


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

    def user(*words: str) -> Result:
        return CliRunner().invoke(console, ["user", *words, "--users", str(path)], env=secret)

    assert user("add", "ada").exit_code == 0
    assert user("add", "tim", "--viewer").exit_code == 0
    assert [user.role for user in read_users(DiskFiles(), path).values()] == [Role.OPERATOR, Role.VIEWER]
    assert "correct horse" not in path.read_text()

    assert user("rm", "ada").exit_code == 0
    assert user("ls").stdout == "tim  viewer\n"
    wrong = user("rm", "ada").exception
    assert isinstance(wrong, InvalidSetting)
    assert "names no user 'ada'" in str(wrong)
