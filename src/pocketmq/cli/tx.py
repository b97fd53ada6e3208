"""`pocketmq tx`: transactions that nobody has decided yet: list them, decide them, have them asked about once more."""

from typing import TYPE_CHECKING, Any

import click

from pocketmq.cli.asking import Cluster, confirm, dry_run_option, limit_option, on_a_cluster, show_some, yes_option
from pocketmq.cli.commands import ErrorTellingGroup
from pocketmq.cli.screen import Column, json_option, show_json, show_rows, tell
from pocketmq.clock import SystemClock
from pocketmq.errors import ImpossibleRequest, PocketMQError
from pocketmq.model.human import duration, number

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.admin.transactions import OpenTransaction
    from pocketmq.model.transactions import Undecided

DEFAULT_LIMIT = 10_000
_COLUMNS = (
    Column("age_ms", "age", told=duration),
    Column("topic"),
    Column("producer_group", "producers"),
    Column("transaction_id", "transaction"),
    Column("checks", "asked", told=number),
    Column("broker"),
)


half_limit = limit_option(DEFAULT_LIMIT, "Read at most so many half messages of each broker.")


@click.group("tx", cls=ErrorTellingGroup)
def tx_commands() -> None:
    """Transactions of a running cluster."""


@tx_commands.command("ls")
@on_a_cluster
@half_limit
@click.option("--given-up", is_flag=True, help="Instead those that brokers have asked about in vain, and ask no more.")
@json_option
def ls(cluster: Cluster, limit: int, given_up: bool, as_json: bool) -> None:
    """List transactions that wait for their producer's word, oldest first.

    One that was just decided may still be listed: brokers write down decisions every few seconds.
    """
    if given_up:
        with cluster.admin() as admin:
            lost = admin.transactions.given_up(limit=limit)
        now_ms = SystemClock().now_ms()
        rows = [{**_row(one, one.broker, now_ms), "offset_id": one.offset_id} for one in lost]
        show_rows(rows, _COLUMNS, as_json=as_json, empty="No transaction was given up.")
        return
    with cluster.admin() as admin:
        found = admin.transactions.undecided(limit=limit)
    now_ms = SystemClock().now_ms()
    rows = [_row(one, one.broker, now_ms) for one in found.found]
    more = "" if found.is_complete else "not all half messages could be read. --limit says how many are."
    show_some(rows, _COLUMNS, as_json=as_json, empty="No transaction was found that is undecided.", more=more)


@tx_commands.command("resolve")
@on_a_cluster
@click.argument("transaction_id", metavar="TRANSACTION")
@click.option("--commit/--rollback", "is_commit", required=True, help="Let its message be read, or by nobody ever.")
@half_limit
@dry_run_option
@yes_option
@json_option
def resolve(
    cluster: Cluster, transaction_id: str, is_commit: bool, limit: int, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Decide a transaction in its producer's place.

    Its producer may know better: ask it first, if it still runs. What was decided stays decided.
    """
    with cluster.admin() as admin:
        one = _open(admin, transaction_id, limit)
    row = {**_row(one, one.broker, SystemClock().now_ms()), "decision": "commit" if is_commit else "rollback"}
    if not as_json:
        show_rows([row], (*_COLUMNS, Column("decision")), as_json=False, empty="")
    if not dry_run:
        confirm(f"{'Commit' if is_commit else 'Roll back'} transaction {transaction_id}?", yes=yes)
        with cluster.admin() as admin:
            if is_commit:
                admin.transactions.commit(one)
            else:
                admin.transactions.roll_back(one)
    if as_json:
        show_json([{**row, "is_done": not dry_run}])
    elif not dry_run:
        tell("It can be read now." if is_commit else "Nobody will see it.")


@tx_commands.command("check")
@on_a_cluster
@click.argument("transaction_id", metavar="TRANSACTION")
@half_limit
@yes_option
@json_option
def check(cluster: Cluster, transaction_id: str, limit: int, yes: bool, as_json: bool) -> None:
    """Have a transaction asked about once more that its broker has given up.

    The broker asks a producer of its group with its next round. One that is not given up needs no help: its broker asks by
    itself, and RocketMQ has no call that hurries it. RocketMQ's brokers do not look whether it was resumed before.
    """
    with cluster.admin() as admin:
        waiting = {one.transaction_id: one for one in admin.transactions.undecided(limit=limit).found}
        lost = {one.transaction_id: one for one in admin.transactions.given_up(limit=limit)}
    if transaction_id in waiting:
        checks = waiting[transaction_id].checks
        raise ImpossibleRequest(
            f"transaction {transaction_id} is not given up: its broker has asked {checks} times and goes on by itself; "
            "`pocketmq tx resolve` decides it"
        )
    if transaction_id not in lost:
        raise PocketMQError(f"no transaction {transaction_id} was given up; `pocketmq tx ls --given-up` shows them")
    one = lost[transaction_id]
    row = _row(one, one.broker, SystemClock().now_ms())
    if not as_json:
        show_rows([row], _COLUMNS, as_json=False, empty="")
    confirm(f"Have {one.broker} ask {one.producer_group} about it again?", yes=yes)
    with cluster.admin() as admin:
        admin.transactions.check_again(one.broker, one.offset_id)
    if as_json:
        show_json([{**row, "is_done": True}])
    else:
        tell(f"{one.broker} asks about it with its next round.")


def _open(admin: "Admin", transaction_id: str, limit: int) -> "OpenTransaction":
    found = admin.transactions.undecided(limit=limit)
    chosen = next((one for one in found.found if one.transaction_id == transaction_id), None)
    if chosen is None:
        more = "" if found.is_complete else ", but not all could be read: see --limit"
        raise PocketMQError(f"no transaction {transaction_id} waits{more}; `pocketmq tx ls` shows those that do")
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
