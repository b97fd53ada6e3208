"""Pages of messages: found by id, key, time and offset; shown as text, JSON and hex, and cut if they are long."""

import re
import tracemalloc

from tests.console.visitor import Visitor, text_of

import pocketmq
from pocketmq.client.admin.messages import MessageTrace, TracedAttempt
from pocketmq.console.pages.messages import timeline
from pocketmq.protocol.trace_text import Outcome


def link_to(console: Visitor, query: str) -> str:
    """The page of the first message that is found."""
    found = re.search(r'<a class="id" href="([^"]+)"', console.get(query))
    assert found, "no message was found"
    return found[1]


def test_a_message_is_found_by_its_key_and_shown_completely(console: Visitor) -> None:
    page = text_of(console.get(link_to(console, "/topics/orders/messages?key=1007")))

    assert '"order": 1007' in page
    assert "shop eu" in page
    assert "127.0.0.1" in page


def test_a_message_is_found_by_both_of_its_ids(console: Visitor) -> None:
    page = console.get(link_to(console, "/topics/orders/messages?key=1007"))
    ids = re.findall(r">([0-9A-F]{32})<", page)

    for one in set(ids):
        assert "1007" in text_of(console.get(f"/topics/orders/messages?id={one}"))


def test_messages_are_found_by_time(console: Visitor) -> None:
    assert "newest first" in text_of(console.get("/topics/orders/messages?since=2020-01-01T00:00"))
    assert "No messages." in text_of(console.get("/topics/orders/messages?until=2020-01-01T00:00"))
    assert "is not a time" in text_of(console.get("/topics/orders/messages?since=yesterday", 400))


def test_a_queue_is_browsed_page_by_page(console: Visitor) -> None:
    page = text_of(console.get("/topics/orders/messages?queue=broker-a:0&offset=0"))

    assert "Offsets 0 to 30 of broker-a:0" in page
    assert "the topic has no queue 'broker-a:99'" in text_of(
        console.get("/topics/orders/messages?queue=broker-a:99", 400)
    )


def test_messages_are_filtered_by_tag_and_body(console: Visitor) -> None:
    page = text_of(console.get("/topics/orders/messages?tag=changed&contains=1117"))

    assert "1117" in page
    assert "1 message, newest first" in page


def test_a_body_is_shown_in_the_selected_form(console: Visitor) -> None:
    link = link_to(console, "/topics/payments/messages?key=binary")

    assert "00000000 00 01 02 03" in text_of(console.get(link))
    assert "the body is not JSON" in text_of(console.get(f"{link}?form=json"))


def test_a_huge_body_is_truncated_and_can_be_downloaded(console: Visitor) -> None:
    link = link_to(console, "/topics/payments/messages?key=huge")
    page = console.get(link)
    body = console.client.get(f"{link}/body")

    assert len(page) < 100_000
    assert "Truncated: the first 64 KiB; the rest is compressed." in text_of(page)
    assert body.content == b"x" * 300_000
    assert body.headers["content-type"] == "application/octet-stream"
    assert body.headers["content-disposition"].startswith("attachment")


def test_a_traced_message_has_a_timeline(console: Visitor) -> None:
    page = console.wait_for(link_to(console, "/topics/payments/messages?key=nasty"), "consumed:")

    assert "sent in" in page
    assert "payments-worker" in page


def test_a_timeline_is_in_the_order_of_time() -> None:
    late = TracedAttempt(group="g", request_id="2", started_ms=20, retry_times=1, cost_ms=5, outcome=Outcome.RAISED)
    early = TracedAttempt(group="g", request_id="1", started_ms=10)

    told = timeline(MessageTrace(message_id="m", attempts=(late, early)))

    assert told == [
        (10, "consumed: still processing", "g", True),
        (20, "consumed: raised in 5 ms, attempt 2", "g", False),
    ]


def test_a_list_of_compressed_messages_decompresses_only_the_shown_part(console: Visitor, name_server: str) -> None:
    many, mib = 64, 1024 * 1024
    with pocketmq.Producer(name_server, max_message_bytes=16 * mib) as producer:
        for number in range(many):
            producer.send("packed", b'{"number": %d, "zeros": "%s"}' % (number, b"0" * 8 * mib), keys="packed")
    console.get("/topics/packed/messages?key=packed")
    tracemalloc.start()
    try:
        page = text_of(console.get("/topics/packed/messages?key=packed&tag="))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert page.count('{"number":') == many
    assert "zlib" in page
    assert peak < 20 * mib
