"""Pages of delayed messages and undecided transactions."""

from tests.console.visitor import Visitor, text_of


def test_delayed_messages_are_listed_the_soonest_first(console: Visitor) -> None:
    page = text_of(console.get("/delayed"))

    assert page.index("later 0") < page.index("later 3")
    assert "level 18" in page
    assert "5 messages" in page, page


def test_an_undecided_transaction_is_rolled_back_by_hand(console: Visitor, name_server: str) -> None:
    page = console.get("/transactions")
    found = page.partition('<th scope="row" class="id">')[2].partition("<")[0]
    assert "till" in text_of(page)

    assert (
        console.post("/transactions", {"id": "nothing", "broker": "broker-a", "decision": "commit"}).status_code == 400
    )
    assert console.post("/transactions", {"id": found, "broker": "broker-a", "decision": "x"}).status_code == 400
    done = console.done("/transactions", {"id": found, "broker": "broker-a", "decision": "roll back"})

    assert "Rolled back transaction" in done
