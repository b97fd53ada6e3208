"""`pocketmq msg send`: send one message, or one for each line of stdin."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from pocketmq.cli.cluster_options import Cluster, cluster_options, topic_argument
from pocketmq.cli.commands import ExitCode, flag, number_option, text_option
from pocketmq.cli.output import Column, json_option, late_bar, show_rows, texts
from pocketmq.errors import PocketMQError, UsageError
from pocketmq.model import DELAY_LEVELS, DelayLevels, Message
from pocketmq.model.human import count, number, parse_duration_ms, parse_pair
from pocketmq.model.properties import DELAY

if TYPE_CHECKING:
    from pocketmq.client.producer.results import SendResult

LEVELS_KEY: Final = "messageDelayLevel"
_SENT: Final = (
    *texts("status", "message_id", "broker"),
    Column("queue", shown_as=number),
    Column("queue_offset", "offset", shown_as=number),
)


@click.command("send")
@cluster_options
@topic_argument
@click.argument("body")
@flag("--lines", "With BODY -: send every line as a message.")
@text_option("--tag", "tags", "The tag of the message.", metavar="TAG")
@text_option("--key", "keys", "A key of the message; may be repeated.", multiple=True, metavar="KEY")
@text_option(
    "--property",
    "properties",
    "A property of the message; may be repeated.",
    parse=parse_pair,
    multiple=True,
    metavar="NAME=VALUE",
)
@text_option("--sharding-key", "Messages with the same sharding key go to the same queue, in order.", metavar="TEXT")
@number_option("--delay-level", "Deliver it after this delay level of the broker.")
@text_option(
    "--delay", "delay_ms", "Deliver it after this time, such as 30s or 2h.", parse=parse_duration_ms, metavar="DURATION"
)
@json_option
def send(
    cluster: Cluster,
    topic: str,
    body: str,
    lines: bool,
    properties: Iterable[tuple[str, str]],
    as_json: bool,
    **options: Any,
) -> int:
    """Send a message with this BODY, or with the content of stdin if BODY is -.

    \b
    Exit code: 0  stored
               1  stored, but not as safely as configured: see the status
               3  not sent
    """
    fields = {name: value for name, value in options.items() if value is not None}
    _check_level(cluster, fields.get("delay_level", 0))
    bodies = _bodies(body, lines=lines)
    level = fields.get("delay_level", 0)
    is_beyond = level > len(DELAY_LEVELS)  # `Message` accepts RocketMQ's 18 levels; these brokers have more
    messages = [
        Message(topic, each, properties=dict(properties), **fields | ({"delay_level": 1} if is_beyond else {}))
        for each in bodies
    ]
    for message in messages if is_beyond else ():
        message.properties[DELAY] = str(level)
    if not messages:
        raise UsageError("nothing to send: stdin is empty")
    results: list[SendResult] = []
    try:
        _send(cluster, messages, results)
    except PocketMQError as error:
        if not results:
            raise
        text = f"sent {len(results):,} of {count(len(messages), 'message')}; the next one failed: {error}"
        raise PocketMQError(text) from error
    finally:
        if results:
            show_rows(map(_sent_row, results), _SENT, as_json=as_json, empty="")
    return ExitCode.OK if all(result.is_ok for result in results) else ExitCode.REPAIRABLE


def _check_level(cluster: Cluster, level: int) -> None:
    """UsageError for a delay level above the brokers' levels: brokers would use their longest one instead."""
    if level <= len(DELAY_LEVELS):
        return
    with cluster.admin() as admin:
        tables = [admin.cluster.settings(each.name) for each in admin.cluster.brokers() if each.is_master]
    fewest = min((len(DelayLevels(table[LEVELS_KEY])) for table in tables if table.get(LEVELS_KEY)), default=0)
    most = fewest or len(DELAY_LEVELS)
    if level > most:
        raise UsageError(
            f"--delay-level {level}: the brokers have levels 1 to {most}; use --delay DURATION for any time"
        )


def _bodies(body: str, *, lines: bool) -> list[bytes]:
    if body != "-":
        if lines:
            raise UsageError("--lines reads stdin: give - as BODY")
        return [argument_bytes(body)]
    data = sys.stdin.buffer.read()
    return [part for part in (data.splitlines() if lines else [data]) if part]


def argument_bytes(text: str) -> bytes:
    """An argument as UTF-8. Bytes of the shell that are not UTF-8 stay as they are."""
    return text.encode(errors="surrogateescape")


def _send(cluster: Cluster, messages: Sequence[Message], results: "list[SendResult]") -> None:
    """Send one after the other. If one fails, `results` has those before it."""
    with cluster.producer() as producer, late_bar("sending", in_bytes=False) as bar:
        for message in messages:
            results.append(producer.send(message))
            bar.update(len(results), len(messages))


def _sent_row(result: "SendResult") -> dict[str, Any]:
    return {
        "status": result.status.value,
        "message_id": result.message_id,
        "offset_id": result.offset_id,
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "queue_offset": result.queue_offset,
        "recall_handle": result.recall_handle,
    }
