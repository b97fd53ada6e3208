"""The producers of a process of Spark, kept from task to task as `worker_connections` keeps clients that read. Who reads needs none."""

import os
from contextlib import AbstractContextManager
from typing import Final

from msgspec.structs import replace

from pocketmq.client.producer import AsyncProducer
from pocketmq.files import DiskFiles
from pocketmq.spark.client_settings import producer_options
from pocketmq.spark.worker_connections import Connections, Held
from pocketmq.spark.write_options import WriteOptions


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
