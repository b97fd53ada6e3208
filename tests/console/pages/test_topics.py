"""Topics on pages: making, changing, deleting, sending to them."""

from tests.console.visitor import Visitor, text_of

from pocketmq.client.admin.topics import QueueState
from pocketmq.console.pages.topics import skew
from pocketmq.model.queue import MessageQueue


def queue(number: int, messages: int) -> QueueState:
    return QueueState(MessageQueue("t", "broker-a", number), 0, messages, None)


def test_a_topic_is_created_changed_and_deleted(console: Visitor) -> None:
    page = console.done("/topics", {"name": "made-here", "queues": "3", "perm": "rw"})
    assert "Created topic made-here." in page
    assert "in 3 queues" in page

    form = {"read_queues": "5", "write_queues": "5", "perm": "r"}
    assert "in 5 queues" in console.done("/topics/made-here/alter", form)

    page = console.done("/topics/made-here/delete", {"confirm": "made-here"})
    assert "Deleted topic made-here." in page
    assert "404" not in console.get("/topics/made-here", 404)


def test_a_topic_is_not_deleted_without_its_name(console: Visitor) -> None:
    answer = console.post("/topics/orders/delete", {"confirm": "order"})

    assert answer.status_code == 400
    assert "enter its name, orders" in answer.text
    assert "orders" in text_of(console.get("/topics"))


def test_a_topic_that_exists_cannot_be_created_again(console: Visitor) -> None:
    answer = console.post("/topics", {"name": "orders", "queues": "4", "perm": "rw"})

    assert answer.status_code == 400
    assert "is on broker broker-a already" in text_of(answer.text)


def test_invalid_numbers_are_reported(console: Visitor) -> None:
    for wrong in ("0", "-1", "x", "99999", "1e3"):
        answer = console.post("/topics", {"name": "never", "queues": wrong, "perm": "rw"})
        assert answer.status_code == 400
        assert "is not a whole number from 1 to 1,024" in text_of(answer.text)


def test_a_message_sent_by_hand_is_on_the_next_page(console: Visitor) -> None:
    console.done("/topics", {"name": "by-hand", "queues": "1", "perm": "rw"})

    page = console.done("/topics/by-hand/send", {"body": "hello from a form", "tag": "a", "key": "k9"})

    assert "Sent message" in page
    assert "hello from a form" in page
    assert "k9" in page


def test_topics_are_found_by_a_part_of_their_name(console: Visitor) -> None:
    page = text_of(console.get("/topics?q=RDER"))

    assert "orders" in page
    assert "emails" not in page


def test_retry_and_dead_letter_topics_are_shown_on_request(console: Visitor) -> None:
    assert "%DLQ%payments-worker" not in text_of(console.get("/topics"))
    page = console.get("/topics?all=1")
    assert "%DLQ%payments-worker" in text_of(page)
    assert 'href="/topics/%25DLQ%25payments-worker"' in page
    assert "%DLQ%payments-worker" in text_of(console.get("/topics/%25DLQ%25payments-worker"))


def test_skew_is_the_ratio_of_the_fullest_queue_to_the_average() -> None:
    assert skew([queue(0, 10), queue(1, 10)]) == 1
    assert skew([queue(0, 30), queue(1, 0), queue(2, 0)]) == 3
    assert skew([queue(0, 0)]) is None
