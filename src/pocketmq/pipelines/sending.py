"""What backfill and replay share when they send to topics: settings, the check of the target, and one piece of the way."""

import os
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from pocketmq.errors import InvalidSetting, TopicNotFound
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.pipelines.cluster import admin_of
from pocketmq.pipelines.connector_options import of_reads, of_writes
from pocketmq.pipelines.libraries import DataFrame, Observation, SparkSession, functions
from pocketmq.pipelines.setting_kinds import Moment
from pocketmq.pipelines.settings import DEFAULT_MAX_MESSAGES, JobSettings
from pocketmq.spark.read_options import parse_read_options
from pocketmq.spark.write_options import parse_write_options

MESSAGES_PER_S = 50_000
"""About what one broker of PocketMQ takes from a Spark on the same two cores."""


class SendingSettings(JobSettings, frozen=True, kw_only=True, rename="kebab"):
    """What a pipeline is told that sends a known stretch of messages."""

    checkpoint: Annotated[
        str, Meta(min_length=1, description="The folder that says how far it is; another one does all of it again.")
    ]
    to: Annotated[str | None, Meta(description="The topic to send to.")] = None
    where: Annotated[
        str | None, Meta(description="Only messages for which this SQL is true, such as \"tags = 'paid'\".")
    ] = None
    select: Annotated[
        list[str],
        Meta(
            description="A column to send, in SQL, such as 'upper(string(value)) AS value'; may be repeated. As they were, if not told.",
            extra={"split": False},
        ),
    ] = msgspec.field(default_factory=list)
    since: Annotated[Moment | None, Meta(description="Only messages stored at this time or later.")] = None
    until: Annotated[Moment | None, Meta(description="Only messages stored before this time.")] = None
    rate: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="At most so many messages a second.")] = None
    max_messages: Annotated[int, Meta(ge=1, description="At most so many messages in a piece of the way.")] = (
        DEFAULT_MAX_MESSAGES
    )

    def check_times(self) -> None:
        if self.since is not None and self.until is not None and self.until <= self.since:
            raise InvalidSetting(
                f"--until {self.until.text} is not behind --since {self.since.text}: nothing lies between them"
            )

    @property
    def plan_notes(self) -> tuple[str, ...]:
        """What a dry run cannot check."""
        is_sql = self.where is not None or self.select
        return ("only Spark can read --where and --select: a mistake in them is found when it runs",) if is_sql else ()

    @property
    def times(self) -> dict[str, str]:
        """Options of a read for the time."""
        given = {"startingTimestamp": self.since, "endingTimestamp": self.until}
        told = {name: str(int(moment)) for name, moment in given.items() if moment is not None}
        return {**told, **({"startingOffsetsByTimestampStrategy": "latest"} if self.since is not None else {})}

    def writing(self, name: str, number: int) -> dict[str, str]:
        """Options of the write of a piece: what of it is in the topic already is found out by them."""
        numbered = {"writeId": name, "writeBatch": str(number), "reservedProperties": "drop"}
        return of_writes(self.options, {**numbered, **({"topic": self.to} if self.to else {}), **self.address})

    def reading_ranges(self, ranges: Sequence[QueueRange], partitions: int, on_data_loss: str) -> dict[str, str]:
        """Options of the read of a piece, in the same partitions whenever it is read."""
        return of_reads(self.options, {"onDataLoss": on_data_loss, **range_options(ranges, partitions), **self.address})


def range_options(ranges: Sequence[QueueRange], partitions: int) -> dict[str, str]:
    """Options of a read of just these ranges, in so many partitions."""
    return {
        "assign": _json(_nested([one.queue for one in ranges])),
        "startingOffsets": _json(_places({one.queue: one.start for one in ranges})),
        "endingOffsets": _json(_places({one.queue: one.end for one in ranges})),
        "maxPartitions": str(partitions),
    }


def read_ranges(spark: SparkSession, options: Mapping[str, str], schema: str) -> DataFrame:
    return spark.read.format("rocketmq").schema(schema).options(**options).load()


def send(rows: DataFrame, options: Mapping[str, str]) -> int:
    """Send rows, all or those that an earlier attempt did not; how many there were."""
    counted = rows.observe(observation := Observation("sent"), functions.count("*").alias("rows"))
    counted.write.format("rocketmq").options(**options).mode("append").save()
    return int(observation.get["rows"])


def check_reading(options: Mapping[str, str], settings: SendingSettings) -> None:
    """InvalidSetting for options that cannot be, of the read of all of it and of its pieces."""
    parse_read_options(options, streaming=False, environ=os.environ)
    settings.reading_ranges((), 1, "fail")


def check_target(settings: SendingSettings) -> None:
    """TopicNotFound, with what to do, where the target is not there: rows can be found out only in a topic that is."""
    parse_write_options(settings.writing("any", 0), streaming=False, environ=os.environ)
    if settings.to is None:
        return
    with admin_of(settings.connection) as admin:
        if not admin.topics.exists(settings.to):
            raise TopicNotFound(
                f"the topic {settings.to!r} is not there: `pocketmq topic create {settings.to}` makes it"
            )


def cores() -> int:
    return os.cpu_count() or 1


def _nested(queues: Sequence[MessageQueue]) -> dict[str, dict[str, list[int]]]:
    told: dict[str, dict[str, list[int]]] = {}
    for queue in sorted(set(queues)):
        told.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
    return told


def _places(places: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    told: dict[str, dict[str, dict[str, int]]] = {}
    for queue, place in sorted(places.items()):
        told.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = place
    return told


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
