"""Streams that are restarted if Spark gave up on a slow machine: it gives the process of a source ten seconds to
start.
"""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Start = Callable[[], "StreamingQuery"]

PATIENCE_S = 300
ATTEMPTS = 6
GAVE_UP = "Python worker failed to connect back"
"""What Spark says then. No setting gives it more time, and nothing of the query has happened yet."""


def ran(start: Start, patience_s: int = PATIENCE_S) -> "StreamingQuery":
    """A query that ended by itself; an error of it is raised."""
    for attempt in range(1, ATTEMPTS + 1):
        query = start()
        try:
            assert query.awaitTermination(patience_s), "the query does not end"
            break
        except PySparkException as error:
            if GAVE_UP not in str(error) or attempt == ATTEMPTS:
                raise
    return query


def ran_side_by_side(*starts: Start) -> "list[StreamingQuery]":
    """Queries that were under way at the same time. All are started by one thread: Spark finds no source of Python in one without a session."""
    under_way = [(start, [start()]) for start in starts]
    return [
        ran(lambda first=first, start=start: first.pop() if first else start())  # type: ignore[misc]
        for start, first in under_way
    ]


def running(start: Start, until: Callable[["StreamingQuery"], bool]) -> "StreamingQuery":
    """A query that has reached the state of `until`."""
    query = start()
    attempts, deadline = 1, monotonic() + PATIENCE_S
    while not until(query):
        failure = query.exception()
        if failure is not None and GAVE_UP in str(failure) and attempts < ATTEMPTS:
            query = start()
            attempts += 1
        else:
            assert failure is None, failure
        assert monotonic() < deadline, "the query does not get there"
        sleep(0.05)
    return query
