"""`pocketmq pipeline mirror`: the stream from one cluster to another, missing topics there, and the offsets of moved groups."""

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
from pocketmq.model import MessageQueue, QueueOffset
from pocketmq.pipelines.core.checkpoint import (
    Owner,
    StateFiles,
    check_owner,
    is_classic,
    is_local,
    last_batch,
    owned,
    state_files,
)
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession
from pocketmq.pipelines.core.plan import Plan, admin_of, known_queues, queue_metadata, require_topics, stream_queues
from pocketmq.pipelines.core.running import Row, Run, Summary
from pocketmq.pipelines.core.settings import Job, StreamSettings, check_used, of_connection, of_writes
from pocketmq.pipelines.mirror.copying import OF, READ, Order, send_batch
from pocketmq.pipelines.mirror.offset_map import MirroredRun, OffsetMap, read_map
from pocketmq.spark.options.write_options import WriteOptions, parse_write_options
from pocketmq.spark.read.offsets import Cause


def check_clusters(source: Mapping[str, str], target: Mapping[str, str], groups: Sequence[str]) -> None:
    """InvalidSetting if both are the same cluster, by any address; GroupNotFound for a missing group."""
    with admin_of(source) as here, admin_of(target) as there:
        common = {one.address for one in here.cluster.brokers()} & {one.address for one in there.cluster.brokers()}
        if common:
            raise InvalidSetting(
                f"source and --target are the same cluster: both have the broker at {min(map(str, common))}; use another --target"
            )
        known = here.groups.names(everything=True) if groups else []
    for group in groups:
        if group not in known:
            raise GroupNotFound(f"group {group!r} does not exist; `pocketmq group ls` lists the groups")


def make_topics(source: Mapping[str, str], target: Mapping[str, str], topics: Sequence[str]) -> list[str]:
    """Create topics that the target lacks, with as many queues in total as at the source; returns their names."""
    with admin_of(source) as here, admin_of(target) as there:
        missing = [topic for topic in topics if not there.topics.exists(topic)]
        for topic in missing:
            _make(topic, here, there)
    return missing


def _make(topic: str, here: Admin, there: Admin) -> None:
    configs = here.topics.describe(topic).configs.values()
    queues = sum(config.read_queue_nums for config in configs)
    brokers = {one.name for one in there.cluster.brokers()}
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
    """Commit the offsets of groups at the target; returns one row for each queue."""
    rows: list[Row] = []
    with admin_of(source) as here, admin_of(target) as there:
        for group in groups:
            busy = _has_members(there, group)
            for topic in topics:
                found = here.offsets.committed(group, topic)
                moved = {queue: offsets.translate(queue, at) for queue, at in found.items() if at is not None}
                positions: dict[MessageQueue, int] = {}
                for to in moved.values():
                    if to is not None:  # if two queues became one, the smaller offset counts
                        positions[to.queue] = min(to.offset, positions.get(to.queue, to.offset))
                if positions and not busy:
                    with queue_metadata({**target, "subscribe": topic}) as (_, metadata):
                        metadata.commit(group, positions)
                rows += [_row(group, queue, found[queue], to, busy=busy) for queue, to in sorted(moved.items())]
    return rows


def _has_members(there: Admin, group: str) -> bool:
    try:
        return bool(there.groups.members(group))
    except GroupNotFound:
        return False


def _row(group: str, queue: MessageQueue, offset: int | None, to: Any, *, busy: bool) -> Row:
    done = "not moved: the group has members there, which keep their own offsets" if busy else "moved"
    return {
        "group": group,
        "from": str(queue),
        "at": offset,
        "to": "" if to is None else str(to.queue),
        "target_offset": None if to is None else to.offset,
        "done": done if to is not None else "no message of this queue was mirrored",
    }


STATE_FILE: Final = "offset_map.json"
MESSAGES_PER_S: Final = 40_000
GROUP: Final = "pocketmq-mirror"
MAX_ROWS: Final = 1_000
_NEEDS_DRIVER: Final = (
    "a mirror keeps its map of offsets on the disk of Spark's driver; use --master and a local --checkpoint"
)


