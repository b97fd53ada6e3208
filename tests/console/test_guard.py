"""The checks before every page."""

import pytest
from starlette.applications import Starlette
from tests.console.visitor import Visitor

from pocketmq.console.app import HEADERS, Guard


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9878", "localhost.evil.example", "", "a:b:c"])
def test_a_foreign_host_name_is_refused(console: Visitor, host: str) -> None:
    answer = console.client.get("/", headers={"host": host})

    assert answer.status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9878", "127.0.0.1:9878", "[::1]:9878"])
def test_this_machine_is_allowed(console: Visitor, host: str) -> None:
    assert console.client.get("/login", headers={"host": host}, follow_redirects=False).status_code == 303


def test_an_address_is_allowed_on_open_consoles() -> None:
    guard = Guard(Starlette(), is_loopback=False, allowed_hosts=["Console.example"])

    assert guard.is_allowed("10.1.2.3:9878")
    assert guard.is_allowed("console.example")
    assert not guard.is_allowed("other.example")


def test_an_address_of_others_is_not_ours_on_loopback() -> None:
    assert not Guard(Starlette(), is_loopback=True, allowed_hosts=()).is_allowed("10.1.2.3:9878")


@pytest.mark.parametrize("path", ["/", "/static/console.css", "/nowhere", "/login"])
def test_every_answer_has_the_headers_that_keep_others_out(console: Visitor, path: str) -> None:
    answer = console.client.get(path, follow_redirects=False)

    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in answer.headers["content-security-policy"]
