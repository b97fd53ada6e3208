"""A driver that merges changes into a table, and ends itself and its Java by SIGKILL behind the commit of a batch.

LAKE_FORMAT=delta python -m conformance.cdc.killed_driver NAMESRV FOLDER
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from tests.pipelines.archive.killed_run import replace_method

from conformance.cdc.row_checks import settings
from conformance.lake.table_checks import PATIENT
from pocketmq.pipelines.archive.lake import Batch
from pocketmq.pipelines.cdc.job import ChangeSink, run_cdc
from pocketmq.pipelines.core.running import Run
from pocketmq.pipelines.core.sessions import session


def main(name_server: str, folder: str) -> None:
    told, add = settings(name_server, Path(folder)), ChangeSink.add

    def killed(self: ChangeSink, messages: DataFrame, batch: Batch) -> Any:
        add(self, messages, batch)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    replace_method(ChangeSink, "add", killed)
    with session("killed", "local[2]", settings={**told.session, **PATIENT}, is_quiet=True) as spark:
        run_cdc(spark, told, Run())


if __name__ == "__main__":
    main(*sys.argv[1:])
