"""`pocketmq tx`: transactions that nobody has decided yet."""

from typing import TYPE_CHECKING, Any

import click

from pocketmq.cli.asking import Cluster, on_a_cluster
from pocketmq.cli.commands import ErrorTellingGroup
from pocketmq.cli.rows_screen import Column, json_option, show_rows
from pocketmq.cli.words import number, span
from pocketmq.clock import SystemClock

if TYPE_CHECKING:
    from pocketmq.client.administration.transactions import OpenTransaction

DEFAULT_LIMIT = 10_000
_COLUMNS = (
    Column("age_ms", "age", told=span),
    Column("topic"),
    Column("producer_group", "producers"),
    Column("transaction_id", "transaction"),
    Column("checks", "asked", told=number),
    Column("broker"),
)


@click.group("tx", cls=ErrorTellingGroup)
def tx_commands() -> None:
    """Transactions of a running cluster."""


@tx_commands.command("ls")
@on_a_cluster
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=DEFAULT_LIMIT,
    show_default=True,
    metavar="N",
    help="Read at most so many half messages of each broker.",
)
@json_option
def ls(cluster: Cluster, limit: int, as_json: bool) -> None:
    """List transactions that wait for their producer's word, oldest first.

    One that was just decided may still be listed: brokers write down decisions every few seconds.
    """
    with cluster.admin() as admin:
        found = admin.transactions.undecided(limit=limit)
    now_ms = SystemClock().now_ms()
    rows = [_row(one, now_ms) for one in found.found]
    show_rows(rows, _COLUMNS, as_json=as_json, empty="No transaction was found that is undecided.")
    if not found.is_complete:
        click.echo("There may be more: not all half messages could be read. --limit says how many are.", err=True)


def _row(one: "OpenTransaction", now_ms: int) -> dict[str, Any]:
    return {
        "transaction_id": one.transaction_id,
        "topic": one.topic,
        "producer_group": one.producer_group,
        "broker": one.broker,
        "born_ms": one.born_ms,
        "age_ms": max(0, now_ms - one.born_ms),
        "checks": one.checks,
        "half_offset": one.half_offset,
        "log_offset": one.log_offset,
    }
