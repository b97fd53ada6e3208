"""The offsets of a query's sink, kept at the brokers: a batch that is run again searches for its rows from there.

    batch           0        1        2        3
    searches from   even     odd      even     odd       two consumer groups of the query, in alternation
    when it ends    odd = ▲  even = ▲ odd = ▲  even = ▲  the end of the topic

A batch may be run again after its end was committed, if the driver was killed before Spark recorded the batch. So the offset that a
batch searches from must survive its end, and only the next batch may change it. Batch 0 commits its start before it writes.

A search must not start before brokers let the messages of an earlier attempt be read:

    sent ─── in flight ───► in the broker's log ─── entered ───► in its queue: found
             IN_FLIGHT_S    query: the end of the log            until the queue includes it

A broker acknowledges a message that is in its log. It enters the queue some milliseconds later, with Apache longer under load, and with
PocketMQ's transient pool after the disk write. So a task asks each broker of its topic for the end of its log, and waits until the
queues include it:

    later attempt   always: Spark starts it as soon as the earlier one has failed
    first attempt   once per process and launch of the query or write: it may follow a killed one, whose messages were in the
                    log before the launch. The query takes Apache 5 some 20 ms of CPU

A search then finds every message that was in the log at that moment. It cannot find a request that was sent by a process killed a
moment ago and has not reached the log. So later attempts first wait a fixed time. Apache rejects requests that have queued for 200 ms
(`waitTimeMillsInSendQueue`), writes its transient pool within 200 ms, and with SYNC_FLUSH does not report unflushed messages as behind;
the fixed time covers all of that. It does not cover a network that delivers a request later: that row may be written twice.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import sha256
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import SystemBusy, TopicNotFound
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.spark.arrow import pc
from pocketmq.spark.broker_facts import Bounds, LogState
from pocketmq.spark.options.connection_options import Connection
from pocketmq.spark.options.write_options import WriteOptions
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.read.planning import ReadPartition
from pocketmq.spark.read.range_reading import read_partition
from pocketmq.spark.schema import Name
from pocketmq.spark.shared_clients import READING
from pocketmq.spark.write.sink_batches import ROW_ID

IN_FLIGHT_S: Final = 0.5
"""Wait for requests of a killed attempt. The only wait if a broker does not report its log state."""
ENTERING_TIMEOUT_S: Final = 120.0
"""Time for a broker to enter its log into queues; after it the task fails, as it could write rows twice."""
POLL_S: Final = 0.05
MAX_LAUNCHES: Final = 1_000
"""Number of launches, times brokers, that a process remembers; it would query again for older ones."""


class Logs(Protocol):
    """Log states of brokers; see `metadata.ClientMetadata`."""

    def log_states(self, brokers: Collection[str]) -> dict[str, LogState]:
        """Brokers that do not report a state are omitted."""


class QueueWait:
    """Waits until queues include the logs of a cluster's brokers; see `queue_wait_of`."""

    def __init__(self, clock: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._queried: dict[tuple[str, str], None] = {}

    def wait(self, logs: Logs, brokers: Collection[str], launch: str | None) -> None:
        """Return when queues include the current logs of these brokers, or the logs as of an earlier query in this launch.

        SystemBusy if that takes too long. Brokers that do not report their state are skipped.
        """
        queried = [broker for broker in sorted(brokers) if launch is None or (launch, broker) not in self._queried]
        if not queried:
            return
        deadline = self._clock.monotonic() + ENTERING_TIMEOUT_S
        self._wait_for(logs, logs.log_states(queried), deadline)
        if launch is not None:
            self._queried.update(((launch, broker), None) for broker in queried)
            for oldest in list(self._queried)[:-MAX_LAUNCHES]:
                del self._queried[oldest]

    def _wait_for(self, logs: Logs, states: Mapping[str, LogState], deadline: float) -> None:
        """Wait up to the given log ends. Later messages do not count, or a busy broker would make this endless."""
        ends = {broker: state.end for broker, state in states.items()}
        while behind := {
            broker: lacking for broker, state in states.items() if (lacking := _lacking(ends[broker], state))
        }:
            if self._clock.monotonic() >= deadline:
                broker, lacking = max(behind.items(), key=lambda each: each[1])
                raise SystemBusy(
                    f"broker {broker} has {lacking} bytes of its log not dispatched to queues after "
                    f"{ENTERING_TIMEOUT_S:.0f} s (dispatchBehindBytes); they may contain rows of an earlier "
                    "attempt: check why the broker is slow, or set deliveryGuarantee = at-least-once"
                )
            self._sleep(POLL_S)
            states = logs.log_states(behind)


_BY_CLIENT: Final[WeakKeyDictionary[object, QueueWait]] = WeakKeyDictionary()


def queue_wait_of(client: object) -> QueueWait:
    """One for each client, as another client may find other brokers of the same names."""
    known = _BY_CLIENT.get(client)
    if known is None:
        known = _BY_CLIENT[client] = QueueWait(SystemClock())
    return known


def _lacking(end: int, state: LogState) -> int:
    """Bytes up to `end` that are not in queues. A log that now ends before `end` belongs to another master."""
    return max(0, min(end, state.end) - state.entered)


SEARCH_TIMEOUT_MS: Final = 120_000
IDLE_TIMEOUT_MS: Final = 300_000
"""How long a connection is kept for the next task of the worker."""
FETCH_RETRIES: Final = 3
FETCH_INTERVAL_MS: Final = 1_000
QUEUES_TTL_MS: Final = 10_000
_PULL_MESSAGES: Final = 4096
_PULL_BYTES: Final = 4 * 1024 * 1024
_BUFFER_BYTES: Final = 2 * 1024 * 1024


def search(
    connection: Connection, group: str, ranges: Sequence[QueueRange], columns: tuple[Name, ...]
) -> Iterator[Any]:
    """These columns of all messages in the ranges, as record batches, without messages that retention deletes meanwhile."""
    return read_partition(
        ReadPartition(
            slices=tuple(ranges),
            columns=columns,
            connection=connection,
            group=group,
            filter_tags=None,
            filter_sql=None,
            pull_messages=_PULL_MESSAGES,
            pull_bytes=_PULL_BYTES,
            buffer_bytes=_BUFFER_BYTES,
            check_crc=False,
            poll_timeout_ms=SEARCH_TIMEOUT_MS,
            idle_timeout_ms=IDLE_TIMEOUT_MS,
            on_data_loss="skip",
        )
    )


class SinkMetadata(ClientMetadata):
    """Queries to brokers by a task that writes."""

    def wait_until_entered(self, brokers: Collection[str], launch: str | None) -> None:
        """Return when queues include the brokers' logs; see `QueueWait`."""
        queue_wait_of(self._client.core()).wait(self, brokers, launch)


def borrow_metadata(connection: Connection, lease: ExitStack) -> SinkMetadata:
    """Bounds of queues and committed offsets, by a client that is released with the lease."""
    client = lease.enter_context(READING.borrow(connection, IDLE_TIMEOUT_MS))
    return SinkMetadata(client, retries=FETCH_RETRIES, retry_interval_ms=FETCH_INTERVAL_MS, ttl_ms=QUEUES_TTL_MS)


def ranges_to_search(
    committed: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds], batch_id: int
) -> list[QueueRange]:
    """The ranges that may contain rows of this batch: from the end of the query's last committed batch to the current end.

    In batch 0 a queue without a committed offset is new, and nothing was written before. In later batches its offset was lost, or
    the queue was added, and it is searched from its beginning. So is a queue that ends before its offset: it was re-created or
    lost its tail.
    """
    ranges = []
    for queue in sorted(bounds):
        low, high = bounds[queue]
        offset = committed.get(queue, high if batch_id == 0 else low)
        start = low if offset > high else max(low, offset)
        if start < high:
            ranges.append(QueueRange(queue, start, high))
    return ranges