class MirrorSettings(StreamSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of a mirror."""

    target: Annotated[
        str, Meta(min_length=1, description="The name servers of the other cluster.", extra={"flag": "target"})
    ]
    target_options: Annotated[
        dict[str, str],
        Meta(description="A connector option for the other cluster.", extra={"flag": "target-option"}),
    ] = msgspec.field(default_factory=dict)
    groups: Annotated[
        list[str],
        Meta(
            description="At the end, commit this group's offsets at the target; may be repeated.",
            extra={"flag": "move-group"},
        ),
    ] = msgspec.field(default_factory=list)
    copies: Annotated[
        bool, Meta(description="Also mirror copies of another mirror, for chains. Never use it in a circle.")
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
        options = of_writes(self.target_options, {"groupId": GROUP, **self.target_address})
        check_used(self.target_options, options)
        return parse_write_options(options, streaming=True, environ=os.environ)


def check_mirror(settings: MirrorSettings) -> None:
    _check(settings)
    if settings.remote is not None or not is_local(settings.checkpoint):
        raise InvalidSetting(_NEEDS_DRIVER)
    check_owner(settings.checkpoint, settings.owner)
    settings.check_reading()
    _ = settings.writing
    require_topics(settings.connection, settings.topics)
    check_clusters(settings.connection, settings.target_connection, settings.groups)


def run_mirror(spark: SparkSession, settings: MirrorSettings, run: Run) -> Summary:
    """Mirror all available messages, or continue until stopped."""
    check_mirror(settings)
    if not is_classic(spark):
        raise InvalidSetting(_NEEDS_DRIVER)
    with owned(spark, settings.checkpoint, settings.owner):
        state = state_files(spark, settings.checkpoint)
        made = make_topics(settings.connection, settings.target_connection, settings.topics)
        stream = spark.readStream.format("rocketmq").schema(READ).options(**settings.reading).load()
        query = (
            stream.writeStream.foreachBatch(partial(_mirror_batch, settings, state))
            .queryName("mirror")
            .option("checkpointLocation", settings.checkpoint)
            .trigger(**run.trigger)
            .start()
        )
        summary = run.follow(query)
        offsets = read_map(state.read(STATE_FILE))
        moved = move_groups(settings.connection, settings.target_connection, settings.topics, settings.groups, offsets)
    tables = {"offsets at source and target": map_rows(offsets), **({"groups": moved} if settings.groups else {})}
    return msgspec.structs.replace(summary, facts={"topics_created": ", ".join(made) or "none"}, tables=tables)


def plan_mirror(settings: MirrorSettings) -> Plan:
    """The plan of a mirror."""
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
        raise InvalidSetting(f"--target {settings.target} is the source cluster; use another --target")


def _mirror_batch(settings: MirrorSettings, state: StateFiles, messages: DataFrame, number: int) -> None:
    """Send one batch, then save the map."""
    offsets = read_map(state.read(STATE_FILE))
    batch = last_batch(settings.checkpoint, DiskFiles())
    if number > offsets.batch and batch is not None:
        offsets.forget(lost.range.queue for lost in batch.lost if lost.cause is Cause.RECREATION)
    _pair_queues(settings, offsets)
    order = Order(
        writing=settings.writing,
        targets=offsets.pairs,
        next_offsets=[QueueOffset(*pair) for pair in offsets.next_offsets().items()],
        searched_from=offsets.ends,
    )
    offsets.add(_sent(messages, settings, order))
    offsets.ends = _ends(settings, sorted({target for _, target in offsets.pairs}))
    offsets.batch = max(offsets.batch, number)
    state.write(STATE_FILE, msgspec.json.encode(offsets).decode())


def _sent(messages: DataFrame, settings: MirrorSettings, order: Order) -> list[MirroredRun]:
    rows = messages if settings.copies else messages.where(f"properties['{OF}'] IS NULL")
    queue = ["topic", "brokerName", "queueId"]
    partitions = messages.sparkSession.sparkContext.defaultParallelism
    whole = rows.repartition(partitions, *queue).sortWithinPartitions(*queue, "queueOffset")
    return send_batch(whole, order, Path(settings.checkpoint), DiskFiles())


def _pair_queues(settings: MirrorSettings, offsets: OffsetMap) -> None:
    """Assign targets to queues, also to those that were added since the last batch."""
    for topic in settings.topics:
        sources = known_queues(settings.connection, [topic])
        offsets.pair(sources, known_queues(settings.target_connection, [topic]))


def _ends(settings: MirrorSettings, queues: list[MessageQueue]) -> list[QueueOffset]:
    with queue_metadata({**settings.target_connection, "subscribe": ",".join(settings.topics)}) as (_, metadata):
        return [QueueOffset(queue, bounds.max) for queue, bounds in metadata.bounds(queues).items()]


def map_rows(offsets: OffsetMap) -> list[Row]:
    """The newest runs of the map as rows."""
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
        "Topics that the other cluster lacks are created with as many queues. Each message is there once, in the order of its "
        "queue, even if a run was killed. --move-group lets consumer groups continue there."
    ),
    check=check_mirror,
)
