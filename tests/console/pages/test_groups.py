"""Groups on pages: lag in messages and time, resets with a preview, deleting."""

from tests.console.visitor import Visitor, text_of

import pocketmq


def test_a_group_shows_lag_in_messages_and_time(console: Visitor) -> None:
    page = text_of(console.get("/groups/billing"))

    assert "Lag 32 messages" in page
    assert "age of the oldest unread message" in page
    assert "No members online" in page


def test_the_list_shows_lag_and_dead_letters(console: Visitor) -> None:
    page = console.wait_for("/groups?q=payments", "payments-worker")

    assert "10" in page


def test_a_reset_shows_its_plan_and_runs_after_confirmation(console: Visitor) -> None:
    preview = text_of(console.get("/groups/search-index/reset?topic=orders&to=latest"))
    assert "0 messages would be consumed again, 92 messages would be skipped. Nothing has changed yet." in preview
    assert "Lag 92 messages" in text_of(console.get("/groups/search-index"))

    page = console.done("/groups/search-index/reset", {"topic": "orders", "to": "latest"})

    assert "92 messages will be skipped" in page
    console.wait_for("/groups/search-index", "Lag 0 messages")


def test_an_invalid_reset_is_reported(console: Visitor) -> None:
    page = text_of(console.get("/groups/billing/reset?topic=orders&to=time&time=soon"))
    assert "'soon' is not a time" in page

    answer = console.post("/groups/billing/reset", {"topic": "nowhere", "to": "earliest"})
    assert answer.status_code in (400, 404)


def test_a_group_is_created_and_deleted(console: Visitor) -> None:
    assert "Created group short-lived." in console.done("/groups", {"name": "short-lived"})

    assert "enter its name" in text_of(console.post("/groups/short-lived/delete", {"confirm": ""}).text)
    assert "Deleted group" in console.done("/groups/short-lived/delete", {"confirm": "short-lived"})


def test_a_group_shows_leased_messages_and_the_members_that_pop(console: Visitor, name_server: str) -> None:
    with pocketmq.Admin(name_server) as admin, pocketmq.Producer(name_server) as producer:
        admin.topics.create("leased", queues=1)
        for body in (b"1", b"2"):
            producer.send("leased", body)
    with pocketmq.SimpleConsumer(name_server, group="leasing", start_at="first") as consumer:
        consumer.subscribe("leased")
        assert len(consumer.receive(2)) == 2

        page = console.wait_for("/groups/leasing", "waiting for another attempt")

        assert "Leased 2 oldest for" in page
        assert "+ 2 leased" in page, page
        assert consumer.client_id in page.partition("Lag time Owner")[2]
