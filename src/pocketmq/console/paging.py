"""Tables, one page at a time, made on the server: no browser gets five thousand rows."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Rows(msgspec.Struct, Generic[T], frozen=True):
    """One page of a table."""

    shown: Sequence[T]
    number: int
    """From 1."""
    pages: int
    total: int

    @property
    def before(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def after(self) -> int | None:
        return self.number + 1 if self.number < self.pages else None


def rows(everything: Sequence[T], page: str, per_page: int) -> Rows[T]:
    """The page that was asked for, or the nearest that there is: a link may be older than the table."""
    pages = max(1, -(-len(everything) // per_page))
    number = min(pages, max(1, int(page))) if page.isascii() and page.isdigit() and len(page) < 10 else 1
    begin = (number - 1) * per_page
    return Rows(everything[begin : begin + per_page], number, pages, len(everything))


def matching(names: Sequence[str], wanted: str) -> list[str]:
    """Those that hold the text, whatever its case."""
    needle = wanted.strip().lower()
    return [name for name in names if needle in name.lower()] if needle else list(names)
