"""`pocketmq msg send`: one message, or one for each line of the standard input."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from pocketmq.cli.asking import Cluster, on_a_cluster, topic_argument
from pocketmq.cli.commands import ExitCode, parsed
from pocketmq.cli.screen import Column, json_option, late_bar, show_rows, texts
from pocketmq.clock import SystemClock
from pocketmq.errors import PocketMQError, UsageError
from pocketmq.model.delay import DELAY_LEVELS, DelayLevels
from pocketmq.model.human import count, number, parse_duration_ms, parse_pair
from pocketmq.model.message import Message
from pocketmq.model.properties import DELAY

if TYPE_CHECKING:
    from pocketmq.client.producer.results import SendResult

LEVELS_KEY: Final = "messageDelayLevel"
_SENT: Final = (
    *texts("status", "message_id", "broker"),
    Column("queue", told=number),
    Column("queue_offset", "offset", told=number),
)


@click.command("send")
@on_a_cluster
@topic_argument
@click.argument("body")
@click.option("--lines", is_flag=True, help="With BODY -: every line is a message.")
@click.option("--tag", "tags", metavar="TAG", help="The tag that consumers choose by.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="A key to find it by; may be repeated.")
@click.option(
    "--property",
    "properties",
    type=parsed(parse_pair),
    multiple=True,
    metavar="NAME=VALUE",
    help="Of its own; may be repeated.",
)
@click.option("--sharding-key", metavar="TEXT", help="Messages with the same one go to the same queue, in order.")
@click.option("--delay-level", type=click.IntRange(1), metavar="N", help="Deliver it later, by the broker's levels.")
@click.option(
    "--delay",
    "delay_ms",
    type=parsed(parse_duration_ms),
    metavar="DURATION",
    help="Deliver it later, such as 30s or 2h.",
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
    """Send BODY, or what the standard input holds when BODY is -.

    \b
    Exit code: 0  stored
               1  stored, but not as safely as the broker promises: the status says what is missing
               3  could not be sent
    """
    given = {name: value for name, value in options.items() if value is not None}
    _check_level(cluster, given.get("delay_level", 0))
    bodies = _bodies(body, lines=lines)
    level = given.get("delay_level", 0)
    is_beyond = level > len(DELAY_LEVELS)  # `Message` knows RocketMQ's 18 levels; these brokers have more
    messages = [
        Message(topic, each, properties=dict(properties), **given | ({"delay_level": 1} if is_beyond else {}))
        for each in bodies
    ]
    for message in messages if is_beyond else ():
        message.properties[DELAY] = str(level)
    if not messages:
        raise UsageError("there is nothing to send: the standard input is empty")
    results: list[SendResult] = []
    try:
        _send(cluster, messages, results)
    except PocketMQError as error:
        if not results:
            raise
        told = f"sent {len(results):,} of {count(len(messages), 'message')}, not the next one: {error}"
        raise PocketMQError(told) from error
    finally:
        if results:
            show_rows(map(_sent_row, results), _SENT, as_json=as_json, empty="")
    return ExitCode.OK if all(result.is_ok for result in results) else ExitCode.REPAIRABLE


def _check_level(cluster: Cluster, level: int) -> None:
    """UsageError for a delay level that the brokers do not have: they would take it for their longest one."""
    if level <= len(DELAY_LEVELS):
        return
    with cluster.admin() as admin:
        tables = [admin.cluster.settings(place.name) for place in admin.cluster.brokers() if place.is_master]
    fewest = min((len(DelayLevels(table[LEVELS_KEY])) for table in tables if table.get(LEVELS_KEY)), default=0)
    most = fewest or len(DELAY_LEVELS)
    if level > most:
        raise UsageError(f"--delay-level {level}: the brokers have levels 1 to {most}; --delay DURATION takes any time")


def _bodies(body: str, *, lines: bool) -> list[bytes]:
    if body != "-":
        if lines:
            raise UsageError("--lines reads the standard input: give - as BODY")
        return [given_bytes(body)]
    data = sys.stdin.buffer.read()
    return [part for part in (data.splitlines() if lines else [data]) if part]


def given_bytes(text: str) -> bytes:
    """Text as UTF-8; what the shell was given that is no text, as it was."""
    return text.encode(errors="surrogateescape")


def _send(cluster: Cluster, messages: Sequence[Message], results: "list[SendResult]") -> None:
    """One after the other; `results` has those that were sent, also when it ends in the middle."""
    with cluster.producer() as producer, late_bar(SystemClock(), "sending", in_bytes=False) as bar:
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
