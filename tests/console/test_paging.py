"""Tables, one page at a time."""

import pytest

from pocketmq.console.rendering import matching, rows


@pytest.mark.parametrize(
    ("page", "shown", "number"),
    [
        ("", [0, 1], 1),
        ("2", [2, 3], 2),
        ("3", [4], 3),
        ("99", [4], 3),
        ("0", [0, 1], 1),
        ("x", [0, 1], 1),
        ("-1", [0, 1], 1),
    ],
)
def test_the_nearest_page_that_there_is_is_shown(page: str, shown: list[int], number: int) -> None:
    found = rows(range(5), page, 2)

    assert list(found.shown) == shown
    assert found.number == number


def test_a_page_links_to_the_previous_and_next_one() -> None:
    middle = rows(range(5), "2", 2)
    alone = rows(range(0), "", 2)

    assert (middle.before, middle.after, middle.total) == (1, 3, 5)
    assert (alone.before, alone.after, alone.pages) == (None, None, 1)


def test_searches_ignore_case() -> None:
    assert matching(["Orders", "emails"], " ORD ") == ["Orders"]
    assert matching(["a", "b"], "") == ["a", "b"]
