"""Forms and live parts: their owner, their size, and their results."""

import pytest
from tests.console.visitor import HOST, Visitor, visitor

from pocketmq.console.settings import ConsoleSettings
from pocketmq.console.snapshot import Collector


def test_a_form_without_the_token_of_its_session_is_refused(console: Visitor) -> None:
    token = console.token()

    assert console.client.post("/topics", data={"name": "forged"}).status_code == 403
    assert console.client.post("/topics", data={"name": "forged", "token": token[:-1] + "g"}).status_code == 403


def test_a_form_of_another_site_is_refused_even_with_a_token(console: Visitor) -> None:
    form = {"name": "forged", "token": console.token()}

    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        assert console.client.post("/topics", data=form, headers=headers).status_code == 403
    taken = console.client.post("/topics", data=form | {"name": "a b"}, headers={"origin": HOST})
    assert taken.status_code == 400, "taken for ours, and its name is bad"


def test_a_failed_action_is_reported_with_the_submitted_form(console: Visitor) -> None:
    answer = console.post("/topics", {"name": "bad name", "queues": "3"})

    assert answer.status_code == 400
    assert "topic name" in answer.text
    assert 'value="bad name"' in answer.text
    assert 'value="3"' in answer.text


def test_a_form_that_is_too_large_is_refused(console: Visitor) -> None:
    form = {"token": console.token(), "body": "x" * (9 * 1024 * 1024)}

    assert console.client.post("/topics/orders/send", data=form).status_code == 413


def test_a_form_that_no_browser_sends_is_refused(console: Visitor) -> None:
    assert console.client.post("/topics", content=b"\xff\xfe=1").status_code in (400, 403, 413)


def test_a_page_without_a_live_part_has_no_stream(console: Visitor) -> None:
    assert console.client.get("/live", params={"at": "/nowhere"}).status_code == 404
    assert console.client.get("/live", params={"at": "/doctor"}).status_code == 404


def test_a_browser_that_changes_pages_causes_no_extra_queries(
    name_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried: list[str] = []
    monkeypatch.setattr(Collector, "refresh_soon", lambda _: hurried.append("once"))

    with visitor(ConsoleSettings(watched_s=0.05, session_s=0.3), name_server) as console:
        for page in ("/clients", "/topics", "/groups"):
            console.get(page)
            streamed = console.client.get("/live", params={"at": page}).text  # ends with its session
            assert "event: live" in streamed

    assert hurried == ["once"], "when it came"
