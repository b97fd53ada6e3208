"""Pipelines: ready ones, from topics to a lake and back, and functions to build your own with Spark.

    from pocketmq.pipelines import read_json, deduplicate, dead_letters

Modules in reading order:

    core/      settings, sessions, checkpoints, progress; functions for your own code
    jobs/      ready pipelines, one module each
    archive/   topics to a lake
    mirror/    topics of one cluster to another
    cdc/       changes of a database to a table
    project/   a project for Spark's Declarative Pipelines
"""

from typing import Any, Final

from pocketmq.pipelines.archive.formats import AsOf
from pocketmq.pipelines.archive.job import ARCHIVE
from pocketmq.pipelines.archive.reading import ReadLake, ReadTable, file_rows, lost_ranges, lost_rows, named_lake
from pocketmq.pipelines.archive.sinks import compact_lake
from pocketmq.pipelines.archive.table import compact_table, expire_table
from pocketmq.pipelines.cdc.job import CDC
from pocketmq.pipelines.core import libraries
from pocketmq.pipelines.core.contracts import Checked, Contract, Rule
from pocketmq.pipelines.core.job_file import read_job, settings_of
from pocketmq.pipelines.core.libraries import pipeline_failures
from pocketmq.pipelines.core.progress import Progress, ProgressTable, progress_table
from pocketmq.pipelines.core.rows import (
    JsonRows,
    LateRows,
    Split,
    dead_letters,
    deduplicate,
    parse_json,
    read_json,
    write_dead_letters,
)
from pocketmq.pipelines.core.running import (
    ProgressMetrics,
    Run,
    Summary,
    lineage_reported,
    metrics_served,
    run_until_caught_up,
    stopped_by_signals,
)
from pocketmq.pipelines.core.sessions import check_master, session, spark_session
from pocketmq.pipelines.core.settings import Job
from pocketmq.pipelines.jobs.backfill import BACKFILL
from pocketmq.pipelines.jobs.lag_report import LAG_REPORT
from pocketmq.pipelines.jobs.quality import QUALITY
from pocketmq.pipelines.jobs.replay import REPLAY
from pocketmq.pipelines.jobs.trace import TRACE
from pocketmq.pipelines.mirror.job import MIRROR
from pocketmq.pipelines.project.running import (
    check_project,
    install_command,
    make_project,
    read_sample,
    run_project,
    send_sample,
    table_rows,
)

__all__ = [
    "JOBS",
    "AsOf",
    "Checked",
    "Contract",
    "Job",
    "JsonRows",
    "LateRows",
    "Progress",
    "ProgressMetrics",
    "ProgressTable",
    "ReadLake",
    "ReadTable",
    "Rule",
    "Run",
    "Split",
    "Summary",
    "check_master",
    "check_project",
    "compact_lake",
    "compact_table",
    "dead_letters",
    "deduplicate",
    "expire_table",
    "file_rows",
    "install_command",
    "libraries",
    "lineage_reported",
    "lost_ranges",
    "lost_rows",
    "make_project",
    "metrics_served",
    "named_lake",
    "parse_json",
    "pipeline_failures",
    "progress_table",
    "read_job",
    "read_json",
    "read_sample",
    "run_project",
    "run_until_caught_up",
    "send_sample",
    "session",
    "settings_of",
    "spark_session",
    "stopped_by_signals",
    "table_rows",
    "write_dead_letters",
]

JOBS: Final[dict[str, Job[Any]]] = {
    job.name: job for job in (ARCHIVE, CDC, BACKFILL, REPLAY, MIRROR, QUALITY, LAG_REPORT, TRACE)
}
"""All ready pipelines, by name."""
