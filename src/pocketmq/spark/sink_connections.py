"""The producers of a process of Spark, kept from task to task as `worker_connections` keeps clients that read. Who reads needs none."""

import os
from typing import Final

from pocketmq.client.producer import AsyncProducer
from pocketmq.files import DiskFiles
from pocketmq.spark.client_settings import producer_options
from pocketmq.spark.worker_connections import Connections
from pocketmq.spark.write_options import WriteOptions


def _producer(options: WriteOptions) -> AsyncProducer:
    return AsyncProducer(options.connection.name_servers, **producer_options(options, os.environ, DiskFiles()))


SENDING: Final = Connections(_producer)
"""By `WriteOptions`."""
