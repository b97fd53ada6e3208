"""`pocketmq cluster`: show the brokers of a cluster; show and change their settings; export leases."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

import pocketmq
from pocketmq.broker.setting_keys import CONSTANTS, KEYS, WITHOUT_EFFECT
from pocketmq.cli.cluster_options import Cluster, cluster_options, complete_broker, require_brokers
from pocketmq.cli.commands import CommandGroup, ExitCode, text_option
from pocketmq.cli.output import (
    Change,
    Column,
    change_options,
    json_option,
    numbers,
    show_json,
    show_rows,
    show_text,
    texts,
)
from pocketmq.errors import NetworkError, PocketMQError, UsageError
from pocketmq.model.human import number, parse_pair, percent

if TYPE_CHECKING:
    from pocketmq.client.admin.cluster import BrokerState

_SETTINGS: Final = (Column("broker"), Column("name"), Column("value"))
_CHANGES: Final = (Column("broker"), Column("name"), Column("before"), Column("after"))


@click.command("config")
@cluster_options
@click.argument("broker", required=False, shell_complete=complete_broker)
@text_option("--contains", "Only settings whose name contains this text, ignoring case.", metavar="TEXT")
@text_option(
    "--set", "changes", "Change a setting; may be repeated.", parse=parse_pair, multiple=True, metavar="NAME=VALUE"
)
@change_options
def config(
    cluster: Cluster,
    broker: str | None,
    contains: str | None,
    changes: Iterable[tuple[str, str]],
    change: Change,
) -> int:
    """Show the settings of a broker, or of all brokers. With --set, change settings of running brokers.

    The command shows the changes and asks for confirmation. Brokers reject settings that need a restart. PocketMQ's
    brokers accept fewer settings than Apache's, and do not keep changes after a restart.
    """
    settings = _checked(dict(changes))
    with cluster.admin() as admin:
        before = _settings(cluster, admin, broker)
    if not settings:
        needle = (contains or "").lower()
        rows = [
            {"broker": name, "name": key, "value": value}
            for name, current in before.items()
            for key, value in sorted(current.items())
            if needle in key.lower()
        ]
        show_rows(rows, _SETTINGS, as_json=change.as_json, empty="No setting name contains this text.")
        return ExitCode.OK
    plan = _plan(before, settings)
    change.show_plan(plan, _CHANGES)
    if not change.is_confirmed(f"Change {', '.join(before)}?"):
        change.show_result(({**row, "problem": ""} for row in plan), "")
        return ExitCode.OK
    return _change(cluster, settings, plan, as_json=change.as_json)


def _checked(changes: dict[str, str]) -> dict[str, str]:
    """Refuse settings that an Apache broker would accept, but use only after its next start."""
    for name in changes:
        if name in CONSTANTS:
            raise UsageError(f"{name} cannot change while a broker runs: {CONSTANTS[name].why}")
        if name in KEYS and not KEYS[name].at_run_time:
            raise UsageError(f"{name} cannot change while a broker runs: {KEYS[name].why_not}")
    return changes


def _settings(cluster: Cluster, admin: "pocketmq.Admin", broker: str | None) -> dict[str, Mapping[str, str]]:
    masters = [each.name for each in require_brokers(cluster, admin) if each.is_master]
    if broker is not None and broker not in masters:
        raise UsageError(f"unknown broker {broker!r}; the brokers are: {', '.join(masters) or 'none'}")
    return {name: admin.cluster.settings(name) for name in ([broker] if broker else masters)}


def _plan(before: Mapping[str, Mapping[str, str]], changes: Mapping[str, str]) -> list[dict[str, Any]]:
    for broker, settings in before.items():
        for name in changes:
            if name not in settings:
                raise UsageError(f"broker {broker} has no setting {name}; {_reason(name, settings)}")
    return [
        {"broker": broker, "name": name, "before": settings[name], "after": value}
        for broker, settings in before.items()
        for name, value in changes.items()
    ]


def _reason(name: str, settings: Mapping[str, str]) -> str:
    """Why a broker does not have a setting, or how its name is written."""
    if name in WITHOUT_EFFECT:
        return f"it would have no effect: {WITHOUT_EFFECT[name]}"
    near = difflib.get_close_matches(name, settings, 1, 0.6)
    return f"did you mean {near[0]}?" if near else "`pocketmq cluster config` lists the settings"


def _change(cluster: Cluster, changes: Mapping[str, str], plan: list[dict[str, Any]], *, as_json: bool) -> int:
    """Change one broker after the other, then read the settings back and show the result."""
    problems: dict[str, str] = {}
    brokers = list(dict.fromkeys(row["broker"] for row in plan))
    now: dict[str, Mapping[str, str]] = {}
    with cluster.admin() as admin:
        for broker in brokers:
            try:
                admin.cluster.change_settings(broker, changes)
            except PocketMQError as error:
                problems[broker] = str(error)
            try:
                now[broker] = admin.cluster.settings(broker)
            except PocketMQError as error:  # the results of the other brokers are still shown
                problems.setdefault(broker, f"the new settings cannot be read: {error}")
    rows = [_outcome(row, now.get(row["broker"], {}), problems.get(row["broker"], "")) for row in plan]
    if as_json:
        show_json(rows)
    else:
        for row in rows:
            done = f"{row['name']} is {row['now']}"
            show_text(f"{row['broker']}: {done if row['is_done'] else row['problem']}.")
    return ExitCode.OK if all(row["is_done"] for row in rows) else ExitCode.REFUSED


def _outcome(row: dict[str, Any], now: Mapping[str, str], problem: str) -> dict[str, Any]:
    value = now.get(row["name"])
    is_done = value == row["after"] and not problem
    text = problem or ("" if is_done else f"the broker accepted the change but still reports {value}")
    return {**row, "now": value, "is_done": is_done, "problem": text}


_COLUMNS = (
    *texts("cluster", "broker"),
    Column("id", shown_as=number),
    *texts("address", "version"),
    Column("in_per_s", "in/s", shown_as=number),
    Column("out_per_s", "out/s", shown_as=number),
    *numbers("in_today", "out_today"),
    Column("disk_used", "disk", shown_as=percent),
    Column("problem"),
)


@click.group("cluster", cls=CommandGroup)
def cluster_commands() -> None:
    """The brokers of a running cluster."""


@cluster_commands.command("show")
@cluster_options
@text_option("--cluster", "name", "Only the brokers of this cluster.", metavar="NAME")
@json_option
def show(cluster: Cluster, name: str | None, as_json: bool) -> None:
    """Show every broker with its address, version, load and disk use.

    A broker that does not answer is listed with the error.
    """
    with cluster.admin() as admin:
        states = admin.cluster.describe(name)
        if not states:
            raise NetworkError(f"no broker is registered at {cluster.name_servers}")
    show_rows([_row(state) for state in states], _COLUMNS, as_json=as_json, empty="")


@cluster_commands.command("export-leases")
@cluster_options
@click.argument("broker", shell_complete=complete_broker)
def export_leases(cluster: Cluster, broker: str) -> None:
    """Move the leases (POP) of a broker into its log, before another broker takes its files.

    Only Apache's brokers with popConsumerKVServiceEnable keep leases elsewhere. PocketMQ's broker has nothing to move.
    """
    with cluster.admin() as admin:
        admin.cluster.export_leases(broker)
    show_text(f"All leases of {broker} are in its log.")


cluster_commands.add_command(config)


def _row(state: "BrokerState") -> dict[str, Any]:
    return {
        "cluster": state.broker.cluster,
        "broker": state.broker.name,
        "id": state.broker.broker_id,
        "address": str(state.broker.address),
        "version": state.version,
        "in_per_s": state.put_per_s,
        "out_per_s": state.got_per_s,
        "in_today": state.put_today,
        "out_today": state.got_today,
        "disk_used": state.disk_used,
        "booted_ms": state.booted_ms,
        "earliest_store_ms": state.earliest_store_ms,
        "not_dispatched_bytes": state.not_dispatched_bytes,
        "problem": state.problem,
    }
