"""Questions that pipelines ask a cluster before Spark does: by the same options as the connector's."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pocketmq.client import Admin
from pocketmq.files import DiskFiles
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.batch_reader import batch_ranges
from pocketmq.spark.client_settings import reading_settings
from pocketmq.spark.metadata import ClientMetadata
from pocketmq.spark.read_options import ReadOptions, parse_read_options
from pocketmq.spark.worker_connections import READING


@contextmanager
def asking(options: Mapping[str, str]) -> Iterator[tuple[ReadOptions, ClientMetadata]]:
    """Facts about the queues of a batch read with these options."""
    parsed = parse_read_options(options, streaming=False, environ=os.environ)
    with READING.borrow(parsed.connection, parsed.idle_timeout_ms) as client:
        yield (
            parsed,
            ClientMetadata(
                client,
                retries=parsed.fetch_retries,
                retry_interval_ms=parsed.fetch_interval_ms,
                ttl_ms=parsed.metadata_ttl_ms,
            ),
        )


def known_queues(connection: Mapping[str, str], topics: Sequence[str]) -> list[MessageQueue]:
    """All queues of topics; TopicNotFound for one that is not there."""
    with asking({**connection, "subscribe": ",".join(topics)}) as (_, metadata):
        return sorted(queue for topic in topics for queue in metadata.queues(topic))


def ranges_of(options: Mapping[str, str]) -> list[QueueRange]:
    """What a batch read with these options reads if it is planned now."""
    with asking(options) as (parsed, metadata):
        return batch_ranges(parsed, metadata)


def admin_of(connection: Mapping[str, str]) -> Admin:
    """An administrator's client of the cluster that these options of the connector name."""
    parsed = parse_read_options({**connection, "subscribe": "any"}, streaming=False, environ=os.environ)
    settings = reading_settings(parsed.connection, os.environ, DiskFiles())
    given: dict[str, Any] = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return Admin(given.pop("name_servers"), **given)
