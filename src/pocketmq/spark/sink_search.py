"""How a task that writes looks at what lies at the brokers already: an attempt before it may have failed after it had sent rows.

queues' ends ◄── metadata ── task ── search ──► some columns of every message in some ranges
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

from pocketmq.model.queue import QueueRange
from pocketmq.spark.connection_options import Connection
from pocketmq.spark.metadata import ClientMetadata
from pocketmq.spark.planning import ReadPartition
from pocketmq.spark.range_reading import read_partition
from pocketmq.spark.schema import Name
from pocketmq.spark.sink_settling import settling_of
from pocketmq.spark.worker_connections import READING

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
        """Return when what is in their logs can be read; see `sink_settling`."""
        settling_of(self._client.core()).wait(self, brokers, launch)


def borrow_metadata(connection: Connection, lease: ExitStack) -> SinkMetadata:
    """Where queues begin and end, and what groups have noted, by a client that is given back with the lease."""
    client = lease.enter_context(READING.borrow(connection, IDLE_TIMEOUT_MS))
    return SinkMetadata(client, retries=FETCH_RETRIES, retry_interval_ms=FETCH_INTERVAL_MS, ttl_ms=QUEUES_TTL_MS)
