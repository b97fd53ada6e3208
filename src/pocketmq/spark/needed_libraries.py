"""What has to be installed where topics are read: looked for by who plans, without importing it, so that no task has to find out."""

from functools import cache
from importlib.util import find_spec
from typing import Final

from pocketmq.errors import MissingLibrary

NEEDED: Final = ("numpy", "pyarrow")


def missing(library: str | None) -> MissingLibrary:
    return MissingLibrary(
        f"the Spark connector needs the library {library}: pip install 'pocketmq[spark]' on driver and executors"
    )


@cache
def require_libraries() -> None:
    """MissingLibrary where one is not installed."""
    for library in NEEDED:
        if find_spec(library) is None:
            raise missing(library)
