"""Where things lie in a lake: names of folders and files, and nothing else.

staged   _staging/0000000007/topic=orders/day=2026-11-15/part-00000-….parquet
final                        topic=orders/day=2026-11-15/0000000007-part-00000-….parquet

Names that begin with `_` or `.` are not seen by readers of the folder. The number of the commit makes names unique.
"""

from enum import StrEnum
from typing import Final
from urllib.parse import unquote

MANIFEST: Final = "_manifest"
STAGING: Final = "_staging"
CHECKPOINT: Final = "_checkpoint"
_DIGITS: Final = 10


class Slot(StrEnum):
    """How long the messages of one folder were stored in."""

    DAY = "day"
    HOUR = "hour"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that name the folders."""
        return ("topic", "day") if self is Slot.DAY else ("topic", "day", "hour")


def padded(number: int) -> str:
    """Numbers as texts that sort as numbers do."""
    return f"{number:0{_DIGITS}}"


def staging_of(number: int) -> str:
    return f"{STAGING}/{padded(number)}"


def final_path(staged: str, number: int) -> str:
    """Where a staged file of commit `number` goes; `staged` is relative to its staging folder."""
    folder, _, name = staged.rpartition("/")
    return f"{folder}/{padded(number)}-{name}"


def staged_path(final: str, number: int) -> str:
    """Where a file of commit `number` came from, relative to the lake."""
    folder, _, name = final.rpartition("/")
    return f"{staging_of(number)}/{folder}/{name.removeprefix(padded(number) + '-')}"


def is_data(name: str) -> bool:
    """Whether a file holds messages, and is none of those that Spark puts beside them."""
    return not name.startswith(("_", "."))


def partition_values(path: str) -> dict[str, str]:
    """What the folders of a path say: topic, day, hour. Spark writes what a file name cannot hold as %XX."""
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    return {name: unquote(text) for name, mark, text in pairs if mark}
