"""`pocketmq topic`: list, show, create, change and delete topics, and show their statistics."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

import pocketmq
from pocketmq.cli.cluster_options import Cluster, cluster_options, require_brokers, show_named, topic_argument
from pocketmq.cli.commands import CommandGroup, flag, number_option, text_option, yes_option
from pocketmq.cli.output import (
    Column,
    confirm,
    json_option,
    numbers,
    show_facts,
    show_json,
    show_rows,
    show_text,
    texts,
)
from pocketmq.codes import Perm
from pocketmq.errors import PocketMQError, UsageError
from pocketmq.model import is_internal_group
from pocketmq.model.human import count, local_time, number, parse_pair, parse_perm, perm_text

if TYPE_CHECKING:
    from pocketmq.client.admin.topics import QueueState, TopicState
    from pocketmq.protocol.bodies.topics import BrokerStatsData, TopicConfig

_COLUMNS: Final = (
    *texts("what", "broker"),
    Column("per_s", "/s", shown_as=number),
    *numbers("last_minute", "last_hour", "last_day", "bytes_last_minute"),
    Column("problem"),
)
_SENT: Final = ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE")
_CONSUMED: Final = ("GROUP_GET_NUMS", "GROUP_GET_SIZE")


@click.command("stats")
@cluster_options
@topic_argument
@json_option
def stats(cluster: Cluster, topic: str, as_json: bool) -> None:
    """Show how many messages producers send to a topic, and how many each group consumes.

    Brokers count from their start and update the numbers every ten seconds. A missing number is unknown.
    """
    with cluster.admin() as admin:
        brokers = list(admin.topics.describe(topic).configs)
        groups = admin.topics.readers(topic)
        rows = [_stats_row(admin, broker, "sent", _SENT, topic) for broker in brokers]
        rows += [
            _stats_row(admin, broker, f"consumed by {group}", _CONSUMED, f"{topic}@{group}", group)
            for group in groups
            for broker in brokers
        ]
    show_rows(rows, _COLUMNS, as_json=as_json, empty="")


def _stats_row(
    admin: "pocketmq.Admin", broker: str, what: str, names: tuple[str, str], key: str, group: str | None = None
) -> dict[str, Any]:
    row: dict[str, Any] = {"what": what, "broker": broker, "group": group, "problem": ""}
    try:
        counts, sizes = (admin.cluster.statistic(broker, name, key) for name in names)
    except PocketMQError as error:
        return {**row, **_numbers(None, None), "problem": str(error)}
    return {**row, **_numbers(counts, sizes), "problem": "" if counts else "no messages counted yet"}


def _numbers(counts: "BrokerStatsData | None", sizes: "BrokerStatsData | None") -> dict[str, Any]:
    return {
        "per_s": None if counts is None else counts.stats_minute.tps,
        "last_minute": None if counts is None else counts.stats_minute.sum,
        "last_hour": None if counts is None else counts.stats_hour.sum,
        "last_day": None if counts is None else counts.stats_day.sum,
        "bytes_last_minute": None if sizes is None else sizes.stats_minute.sum,
    }


DEFAULT_QUEUES = 8
"""On each broker, as with `mqadmin updateTopic`."""
_LONG: Sequence[Column] = (
    *texts("topic", "brokers"),
    Column("queues", shown_as=number),
    Column("perm"),
    Column("messages", shown_as=number),
    Column("problem"),
)
_QUEUES = (
    Column("broker"),
    Column("queue", shown_as=number),
    Column("min_offset", "min", shown_as=number),
    Column("max_offset", "max", shown_as=number),
    Column("messages", shown_as=number),
    Column("last_stored"),
)

perm_option = text_option("--perm", "Permission to read, to write, or both.", parse=parse_perm, metavar="rw|r|w")


@click.group("topic", cls=CommandGroup)
def topic_commands() -> None:
    """Topics of a running cluster."""


@topic_commands.command("ls")
@cluster_options
@flag("--all", "everything", "Include retry, dead letter and internal topics.")
@flag("--long", "-l", "is_long", "Show queues and messages; sends requests for each topic.")
@json_option
def ls(cluster: Cluster, everything: bool, is_long: bool, as_json: bool) -> None:
    """List topics."""
    show_named(
        cluster,
        lambda admin: _names(cluster, admin, everything=everything),
        _long_row,
        _LONG,
        is_long=is_long,
        as_json=as_json,
        empty="No topics. Create one with `pocketmq topic create NAME`.",
    )


@topic_commands.command("show")
@cluster_options
@topic_argument
@json_option
def show(cluster: Cluster, topic: str, as_json: bool) -> None:
    """Show the settings of a topic, its consumer groups and its queues."""
    with cluster.admin() as admin:
        state, groups = admin.topics.describe(topic), admin.topics.readers(topic)
    queues = [_queue_row(each) for each in state.queues]
    if as_json:
        configs = {name: _config_row(config) for name, config in state.configs.items()}
        show_json([{**_row(state), "brokers": configs, "groups": groups, "queues": queues}])
        return
    shown = [name for name in groups if not is_internal_group(name)]
    facts = {"topic": topic, "messages": number(state.messages), "consumer groups": ", ".join(shown) or "none"}
    for name, config in state.configs.items():
        row = _config_row(config)
        order = ", ordered" if row["ordered"] else ""
        extra = "".join(f", {key}={value}" for key, value in row["attributes"].items())
        facts[f"on {name}"] = (
            f"{count(row['read_queues'], 'read queue')}, {count(row['write_queues'], 'write queue')}, {row['perm']}{order}{extra}"
        )
    show_facts(facts)
    show_text("")
    show_rows(queues, _QUEUES, as_json=False, empty="The topic has no queues.")


@topic_commands.command("create")
@cluster_options
@click.argument("topic")
@number_option("--queues", "The number of queues on each broker.", default=DEFAULT_QUEUES)
@perm_option
@flag("--ordered", "Mark the topic as ordered.")
@text_option(
    "--attribute", "An attribute, such as message.type=FIFO.", parse=parse_pair, multiple=True, metavar="NAME=VALUE"
)
@text_option("--cluster", "cluster_name", "Only on the brokers of this cluster.", metavar="NAME")
@text_option("--broker", "brokers", "Only on this broker; may be repeated.", multiple=True, metavar="NAME")
def create(
    cluster: Cluster,
    topic: str,
    queues: int,
    perm: int | None,
    ordered: bool,
    attribute: Iterable[tuple[str, str]],
    cluster_name: str | None,
    brokers: tuple[str, ...],
) -> None:
    """Create a topic, and wait until producers can find its route."""
    with cluster.admin() as admin:
        admin.topics.create(
            topic,
            queues=queues,
            perm=Perm.READ_WRITE if perm is None else perm,
            ordered=ordered,
            attributes=dict(attribute),
            cluster=cluster_name,
            brokers=brokers or None,
        )
        state = admin.topics.describe(topic)
    show_text(f"Created topic {topic} with {count(queues, 'queue')} on {', '.join(state.configs)}.")


@topic_commands.command("alter")
@cluster_options
@topic_argument
@number_option("--queues", "The number of read and write queues on each broker.")
@number_option("--read-queues", "The number of read queues; lower it when all messages are consumed.")
@number_option("--write-queues", "The number of write queues; lower it first.")
@perm_option
@click.option("--ordered/--not-ordered", default=None, help="Whether the topic is ordered.")
@text_option(
    "--attribute", "Set an attribute; an empty value removes it.", parse=parse_pair, multiple=True, metavar="NAME=VALUE"
)
@text_option("--broker", "brokers", "Only on this broker; may be repeated.", multiple=True, metavar="NAME")
@yes_option
def alter(
    cluster: Cluster,
    topic: str,
    attribute: Iterable[tuple[str, str]],
    brokers: tuple[str, ...],
    yes: bool,
    **settings: Any,
) -> None:
    """Change settings of a topic on all its brokers.

    The command asks for confirmation if messages would remain in queues that consumers can no longer read.
    """
    changes = {name: value for name, value in settings.items() if value is not None}
    attributes = {name: value or None for name, value in attribute}
    if not changes and not attributes:
        raise UsageError("nothing to change: give --queues, --perm, or another option of `topic alter --help`")
    with cluster.admin() as admin:
        before = admin.topics.describe(topic)
    hidden = _hidden(before, changes.get("read_queues", changes.get("queues")), brokers)
    if hidden:
        show_text(
            f"Consumers could no longer read {count(sum(each.messages for each in hidden), 'message')} in {count(len(hidden), 'queue')}."
        )
        confirm(f"Change topic {topic}?", yes=yes)
    with cluster.admin() as admin:
        admin.topics.alter(topic, attributes=attributes, brokers=brokers or None, **changes)
    show_text(f"Changed topic {topic} on {', '.join(brokers or before.configs)}.")


@topic_commands.command("rm")
@cluster_options
@topic_argument
@yes_option
def rm(cluster: Cluster, topic: str, yes: bool) -> None:
    """Delete a topic with all its messages, on all brokers and name servers."""
    with cluster.admin() as admin:
        state, groups = admin.topics.describe(topic), admin.topics.readers(topic)
    show_text(
        f"Topic {topic} on {', '.join(state.configs)}: {count(state.messages, 'message')} of "
        f"{count(len(state.queues), 'queue')} will be deleted, with the offsets of its consumer groups: {', '.join(groups) or 'none'}."
    )
    confirm(f"Delete topic {topic}?", yes=yes)
    with cluster.admin() as admin:
        admin.topics.delete(topic)
    show_text(f"Deleted topic {topic}.")


topic_commands.add_command(stats)


def _names(cluster: Cluster, admin: "pocketmq.Admin", *, everything: bool) -> list[str]:
    names = admin.topics.names(everything=everything)
    if not names:
        require_brokers(cluster, admin)
    return names


def _long_row(admin: "pocketmq.Admin", topic: str) -> dict[str, Any]:
    """A row with the error if the request for this topic fails, so that the others are still listed."""
    try:
        return {**_row(admin.topics.describe(topic)), "problem": ""}
    except PocketMQError as error:
        return {"topic": topic, "brokers": None, "queues": None, "perm": None, "messages": None, "problem": str(error)}


def _row(state: "TopicState") -> dict[str, Any]:
    perms = sorted({perm_text(config.perm) for config in state.configs.values()})
    return {
        "topic": state.topic,
        "brokers": sorted(state.configs),
        "queues": len(state.queues),
        "perm": " ".join(perms),
        "messages": state.messages,
    }


def _config_row(config: "TopicConfig") -> dict[str, Any]:
    return {
        "read_queues": config.read_queue_nums,
        "write_queues": config.write_queue_nums,
        "perm": perm_text(config.perm),
        "ordered": config.order,
        "attributes": dict(config.attributes),
    }


def _queue_row(state: "QueueState") -> dict[str, Any]:
    return {
        "broker": state.queue.broker_name,
        "queue": state.queue.queue_id,
        "min_offset": state.min_offset,
        "max_offset": state.max_offset,
        "messages": state.messages,
        "last_stored": "never" if state.last_store_ms is None else local_time(state.last_store_ms),
        "last_store_ms": state.last_store_ms,
    }


def _hidden(state: "TopicState", read_queues: int | None, brokers: tuple[str, ...]) -> "list[QueueState]":
    """Queues with messages that consumers could no longer read."""
    if read_queues is None:
        return []
    return [
        each
        for each in state.queues
        if each.messages and each.queue.queue_id >= read_queues and (not brokers or each.queue.broker_name in brokers)
    ]
