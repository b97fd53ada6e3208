"""`pocketmq tx`: list undecided transactions, commit or roll them back, and restart their checks."""

from typing import TYPE_CHECKING, Any

import click

import pocketmq
from pocketmq.cli.cluster_options import Cluster, cluster_options, limit_option, show_some
from pocketmq.cli.commands import CommandGroup, current_ms, flag, yes_option
from pocketmq.cli.output import Change, Column, change_options, confirm, json_option, show_rows
from pocketmq.errors import ImpossibleRequest, PocketMQError
from pocketmq.model.human import duration, number

if TYPE_CHECKING:
    from pocketmq.client.admin.transactions import OpenTransaction
    from pocketmq.model import Undecided

DEFAULT_LIMIT = 10_000
_COLUMNS = (
    Column("age_ms", "age", shown_as=duration),
    Column("topic"),
    Column("producer_group", "producer group"),
    Column("transaction_id", "transaction"),
    Column("checks", shown_as=number),
    Column("broker"),
)


half_limit = limit_option(DEFAULT_LIMIT, "Read at most N half messages per broker.")


@click.group("tx", cls=CommandGroup)
def tx_commands() -> None:
    """Transactions of a running cluster."""


@tx_commands.command("ls")
@cluster_options
@half_limit
@flag("--given-up", "List transactions whose checks have ended without a result instead.")
@json_option
def ls(cluster: Cluster, limit: int, given_up: bool, as_json: bool) -> None:
    """List undecided transactions, oldest first.

    A transaction that was just decided may still be listed: brokers store decisions every few seconds.
    """
    if given_up:
        with cluster.admin() as admin:
            ended = admin.transactions.given_up(limit=limit)
        now_ms = current_ms()
        rows = [{**_row(one, one.broker, now_ms), "offset_id": one.offset_id} for one in ended]
        show_rows(rows, _COLUMNS, as_json=as_json, empty="No transactions whose checks have ended.")
        return
    with cluster.admin() as admin:
        found = admin.transactions.undecided(limit=limit)
    now_ms = current_ms()
    rows = [_row(one, one.broker, now_ms) for one in found.found]
    more = "" if found.is_complete else "not all half messages were read; raise --limit."
    show_some(rows, _COLUMNS, as_json=as_json, empty="No undecided transactions.", more=more)


@tx_commands.command("resolve")
@cluster_options
@click.argument("transaction_id", metavar="TRANSACTION")
@click.option("--commit/--rollback", "is_commit", required=True, help="Commit or roll back an undecided transaction.")
@half_limit
@change_options
def resolve(cluster: Cluster, transaction_id: str, is_commit: bool, limit: int, change: Change) -> None:
    """Commit or roll back an undecided transaction on behalf of its producer.

    The producer knows the right decision: check it first if it is still running. A decision is final.
    """
    with cluster.admin() as admin:
        one = _open(admin, transaction_id, limit)
    row = {**_row(one, one.broker, current_ms()), "decision": "commit" if is_commit else "rollback"}
    change.show_plan([row], (*_COLUMNS, Column("decision")))
    if change.is_confirmed(f"{'Commit' if is_commit else 'Roll back'} transaction {transaction_id}?"):
        with cluster.admin() as admin:
            if is_commit:
                admin.transactions.commit(one)
            else:
                admin.transactions.roll_back(one)
    change.show_result([row], "Committed." if is_commit else "Rolled back.")


@tx_commands.command("check")
@cluster_options
@click.argument("transaction_id", metavar="TRANSACTION")
@half_limit
@yes_option
@json_option
def check(cluster: Cluster, transaction_id: str, limit: int, yes: bool, as_json: bool) -> None:
    """Let a broker check a transaction again after its checks have ended without a result.

    The broker asks a producer of the group with its next check. A broker still checks other transactions by itself, and
    RocketMQ has no request to do so earlier. Apache's brokers accept this command more than once for one transaction.
    """
    with cluster.admin() as admin:
        open_checks = {one.transaction_id: one for one in admin.transactions.undecided(limit=limit).found}
        ended = {one.transaction_id: one for one in admin.transactions.given_up(limit=limit)}
    if transaction_id in open_checks:
        checks = open_checks[transaction_id].checks
        raise ImpossibleRequest(
            f"the broker is still checking transaction {transaction_id} ({checks} checks so far); "
            "`pocketmq tx resolve` decides it"
        )
    if transaction_id not in ended:
        raise PocketMQError(
            f"no transaction {transaction_id} whose checks have ended; `pocketmq tx ls --given-up` lists them"
        )
    one = ended[transaction_id]
    row = _row(one, one.broker, current_ms())
    change = Change(dry_run=False, yes=yes, as_json=as_json)
    change.show_plan([row], _COLUMNS)
    confirm(f"Let {one.broker} check this transaction with group {one.producer_group} again?", yes=yes)
    with cluster.admin() as admin:
        admin.transactions.check_again(one.broker, one.offset_id)
    change.show_result([row], f"{one.broker} checks the transaction again with its next round.")


def _open(admin: "pocketmq.Admin", transaction_id: str, limit: int) -> "OpenTransaction":
    found = admin.transactions.undecided(limit=limit)
    chosen = next((one for one in found.found if one.transaction_id == transaction_id), None)
    if chosen is None:
        more = "" if found.is_complete else " among those that were read; raise --limit"
        raise PocketMQError(f"no undecided transaction {transaction_id}{more}; `pocketmq tx ls` lists them")
    return chosen


def _row(one: "Undecided", broker: str, now_ms: int) -> dict[str, Any]:
    return {
        "transaction_id": one.transaction_id,
        "topic": one.topic,
        "producer_group": one.producer_group,
        "broker": broker,
        "born_ms": one.born_ms,
        "age_ms": max(0, now_ms - one.born_ms),
        "checks": one.checks,
        "half_offset": one.half_offset,
        "log_offset": one.log_offset,
    }
