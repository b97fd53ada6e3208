"""A task of a write: converts rows to messages, sends those that the topic lacks, and waits for all results.

    batches of rows ──┬─ plain ───► by columns ──┬── effectively-once: searched in the topic ──► sent
                      └─ others ──► messages ────┘   at-least-once ────────────────────────────► sent

It imports numpy and pyarrow, unlike `writer`, which Spark also imports to plan and commit a write. The producers of a process are
kept between tasks; see `shared_clients`.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from time import sleep
from typing import Any, Final

from msgspec.structs import replace

from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.files import DiskFiles
from pocketmq.spark.options.write_options import WriteOptions
from pocketmq.spark.python_processes import keep_memory
from pocketmq.spark.shared_clients import SharedClient, SharedClients, producer_options
from pocketmq.spark.write.sink_offsets import IDLE_TIMEOUT_MS, IN_FLIGHT_S, SinkOffsets, borrow_metadata
from pocketmq.spark.write.sink_replays import Replays
from pocketmq.spark.write.sink_rows import SinkRows
from pocketmq.spark.write.sink_sending import Sends


def _producer(options: WriteOptions) -> AsyncProducer:
    return AsyncProducer(options.connection.name_servers, **producer_options(options, os.environ, DiskFiles()))


SENDING: Final = SharedClients(_producer)
"""By `WriteOptions`; see `borrow_producer`."""


def borrow_producer(options: WriteOptions, idle_timeout_ms: int) -> AbstractContextManager[SharedClient[AsyncProducer]]:
    """The producer for these options, whatever the topic and name of the write: with a write per batch of a query, each one
    uses the connections of the one before.
    """
    shared = replace(options, topic=None, guarantee="at-least-once", write_id=None, write_batch=None)
    return SENDING.borrow(shared, idle_timeout_ms)


def write_rows(
    batches: Iterator[Any],
    options: WriteOptions,
    query_id: str,
    batch_id: int,
    partition: int,
    attempt: int = 0,
    launch: str | None = None,
) -> tuple[str, ...]:
    """Send all rows of a partition that their topics lack, and return the topics. `attempt` counts from 0; `launch` identifies
    the start of the query or write.
    """
    keep_memory()
    if attempt and options.is_effectively_once:
        sleep(IN_FLIGHT_S)
    with ExitStack() as lease:
        client = lease.enter_context(borrow_producer(options, IDLE_TIMEOUT_MS))
        metadata = borrow_metadata(options.connection, lease)
        # Writable queues, queried once per task, so that rows of one sharding key go to the same queue.
        sends = Sends(
            client.core(), options, client.submit, cache(lambda topic: client.call(client.core().queues(topic)))
        )
        offsets = SinkOffsets(options, query_id, metadata, launch=None if attempt else launch)
        replays = Replays(offsets, query_id, batch_id, partition)
        topics: set[str] = set()
        rows: SinkRows | None = None
        with ExitStack() as undo:
            undo.callback(sends.abandon)
            for batch in batches:
                if rows is None:
                    drops = options.reserved_properties == "drop"
                    rows = SinkRows(batch.schema, topic=options.topic, drop_reserved=drops)
                plain = rows.plain(batch, sends.alone_from_bytes)
                if plain is not None:
                    topics.add(plain.topic)
                    sends.add_rows(replays.missing_rows(plain) if options.is_effectively_once else plain)
                    continue
                messages = rows.messages(batch)
                topics.update(message.topic for message in messages)
                sends.add(replays.missing(messages) if options.is_effectively_once else messages)
            sends.finish()
            replays.check_complete()
            undo.pop_all()
    return tuple(sorted(topics))


def commit_end(options: WriteOptions, query_id: str, topics: set[str], batch_id: int) -> None:
    """After all tasks have written to these topics: the next batch searches from their current end."""
    with ExitStack() as lease:
        SinkOffsets(options, query_id, borrow_metadata(options.connection, lease)).finish(topics, batch_id)
