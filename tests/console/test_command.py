"""`python -m pocketmq.console`, as `pocketmq console` starts it."""

import json
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.console.running_console import running_console
from tests.net.certificates import make_authority, make_certificate

import pocketmq
from pocketmq.console.command import console
from pocketmq.console.users import Role, read_users
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.net.tls import ServerTlsFiles


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pocketmq.console", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=variables, check=False)


def test_the_console_prints_its_address_and_answers_there(name_server: str) -> None:
    with running_console(name_server) as url, urllib.request.urlopen(url, timeout=20) as answer:
        assert b"Overview" in answer.read()


def test_a_page_is_kept_up_to_date_by_events(name_server: str) -> None:
    with running_console(name_server) as url, urllib.request.urlopen(f"{url}live?at=/", timeout=20) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = [stream.readline() for _ in range(4)]

    assert lines[0] == b"retry: 3000\n"
    assert lines[2] == b"event: live\n"
    assert "Overview" in json.loads(lines[3].removeprefix(b"data: "))


def test_an_unreachable_broker_makes_pages_grey_with_a_sentence() -> None:
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


def test_a_cluster_that_requires_client_certificates_gets_one(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate, mine = make_certificate(tmp_path, authority), make_certificate(tmp_path, authority, "client")
    shown = ("--client-cert", str(mine.cert), "--client-key", str(mine.key))
    tls = ServerTlsFiles(cert=certificate.cert, key=certificate.key, client_ca=authority.cert)
    with pocketmq.Server(tls=tls) as server:
        for trusted in (
            ("--pinned-cert", str(certificate.cert)),
            ("--tls-ca", str(authority.cert)),
            ("--tls-no-verify",),
        ):
            with running_console(server.name_server, *trusted, *shown) as url:
                assert b"brokerClusterName" in _page(f"{url}brokers/broker-a")
                examined = _page(f"{url}doctor?run=1")
                assert b"No problem found" in examined
                assert b"TLS" in examined
        with running_console(server.name_server, "--tls", *shown) as url:
            page = _page(f"{url}topics")

    assert b"certificate of the server is not trusted" in page
    assert b"--tls-ca" in page


def test_its_log_is_json_on_request_and_a_url_cannot_add_lines_to_it() -> None:
    command = [sys.executable, "-m", "pocketmq.console", "--json", "--port", "0", "--log-format", "json"]
    process = subprocess.Popen(
        [*command, "--namesrv", "127.0.0.1:1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]

    _page(f"{url}topics/a%0Ab")
    process.terminate()
    _, log = process.communicate(timeout=20)

    lines = [json.loads(line) for line in log.splitlines()]
    assert any("cannot query" in line["message"] for line in lines)
    assert {"time", "level", "logger", "message"} <= set(lines[0])


def test_browsers_may_connect_by_tls(name_server: str, tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, authority)
    trusting = ssl.create_default_context(cafile=authority.cert)

    with running_console(name_server, "--tls-cert", str(certificate.cert), "--tls-key", str(certificate.key)) as url:
        assert url.startswith("https://")
        with urllib.request.urlopen(url, timeout=20, context=trusting) as answer:
            assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tls-cert", "none.pem"], "cannot use certificate none.pem"),
        (["--pinned-cert", "none.pem"], "cannot read the certificate in none.pem"),
        (["--tls-ca", "none.pem"], "cannot read the certificates in none.pem"),
        (["--client-key", "key.pem"], "the key key.pem is set without its certificate"),
        (["--pinned-cert", "none.pem", "--tls-ca", "none.pem"], "a pinned certificate cannot be combined"),
    ],
)
def test_an_unusable_tls_file_is_wrong_usage(words: list[str], told: str) -> None:
    result = run(*words)

    assert result.returncode == 64
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def _page(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            read: bytes = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.read()
    return read


def test_without_a_login_the_console_does_not_start_on_open_addresses() -> None:
    done = run("--host", "0.0.0.0")

    assert done.returncode == 64
    assert "there is no login" in done.stderr


def test_an_invalid_option_is_reported() -> None:
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
    assert "has no user 'ada'" in str(wrong)
