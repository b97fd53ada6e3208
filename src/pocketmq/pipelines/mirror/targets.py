"""The other side of a mirror: topics that are not there are made, and groups are put where they were."""

from collections.abc import Mapping, Sequence
from typing import Any

from pocketmq.client import Admin
from pocketmq.errors import GroupNotFound, InvalidSetting
from pocketmq.model.queue import MessageQueue
from pocketmq.pipelines.cluster import admin_of, asking
from pocketmq.pipelines.mirror.offset_map import OffsetMap
from pocketmq.pipelines.running import Row


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