class SinkOffsets:
    """The offsets of one query."""

    def __init__(
        self, options: WriteOptions, query_id: str, metadata: SinkMetadata, *, launch: str | None = None
    ) -> None:
        """`launch` identifies the start of the query, None for a later attempt; see `QueueWait`."""
        self._options = options
        self._metadata = metadata
        self._launch = launch
        self._name = f"{options.group}-{sha256(query_id.encode()).hexdigest()[:12]}"

    def group(self, batch_id: int) -> str:
        """The group whose offsets this batch searches from."""
        return f"{self._name}-{'odd' if batch_id % 2 else 'even'}"

    def ranges(self, topic: str, batch_id: int) -> list[QueueRange]:
        """The ranges that may contain rows of this batch. A later replay searches them, too."""
        queues = self._queues(topic)
        self._metadata.wait_until_entered({queue.broker_name for queue in queues}, self._launch)
        # Bounds first: offsets that are committed below then precede all messages of other tasks of this batch.
        bounds = self._metadata.bounds(queues)
        committed = self._metadata.committed(self.group(batch_id), queues)
        if batch_id == 0 and (missing := [queue for queue in queues if queue not in committed]):
            # A queue that was added since the batch began may hold rows of it already.
            begins = {queue: bounds[queue].min if committed else bounds[queue].max for queue in missing}
            self._metadata.commit(self.group(0), begins)
        # Without any commit nothing was written; with some commits, another task is about to write.
        return ranges_to_search(committed, bounds, 0 if batch_id == 0 and not committed else max(1, batch_id))

    def finish(self, topics: set[str], batch_id: int) -> None:
        """This batch is written: the next one searches from here."""
        for topic in sorted(topics):
            bounds = self._metadata.bounds(self._queues(topic))
            self._metadata.commit(self.group(batch_id + 1), {queue: one.max for queue, one in bounds.items()})

    def row_ids(self, ranges: list[QueueRange], prefix: str) -> Iterator[str]:
        """The ids of rows in these ranges that start with `prefix`."""
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
                f"topic {topic!r} must exist to write effectively once, as earlier rows are searched in it: "
                f"create it, or set deliveryGuarantee = at-least-once ({error})"
            ) from None
