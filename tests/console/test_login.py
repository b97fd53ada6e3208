"""Login, logout, and the permissions of a session."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from httpx2 import Response
from tests.console.conftest import PASSWORD, WEAK
from tests.console.running_console import running_console
from tests.console.visitor import Visitor, visitor

from pocketmq.console.endpoints import local_target
from pocketmq.console.settings import ConsoleSettings
from pocketmq.console.users import Role, new_user, write_users
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles


@pytest.fixture
def guarded(name_server: str, users: Path) -> Iterator[Visitor]:
    """A console with a login, without a session."""
    with visitor(ConsoleSettings(users=users, max_login_failures=3), name_server) as made:
        yield made


def log_in(console: Visitor, name: str, password: str = PASSWORD, goal: str = "/") -> Response:
    form = {"name": name, "password": password, "next": goal}
    return console.client.post("/login", data=form, follow_redirects=False)


def test_without_a_login_no_page_is_shown(guarded: Visitor) -> None:
    for path in ("/", "/topics", "/groups/billing"):
        answer = guarded.client.get(path, follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login?next=")
    assert guarded.client.get("/live?at=/").status_code == 401
    assert guarded.client.get("/topics/orders/messages/x/body").status_code == 401


def test_a_login_redirects_to_the_requested_page(guarded: Visitor) -> None:
    answer = log_in(guarded, "ada", goal="/topics/orders?x=1")

    assert answer.status_code == 303
    assert answer.headers["location"] == "/topics/orders?x=1"
    assert "Log out ada" in guarded.get("/")


def test_the_cookie_is_kept_from_scripts_and_other_sites(guarded: Visitor) -> None:
    cookie = log_in(guarded, "ada").headers["set-cookie"]

    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


@pytest.mark.parametrize(("name", "password"), [("ada", "wrong"), ("nobody", PASSWORD), ("", "")])
def test_a_wrong_name_and_a_wrong_password_get_the_same_answer(guarded: Visitor, name: str, password: str) -> None:
    answer = log_in(guarded, name, password)

    assert answer.status_code == 403
    assert "Wrong name or password." in answer.text
    assert "set-cookie" not in answer.headers


def test_guessing_is_stopped(guarded: Visitor) -> None:
    for _ in range(3):
        log_in(guarded, "ada", "wrong")

    assert log_in(guarded, "ada").status_code == 429


def test_a_logout_ends_the_session(guarded: Visitor) -> None:
    log_in(guarded, "ada")

    guarded.client.post("/logout", data={"token": guarded.token("/topics")}, follow_redirects=False)

    assert guarded.client.get("/", follow_redirects=False).status_code == 303


def test_removing_a_user_ends_only_the_sessions_of_that_user(guarded: Visitor, users: Path) -> None:
    log_in(guarded, "ada")
    assert "Log out ada" in guarded.get("/")

    users.write_text(f"tim:viewer:{WEAK}\n")

    deadline = time.monotonic() + 10
    while guarded.client.get("/", follow_redirects=False).status_code != 303:
        assert time.monotonic() < deadline, "ada is still in"
        time.sleep(0.05)
    assert log_in(guarded, "ada").status_code == 403
    assert log_in(guarded, "tim").status_code == 303


def test_an_emptied_file_rejects_all_logins(guarded: Visitor, users: Path) -> None:
    users.write_text("")

    assert log_in(guarded, "ada").status_code == 403
    assert guarded.client.get("/", follow_redirects=False).status_code == 303


def test_a_viewer_can_read_and_cannot_change_anything(guarded: Visitor) -> None:
    log_in(guarded, "tim")

    assert "Create a topic" not in guarded.get("/topics")
    answer = guarded.post("/topics", {"name": "by-tim"}, page="/")
    assert answer.status_code == 403


def test_a_read_only_console_rejects_all_changes(name_server: str) -> None:
    with visitor(ConsoleSettings(read_only=True), name_server) as console:
        page = console.get("/topics")
        assert "read-only" in page
        assert '<form method="post"' not in page
        token = console.client.get("/")  # there is a session, but a page without forms has no token
        assert token.status_code == 200
        assert console.client.post("/topics", data={"name": "never"}).status_code == 403


def test_a_login_does_not_redirect_to_other_hosts() -> None:
    assert local_target("//evil.example/") == "/"
    assert local_target("https://evil.example/") == "/"
    assert local_target("/\\evil.example") == "/"
    assert local_target("/topics?q=a") == "/topics?q=a"


def test_it_does_not_start_where_others_reach_it_without_a_login() -> None:
    with pytest.raises(InvalidSetting, match="there is no login"):
        ConsoleSettings(host="0.0.0.0")


@pytest.mark.parametrize("forwarded", [{}, {"x-forwarded-for": "10.9.8.{n}"}])
def test_parallel_guesses_at_a_running_console_are_stopped(
    name_server: str, tmp_path: Path, forwarded: dict[str, str]
) -> None:
    """Also if each of them claims another address: no proxy is trusted."""
    path = tmp_path / "users"
    write_users(DiskFiles(), path, [new_user("ada", Role.OPERATOR, PASSWORD)])
    with (
        running_console(name_server, "--users", str(path)) as url,
        httpx2.Client(limits=httpx2.Limits(max_connections=80), timeout=60) as client,
        ThreadPoolExecutor(80) as threads,
    ):

        def guess(n: int) -> int:
            headers = {name: value.format(n=n) for name, value in forwarded.items()}
            return client.post(
                f"{url}login", data={"name": "ada", "password": f"guess {n}"}, headers=headers
            ).status_code

        answers = Counter(threads.map(guess, range(80)))

    assert answers == {403: 10, 429: 70}


def test_a_trusted_proxy_names_the_client_address(name_server: str, users: Path) -> None:
    with running_console(name_server, "--users", str(users), "--trusted-proxy", "127.0.0.0/8") as url:
        form = {"name": "ada", "password": "wrong"}
        for n in range(12):
            headers = {"x-forwarded-for": f"10.9.8.{n}"}
            assert httpx2.post(f"{url}login", data=form, headers=headers).status_code == 403


def test_a_proxy_must_be_an_address_or_a_network() -> None:
    with pytest.raises(InvalidSetting, match="--trusted-proxy nginx"):
        ConsoleSettings(trusted_proxies=("nginx",))


@pytest.mark.parametrize("path", ["/login", "/logout"])
@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"name=" + b"a" * 20_000, 413, "larger than 16,384 bytes"),
        (b"name=\xff\xfe", 400, "cannot be read"),
        (b"&".join([b"a=1"] * 2_000), 400, "cannot be read"),
    ],
    ids=["large", "not UTF-8", "many fields"],
)
def test_an_invalid_form_is_answered_with_the_reason(
    guarded: Visitor, path: str, body: bytes, status: int, text: str
) -> None:
    answer = guarded.client.post(path, content=body)

    assert answer.status_code == status
    assert text in answer.text


def test_a_login_page_that_is_not_needed_redirects_to_the_overview(console: Visitor) -> None:
    answer = log_in(console, "ada")

    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
