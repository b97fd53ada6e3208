"""Spark's queries while they run: how far they are, as lines for the screen, and started again when they stumble.

On a machine that has too much to do, processes of Spark wait in vain for one another, and a query fails that would do well a moment
later. It goes on from its checkpoint, so it is started again, a few times.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pocketmq.demo.live import Line
from pocketmq.errors import PipelineFailed
from pocketmq.pipelines.failures import told
from pocketmq.pipelines.progress import Progress, Tally
from pocketmq.pipelines.running import is_caught_up

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

MAX_FAILURES: Final = 12
"""Of all queries together; one more is the end."""


class Queries:
    """Queries by name. One that is started again goes on in the same line."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._running: dict[str, StreamingQuery] = {}
        self._start: Callable[[str], StreamingQuery]
        self._failures = 0
        self._tallies: dict[str, Tally] = {}
        self._last: dict[str, Progress] = {}

    def begin(self, names: Sequence[str], start: "Callable[[str], StreamingQuery]") -> None:
        """Start those of these names, instead of those that ran before."""
        self._start = start
        self._running = {}
        for name in names:
            self._begin(name)

    @property
    def are_active(self) -> bool:
        return any(query.isActive for query in self._running.values())

    def have_caught_up(self, *names: str) -> bool:
        """Whether they wait for something new, as far as Spark knows. One that has failed waits, too: for a look."""
        return all(is_caught_up(self._running[name]) for name in names)

    def look(self) -> None:
        """Hear how far each is. One that has failed is started again; PipelineFailed when that happens too often."""
        for name, query in list(self._running.items()):
            for row in self._tallies.setdefault(name, Tally(name)).look(query):
                self.hear(row)
            if (error := query.exception()) is not None:
                self._stumbled(name, error)
                self._begin(name)

    def hear(self, row: Progress) -> None:
        self._last[row.query] = row

    def stop(self) -> None:
        for query in self._running.values():
            query.stop()

    def _begin(self, name: str) -> None:
        while True:
            try:
                self._running[name] = self._start(name)
                return
            except Exception as error:  # Spark has many kinds, and all of them may be gone at the next attempt
                self._stumbled(name, error)

    def _stumbled(self, name: str, error: Exception) -> None:
        self._failures += 1
        if self._failures > MAX_FAILURES:
            raise PipelineFailed(f"{name}: {told(error)}") from error
        self._tell(f"the query {name} failed ({told(error)}) and is started again")

    # what is seen

    def done(self, name: str, there: int) -> int:
        """How many messages it has read, of those that are there."""
        row = self._last.get(name)
        if row is None:
            return 0
        return min(there, row.messages) if row.behind is None else max(0, there - row.behind)

    def lines(self) -> list[Line]:
        return [
            Line(f"Spark: {name}", row.messages, None, row.per_s, row.behind, _note(row))
            for name, row in list(self._last.items())  # another thread looks, too
        ]


def _note(row: Progress) -> str:
    watermark = f", watermark {row.watermark[11:16]}" if row.watermark and not row.watermark.startswith("1970") else ""
    return f"batch {row.batch}{watermark}"
