"""`pocketmq delay`: list and recall delayed messages."""

from typing import TYPE_CHECKING, Any, Final

import click

from pocketmq.cli.cluster_options import Cluster, cluster_options, complete_topic, limit_option, show_some
from pocketmq.cli.commands import CommandGroup, current_ms, text_option
from pocketmq.cli.output import Change, Column, change_options, json_option, show_json, show_text, texts
from pocketmq.errors import ImpossibleRequest, PocketMQError, ProtocolError, UsageError
from pocketmq.model.human import count, duration, local_time
from pocketmq.model.message_id import RecallHandle

if TYPE_CHECKING:
    from pocketmq.client.admin.delays import Delayed, DelayedMessages

DEFAULT_LIMIT: Final = 1_000
_COLUMNS: Final = (
    Column("due"),
    Column("in_ms", "in", shown_as=duration),
    Column("topic"),
    Column("level", shown_as=lambda level: "timer" if level is None else f"level {level}"),
    *texts("id", "keys", "broker"),
)

delay_limit = limit_option(DEFAULT_LIMIT, "Read at most N messages of each delay level and of the timer, per broker.")


@click.group("delay", cls=CommandGroup)
def delay_commands() -> None:
    """Delayed messages that are not due yet."""


@delay_commands.command("ls")
@cluster_options
@text_option("--topic", "Only this topic.", shell_complete=complete_topic, metavar="NAME")
@delay_limit
@json_option
def ls(cluster: Cluster, topic: str | None, limit: int, as_json: bool) -> None:
    """List delayed messages, the soonest first."""
    found = _delayed(cluster, limit)
    now_ms = current_ms()
    rows = [_row(one, now_ms) for one in found.found if topic is None or one.topic == topic]
    more = "" if found.is_complete else "raise --limit to read them."
    show_some(rows, _COLUMNS, as_json=as_json, empty="No delayed messages.", more=more)


@delay_commands.command("cancel")
@cluster_options
@click.argument("ids", nargs=-1, metavar="[ID]...")
@text_option("--handle", "handles", "The recall handle of a message; may be repeated.", multiple=True, metavar="HANDLE")
@delay_limit
@change_options
def cancel(
    cluster: Cluster,
    ids: tuple[str, ...],
    handles: tuple[str, ...],
    limit: int,
    change: Change,
) -> None:
    """Recall delayed messages before they are due, by their IDs (see `delay ls`) or recall handles.

    Only timer messages can be recalled: RocketMQ has no request to recall a message with a delay level. Apache RocketMQ 4.9
    cannot recall messages at all, 5.x only with recallMessageEnable=true.
    """
    if not ids and not handles:
        raise UsageError("give IDs (see `pocketmq delay ls`) or --handle HANDLE")
    now_ms = current_ms()
    chosen = _chosen(_delayed(cluster, limit).found, ids) if ids else []
    chosen += [one for one in _of_handles(cluster, handles, limit) if one not in chosen]
    rows = [_row(one, now_ms) for one in chosen]
    change.show_plan(rows, _COLUMNS)
    if change.is_confirmed(f"Recall {count(len(rows), 'message')}?"):
        _recall(cluster, chosen, rows, as_json=change.as_json)
    else:
        change.show_result(rows, "")


def _recall(cluster: Cluster, chosen: "list[Delayed]", rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Recall one after the other; if one fails, the output shows which were recalled."""
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
            show_text(f"Recalled {count(done, 'message')}.")


def _delayed(cluster: Cluster, limit: int) -> "DelayedMessages":
    with cluster.admin() as admin:
        return admin.delays.waiting(limit=limit)


def _chosen(found: "tuple[Delayed, ...]", ids: tuple[str, ...]) -> "list[Delayed]":
    """The messages with these ids. If one cannot be recalled, none is."""
    by_id = {one.message.message_id: one for one in found}
    if missing := [one for one in ids if one not in by_id]:
        raise PocketMQError(f"no delayed message {missing[0]}; `pocketmq delay ls` lists them")
    chosen = [by_id[one] for one in dict.fromkeys(ids)]
    if levels := [one for one in chosen if one.level is not None]:
        raise ImpossibleRequest(
            f"message {levels[0].message.message_id} has delay level {levels[0].level}; RocketMQ can recall only timer messages"
        )
    return chosen


def _of_handles(cluster: Cluster, handles: tuple[str, ...], limit: int) -> "list[Delayed]":
    """The messages of these handles. They are checked here, since brokers also confirm the recall of an unknown message."""
    parsed = [(text, _handle(text)) for text in dict.fromkeys(handles)]
    if not parsed:
        return []
    with cluster.admin() as admin:
        found = []
        for text, handle in parsed:
            one = admin.delays.find_by_handle(text, limit=limit)
            if one is None:
                raise PocketMQError(
                    f"no message {handle.unique_id} on {handle.broker_name} is due at {local_time(handle.deliver_ms - 1)}: it was "
                    "delivered or recalled, or never existed. Nothing changed"
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
