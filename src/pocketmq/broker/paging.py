"""Pages of a table: a slave reads its master's topics and groups in parts.

    from row 0, 100 rows ──► these, the version, how many there are ──► from row 100, with that version ──► …
                                                                          └─ the table changed meanwhile: from row 0 again

Who asks without any of it, as all callers up to 5.3.3 do, gets the whole table. Tools and consoles do so again and again, and
thousands of rows take long to write: so the bytes are kept until the table is another.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from pocketmq.errors import InvalidParameter
from pocketmq.protocol.bodies.data_version import DataVersion
from pocketmq.protocol.frames import DEFAULT_LIMITS
from pocketmq.protocol.java_json import read_body

T = TypeVar("T")

MAX_KEPT_BYTES: Final = DEFAULT_LIMITS.frame_bytes
"""What is larger cannot be told in one answer anyway."""


class Page(NamedTuple):
    """Which rows somebody asks for. `seen` is the version, as JSON, of the table that the rows before were from."""

    start: int | None
    limit: int | None
    seen: str | None

    @property
    def is_whole(self) -> bool:
        """Whether all rows are asked for, by somebody who has seen none."""
        return not self.start and self.limit is None and not self.seen

    def of(self, rows: Mapping[str, T], version: DataVersion) -> dict[str, T]:
        """The rows of the page, in the order of the table, which stays the same while the version does."""
        start, limit = self.start or 0, len(rows) if self.limit is None else self.limit
        if start < 0 or limit < 0:
            raise InvalidParameter(f"a page of {limit} rows from row {start} on cannot be; neither may be below 0")
        if self.seen and read_body(DataVersion, self.seen.encode()) != version:
            start = 0
        return dict(islice(rows.items(), start, start + limit))


class KeptTable:
    """The last answer to somebody who asked for a whole table."""

    def __init__(self) -> None:
        self._version: DataVersion | None = None
        self._body = b""

    def body(self, version: DataVersion, write: Callable[[], bytes]) -> bytes:
        """The table of this version; `write` is called when that is another than last time."""
        if version == self._version:
            return self._body
        body = write()
        if len(body) <= MAX_KEPT_BYTES:
            self._version, self._body = version, body
        return body
