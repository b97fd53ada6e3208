"""All ready pipelines, by name. A new one is a line here."""

from typing import Any, Final

from pocketmq.pipelines.archive.job import ARCHIVE
from pocketmq.pipelines.backfill import BACKFILL
from pocketmq.pipelines.job import Job
from pocketmq.pipelines.lag_report import LAG_REPORT
from pocketmq.pipelines.mirror.job import MIRROR
from pocketmq.pipelines.quality import QUALITY
from pocketmq.pipelines.replay import REPLAY
from pocketmq.pipelines.trace.job import TRACE

JOBS: Final[dict[str, Job[Any]]] = {
    job.name: job for job in (ARCHIVE, BACKFILL, REPLAY, MIRROR, QUALITY, LAG_REPORT, TRACE)
}
