"""`pocketmq pipeline mirror`: the stream from one cluster to another.

The other side of a mirror: topics that are not there are made, and groups are put where they were.
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from pocketmq.client import Admin
from pocketmq.errors import GroupNotFound, InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.model.queue import MessageQueue, QueueOffset
from pocketmq.pipelines.core.checkpoint import (
    Notes,
    Owner,
    check_owner,
    is_classic,
    is_local,
    notes_in,
    offset_of,
    owned,
)
from pocketmq.pipelines.core.connector_options import check_used, of_connection, of_writes
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession
from pocketmq.pipelines.core.plan import Plan, admin_of, asking, known_queues, require_topics, stream_queues
from pocketmq.pipelines.core.running import Row, Run, Summary
from pocketmq.pipelines.core.settings import Job, StreamSettings
from pocketmq.pipelines.mirror.copying import OF, READ, Order, send_batch
from pocketmq.pipelines.mirror.offset_map import MirroredRun, OffsetMap, read_map
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.options.write_options import WriteOptions, parse_write_options
from pocketmq.spark.read.offsets import Cause


def check_clusters(source: Mapping[str, str], target: Mapping[str, str], groups: Sequence[str]) -> None:
    """InvalidSetting when both are one cluster, however it was written; GroupNotFound for a group that is not there."""
    with admin_of(source) as here, admin_of(target) as there:
        shared = {place.address for place in here.cluster.brokers()} & {
            place.address for place in there.cluster.brokers()
        }
        if shared:
            raise InvalidSetting(
                f"--target is the cluster that is read, as both have the broker at {min(map(str, shared))}: it would be filled "
                "with itself"
            )
        known = here.groups.names(everything=True) if groups else []
    for group in groups:
        if group not in known:
            raise GroupNotFound(f"there is no group {group!r} to move; `pocketmq group ls` shows which there are")


def make_topics(source: Mapping[str, str], target: Mapping[str, str], topics: Sequence[str]) -> list[str]:
    """Make topics that the target lacks, with as many queues as they have at the source in all; the names of those."""
    with admin_of(source) as here, admin_of(target) as there:
        missing = [topic for topic in topics if not there.topics.exists(topic)]
        for topic in missing:
            _make(topic, here, there)
    return missing


def _make(topic: str, here: Admin, there: Admin) -> None:
    configs = here.topics.describe(topic).configs.values()
    queues = sum(config.read_queue_nums for config in configs)
    brokers = {place.name for place in there.cluster.brokers()}
    attributes: dict[str, Any] = {}
    for config in configs:
        attributes |= getattr(config, "attributes", None) or {}
    there.topics.create(
        topic,
        queues=max(1, -(-queues // max(1, len(brokers)))),
        ordered=any(config.order for config in configs),
        attributes=attributes or None,
    )


def move_groups(
    source: Mapping[str, str],
    target: Mapping[str, str],
    topics: Sequence[str],
    groups: Sequence[str],
    offsets: OffsetMap,
) -> list[Row]:
    """Let groups stand at the target where they stand at the source; what was done, one row for each queue."""
    rows: list[Row] = []
    with admin_of(source) as here, admin_of(target) as there:
        for group in groups:
            busy = _has_members(there, group)
            for topic in topics:
                found = here.offsets.committed(group, topic)
                moved = {queue: offsets.translate(queue, at) for queue, at in found.items() if at is not None}
                places: dict[MessageQueue, int] = {}
                for to in moved.values():
                    if to is not None:  # of two queues that became one, the one that is less far counts
                        places[to.queue] = min(to.offset, places.get(to.queue, to.offset))
                if places and not busy:
                    with asking({**target, "subscribe": topic}) as (_, metadata):
                        metadata.commit(group, places)
                rows += [_row(group, queue, found[queue], to, busy=busy) for queue, to in sorted(moved.items())]
    return rows


def _has_members(there: Admin, group: str) -> bool:
    try:
        return bool(there.groups.members(group))
    except GroupNotFound:
        return False


def _row(group: str, queue: MessageQueue, offset: int | None, to: Any, *, busy: bool) -> Row:
    done = "it has members there, who would go on where they are: left alone" if busy else "moved"
    return {
        "group": group,
        "from": str(queue),
        "at": offset,
        "to": "" if to is None else str(to.queue),
        "goes_on_at": None if to is None else to.offset,
        "done": done if to is not None else "nothing of this queue was mirrored",
    }


NOTE: Final = "offset_map.json"
MESSAGES_PER_S: Final = 40_000
GROUP: Final = "pocketmq-mirror"
MAX_ROWS: Final = 1_000
_NEEDS_DRIVER: Final = (
    "a mirror keeps its map of offsets on the disk of Spark's driver: give --master and a local --checkpoint"
)


class MirrorSettings(StreamSettings, frozen=True, kw_only=True, rename="kebab"):
    """What a mirror is told."""

    target: Annotated[
        str, Meta(min_length=1, description="The name servers of the other cluster.", extra={"flag": "target"})
    ]
    target_options: Annotated[
        dict[str, str],
        Meta(description="An option of the connector for the other cluster.", extra={"flag": "target-option"}),
    ] = msgspec.field(default_factory=dict)
    groups: Annotated[
        list[str],
        Meta(
            description="At the end, let this consumer group stand at the target where it stands here; may be repeated.",
            extra={"flag": "move-group"},
        ),
    ] = msgspec.field(default_factory=list)
    copies: Annotated[
        bool, Meta(description="Also mirror what is a copy of a mirror itself: for chains, never for circles.")
    ] = False

    @property
    def owner(self) -> Owner:
        return Owner(pipeline="mirror", topics=tuple(self.topics), sink=f"the cluster {self.target}")

    @property
    def target_connection(self) -> dict[str, str]:
        return of_connection(self.target_options, self.target_address)

    @property
    def target_address(self) -> dict[str, str]:
        return {"rocketmq.namesrv.addr": self.target}

    @property
    def writing(self) -> WriteOptions:
        told = of_writes(self.target_options, {"groupId": GROUP, **self.target_address})
        check_used(self.target_options, told)
        return parse_write_options(told, streaming=True, environ=os.environ)


def check_mirror(settings: MirrorSettings) -> None:
    _check(settings)
    if settings.remote is not None or not is_local(settings.checkpoint):
        raise InvalidSetting(_NEEDS_DRIVER)
    check_owner(settings.checkpoint, settings.owner)
    parse_read_options(settings.reading, streaming=True, environ=os.environ)
    check_used(settings.options, settings.reading)
    _ = settings.writing
    require_topics(settings.connection, settings.topics)
    check_clusters(settings.connection, settings.target_connection, settings.groups)


def run_mirror(spark: SparkSession, settings: MirrorSettings, run: Run) -> Summary:
    """Mirror what is there now, or all the time."""
    check_mirror(settings)
    if not is_classic(spark):
        raise InvalidSetting(_NEEDS_DRIVER)
    with owned(spark, settings.checkpoint, settings.owner):
        notes = notes_in(spark, settings.checkpoint)
        made = make_topics(settings.connection, settings.target_connection, settings.topics)
        stream = spark.readStream.format("rocketmq").schema(READ).options(**settings.reading).load()
        query = (
            stream.writeStream.foreachBatch(partial(_mirror_batch, settings, notes))
            .queryName("mirror")
            .option("checkpointLocation", settings.checkpoint)
            .trigger(**run.trigger)
            .start()
        )
        summary = run.follow(query)
        offsets = read_map(notes.read(NOTE))
        moved = move_groups(settings.connection, settings.target_connection, settings.topics, settings.groups, offsets)
    tables = {"offsets here and there": map_rows(offsets), **({"groups": moved} if settings.groups else {})}
    return msgspec.structs.replace(summary, facts={"topics_made": ", ".join(made) or "none"}, tables=tables)


def plan_mirror(settings: MirrorSettings) -> Plan:
    """What a mirror would do now."""
    _check(settings)
    queues, begins = stream_queues(settings.reading, settings.checkpoint, DiskFiles())
    return Plan(
        pipeline="mirror",
        source=f"topics {', '.join(settings.topics)} at {settings.namesrv}",
        sink=f"the same topics at {settings.target}",
        queues=queues,
        begins=begins,
        options={**settings.reading, **{f"target {name}": text for name, text in settings.target_connection.items()}},
        messages_per_s=MESSAGES_PER_S,
    )


def _check(settings: MirrorSettings) -> None:
    if settings.target == settings.namesrv:
        raise InvalidSetting(f"--target {settings.target} is the cluster that is read: it would be filled with itself")


def _mirror_batch(settings: MirrorSettings, notes: Notes, messages: DataFrame, number: int) -> None:
    """One batch: sent, and then noted."""
    offsets = read_map(notes.read(NOTE))
    noted = offset_of(Path(settings.checkpoint), number, DiskFiles())
    if number > offsets.batch and noted is not None:
        offsets.forget(lost.range.queue for lost in noted.lost if lost.cause is Cause.RECREATION)
    _pair_queues(settings, offsets)
    order = Order(
        writing=settings.writing,
        targets=offsets.pairs,
        next_offsets=[QueueOffset(*place) for place in offsets.next_offsets().items()],
        searched_from=offsets.ends,
    )
    offsets.add(_sent(messages, settings, order))
    offsets.ends = _ends(settings, sorted({target for _, target in offsets.pairs}))
    offsets.batch = max(offsets.batch, number)
    notes.write(NOTE, msgspec.json.encode(offsets).decode())


def _sent(messages: DataFrame, settings: MirrorSettings, order: Order) -> list[MirroredRun]:
    rows = messages if settings.copies else messages.where(f"properties['{OF}'] IS NULL")
    queue = ["topic", "brokerName", "queueId"]
    partitions = messages.sparkSession.sparkContext.defaultParallelism
    whole = rows.repartition(partitions, *queue).sortWithinPartitions(*queue, "queueOffset")
    return send_batch(whole, order, Path(settings.checkpoint), DiskFiles())


def _pair_queues(settings: MirrorSettings, offsets: OffsetMap) -> None:
    """Queues may have come since the last batch."""
    for topic in settings.topics:
        sources = known_queues(settings.connection, [topic])
        offsets.pair(sources, known_queues(settings.target_connection, [topic]))


def _ends(settings: MirrorSettings, queues: list[MessageQueue]) -> list[QueueOffset]:
    with asking({**settings.target_connection, "subscribe": ",".join(settings.topics)}) as (_, metadata):
        return [QueueOffset(queue, bounds.max) for queue, bounds in metadata.bounds(queues).items()]


def map_rows(offsets: OffsetMap) -> list[Row]:
    """The map as rows, the newest of each queue."""
    rows: list[Row] = [
        {
            "from": str(run.source),
            "start": run.source_start,
            "end": run.source_end,
            "to": str(run.target),
            "to_start": run.target_start,
            "to_end": run.target_end,
        }
        for known in offsets.runs.values()
        for run in known
    ]
    return rows[-MAX_ROWS:]


MIRROR: Final = Job(
    name="mirror",
    summary="Copy topics to another cluster, queue by queue, with a map of offsets.",
    settings=MirrorSettings,
    plan=plan_mirror,
    run=run_mirror,
    description=(
        "Topics that the other cluster lacks are made with as many queues. Each message is there once, in the order of its "
        "queue, also after a run that was killed. --move-group lets consumer groups go on there."
    ),
    check=check_mirror,
)
