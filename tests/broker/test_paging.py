"""Pages of a table: all rows once, and from the start again after a change of the table."""

import pytest

from pocketmq.broker.handlers.topics import MAX_CACHED_BYTES, CachedTable, Page
from pocketmq.errors import BodyError, InvalidParameter
from pocketmq.protocol.bodies.topics import DataVersion

ROWS = {name: number for number, name in enumerate("abcde")}
VERSION = DataVersion(7, 0, 1000)
SEEN = VERSION.encode().decode()
OTHER = DataVersion(6, 0, 900).encode().decode()


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
def test_a_page_has_a_start_and_a_limit(page: Page, wanted: str) -> None:
    assert "".join(page.of(ROWS, VERSION)) == wanted


@pytest.mark.parametrize("page", [Page(-1, 2, None), Page(0, -1, None)])
def test_negative_numbers_are_refused(page: Page) -> None:
    with pytest.raises(InvalidParameter, match="at least 0"):
        page.of(ROWS, VERSION)


def test_an_invalid_version_is_refused() -> None:
    with pytest.raises(BodyError):
        Page(0, 1, "yesterday").of(ROWS, VERSION)


def test_a_request_without_a_page_gets_the_complete_table() -> None:
    assert Page(None, None, None).is_whole
    assert Page(0, None, "").is_whole
    assert not any(page.is_whole for page in (Page(1, None, None), Page(None, 5, None), Page(None, None, SEEN)))


def written(kept: CachedTable, version: DataVersion, body: bytes) -> tuple[bytes, bool]:
    """What is answered, and whether it was written for that."""
    is_written = False

    def write() -> bytes:
        nonlocal is_written
        is_written = True
        return body

    return kept.body(version, write), is_written


def test_a_complete_table_is_encoded_once_for_each_version() -> None:
    kept, newer = CachedTable(), DataVersion(8, 0, 1001)

    assert written(kept, VERSION, b"first") == (b"first", True)
    assert written(kept, VERSION, b"again") == (b"first", False)
    assert written(kept, newer, b"second") == (b"second", True)
    assert written(kept, newer, b"again") == (b"second", False)


def test_a_too_large_table_is_not_cached() -> None:
    kept, large = CachedTable(), b"x" * (MAX_CACHED_BYTES + 1)

    assert written(kept, VERSION, large) == (large, True)
    assert written(kept, VERSION, large) == (large, True)
