"""Every page of the console, on a real broker: it answers with the expected content, and data is escaped."""

import re

import pytest
from tests.console.example_cluster import NASTY
from tests.console.visitor import Visitor, text_of, visitor

from pocketmq.console.app import PAGES
from pocketmq.console.settings import ConsoleSettings

SAID = {
    "/": "Messages per second",
    "/topics": "orders",
    "/topics/orders": "broker-a:0",
    "/topics/orders/messages": "newest first",
    "/groups": "search-index",
    "/groups/billing": "orders",
    "/groups/billing/reset?topic=orders&to=earliest": "Nothing has changed yet",
    "/letters": "payments-worker",
    "/letters/payments-worker": "could not convert string to float",
    "/letters/payments-worker/broker-a:0:0": "Reason",
    "/delayed": "timer",
    "/transactions": "Undecided transactions",
    "/clients": "Clients",
    "/brokers": "DefaultCluster",
    "/brokers/broker-a": "brokerPermission",
    "/pipelines": "Spark queries",
    "/doctor": "Examine",
}


@pytest.mark.parametrize("path", SAID)
def test_a_page_has_a_title(console: Visitor, path: str) -> None:
    assert SAID[path] in text_of(console.get(path))


def test_every_page_has_a_test() -> None:
    patterns = [re.compile("^" + re.sub(r"\{\w+\}", "[^/]+", page.path) + r"(\?.*)?$") for page in PAGES]

    missing = [pattern.pattern for pattern in patterns if not any(pattern.match(path) for path in SAID)]

    assert missing == ["^/topics/[^/]+/messages/[^/]+(\\?.*)?$"], "one message is looked at in pages/test_messages.py"


@pytest.mark.parametrize(
    "path", ["/topics/nowhere", "/groups/nobody", "/letters/billing/broker-a:0:9", "/brokers/none"]
)
def test_an_unknown_page_shows_a_sentence(console: Visitor, path: str) -> None:
    answer = console.client.get(path)

    assert answer.status_code in (400, 404)
    assert "Traceback" not in answer.text


def test_an_invalid_address_is_a_sentence(console: Visitor) -> None:
    assert console.get("/topcis", 404) == "The console has no page /topcis. Start at /"


@pytest.mark.parametrize(
    "path", ["/topics/a b", "/topics?page=x", "/letters/payments-worker?page=-1", "/letters/payments-worker/x:y:z"]
)
def test_an_invalid_path_shows_a_sentence(console: Visitor, path: str) -> None:
    assert console.client.get(path).status_code in (200, 400)


def test_html_in_bodies_keys_and_properties_is_text(console: Visitor) -> None:
    page = console.get("/topics/payments/messages?key=nasty")

    assert "<script>alert" not in page
    assert NASTY[:20] in text_of(page)


def test_html_in_queries_is_text(console: Visitor) -> None:
    for path in ("/topics", "/groups", "/letters", "/clients", "/topics/orders/messages"):
        page = console.get(f"{path}?q=%3Cscript%3E&key=%22%3E%3Cscript%3E")
        assert "<script>" not in page.replace('<script src="/static/console.js"></script>', "")


def test_pages_of_a_cluster_that_does_not_answer_are_grey_with_a_sentence() -> None:
    with visitor(
        ConsoleSettings(page_timeout_s=1), "127.0.0.1:1", {"call_timeout_ms": 300, "connect_timeout_ms": 300}
    ) as console:
        console.wait_for("/", "The cluster does not answer")

        for path in [path for path in SAID if path != "/doctor"]:
            answer = console.client.get(path)
            assert answer.status_code in (200, 503)
            assert 'class="is-grey"' in answer.text
            assert "Traceback" not in answer.text


def test_pages_load_nothing_from_other_hosts(console: Visitor) -> None:
    for path in SAID:
        assert re.findall(r'(?:src|href|action)="(?:https?:)?//', console.get(path)) == []


def test_no_page_has_inline_script_or_style(console: Visitor) -> None:
    for path in SAID:
        page = console.get(path)
        assert not re.search(r'\son\w+=|\sstyle="|<style|<script(?! src=)', page), path
