"""Dead letters on pages: why they died, one edited and sent again, all of them replayed with their progress."""

import pytest
from tests.console.visitor import Visitor, text_of

from pocketmq.console.pages.dead_letters import parse_properties_text
from pocketmq.errors import InvalidMessage

GROUP = "/letters/payments-worker"


def place_of(console: Visitor, words: str) -> str:
    """The path of the dead letter with this body."""
    for offset in range(10):
        path = f"{GROUP}/broker-a:0:{offset}"
        if words in text_of(console.get(path)):
            return path
    raise AssertionError(f"no letter says {words!r}")


def test_a_dead_letter_shows_its_reason(console: Visitor) -> None:
    page = text_of(console.get(f"{GROUP}/broker-a:0:0"))

    assert "could not convert string to float" in page
    assert "payments.py" in page
    assert "Attempts 1" in page


def test_a_letter_is_edited_and_sent_again(console: Visitor) -> None:
    path = place_of(console, '"payment": 3')
    form = {
        "topic": "emails",
        "body": '{"payment": 3, "amount": "12.5"}',
        "properties": "TAGS=fixed\nKEYS=p3 again\nby=ada",
    }

    page = console.done(path, form, page=path)

    assert "Sent the dead letter again" in page
    found = text_of(console.get("/topics/emails/messages?key=again"))
    assert '"amount": "12.5"' in found
    assert "fixed" in found


def test_a_dead_letter_with_a_binary_body_is_sent_unchanged(console: Visitor) -> None:
    path = place_of(console, "00000000 00 01 02 03")
    assert "sent unchanged" in text_of(console.get(path))

    console.done(path, {"topic": "emails", "properties": "KEYS=binary-again"}, page=path)

    assert "1,024" in text_of(console.get("/topics/emails/messages?key=binary-again"))


def test_a_failed_send_is_reported_and_keeps_the_edited_form(console: Visitor) -> None:
    path = place_of(console, '"payment": 4')
    for form in (
        {"topic": "bad topic", "body": "mine", "properties": ""},
        {"topic": "emails", "body": "mine", "properties": "no equals"},
        {"topic": "emails", "body": "mine", "properties": "DELAY=3"},
    ):
        answer = console.post(path, form, page=path)
        assert answer.status_code == 400
        assert "mine" in answer.text


def test_all_dead_letters_are_replayed_with_progress(console: Visitor) -> None:
    console.done("/topics", {"name": "replayed", "queues": "1", "perm": "rw"})

    page = console.done(f"{GROUP}/replay", {"topic": "replayed"}, page=GROUP)

    assert "Sending 10 dead letters again." in page
    console.wait_for(GROUP, "done: 10 sent of 10")
    assert "Messages 10" in text_of(console.get("/topics/replayed"))


def test_properties_are_lines_of_name_and_value() -> None:
    assert parse_properties_text("a=1\n\n b =x=y\n") == {"a": "1", "b": "x=y"}
    with pytest.raises(InvalidMessage, match="expected name=value"):
        parse_properties_text("alone")
