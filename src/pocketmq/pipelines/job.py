"""A ready pipeline, as data: its name, its settings, how it is planned and how it runs. Commands are made from these.

settings ── check(settings) ──────────►            what cannot be is told before Spark takes its time to start
         ├─ plan(settings) ───────────► Plan       a dry run: nothing is started, nothing is changed
         └─ run(spark, settings, run) ► Summary    starts its queries and follows them: `run.follow(query)`
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from pocketmq.pipelines.libraries import SparkSession
from pocketmq.pipelines.plan import Plan
from pocketmq.pipelines.running import Run, Summary
from pocketmq.pipelines.settings import JobSettings

S = TypeVar("S", bound=JobSettings)


class Job(NamedTuple, Generic[S]):
    """A ready pipeline. `summary` is its line in the list of pipelines, `description` what its help says besides."""

    name: str
    summary: str
    settings: type[S]
    plan: Callable[[S], Plan]
    run: Callable[[SparkSession, S, Run], Summary]
    description: str = ""
    check: Callable[[S], None] = lambda settings: None
    """Raises for a topic that is not there, or for settings that exclude one another."""
