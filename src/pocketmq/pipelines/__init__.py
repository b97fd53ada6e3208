"""Pipelines: from topics to a lake and back, ready to run, and the pieces to build your own with Spark.

from pocketmq.pipelines import read_json, deduplicate, dead_letters
"""

from pocketmq.pipelines import libraries
from pocketmq.pipelines.archive.reading import ReadLake, file_rows, lost_ranges, lost_rows
from pocketmq.pipelines.catalogue import JOBS
from pocketmq.pipelines.contracts import Checked, Contract, Rule
from pocketmq.pipelines.dead_letter_rows import dead_letters, write_dead_letters
from pocketmq.pipelines.deduplication import deduplicate
from pocketmq.pipelines.failures import told_failures
from pocketmq.pipelines.job import Job
from pocketmq.pipelines.job_file import read_job, settings_of
from pocketmq.pipelines.json_rows import JsonRows, parse_json, read_json
from pocketmq.pipelines.late_rows import LateRows, Split
from pocketmq.pipelines.masters import check_master
from pocketmq.pipelines.metrics import ProgressMetrics, metrics_served
from pocketmq.pipelines.progress import Progress, ProgressTable, progress_table
from pocketmq.pipelines.project.making import make_project
from pocketmq.pipelines.project.running import check_project, run_project, table_rows, what_to_install
from pocketmq.pipelines.project.sample import read_sample, send_sample
from pocketmq.pipelines.running import Run, Summary, run_until_caught_up, stopped_by_signals
from pocketmq.pipelines.sessions import session, spark_session

__all__ = [
    "JOBS",
    "Checked",
    "Contract",
    "Job",
    "JsonRows",
    "LateRows",
    "Progress",
    "ProgressMetrics",
    "ProgressTable",
    "ReadLake",
    "Rule",
    "Run",
    "Split",
    "Summary",
    "check_master",
    "check_project",
    "dead_letters",
    "deduplicate",
    "file_rows",
    "libraries",
    "lost_ranges",
    "lost_rows",
    "make_project",
    "metrics_served",
    "parse_json",
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
    "told_failures",
    "what_to_install",
    "write_dead_letters",
]
