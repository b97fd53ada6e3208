"""`pocketmq console`, and a console beside `pocketmq serve`."""

import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.program import ACCOUNTS, SECRET, Start, ended, programs, ready
from tests.net.certificates import make_authority, make_certificate

from pocketmq.cli.console import console_settings
from pocketmq.console.users import Role, new_user, write_users
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.net.tls import ServerTlsFiles

PORTS = ("--namesrv-port", 0, "--broker-port", 0, "--console-port", 0)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with programs(tmp_path) as start:
        yield start


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    write_users(DiskFiles(), path, [new_user("ada", Role.OPERATOR, "correct horse")])
    return path


def test_serve_starts_a_console_that_stops_with_it(start: Start) -> None:
    process = start("serve", "--console", "--json", *PORTS)
    url = ready(process)["console"]

    with urllib.request.urlopen(url, timeout=20) as answer:
        assert b"PocketMQ" in answer.read()
    process.send_signal(signal.SIGTERM)
    ended(process)

    assert process.returncode == 0
    assert not answers(url)


def test_serve_does_not_start_if_its_console_cannot(start: Start, tmp_path: Path) -> None:
    process = start("serve", "--console", "--console-users", tmp_path / "nothing", "--json", *PORTS)

    log = ended(process)

    assert process.returncode == 3
    assert "cannot read the users file" in log
    assert "the console ended with exit code 64 before it was ready" in log


def test_the_console_of_a_server_with_accounts_signs_requests_and_requires_a_login(
    start: Start, tmp_path: Path, users: Path
) -> None:
    accounts = tmp_path / "accounts.toml"
    accounts.write_text(ACCOUNTS)

    process = start(
        *("serve", "--console", "--json", "--accounts", accounts, "--console-users", users, *PORTS),
        OPERATOR_SECRET=SECRET,
    )

    with urllib.request.urlopen(ready(process)["console"], timeout=20) as answer:
        assert b"Log in" in answer.read()
        assert answer.url.endswith("/login?next=/")


def test_the_console_of_a_server_with_accounts_needs_users(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts.toml"
    accounts.write_text(ACCOUNTS)

    with pytest.raises(InvalidSetting, match="--console-users"):
        console_settings("127.0.0.1", 0, None, accounts, ServerTlsFiles())


def test_secrets_are_not_on_the_command_line(tmp_path: Path, users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = tmp_path / "accounts.toml"
    accounts.write_text(ACCOUNTS)
    monkeypatch.setenv("OPERATOR_SECRET", SECRET)

    wishes = console_settings("127.0.0.1", 0, users, accounts, ServerTlsFiles())

    assert SECRET not in " ".join(wishes.options)
    assert wishes.environment == {"ROCKETMQ_ACCESS_KEY": "operator", "ROCKETMQ_SECRET_KEY": SECRET}


def test_the_console_of_a_server_with_tls_connects_by_tls(start: Start, tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, authority)
    tls = ("--tls-cert", certificate.cert, "--tls-key", certificate.key, "--tls-client-ca", authority.cert)

    process = start("serve", "--console", "--json", *tls, *PORTS)

    with urllib.request.urlopen(f"{ready(process)['console']}brokers/broker-a", timeout=20) as answer:
        assert b"brokerClusterName" in answer.read()


def test_a_stand_alone_console_stops_on_a_signal(start: Start) -> None:
    process = start("console", "--json", "--port", 0)
    url = ready(process)["url"]
    assert os.getpriority(os.PRIO_PROCESS, process.pid) > os.getpriority(os.PRIO_PROCESS, 0), "the broker goes first"

    process.send_signal(signal.SIGTERM)
    ended(process)

    assert process.returncode == 0
    assert not answers(url)


def test_the_exit_code_of_the_console_is_returned(start: Start) -> None:
    process = start("console", "--host", "0.0.0.0")

    assert "there is no login" in ended(process)
    assert process.returncode == 64


def test_a_console_ends_when_its_server_is_killed(start: Start) -> None:
    process = start("serve", "--console", "--json", *PORTS)
    url = ready(process)["console"]

    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)

    deadline = time.monotonic() + 60
    while answers(url):
        assert time.monotonic() < deadline, "the console runs without its server"


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=20).close()
    except OSError:
        return False
    return True
