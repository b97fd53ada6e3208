"""Pages of a table: all rows once, and anew when the table changed."""

import pytest

from pocketmq.broker.paging import Page
from pocketmq.errors import BodyError, InvalidParameter
from pocketmq.protocol.bodies.data_version import DataVersion
from pocketmq.protocol.java_json import write_body

ROWS = {name: number for number, name in enumerate("abcde")}
VERSION = DataVersion(7, 0, 1000)
SEEN = write_body(VERSION).decode()
OTHER = write_body(DataVersion(6, 0, 900)).decode()


@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        (Page(None, None, None), "abcde"),
        (Page(0, 2, None), "ab"),
        (Page(2, 2, SEEN), "cd"),
        (Page(4, 2, SEEN), "e"),
        (Page(5, 2, SEEN), ""),
        (Page(2**31 - 1, 2**31 - 1, SEEN), ""),
        (Page(2, 2, OTHER), "ab"),
        (Page(2, 2, ""), "cd"),
        (Page(3, None, SEEN), "de"),
        (Page(0, 0, SEEN), ""),
    ],
)
def test_a_page_is(page: Page, wanted: str) -> None:
    assert "".join(page.of(ROWS, VERSION)) == wanted


@pytest.mark.parametrize("page", [Page(-1, 2, None), Page(0, -1, None)])
def test_numbers_below_zero_are_refused(page: Page) -> None:
    with pytest.raises(InvalidParameter, match="below 0"):
        page.of(ROWS, VERSION)


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(BodyError):
        Page(0, 1, "yesterday").of(ROWS, VERSION)
