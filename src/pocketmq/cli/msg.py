"""`pocketmq msg`: tail a topic, find and show messages, trace one from the store and the trace topic.

A tail polls the offsets of all queues and reads the new messages. It joins no group and commits no offset:

    poll ── min … max offset of each queue ──► read from the end of the last poll ──► sort by store time
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.text import Text

import pocketmq
from pocketmq.cli.cluster_options import Cluster, cluster_options, limit_option, topic_argument
from pocketmq.cli.commands import CommandGroup, current_ms, flag, number_option, text_option
from pocketmq.cli.msg_send import argument_bytes, send
from pocketmq.cli.output import (
    CELL_BODY_BYTES,
    Column,
    body_cell,
    body_option,
    cell,
    json_option,
    screen,
    show_messages,
    show_rows,
    show_text,
    texts,
)
from pocketmq.errors import NotFound, PocketMQError, ProtocolError, TopicNotFound, UsageError
from pocketmq.model import MessageQueue, OffsetId, StoredMessage
from pocketmq.model.human import duration, local_time, parse_queue, parse_time, time_ms
from pocketmq.store.tools.message_fields import BodyForm, body_start, fields_of

if TYPE_CHECKING:
    from pocketmq.client.admin.messages import MessageTrace, TracedAttempt


MAX_AT_ONCE = 1_000
"""The most messages read from one queue in one poll."""


class Tail:
    """Reads new messages of all queues of a topic that match a filter."""

    def __init__(self, admin: "pocketmq.Admin", topic: str, matches: Callable[[StoredMessage], bool]) -> None:
        self._admin = admin
        self._topic = topic
        self._matches = matches
        self._next: dict[MessageQueue, int] = {}
        self.is_at_end = False
        """Whether the last poll reached the end of all queues."""

    def newest(self, count: int) -> list[StoredMessage]:
        """The newest messages of all queues together. `count` includes messages that do not match, since all must be read."""
        found: list[StoredMessage] = []
        for state in self._admin.topics.describe(self._topic).queues:
            begin = max(state.min_offset, state.max_offset - count)
            self._next[state.queue] = state.max_offset
            for at in range(begin, state.max_offset, MAX_AT_ONCE):
                end = min(state.max_offset, at + MAX_AT_ONCE)
                found += self._admin.messages.in_queue(state.queue, at, end, limit=MAX_AT_ONCE)
        self.is_at_end = True
        newest = sorted(found, key=_age)[-count:] if count else []
        return [message for message in newest if self._matches(message)]

    def new_messages(self) -> list[StoredMessage]:
        """The messages since the last poll. A new queue, or one of a topic that was created again, is read from its start."""
        found: list[StoredMessage] = []
        self.is_at_end = True
        for state in self._admin.topics.describe(self._topic).queues:
            begin = max(self._next.get(state.queue, 0), state.min_offset)
            if begin > state.max_offset:  # the topic was deleted and created again
                begin = state.min_offset
            end = min(state.max_offset, begin + MAX_AT_ONCE)
            if begin < end:
                found += self._admin.messages.in_queue(state.queue, begin, end, limit=MAX_AT_ONCE)
            self._next[state.queue] = end
            self.is_at_end = self.is_at_end and end == state.max_offset
        return [message for message in sorted(found, key=_age) if self._matches(message)]


def parse_tags(text: str | None) -> set[str] | None:
    """The tags of `A||B`; None for all."""
    tags = {tag.strip() for tag in (text or "*").split("||")} - {""}
    return None if "*" in tags or not tags else tags


def _age(message: StoredMessage) -> tuple[int, int]:
    return message.store_ms, message.log_offset


def show_tail(messages: Iterable[StoredMessage], left: int | None, *, as_json: bool) -> int | None:
    """Show at most `left` messages; returns how many may still follow, or None if there is no limit."""
    console = screen()
    for message in messages:
        if left == 0:
            break
        if as_json:
            sys.stdout.write(msgspec.json.encode(fields_of(message, BodyForm.TEXT)).decode() + "\n")
        else:
            console.print(_line(message), soft_wrap=True)
        left = None if left is None else left - 1
    sys.stdout.flush()
    return left


def _line(message: StoredMessage) -> Text:
    line = Text(f"{local_time(message.store_ms)}  {message.queue_id}@{message.queue_offset}", style="dim")
    labels = " ".join(filter(None, (message.tags, *message.keys)))
    if labels:
        line.append(f"  [{cell(labels)}]", style="bold")
    body = body_cell(fields_of(message, BodyForm.TEXT, CELL_BODY_BYTES))
    return line.append(f"  {body}", style="not dim")


TABLE_FIELDS: Final = ("topic", "queue", "queue_offset", "stored", "message_id", "tags", "keys", "body")
JSON_FIELDS: Final = (
    *TABLE_FIELDS,
    *("store_ms", "store_host", "born_ms", "born_host", "offset_id", "size", "reconsume_times", "properties"),
)
_END_OF_TIME_MS: Final = 2**63 - 1
MAX_BY_KEY: Final = 64
"""The most messages that a broker returns for a key."""
POLL_S: Final = 0.5
"""The pause between polls without new messages."""


def wait_for_next_poll() -> None:
    """Ctrl-C ends it."""
    Event().wait(POLL_S)


@click.group("msg", cls=CommandGroup)
def msg_commands() -> None:
    """Messages of a running cluster."""


@msg_commands.command("tail")
@cluster_options
@topic_argument
@number_option("--last", "Start with the N newest messages.", least=0, default=10)
@flag("--from-start", "Start with the oldest message.")
@flag("--no-follow", "Exit after the messages that exist now.")
@number_option("--limit", "Exit after N messages.")
@text_option("--tag", "Only messages with one of these tags.", metavar="A||B")
@text_option("--key", "Only messages with this key.", metavar="KEY")
@text_option("--contains", "Only messages whose body contains this text.", metavar="TEXT")
@json_option
def tail(
    cluster: Cluster,
    topic: str,
    last: int,
    from_start: bool,
    no_follow: bool,
    limit: int | None,
    tag: str | None,
    key: str | None,
    contains: str | None,
    as_json: bool,
) -> None:
    """Show the newest messages of a topic, and new ones as they arrive, until ctrl-C.

    The command joins no group and changes no offsets.
    """
    needle = None if contains is None else argument_bytes(contains)
    tags = parse_tags(tag)

    def matches(message: StoredMessage) -> bool:
        return (
            (tags is None or message.tags in tags)
            and (key is None or key in message.keys)
            and (needle is None or needle in body_start(message).plain)
        )

    with cluster.long_admin() as admin:
        following = Tail(admin, topic, matches)
        found = following.new_messages() if from_start else following.newest(last)
        left = show_tail(found, limit, as_json=as_json)
        while left != 0:
            if following.is_at_end:
                if no_follow:
                    return
                wait_for_next_poll()
            left = show_tail(following.new_messages(), left, as_json=as_json)


@msg_commands.command("get")
@cluster_options
@topic_argument
@click.argument("message_id", metavar="ID")
@body_option
@json_option
def get(cluster: Cluster, topic: str, message_id: str, form: str, as_json: bool) -> int:
    """Show the message with an ID: the message id or the offset id.

    Several messages have the same message id if a producer sent a message again after a failure.
    """
    with cluster.admin() as admin:
        found = admin.messages.by_id(topic, message_id) or _by_offset_id(admin, topic, message_id)
    if not found:
        raise PocketMQError(
            f"topic {topic} has no message {message_id}; `pocketmq msg find {topic} --key KEY` searches by key"
        )
    return _show(found, form, as_json=as_json)


@msg_commands.command("find")
@cluster_options
@topic_argument
@text_option("--key", "Messages with this key.", metavar="KEY")
@text_option(
    "--since", "Stored at or after: 2026-03-01T12:00, or 2h for 2 hours ago.", parse=parse_time, metavar="WHEN"
)
@text_option("--until", "Stored before.", parse=parse_time, metavar="WHEN")
@text_option("--queue", "In this queue, starting at --offset.", parse=parse_queue, metavar="BROKER:QUEUE")
@number_option("--offset", "The first offset, with --queue.", least=0)
@limit_option(64, "Show at most N messages.")
@body_option
@json_option
def find(
    cluster: Cluster,
    topic: str,
    key: str | None,
    since: datetime | timedelta | None,
    until: datetime | timedelta | None,
    queue: tuple[str, int] | None,
    offset: int | None,
    limit: int,
    form: str,
    as_json: bool,
) -> int:
    """Find messages by key, by store time, or by queue and offset, oldest first."""
    has_time = since is not None or until is not None
    if (queue is None) != (offset is None) or (queue is not None and (key is not None or has_time)):
        raise UsageError("--queue needs --offset, and cannot be combined with --key, --since or --until")
    if queue is None and key is None and not has_time:
        raise UsageError("give --key, --since and --until, or --queue and --offset")
    begin_ms, end_ms = _times(since, until)
    with cluster.admin() as admin:
        if queue is not None:
            message_queue = MessageQueue(topic, *queue)
            if message_queue not in [each.queue for each in admin.topics.describe(topic).queues]:
                raise UsageError(
                    f"topic {topic} has no queue {message_queue}; `pocketmq topic show {topic}` lists its queues"
                )
            found = admin.messages.in_queue(message_queue, offset or 0, limit=limit)
        elif key is not None:
            found = admin.messages.by_key(topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit)
        else:
            found = admin.messages.in_time(topic, begin_ms, end_ms, limit=limit)
    if not found:
        click.echo("No message found.", err=True)
    elif len(found) == limit:
        click.echo(f"There may be more than {limit} messages; raise --limit.", err=True)
    elif key is not None and len(found) >= MAX_BY_KEY:
        click.echo(
            f"There may be more: a broker returns at most {MAX_BY_KEY} messages for a key. Use --since and --until for others.",
            err=True,
        )
    return _show(found, form, as_json=as_json)


msg_commands.add_command(send)


def _by_offset_id(admin: "pocketmq.Admin", topic: str, text: str) -> list[StoredMessage]:
    """The message with this offset id, if it is of a broker of this cluster: an offset id contains the broker's address."""
    try:
        host = str(OffsetId.parse(text).host)
    except ProtocolError:
        return []
    if host not in [str(each.address) for each in admin.cluster.brokers()]:
        return []
    try:
        return [admin.messages.by_offset_id(text, topic)]
    except NotFound:
        return []


def _times(since: datetime | timedelta | None, until: datetime | timedelta | None) -> tuple[int, int]:
    now_ms = current_ms()
    begin_ms = 0 if since is None else time_ms(since, now_ms)
    end_ms = _END_OF_TIME_MS if until is None else time_ms(until, now_ms)
    if begin_ms >= end_ms:
        raise UsageError("--since must be before --until")
    return begin_ms, end_ms


def _show(found: Iterable[StoredMessage], form: str, *, as_json: bool) -> int:
    messages: Iterator[StoredMessage] = iter(found)
    return show_messages(
        messages, JSON_FIELDS if as_json else TABLE_FIELDS, BodyForm(form), limit=None, as_json=as_json
    )


_COLUMNS: Final = (
    *texts("at", "event", "by"),
    Column("took_ms", "took", shown_as=lambda ms: "" if ms is None else duration(ms)),
    Column("detail"),
)


@msg_commands.command("trace")
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
