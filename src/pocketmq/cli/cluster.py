"""`pocketmq cluster`: the brokers of a cluster, how they are, and their settings.

`pocketmq cluster config`: the settings of running brokers, and changing those of them that are safe to change.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from pocketmq.broker.setting_keys import KEYS
from pocketmq.cli.asking import (
    Cluster,
    complete_broker,
    confirm,
    dry_run_option,
    on_a_cluster,
    require_brokers,
    yes_option,
)
from pocketmq.cli.commands import ErrorTellingGroup, ExitCode, parsed
from pocketmq.cli.screen import Column, json_option, numbers, show_json, show_rows, tell, texts
from pocketmq.errors import NetworkError, PocketMQError, UsageError
from pocketmq.model.human import number, parse_pair, percent

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.admin.cluster import BrokerState

CHANGEABLE: Final = frozenset(name for name, key in KEYS.items() if key.at_run_time)
"""What a broker of ours accepts while it runs. No path, name, address or role: those need a restart."""
_SETTINGS: Final = (Column("broker"), Column("name"), Column("value"))
_CHANGES: Final = (Column("broker"), Column("name"), Column("before"), Column("after"), Column("problem"))


@click.command("config")
@on_a_cluster
@click.argument("broker", required=False, shell_complete=complete_broker)
@click.option("--contains", metavar="TEXT", help="Only settings whose name holds this, in any case.")
@click.option(
    "--set", "changes", type=parsed(parse_pair), multiple=True, metavar="NAME=VALUE", help="Change it; may be repeated."
)
@dry_run_option
@yes_option
@json_option
def config(
    cluster: Cluster,
    broker: str | None,
    contains: str | None,
    changes: Iterable[tuple[str, str]],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Show the settings of a broker, or of all; with --set, change them while they run.

    What is changed is shown first. Brokers refuse what they can only take at their start: PocketMQ's take fewer than
    RocketMQ's, and keep no change beyond their end.
    """
    wanted = _checked(dict(changes))
    with cluster.admin() as admin:
        before = _settings(cluster, admin, broker)
    if not wanted:
        needle = (contains or "").lower()
        rows = [
            {"broker": name, "name": key, "value": value}
            for name, settings in before.items()
            for key, value in sorted(settings.items())
            if needle in key.lower()
        ]
        show_rows(rows, _SETTINGS, as_json=as_json, empty="No setting is called so.")
        return ExitCode.OK
    plan = _plan(before, wanted)
    if not as_json:
        show_rows(plan, _CHANGES[:4], as_json=False, empty="")
    if dry_run:
        if as_json:
            show_json({**row, "is_done": False, "problem": ""} for row in plan)
        return ExitCode.OK
    confirm(f"Change {', '.join(before)}?", yes=yes)
    return _change(cluster, wanted, plan, as_json=as_json)


def _checked(changes: dict[str, str]) -> dict[str, str]:
    for name in changes:
        if name not in CHANGEABLE:
            near = difflib.get_close_matches(name, CHANGEABLE, 1, 0.6)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(CHANGEABLE))}"
            raise UsageError(f"{name} is not changed while a broker runs; {hint}")
    return changes


def _settings(cluster: Cluster, admin: "Admin", broker: str | None) -> dict[str, Mapping[str, str]]:
    masters = [place.name for place in require_brokers(cluster, admin) if place.is_master]
    if broker is not None and broker not in masters:
        raise UsageError(f"there is no broker {broker!r}; there are: {', '.join(masters) or 'none'}")
    return {name: admin.cluster.settings(name) for name in ([broker] if broker else masters)}


def _plan(before: Mapping[str, Mapping[str, str]], wanted: Mapping[str, str]) -> list[dict[str, Any]]:
    for broker, settings in before.items():
        if unknown := [name for name in wanted if name not in settings]:
            raise UsageError(f"broker {broker} has no setting {unknown[0]}")
    return [
        {"broker": broker, "name": name, "before": settings[name], "after": value}
        for broker, settings in before.items()
        for name, value in wanted.items()
    ]


def _change(cluster: Cluster, wanted: Mapping[str, str], plan: list[dict[str, Any]], *, as_json: bool) -> int:
    """One broker after the other; what one refuses is told, and what each has in the end is looked at."""
    problems: dict[str, str] = {}
    brokers = list(dict.fromkeys(row["broker"] for row in plan))
    now: dict[str, Mapping[str, str]] = {}
    with cluster.admin() as admin:
        for broker in brokers:
            try:
                admin.cluster.change_settings(broker, wanted)
            except PocketMQError as error:
                problems[broker] = str(error)
            try:
                now[broker] = admin.cluster.settings(broker)
            except PocketMQError as error:  # what was done elsewhere is told all the same
                problems.setdefault(broker, f"nobody can tell what it has now: {error}")
    rows = [_outcome(row, now.get(row["broker"], {}), problems.get(row["broker"], "")) for row in plan]
    if as_json:
        show_json(rows)
    else:
        for row in rows:
            done = f"{row['name']} is {row['now']}"
            tell(f"{row['broker']}: {done if row['is_done'] else row['problem']}.")
    return ExitCode.OK if all(row["is_done"] for row in rows) else ExitCode.REFUSED


def _outcome(row: dict[str, Any], now: Mapping[str, str], problem: str) -> dict[str, Any]:
    value = now.get(row["name"])
    is_done = value == row["after"] and not problem
    why = problem or ("" if is_done else f"the broker took it, and still says {value}")
    return {**row, "now": value, "is_done": is_done, "problem": why}


_COLUMNS = (
    *texts("cluster", "broker"),
    Column("id", told=number),
    *texts("address", "version"),
    Column("in_per_s", "in/s", told=number),
    Column("out_per_s", "out/s", told=number),
    *numbers("in_today", "out_today"),
    Column("disk_used", "disk", told=percent),
    Column("problem"),
)


@click.group("cluster", cls=ErrorTellingGroup)
def cluster_commands() -> None:
    """The brokers of a running cluster."""


@cluster_commands.command("show")
@on_a_cluster
@click.option("--cluster", "name", metavar="NAME", help="Only this one of several clusters.")
@json_option
def show(cluster: Cluster, name: str | None, as_json: bool) -> None:
    """Show every broker: where it is, its version, its load and its disk.

    One that does not answer is listed with its problem; what it would say is unknown.
    """
    with cluster.admin() as admin:
        states = admin.cluster.describe(name)
        if not states:
            raise NetworkError(f"no broker is registered at {cluster.name_servers}")
    show_rows([_row(state) for state in states], _COLUMNS, as_json=as_json, empty="")


cluster_commands.add_command(config)


def _row(state: "BrokerState") -> dict[str, Any]:
    return {
        "cluster": state.place.cluster,
        "broker": state.place.name,
        "id": state.place.broker_id,
        "address": str(state.place.address),
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
