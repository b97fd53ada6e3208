"""Pages of a table: a slave reads its master's topics and groups in parts.

    from row 0, 100 rows ──► these, the version, how many there are ──► from row 100, with that version ──► …
                                                                          └─ the table changed meanwhile: from row 0 again

Who asks without any of it, as all callers up to 5.3.3 do, gets the whole table.
"""

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple, TypeVar

from pocketmq.errors import InvalidParameter
from pocketmq.protocol.bodies.data_version import DataVersion
from pocketmq.protocol.java_json import read_body

T = TypeVar("T")


class Page(NamedTuple):
    """Which rows somebody asks for. `seen` is the version, as JSON, of the table that the rows before were from."""

    start: int | None
    limit: int | None
    seen: str | None

    def of(self, rows: Mapping[str, T], version: DataVersion) -> dict[str, T]:
        """The rows of the page, in the order of the table, which stays the same while the version does."""
        start, limit = self.start or 0, len(rows) if self.limit is None else self.limit
        if start < 0 or limit < 0:
            raise InvalidParameter(f"a page of {limit} rows from row {start} on cannot be; neither may be below 0")
        if self.seen and read_body(DataVersion, self.seen.encode()) != version:
            start = 0
        return dict(islice(rows.items(), start, start + limit))
