"""How far a query's sink is, kept at the brokers: where a batch that is run again has to look for its rows.

    batch      0        1        2        3
    looks from even     odd      even     odd         two consumer groups of the query, in turns
    at its end odd = ▲  even = ▲ odd = ▲  even = ▲    where the topic ends then

A batch may be run again also after its end was noted, when the driver was killed before Spark noted it, too. So the place that a
batch looks from must outlive its end, and only the batch after it may move it. The first batch notes its beginning before it writes.

How a task that writes looks at what lies at the brokers already: an attempt before it may have failed after it had sent rows.

queues' ends ◄── metadata ── task ── search ──► some columns of every message in some ranges

When a task may look for what an earlier attempt wrote: not before brokers let it be read.

    sent ─── on its way ───► in the broker's log ─── entered ───► in its queue: found
             IN_FLIGHT_S      asked for: where the log ends       until that is entered

A broker acknowledges a message that is in its log. The queue comes later: some milliseconds with Apache, more the more it has to do, and
PocketMQ's transient pool waits for the disk. So a task asks each broker of its topic where its log ends, and waits until the
queues are there. It does so

    in a later attempt       always: Spark starts it at once when the one before has failed
    in a first attempt       once in each process for each launch of the query or write: it may be the rest of one that was killed,
                             and what that wrote was in the log before the launch. The question costs Apache 5 some 20 ms of CPU

What is found then: every message that was in the log when it was asked. What no question can tell of: a request that the broker has
yet to take, from a process that was killed a moment ago. Later attempts therefore wait a fixed time first. Apache refuses what
has waited for 200 ms in its own line of requests (`waitTimeMillsInSendQueue`), shows what its transient pool took within 200 ms, and
with SYNC_FLUSH does not count as behind what it has yet to flush: all that is over by then. A network that was cut and brings a request
later still is not waited for; there, a row may be there twice.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import sha256
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import SystemBusy, TopicNotFound
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.arrow import pc
from pocketmq.spark.broker_facts import LogState
from pocketmq.spark.options.connection_options import Connection
from pocketmq.spark.options.write_options import WriteOptions
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.read.planning import ReadPartition
from pocketmq.spark.read.range_reading import read_partition
from pocketmq.spark.schema import Name
from pocketmq.spark.worker_connections import READING
from pocketmq.spark.write.sink_batches import ROW_ID, ranges_to_search

IN_FLIGHT_S: Final = 0.5
"""What the requests of an attempt that was killed are given to arrive. All there is where a broker does not tell how far it is."""
ENTERING_TIMEOUT_S: Final = 120.0
"""How long a broker may need to enter what it has; then the task fails, as it could write rows twice."""
LOOK_S: Final = 0.05
"""Between two questions."""
MAX_LAUNCHES: Final = 1_000
"""How many launches, times brokers, a process remembers; for those before it would ask again."""


class Logs(Protocol):
    """Who can be asked; see `metadata.ClientMetadata`."""

    def log_states(self, brokers: Collection[str]) -> dict[str, LogState]:
        """How far they are; those that do not tell are left out."""


class Settling:
    """What a process knows of the brokers of one cluster; see `settling_of`."""

    def __init__(self, clock: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._asked: dict[tuple[str, str], None] = {}

    def wait(self, logs: Logs, brokers: Collection[str], launch: str | None) -> None:
        """Return when all can be read that these brokers have in their logs now, or had when they were asked in this launch.

        SystemBusy when that takes too long. Brokers that do not tell are not waited for.
        """
        asked = [broker for broker in sorted(brokers) if launch is None or (launch, broker) not in self._asked]
        if not asked:
            return
        deadline = self._clock.monotonic() + ENTERING_TIMEOUT_S
        self._wait_for(logs, logs.log_states(asked), deadline)
        if launch is not None:
            self._asked.update(((launch, broker), None) for broker in asked)
            for oldest in list(self._asked)[:-MAX_LAUNCHES]:
                del self._asked[oldest]

    def _wait_for(self, logs: Logs, states: Mapping[str, LogState], deadline: float) -> None:
        """What comes meanwhile is not waited for: on a busy broker that would never end."""
        ends = {broker: state.end for broker, state in states.items()}
        while behind := {
            broker: lacking for broker, state in states.items() if (lacking := _lacking(ends[broker], state))
        }:
            if self._clock.monotonic() >= deadline:
                broker, lacking = max(behind.items(), key=lambda each: each[1])
                raise SystemBusy(
                    f"the broker {broker} has {lacking} bytes in its log that are in no queue after {ENTERING_TIMEOUT_S:.0f} s "
                    "(dispatchBehindBytes), and rows of an earlier attempt may be among them: find out what slows it down, "
                    "or set deliveryGuarantee = at-least-once"
                )
            self._sleep(LOOK_S)
            states = logs.log_states(behind)


_BY_CLIENT: Final[WeakKeyDictionary[object, Settling]] = WeakKeyDictionary()


def settling_of(client: object) -> Settling:
    """What this process knows by a client that asks, for as long as the client is kept: another one may find other brokers of the same names."""
    known = _BY_CLIENT.get(client)
    if known is None:
        known = _BY_CLIENT[client] = Settling(SystemClock())
    return known


def _lacking(end: int, state: LogState) -> int:
    """Bytes up to `end` that are not entered. A log that ends before that now is the one of another master."""
    return max(0, min(end, state.end) - state.entered)


SEARCH_TIMEOUT_MS: Final = 120_000
IDLE_TIMEOUT_MS: Final = 300_000
"""How long a connection is kept for the next task of the same worker."""
FETCH_RETRIES: Final = 3
FETCH_INTERVAL_MS: Final = 1_000
QUEUES_TTL_MS: Final = 10_000
_PULL_MESSAGES: Final = 4096
_PULL_BYTES: Final = 4 * 1024 * 1024
_BUFFER_BYTES: Final = 2 * 1024 * 1024


def search(
    connection: Connection, group: str, ranges: Sequence[QueueRange], columns: tuple[Name, ...]
) -> Iterator[Any]:
    """These columns of all messages in the ranges, as record batches. What retention takes meanwhile is left out."""
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
    """What brokers say to a task that writes."""

    def wait_until_entered(self, brokers: Collection[str], launch: str | None) -> None:
        """Return when what is in their logs can be read; see `Settling`."""
        settling_of(self._client.core()).wait(self, brokers, launch)


def borrow_metadata(connection: Connection, lease: ExitStack) -> SinkMetadata:
    """Where queues begin and end, and what groups have noted, by a client that is given back with the lease."""
    client = lease.enter_context(READING.borrow(connection, IDLE_TIMEOUT_MS))
    return SinkMetadata(client, retries=FETCH_RETRIES, retry_interval_ms=FETCH_INTERVAL_MS, ttl_ms=QUEUES_TTL_MS)


class SinkProgress:
    """The places of one query."""

    def __init__(
        self, options: WriteOptions, query_id: str, metadata: SinkMetadata, *, launch: str | None = None
    ) -> None:
        """`launch`: what started the query, if this is not a later attempt; see `Settling`."""
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
