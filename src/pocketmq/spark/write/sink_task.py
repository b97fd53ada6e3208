"""What a task of a write does: rows to messages, those that are not there yet sent, and every one answered.

    batches of rows ──┬─ alike ──► by columns ───┬── effectively-once: looked for in the topic ──► sent
                      └─ else ───► messages ─────┘   at-least-once ──────────────────────────────► sent

Apart from `writer`, which Spark also needs where a write is planned and committed: all that works on columns is imported here.

The producers of a process of Spark, kept from task to task as `worker_connections` keeps clients that read. Who reads needs none.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from time import sleep
from typing import Any, Final

from msgspec.structs import replace

from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.errors import InvalidMessage
from pocketmq.files import DiskFiles
from pocketmq.model.message import Message
from pocketmq.model.properties import DELAY, TIMER_DELIVER_MS
from pocketmq.spark.options.write_options import WriteOptions
from pocketmq.spark.python_processes import keep_memory
from pocketmq.spark.worker_connections import Connections, Held, producer_options
from pocketmq.spark.write.sink_batches import PlainRows, Replay, RowIds, row_head
from pocketmq.spark.write.sink_replays import IDLE_TIMEOUT_MS, IN_FLIGHT_S, SinkProgress, borrow_metadata
from pocketmq.spark.write.sink_rows import SinkRows
from pocketmq.spark.write.sink_sending import Sends


def _producer(options: WriteOptions) -> AsyncProducer:
    return AsyncProducer(options.connection.name_servers, **producer_options(options, os.environ, DiskFiles()))


SENDING: Final = Connections(_producer)
"""By `WriteOptions`; see `borrow_producer`."""


def borrow_producer(options: WriteOptions, idle_timeout_ms: int) -> AbstractContextManager[Held[AsyncProducer]]:
    """The producer for these options. Where a write goes and how it is named makes no other one: where each batch of a query is a write by
    itself, the next finds the connections of the one before, and does not leave its own behind.
    """
    of_all = replace(options, topic=None, guarantee="at-least-once", write_id=None, write_batch=None)
    return SENDING.borrow(of_all, idle_timeout_ms)


def write_rows(
    batches: Iterator[Any],
    options: WriteOptions,
    query_id: str,
    batch_id: int,
    partition: int,
    attempt: int = 0,
    launch: str | None = None,
) -> tuple[str, ...]:
    """Send all rows of a partition that are not in their topic yet; to which topics they belong. `attempt` counts from 0, and
    `launch` is another one whenever Spark has begun anew.
    """
    keep_memory()
    if attempt and options.is_effectively_once:
        sleep(IN_FLIGHT_S)
    with ExitStack() as lease:
        client = lease.enter_context(borrow_producer(options, IDLE_TIMEOUT_MS))
        metadata = borrow_metadata(options.connection, lease)
        # Once for a task, so that rows of one sharding key stay together: those that producers write to, not all that can be read.
        sends = Sends(
            client.core(), options, client.submit, cache(lambda topic: client.call(client.core().queues(topic)))
        )
        progress = SinkProgress(options, query_id, metadata, launch=None if attempt else launch)
        replays = Replays(progress, query_id, batch_id, partition)
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


def note_end(options: WriteOptions, query_id: str, topics: set[str], batch_id: int) -> None:
    """All tasks have written to these topics: the next batch need not look before this place."""
    with ExitStack() as lease:
        SinkProgress(options, query_id, borrow_metadata(options.connection, lease)).finish(topics, batch_id)


class Replays:
    """What of a partition is in its topics already: each is looked through before the first row is sent to it."""

    def __init__(self, progress: SinkProgress, query_id: str, batch_id: int, partition: int) -> None:
        self._progress = progress
        self._query = query_id, batch_id, partition
        self._of_topic: dict[str, Replay] = {}

    def missing(self, messages: Sequence[Message]) -> list[Message]:
        """Those that have to be sent, each with its id."""
        found = []
        topic, replay = "", None
        for message in messages:
            if DELAY in message.properties or TIMER_DELIVER_MS in message.properties:
                raise InvalidMessage(
                    "a row with delayLevel or deliverAt is not in its topic until it is due, so a replay would write it "
                    "again: set deliveryGuarantee = at-least-once for such rows"
                )
            if replay is None or message.topic != topic:
                topic, replay = message.topic, self._replay(message.topic)
            if replay.admit(message):
                found.append(message)
        return found

    def missing_rows(self, rows: PlainRows) -> PlainRows:
        """The same for rows that share batches."""
        head = row_head(rows.topic, {})
        heads = head if rows.own is None else [row_head(rows.topic, each) if each else head for each in rows.own]
        ids = self._replay(rows.topic).new_ids(heads, rows.bodies)
        new = [row_id for row_id in ids if row_id is not None]
        if len(new) == len(rows):
            return PlainRows(rows.topic, rows.bodies, rows.own, new)
        kept = [place for place, row_id in enumerate(ids) if row_id is not None]
        said = None if rows.own is None else [rows.own[place] for place in kept]
        return PlainRows(rows.topic, [rows.bodies[place] for place in kept], said, new)

    def check_complete(self) -> None:
        """WrongState when rows are there that the partition does not have now."""
        for replay in self._of_topic.values():
            replay.check_complete()

    def _replay(self, topic: str) -> Replay:
        replay = self._of_topic.get(topic)
        if replay is None:
            ids = RowIds(*self._query)
            ranges = self._progress.ranges(topic, self._query[1])
            replay = self._of_topic[topic] = Replay(ids, self._progress.row_ids(ranges, ids.prefix))
        return replay
