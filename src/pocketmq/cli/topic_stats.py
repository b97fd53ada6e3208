"""`pocketmq topic stats`: how much goes into a topic and out of it, as its brokers count it."""

from typing import TYPE_CHECKING, Any, Final

import click

from pocketmq.cli.asking import Cluster, on_a_cluster
from pocketmq.cli.completion import topic_argument
from pocketmq.cli.rows_screen import Column, json_option, show_rows
from pocketmq.cli.words import number
from pocketmq.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.client.blocking_admin import Admin
    from pocketmq.protocol.bodies.stats import BrokerStatsData

_COLUMNS: Final = (
    Column("who"),
    Column("broker"),
    Column("per_s", "/s", told=number),
    Column("last_minute", told=number),
    Column("last_hour", told=number),
    Column("last_day", told=number),
    Column("bytes_last_minute", told=number),
    Column("problem"),
)
_SENT: Final = ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE")
_READ: Final = ("GROUP_GET_NUMS", "GROUP_GET_SIZE")


@click.command("stats")
@on_a_cluster
@topic_argument
@json_option
def stats(cluster: Cluster, topic: str, as_json: bool) -> None:
    """Show how many messages go into a topic, and how many each group gets out of it.

    Brokers count since their start, and look every ten seconds; what one has not counted is unknown.
    """
    with cluster.admin() as admin:
        brokers = list(admin.topics.describe(topic).configs)
        readers = admin.topics.readers(topic)
        rows = [_row(admin, broker, "sent", _SENT, topic) for broker in brokers]
        rows += [
            _row(admin, broker, f"read by {group}", _READ, f"{topic}@{group}", group)
            for group in readers
            for broker in brokers
        ]
    show_rows(rows, _COLUMNS, as_json=as_json, empty="")


def _row(
    admin: "Admin", broker: str, who: str, names: tuple[str, str], key: str, group: str | None = None
) -> dict[str, Any]:
    row: dict[str, Any] = {"who": who, "broker": broker, "group": group, "problem": ""}
    try:
        counts, sizes = (admin.cluster.statistic(broker, name, key) for name in names)
    except PocketMQError as error:
        return {**row, **_numbers(None, None), "problem": str(error)}
    return {**row, **_numbers(counts, sizes), "problem": "" if counts else "nothing was counted yet"}


def _numbers(counts: "BrokerStatsData | None", sizes: "BrokerStatsData | None") -> dict[str, Any]:
    return {
        "per_s": None if counts is None else counts.stats_minute.tps,
        "last_minute": None if counts is None else counts.stats_minute.sum,
        "last_hour": None if counts is None else counts.stats_hour.sum,
        "last_day": None if counts is None else counts.stats_day.sum,
        "bytes_last_minute": None if sizes is None else sizes.stats_minute.sum,
    }
