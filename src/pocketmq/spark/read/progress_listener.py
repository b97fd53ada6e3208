"""Publishes the progress of queries as soon as a batch is done, for triggers that wait long before they ask for the next one.

    trigger ── batch ── done ─► onQueryProgress ─► published        ·  ·  ·  minutes  ·  ·  ·   trigger ─► published anyway

The process of a streaming read learns that a batch is done when Spark asks for the next. With a trigger of minutes that is late, and
after the last batch of a run it is never. Spark tells its listeners at once; they live in the program of the user, who adds one:

    spark.streams.addListener(ProgressListener({"rocketmq.namesrv.addr": …, "groupId": "invoicing"}))
"""

import json
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pocketmq.errors import InvalidSetting, PocketMQError
from pocketmq.spark.options.connection_options import connection_of
from pocketmq.spark.options.options import Use
from pocketmq.spark.options.read_options import READ_OPTIONS
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.read.offsets import Places, parse_offset, places_of
from pocketmq.spark.read.stream_driver import ProgressGroup
from pocketmq.spark.worker_connections import READING

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger("pocketmq.spark")


class ProgressListener(StreamingQueryListener):
    """For all queries with this `groupId`; the other options are those of the connection, as in `readStream`."""

    def __init__(self, options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> None:
        values = READ_OPTIONS.read(options, Use.STREAM)
        if values["group"] is None:
            raise InvalidSetting("a listener needs the option groupId: the progress of which queries?")
        self._group: str = values["group"]
        self._values = values
        self._connection = connection_of(values, environ)
        self._progress = ProgressGroup(self._group)

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        for source in event.progress.sources:
            seen = _read(source.latestOffset)
            if seen.get("groupId") != self._group:
                continue
            if "outage" in seen:  # nothing is done that was not published before it
                log.warning("the query of the group %s waits for brokers: %s", self._group, seen["outage"].get("error"))
            elif (done := parse_offset(_read(source.endOffset))) is not None:
                self._publish(done.queues, places_of(seen))

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        pass

    def _publish(self, done: Places, present: Places) -> None:
        values = self._values
        self._progress.note(done)
        try:
            with READING.borrow(self._connection, values["idle_timeout_ms"]) as client:
                metadata = ClientMetadata(
                    client,
                    retries=values["fetch_retries"],
                    retry_interval_ms=values["fetch_interval_ms"],
                    ttl_ms=values["metadata_ttl_ms"],
                )
                self._progress.publish(metadata, present)
        except PocketMQError as error:
            log.warning("the progress of the query could not be published to the group %s: %s", self._group, error)


def _read(offset: Any) -> dict[str, Any]:
    """An offset as progress shows it: JSON, or nothing. Other sources of a query may have any."""
    try:
        told = json.loads(offset)
    except (TypeError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
