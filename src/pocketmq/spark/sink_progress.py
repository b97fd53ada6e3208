"""How far a query's sink is, kept at the brokers: where a batch that is run again has to look for its rows.

    batch      0        1        2        3
    looks from even     odd      even     odd         two consumer groups of the query, in turns
    at its end odd = ▲  even = ▲ odd = ▲  even = ▲    where the topic ends then

A batch may be run again also after its end was noted, when the driver was killed before Spark noted it, too. So the place that a
batch looks from must outlive its end, and only the batch after it may move it. The first batch notes its beginning before it writes.
"""

from collections.abc import Iterator
from hashlib import sha256

from pocketmq.errors import TopicNotFound
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.libraries import pc
from pocketmq.spark.schema import Name
from pocketmq.spark.sink_ids import ROW_ID, ranges_to_search
from pocketmq.spark.sink_search import SinkMetadata, search
from pocketmq.spark.write_options import WriteOptions


class SinkProgress:
    """The places of one query."""

    def __init__(
        self, options: WriteOptions, query_id: str, metadata: SinkMetadata, *, launch: str | None = None
    ) -> None:
        """`launch`: what started the query, if this is not a later attempt; see `sink_settling`."""
        self._options = options
        self._metadata = metadata
        self._launch = launch
        self._name = f"{options.group}-{sha256(query_id.encode()).hexdigest()[:12]}"

    def group(self, batch_id: int) -> str:
        """Where the place is kept that this batch looks from."""
        return f"{self._name}-{'odd' if batch_id % 2 else 'even'}"

    def ranges(self, topic: str, batch_id: int) -> list[QueueRange]:
        """Where rows of this batch may be already. Afterwards a replay of it will look there, too."""
        queues = self._queues(topic)
        self._metadata.wait_until_entered({queue.broker_name for queue in queues}, self._launch)
        # Bounds first: what is noted below then lies before anything that another task of this batch wrote.
        bounds = self._metadata.bounds(queues)
        noted = self._metadata.committed(self.group(batch_id), queues)
        if batch_id == 0 and (missing := [queue for queue in queues if queue not in noted]):
            # A queue that was added since the batch began may hold rows of it already.
            begins = {queue: bounds[queue].min if noted else bounds[queue].max for queue in missing}
            self._metadata.commit(self.group(0), begins)
        # Nothing noted at all means that nothing was written; with some of it noted, another task is about to.
        return ranges_to_search(noted, bounds, 0 if batch_id == 0 and not noted else max(1, batch_id))

    def finish(self, topics: set[str], batch_id: int) -> None:
        """This batch is written: the next one looks from here."""
        for topic in sorted(topics):
            bounds = self._metadata.bounds(self._queues(topic))
            self._metadata.commit(self.group(batch_id + 1), {queue: held.max for queue, held in bounds.items()})

    def row_ids(self, ranges: list[QueueRange], prefix: str) -> Iterator[str]:
        """The ids of rows in these ranges that begin so."""
        if not ranges:
            return
        for batch in search(self._options.connection, self.group(0), ranges, (Name.PROPERTIES,)):
            ids = pc.map_lookup(batch.column(0), ROW_ID, "first")
            yield from ids.filter(pc.fill_null(pc.starts_with(ids, prefix), False)).to_pylist()

    def _queues(self, topic: str) -> list[MessageQueue]:
        try:
            return self._metadata.queues(topic)
        except TopicNotFound as error:
            raise TopicNotFound(
                f"the topic {topic!r} must be there before rows are written effectively once, so that it can be looked "
                f"through: create it, or set deliveryGuarantee = at-least-once ({error})"
            ) from None
