"""A driver that archives into a table, and ends itself and its Java by SIGKILL when the first batch is in the table.

LAKE_FORMAT=delta python -m conformance.lake.killed_archive NAMESRV TOPIC LAKE
"""

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame
from tests.pipelines.archive.killed_run import replace_method

from conformance.lake.table_checks import PATIENT, settings
from pocketmq.pipelines.archive.job import run_archive
from pocketmq.pipelines.archive.lake import Batch
from pocketmq.pipelines.archive.sinks import TableSink
from pocketmq.pipelines.core.running import Run
from pocketmq.pipelines.core.sessions import session


def main(name_server: str, topic: str, lake: str) -> None:
    told, add = settings(name_server, topic, Path(lake)), TableSink.add

    def killed(self: TableSink, messages: DataFrame, batch: Batch) -> None:
        add(self, messages, batch)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    replace_method(TableSink, "add", killed)
    with session("killed", "local[2]", settings={**told.session, **PATIENT}, is_quiet=True) as spark:
        run_archive(spark, told, Run())


if __name__ == "__main__":
    main(*sys.argv[1:])
