"""`pocketmq msg trace`: the timeline of a message, from the store and from the trace topic."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

import pocketmq
from pocketmq.cli.cluster_options import Cluster, cluster_options, topic_argument
from pocketmq.cli.commands import text_option
from pocketmq.cli.output import Column, json_option, show_rows, show_text, texts
from pocketmq.errors import PocketMQError, TopicNotFound, UsageError
from pocketmq.model import MessageQueue
from pocketmq.model.human import duration, local_time

if TYPE_CHECKING:
    from pocketmq.client.admin.messages import MessageTrace, TracedAttempt
    from pocketmq.model import StoredMessage

_COLUMNS: Final = (
    *texts("at", "event", "by"),
    Column("took_ms", "took", shown_as=lambda ms: "" if ms is None else duration(ms)),
    Column("detail"),
)


@click.command("trace")
@cluster_options
@topic_argument
@click.argument("message_id", metavar="[ID]", required=False)
@text_option("--key", "All messages with this key, instead of ID.", metavar="KEY")
@text_option("--trace-topic", "The trace topic, if it is not RocketMQ's default.", metavar="NAME")
@json_option
def trace(
    cluster: Cluster, topic: str, message_id: str | None, key: str | None, trace_topic: str | None, as_json: bool
) -> None:
    """Show the timeline of a message: sent, stored, each attempt to consume it, committed or rolled back, recalled.

    Only clients with `trace=True` write traces. The store is shown in any case, with the groups that have consumed the
    message.
    """
    if (message_id is None) == (key is None):
        raise UsageError("give the ID of a message, or --key KEY")
    with cluster.admin() as admin:
        ids = _ids_of(admin, topic, key) if key is not None else [message_id or ""]
        timelines = {one: _timeline(admin, topic, one, trace_topic) for one in ids}
    if not any(timelines.values()):
        text = f"with key {key!r}" if message_id is None else repr(message_id)
        raise PocketMQError(f"topic {topic} has no message {text}, and no client wrote a trace of it")
    for one, rows in timelines.items():
        if not as_json:
            show_text(f"message {one}")
        show_rows(rows, _COLUMNS, as_json=as_json, empty="")
        if not as_json and not any(row["is_traced"] for row in rows):
            click.echo("No client wrote a trace of this message. Clients trace with the option trace=True.", err=True)


def _ids_of(admin: "pocketmq.Admin", topic: str, key: str) -> list[str]:
    return list(dict.fromkeys(message.message_id for message in admin.messages.by_key(topic, key)))


def _timeline(admin: "pocketmq.Admin", topic: str, message_id: str, trace_topic: str | None) -> list[dict[str, Any]]:
    try:
        traced = admin.messages.trace(message_id, trace_topic=trace_topic)
        rows = list(_traced_rows(traced))
    except TopicNotFound:
        rows = []  # no client has traced here
    rows += [_stored_row(admin, topic, message) for message in admin.messages.by_id(topic, message_id)]
    return sorted(
        ({"message_id": message_id, **row} for row in rows), key=lambda row: (row["at_ms"] is None, row["at_ms"] or 0)
    )


def _traced_rows(traced: "MessageTrace") -> Iterator[dict[str, Any]]:
    for sent in traced.sent:
        outcome = "" if sent.success else "failed"
        kind = sent.message_type.name.lower()
        yield _row(sent.time_ms, "sent", f"group {sent.group}", f"{kind} {outcome}".strip(), took_ms=sent.cost_ms)
    for attempt in traced.attempts:
        yield _row(
            attempt.started_ms, "consumed", f"group {attempt.group}", _attempt_text(attempt), took_ms=attempt.cost_ms
        )
    for decided in traced.decided:
        yield _row(decided.time_ms, "decided", f"group {decided.group}", decided.decision.value)
    for recalled in traced.recalled:
        yield _row(recalled.time_ms, "recalled", f"group {recalled.group}", "")


def _attempt_text(attempt: "TracedAttempt") -> str:
    outcome = "no result reported" if attempt.outcome is None else attempt.outcome.name.lower().replace("_", " ")
    return f"{outcome}, retry {attempt.retry_times}" if attempt.retry_times else outcome


def _stored_row(admin: "pocketmq.Admin", topic: str, message: "StoredMessage") -> dict[str, Any]:
    """Its queue and offset, and the groups that have consumed it."""
    broker = next(
        (one.name for one in admin.cluster.brokers() if str(one.address) == str(message.store_host)),
        str(message.store_host),
    )
    where = f"{broker}:{message.queue_id}@{message.queue_offset}"
    try:
        passed = admin.messages.passed_by(MessageQueue(topic, broker, message.queue_id), message.queue_offset)
    except PocketMQError:
        passed = {}
    groups = "".join(
        f", {group} {'has consumed it' if is_past else 'has not consumed it'}" for group, is_past in passed.items()
    )
    return _row(message.store_ms, "stored", where, groups.removeprefix(", "), is_traced=False)


def _row(
    at_ms: int | None, event: str, by: str, detail: str, *, took_ms: int | None = None, is_traced: bool = True
) -> dict[str, Any]:
    return {
        "at": local_time(at_ms),
        "at_ms": at_ms,
        "event": event,
        "by": by,
        "took_ms": took_ms,
        "detail": detail,
        "is_traced": is_traced,
    }
