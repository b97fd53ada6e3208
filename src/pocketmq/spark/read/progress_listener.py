"""Publishes the offsets of a query as soon as a batch ends, for triggers with a long interval.

    trigger ── batch ── end ─► onQueryProgress ─► published        ·  ·  ·  minutes  ·  ·  ·   trigger ─► published anyway

The process of a streaming read learns that a batch has ended when Spark requests the next one. With a trigger of minutes that is
late, and after the last batch it never happens. Listeners are notified at once. They run in your program, so you add one:

    spark.streams.addListener(ProgressListener({"rocketmq.namesrv.addr": …, "groupId": "invoicing"}))
"""

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pocketmq.errors import InvalidSetting, PocketMQError
from pocketmq.spark.options.connection_options import connection_of
from pocketmq.spark.options.options import Use
from pocketmq.spark.options.read_options import READ_OPTIONS
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.read.offsets import QueueOffsets
from pocketmq.spark.read.source_progress import sources_of
from pocketmq.spark.read.stream_driver import OffsetPublisher
from pocketmq.spark.shared_clients import READING

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger("pocketmq.spark")


class ProgressListener(StreamingQueryListener):
    """For all queries with this `groupId`; other options describe the connection, as in `readStream`."""

    def __init__(self, options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> None:
        values = READ_OPTIONS.read(options, Use.STREAM)
        if values["group"] is None:
            raise InvalidSetting(
                "a listener needs the option groupId, the group of the queries whose offsets it publishes"
            )
        self._group: str = values["group"]
        self._values = values
        self._connection = connection_of(values, environ)
        self._publisher = OffsetPublisher(self._group)

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        for source in sources_of(event.progress):
            if source.group != self._group:
                continue
            if source.outage is not None:  # all earlier offsets were published
                log.warning("The query of group %s waits for brokers: %s", self._group, source.outage)
            else:
                self._publish(source.end.queues, source.latest)

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        pass

    def _publish(self, done: QueueOffsets, present: QueueOffsets) -> None:
        values = self._values
        self._publisher.record(done)
        try:
            with READING.borrow(self._connection, values["idle_timeout_ms"]) as client:
                metadata = ClientMetadata(
                    client,
                    retries=values["fetch_retries"],
                    retry_interval_ms=values["fetch_interval_ms"],
                    ttl_ms=values["metadata_ttl_ms"],
                )
                self._publisher.publish(metadata, present)
        except PocketMQError as error:
            log.warning(
                "Publishing the offsets of the query to group %s failed: %s; retrying after the next batch",
                self._group,
                error,
            )
