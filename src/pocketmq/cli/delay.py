"""`pocketmq delay`: messages that are not due yet, and taking them back."""

from typing import TYPE_CHECKING, Any, Final

import click

from pocketmq.cli.asking import (
    Cluster,
    complete_topic,
    confirm,
    dry_run_option,
    limit_option,
    on_a_cluster,
    show_some,
    yes_option,
)
from pocketmq.cli.commands import ErrorTellingGroup
from pocketmq.cli.screen import Column, json_option, show_json, show_rows, tell, texts
from pocketmq.clock import SystemClock
from pocketmq.errors import ImpossibleRequest, PocketMQError, ProtocolError, UsageError
from pocketmq.model.human import count, duration, local_time
from pocketmq.protocol.recall_handle import RecallHandle

if TYPE_CHECKING:
    from pocketmq.client.admin.delays import Delayed, DelayedMessages

DEFAULT_LIMIT: Final = 1_000
_COLUMNS: Final = (
    Column("due"),
    Column("in_ms", "in", told=duration),
    Column("topic"),
    Column("level", told=lambda level: "a time" if level is None else f"level {level}"),
    *texts("id", "keys", "broker"),
)

waiting_limit = limit_option(
    DEFAULT_LIMIT, "Read at most so many of each level, and of those with a time, of each broker."
)


@click.group("delay", cls=ErrorTellingGroup)
def delay_commands() -> None:
    """Messages that are not due yet."""


@delay_commands.command("ls")
@on_a_cluster
@click.option("--topic", shell_complete=complete_topic, metavar="NAME", help="Only those for this topic.")
@waiting_limit
@json_option
def ls(cluster: Cluster, topic: str | None, limit: int, as_json: bool) -> None:
    """List messages that wait for their time, the soonest first."""
    found = _waiting(cluster, limit)
    now_ms = SystemClock().now_ms()
    rows = [_row(one, now_ms) for one in found.found if topic is None or one.topic == topic]
    more = "" if found.is_complete else "--limit says how many are read."
    show_some(rows, _COLUMNS, as_json=as_json, empty="No message waits for its time.", more=more)


@delay_commands.command("cancel")
@on_a_cluster
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--handle", "handles", multiple=True, metavar="HANDLE", help="By the recall handle of its send; may be repeated."
)
@waiting_limit
@dry_run_option
@yes_option
@json_option
def cancel(
    cluster: Cluster,
    ids: tuple[str, ...],
    handles: tuple[str, ...],
    limit: int,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Take messages back before they are due, by their IDs of `delay ls` or the recall handles that producers got.

    Only those with a time of their own: RocketMQ has no call that takes back a message of a delay level. Brokers of RocketMQ
    4.9 cannot do it at all, and those of 5.x only with recallMessageEnable=true.
    """
    if not ids and not handles:
        raise UsageError("say which: IDs of `pocketmq delay ls`, or --handle HANDLE")
    now_ms = SystemClock().now_ms()
    chosen = _chosen(_waiting(cluster, limit).found, ids) if ids else []
    chosen += [one for one in _of_handles(cluster, handles, limit) if one not in chosen]
    rows = [_row(one, now_ms) for one in chosen]
    if not as_json:
        show_rows(rows, _COLUMNS, as_json=False, empty="")
    if dry_run:
        if as_json:
            show_json({**row, "is_done": False} for row in rows)
        return
    confirm(f"Take back {count(len(rows), 'message')}?", yes=yes)
    _take_back(cluster, chosen, rows, as_json=as_json)


def _take_back(cluster: Cluster, chosen: "list[Delayed]", rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """One after the other; also when it ends in the middle, it is told which were."""
    done = 0
    try:
        with cluster.admin() as admin:
            for delayed in chosen:
                admin.delays.cancel(delayed)
                done += 1
    finally:
        if as_json:
            show_json({**row, "is_done": at < done} for at, row in enumerate(rows))
        else:
            tell(f"Took back {count(done, 'message')}.")


def _waiting(cluster: Cluster, limit: int) -> "DelayedMessages":
    with cluster.admin() as admin:
        return admin.delays.waiting(limit=limit)


def _chosen(found: "tuple[Delayed, ...]", ids: tuple[str, ...]) -> "list[Delayed]":
    """Those with these ids; nothing is taken back when one of them cannot be."""
    by_id = {one.message.message_id: one for one in found}
    if missing := [one for one in ids if one not in by_id]:
        raise PocketMQError(f"no message {missing[0]} waits; `pocketmq delay ls` shows those that do")
    chosen = [by_id[one] for one in dict.fromkeys(ids)]
    if levels := [one for one in chosen if one.level is not None]:
        raise ImpossibleRequest(
            f"message {levels[0].message.message_id} waits by delay level {levels[0].level}: RocketMQ takes back messages "
            "with a time of their own only"
        )
    return chosen


def _of_handles(cluster: Cluster, handles: tuple[str, ...], limit: int) -> "list[Delayed]":
    """Those that they mean. Brokers would answer as well for one that is not there."""
    meant = [(text, _handle(text)) for text in dict.fromkeys(handles)]
    if not meant:
        return []
    with cluster.admin() as admin:
        found = []
        for text, handle in meant:
            one = admin.delays.find_by_handle(text, limit=limit)
            if one is None:
                raise PocketMQError(
                    f"no message {handle.unique_id} waits on {handle.broker_name} for {local_time(handle.deliver_ms - 1)}: it was "
                    "delivered or taken back, or never was; nothing is changed"
                )
            found.append(one)
    return found


def _handle(text: str) -> RecallHandle:
    try:
        return RecallHandle.parse(text)
    except ProtocolError as error:
        raise UsageError(str(error)) from None


def _row(one: "Delayed", now_ms: int) -> dict[str, Any]:
    return {
        "due": local_time(one.due_ms),
        "due_ms": one.due_ms,
        "in_ms": max(0, one.due_ms - now_ms),
        "topic": one.topic,
        "level": one.level,
        "id": one.message.message_id,
        "keys": one.message.keys,
        "broker": one.broker,
    }
