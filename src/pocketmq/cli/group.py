"""`pocketmq group`: list, show and delete consumer groups; show lag and members; reset and clone offsets."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

import pocketmq
from pocketmq.cli.cluster_options import (
    Cluster,
    cluster_options,
    complete_group,
    complete_topic,
    group_argument,
    show_named,
    topic_argument,
)
from pocketmq.cli.commands import CommandGroup, current_ms, flag, parsed, text_option, yes_option
from pocketmq.cli.output import (
    Change,
    Column,
    change_options,
    confirm,
    json_option,
    numbers,
    show_facts,
    show_json,
    show_rows,
    show_text,
    texts,
)
from pocketmq.errors import ImpossibleRequest, PocketMQError, UsageError
from pocketmq.model import MessageQueue
from pocketmq.model.human import count, duration, number, offset, parse_queue, parse_start, time_ms

if TYPE_CHECKING:
    from pocketmq.client.admin.groups import Member, Owners
    from pocketmq.client.admin.lag import GroupLag, QueueLag
    from pocketmq.client.admin.offsets import QueueReset, ResetTo


def _members_text(shared_with: int) -> str:
    return "all members" if shared_with <= 0 else count(shared_with, "other member")


_LONG: Sequence[Column] = (
    Column("group"),
    *numbers("members", "lag"),
    Column("lag_ms", "lag time", shown_as=duration),
    Column("problem"),
)
_QUEUE = (Column("topic"), Column("broker"), Column("queue", shown_as=number))
_LAG = (
    *_QUEUE,
    Column("committed", shown_as=number),
    Column("max_offset", "end", shown_as=number),
    Column("lag", shown_as=number),
    Column("lag_ms", "lag time", shown_as=duration),
    Column("lost", shown_as=number),
    Column("problem"),
)
_LEASED = (
    *_LAG[:-2],
    Column("leased", shown_as=number),
    Column("leased_ms", "oldest lease", shown_as=duration),
    *_LAG[-2:],
)
_MEMBERS = (Column("client_id", "client"), *texts("address", "language", "brokers", "queues"))
_MODES = (*texts("broker", "mode"), Column("shared_with", "shared with", shown_as=_members_text))
_RESET = (
    *_QUEUE,
    Column("before", shown_as=offset),
    Column("after", shown_as=number),
    Column("again", "consumed again", shown_as=number),
    Column("skipped", shown_as=number),
)


@click.group("group", cls=CommandGroup)
def group_commands() -> None:
    """Consumer groups of a running cluster."""


@group_commands.command("ls")
@cluster_options
@flag("--all", "everything", "Include internal groups: of RocketMQ, of traces, of Spark sinks.")
@flag("--long", "-l", "is_long", "Show members and lag; sends requests for each group.")
@json_option
def ls(cluster: Cluster, everything: bool, is_long: bool, as_json: bool) -> None:
    """List groups."""
    show_named(
        cluster,
        lambda admin: admin.groups.names(everything=everything),
        _long_row,
        _LONG,
        is_long=is_long,
        as_json=as_json,
        empty="No groups. A consumer creates its group when it starts.",
    )


@group_commands.command("show")
@cluster_options
@group_argument
@json_option
def show(cluster: Cluster, group: str, as_json: bool) -> None:
    """Show the settings of a group, its subscriptions and its lag."""
    with cluster.admin() as admin:
        state, lag = admin.groups.describe(group), admin.offsets.lag(group)
    subscriptions = {topic: one.sub_string for topic, one in state.subscriptions.items()}
    configs = {
        broker: {
            "may_consume": config.consume_enable,
            "may_broadcast": config.consume_broadcast_enable,
            "ordered": config.consume_message_orderly,
            "max_reconsume_times": config.retry_max_times,
            "retry_queues": config.retry_queue_nums,
        }
        for broker, config in state.configs.items()
    }
    if as_json:
        model = state.message_model and state.message_model.value
        show_json(
            [
                {
                    **_lag_total(lag),
                    "members": len(state.members),
                    "model": model,
                    "subscriptions": subscriptions,
                    "brokers": configs,
                }
            ]
        )
        return
    facts = {
        "group": group,
        "members": number(len(state.members)) if state.members else "none online",
        "model": state.message_model.value if state.message_model else "unknown without online members",
        "subscriptions": ", ".join(f"{topic} ({text})" for topic, text in subscriptions.items())
        or "unknown without online members",
        "lag": _lag_text(lag) if lag.queues else "no committed offset yet",
    }
    if leases := _lease_text(lag):
        facts["leases"] = leases
    for broker, config in configs.items():
        facts[f"on {broker}"] = (
            f"at most {config['max_reconsume_times']} retries, {count(int(config['retry_queues']), 'retry queue')}"
            f"{'' if config['may_consume'] else ', consuming disabled'}{', ordered' if config['ordered'] else ''}"
        )
    show_facts(facts)


@group_commands.command("lag")
@cluster_options
@group_argument
@text_option("--topic", "Only this topic.", shell_complete=complete_topic, metavar="NAME")
@json_option
def lag_command(cluster: Cluster, group: str, topic: str | None, as_json: bool) -> None:
    """Show the lag of a group in each queue, in messages and in time.

    The lag time is the age of the oldest unread message. A value that no broker reports is `unknown`, in JSON null; the
    last column says why. Leased messages (POP) are not part of the lag; those that wait for another attempt are, in the
    retry topics. --json prints one line per queue, then one for the group.
    """
    with cluster.admin() as admin:
        lag = admin.offsets.lag(group, topic)
    rows = [_lag_row(each) for each in lag.queues]
    if as_json:
        show_json([*rows, _lag_total(lag)])
        return
    columns = _LEASED if lag.leased else _LAG
    show_rows(rows, columns, as_json=False, empty=f"Group {group} has no committed offsets yet.")
    if rows:
        show_text(f"\nLag of group {group}: {_lag_text(lag)}.")
        if leases := _lease_text(lag):
            show_text(f"Leases: {leases}.")


@group_commands.command("members")
@cluster_options
@group_argument
@json_option
def members(cluster: Cluster, group: str, as_json: bool) -> None:
    """Show the online members of a group, and the queues that each owns."""
    with cluster.admin() as admin:
        found = admin.groups.describe(group).members
        owners = admin.groups.owners(group)
    rows = [_member_row(member, owners) for member in found]
    show_rows(rows, _MEMBERS, as_json=as_json, empty=f"Group {group} has no online members.")


@group_commands.command("reset")
@cluster_options
@group_argument
@topic_argument
@text_option(
    "--to",
    "moment",
    "earliest, latest, a time such as 2026-03-01T12:00, or a duration before now such as 2h.",
    parse=parse_start,
    metavar="POSITION",
)
@click.option(
    "--offset",
    "offsets",
    type=(parsed(parse_queue), click.IntRange(0)),
    multiple=True,
    metavar="BROKER:QUEUE N",
    help="Set the offset of one queue; may be repeated.",
)
@change_options
def reset(
    cluster: Cluster,
    group: str,
    topic: str,
    moment: Any,
    offsets: Iterable[tuple[tuple[str, int], int]],
    change: Change,
) -> None:
    """Reset the offsets of a group in a topic: messages are consumed again, or skipped."""
    to = _reset_to(topic, moment, dict(offsets))
    with cluster.admin() as admin:
        plan = admin.offsets.reset(group, topic, to, dry_run=True)
    rows = [_reset_row(each) for each in plan.queues]
    change.show_plan(rows, _RESET, empty=f"Topic {topic} has no readable queue.")
    again, skipped = sum(each.again for each in plan.queues), sum(each.skipped for each in plan.queues)
    change.show_text(f"\nGroup {group}: {count(again, 'message')} to be consumed again, {skipped:,} to be skipped.")
    if change.is_confirmed(f"Reset group {group} in topic {topic}?"):
        with cluster.admin() as admin:
            done = admin.offsets.reset(group, topic, to)
        rows = [_reset_row(each) for each in done.queues]
    change.show_result(rows, "Done.")


@group_commands.command("mode")
@cluster_options
@group_argument
@topic_argument
@click.argument("mode", type=click.Choice(["PULL", "POP"], case_sensitive=False), required=False)
@click.option(
    "--shared-with",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="With POP: each member shares its part of the queues with N others. 0 means with all.",
)
@json_option
def mode_command(cluster: Cluster, group: str, topic: str, mode: str | None, shared_with: int, as_json: bool) -> None:
    """Show or set how a group gets the messages of a topic: PULL or POP.

    It is for members that let brokers decide: PushConsumer(mode="broker"), or Java's clientRebalance=false.
    """
    with cluster.admin() as admin:
        if mode is not None:
            admin.groups.set_mode(group, topic, mode.upper(), shared_with=shared_with)
        found = admin.groups.modes(group).get(topic, {})
    rows = [{"broker": name, "mode": one.mode, "shared_with": one.pop_share_queue_num} for name, one in found.items()]
    show_rows(
        rows, _MODES, as_json=as_json, empty=f"No mode is set for group {group} in topic {topic}: its members pull."
    )


@group_commands.command("clone")
@cluster_options
@click.argument("source", shell_complete=complete_group)
@click.argument("target", shell_complete=complete_group)
@topic_argument
@change_options
def clone(cluster: Cluster, source: str, target: str, topic: str, change: Change) -> None:
    """Copy the offsets of group SOURCE in a topic to group TARGET."""
    with cluster.admin() as admin:
        admin.groups.describe(target)
        offsets = admin.offsets.clone(source, target, topic, dry_run=True)
        before = admin.offsets.committed(target, topic)
    rows = [{**_queue_fields(queue), "before": before.get(queue), "after": after} for queue, after in offsets.items()]
    change.show_plan(rows, _RESET[:5])
    if change.is_confirmed(f"Set these offsets of group {target}?"):
        with cluster.admin() as admin:
            admin.offsets.clone(source, target, topic)
    change.show_result(rows, f"Copied the offsets of group {source} to group {target}.")


@group_commands.command("rm")
@cluster_options
@group_argument
@flag("--keep-topics", "Keep its retry and dead letter topics.")
@yes_option
def rm(cluster: Cluster, group: str, keep_topics: bool, yes: bool) -> None:
    """Delete a group with its offsets, retries and dead letters. Rejected while the group has members."""
    with cluster.admin() as admin:
        state, letters = admin.groups.describe(group), admin.dead_letters.count(group)
    if state.members:
        raise ImpossibleRequest(f"group {group} has {count(len(state.members), 'online member')}; stop them first")
    topics = "are kept" if keep_topics else "will be deleted"
    show_text(
        f"Group {group} on {', '.join(state.configs)}: its offsets will be deleted; "
        f"its retries and {count(letters, 'dead letter')} {topics}."
    )
    confirm(f"Delete group {group}?", yes=yes)
    with cluster.admin() as admin:
        admin.groups.delete(group, with_topics=not keep_topics)
    show_text(f"Deleted group {group}.")


def _long_row(admin: "pocketmq.Admin", group: str) -> dict[str, Any]:
    """A row with the error if the request for this group fails, so that the others are still listed."""
    row: dict[str, Any] = {"group": group, "members": None, "lag": None, "lag_ms": None, "problem": ""}
    try:
        row["members"] = len(admin.groups.members(group))
        lag = admin.offsets.lag(group)
    except PocketMQError as error:
        return {**row, "problem": str(error)}
    problem = next(
        (each.problem for each in lag.queues if each.problem), "" if lag.queues else "no committed offset yet"
    )
    return {**row, "lag": lag.messages, "lag_ms": lag.time_ms, "problem": problem}


def _reset_to(topic: str, moment: str | datetime | timedelta | None, offsets: dict[tuple[str, int], int]) -> "ResetTo":
    if (moment is None) == (not offsets):
        raise UsageError("give either --to (earliest, latest or a time) or --offset BROKER:QUEUE N")
    if offsets:
        return {MessageQueue(topic, broker, queue_id): after for (broker, queue_id), after in offsets.items()}
    match moment:
        case "earliest" | "latest" | datetime():
            return moment
        case timedelta():  # resolved once, so that the reset does what the plan showed
            return time_ms(moment, current_ms())
    raise UsageError(f"cannot reset to {moment!r}")


def _queue_fields(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}


def _lag_row(lag: "QueueLag") -> dict[str, Any]:
    return {
        **_queue_fields(lag.queue),
        "committed": lag.committed,
        "min_offset": lag.min_offset,
        "max_offset": lag.max_offset,
        "lag": lag.messages,
        "lag_ms": lag.time_ms,
        "lost": lag.lost,
        "leased": lag.leased,
        "leased_ms": lag.leased_ms,
        "problem": lag.problem,
    }


def _lag_total(lag: "GroupLag") -> dict[str, Any]:
    return {
        "group": lag.group,
        "at_ms": lag.at_ms,
        "lag": lag.messages,
        "lag_ms": lag.time_ms,
        "lost": sum(each.lost for each in lag.queues),
        "leased": lag.leased,
        "leased_ms": lag.leased_ms,
        "retries": lag.retries,
        "read_per_s": lag.per_s,
    }


def _lag_text(lag: "GroupLag") -> str:
    messages = "unknown messages" if lag.messages is None else count(lag.messages, "message")
    return f"{messages}, {duration(lag.time_ms)}"


def _lease_text(lag: "GroupLag") -> str:
    """Empty for a group without leased messages."""
    if not lag.leased:
        return ""
    return (
        f"{count(lag.leased, 'message')} leased, the oldest for {duration(lag.leased_ms)}; "
        f"{count(lag.retries, 'message')} waiting for another attempt"
    )


def _member_row(member: "Member", owners: "Owners") -> dict[str, Any]:
    queues = [str(queue) for queue, clients in owners.queues.items() if member.client_id in clients]
    return {
        "client_id": member.client_id,
        "address": member.address,
        "language": member.language,
        "version": member.version,
        "brokers": list(member.brokers),
        "queues": None if member.client_id in owners.silent else queues,
        "problem": owners.silent.get(member.client_id, ""),
    }


def _reset_row(row: "QueueReset") -> dict[str, Any]:
    return {
        **_queue_fields(row.queue),
        "before": row.before,
        "after": row.after,
        "again": row.again,
        "skipped": row.skipped,
    }
