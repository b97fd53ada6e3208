"""`pocketmq bench`: a quick measurement of a running cluster, with its percentiles."""

import math
from collections.abc import Sequence
from typing import Any, Final

import click

from pocketmq.cli.asking import Cluster, advised, on_a_cluster
from pocketmq.cli.commands import ExitCode
from pocketmq.cli.measuring import INDEX_BYTES, Load, Measured, measure
from pocketmq.cli.rows_screen import Column, json_option, show_json, show_rows, tell
from pocketmq.cli.screen import count
from pocketmq.clock import SystemClock
from pocketmq.net.portal import Portal

MAX_SECONDS: Final = 120
MAX_BODY_BYTES: Final = 1 << 20
MAX_LANES: Final = 1_024
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f} ms"


_COLUMNS: Final = (
    Column("what"),
    *(Column(f"p{percent:g}", told=_ms) for percent in PERCENTILES),
    Column("max", "longest", told=_ms),
)


@click.command("bench")
@on_a_cluster
@click.option(
    "--seconds", type=click.FloatRange(0.1, MAX_SECONDS), default=5.0, show_default=True, help="How long it sends."
)
@click.option(
    "--body-bytes",
    type=click.IntRange(INDEX_BYTES, MAX_BODY_BYTES),
    default=1_024,
    show_default=True,
    metavar="N",
    help="The size of each message.",
)
@click.option(
    "--lanes",
    type=click.IntRange(1, MAX_LANES),
    default=32,
    show_default=True,
    metavar="N",
    help="Sends that are under way at the same time.",
)
@click.option(
    "--queues", type=click.IntRange(1, 1_024), default=4, show_default=True, metavar="N", help="Of its topic."
)
@json_option
def bench(cluster: Cluster, seconds: float, body_bytes: int, lanes: int, queues: int, as_json: bool) -> int:
    """Send messages to a running cluster and read them again, and tell how long that took.

    One process on this machine does both, so it tells what one Python client gets, and not the most that the cluster can do. It uses
    a topic and a group of its own, which are deleted in the end.

    \b
    Exit code: 0  all messages were stored and read
               1  some failed, or were not read again in time
               3  the cluster cannot be used
    """
    clock = SystemClock()
    load = Load(
        topic=f"pocketmq-bench-{clock.now_ms()}", seconds=seconds, body_bytes=body_bytes, lanes=lanes, queues=queues
    )
    with advised(), Portal("pocketmq bench") as portal:
        measured = portal.run(measure(cluster, load, clock))
    rows = [
        {"what": "send", **percentiles(measured.send_s)},
        {"what": "end to end", **percentiles(measured.end_to_end_s)},
    ]
    if as_json:
        show_json([{**_totals(measured, load), "send": rows[0], "end_to_end": rows[1]}])
    else:
        _tell(measured, load)
        show_rows(rows, _COLUMNS, as_json=False, empty="")
    return ExitCode.OK if not measured.failures and not measured.missing else ExitCode.REPAIRABLE


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """In milliseconds, each of them a time that was measured; None when there is none."""
    ordered = sorted(seconds)
    if not ordered:
        return dict.fromkeys((*(f"p{percent:g}" for percent in PERCENTILES), "max"))
    places = {f"p{percent:g}": math.ceil(len(ordered) * percent / 100) - 1 for percent in PERCENTILES}
    found: dict[str, float | None] = {name: ordered[place] * 1000 for name, place in places.items()}
    return {**found, "max": ordered[-1] * 1000}


def _totals(measured: Measured, load: Load) -> dict[str, Any]:
    sent = len(measured.send_s)
    return {
        "seconds": measured.seconds,
        "sent": sent,
        "read": len(measured.end_to_end_s),
        "missing": measured.missing,
        "twice": measured.twice,
        "failures": dict(measured.failures),
        "per_s": sent / measured.seconds if measured.seconds else None,
        "mib_per_s": sent * load.body_bytes / measured.seconds / (1 << 20) if measured.seconds else None,
        "body_bytes": load.body_bytes,
        "lanes": load.lanes,
        "queues": load.queues,
    }


def _tell(measured: Measured, load: Load) -> None:
    totals = _totals(measured, load)
    tell(
        f"{count(totals['sent'], 'message')} of {load.body_bytes:,} bytes in {measured.seconds:.1f} s: "
        f"{totals['per_s']:,.0f} messages a second, {totals['mib_per_s']:,.1f} MiB a second."
    )
    tell(f"By one process, {load.lanes} sends under way at once, {load.queues} queues, read by one member meanwhile.")
    for kind, many in measured.failures.most_common():
        tell(f"Failed: {many:,} by {kind}.")
    if measured.missing:
        tell(f"Not read again in time: {measured.missing:,}.")
    if measured.twice:
        tell(f"Read more than once: {measured.twice:,}.")
    tell("")
