"""`pocketmq cluster`: the brokers of a cluster, how they are, and their settings."""

from typing import TYPE_CHECKING, Any

import click

from pocketmq.cli.asking import Cluster, on_a_cluster
from pocketmq.cli.cluster_config import config
from pocketmq.cli.commands import ErrorTellingGroup
from pocketmq.cli.rows_screen import Column, json_option, show_rows
from pocketmq.cli.words import number, share
from pocketmq.errors import NetworkError

if TYPE_CHECKING:
    from pocketmq.client.administration.cluster import BrokerState

_COLUMNS = (
    Column("cluster"),
    Column("broker"),
    Column("id", told=number),
    Column("address"),
    Column("version"),
    Column("in_per_s", "in/s", told=number),
    Column("out_per_s", "out/s", told=number),
    Column("in_today", told=number),
    Column("out_today", told=number),
    Column("disk_used", "disk", told=share),
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
