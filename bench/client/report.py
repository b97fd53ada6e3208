"""The table: rows of PocketMQ's client with their targets, and the results of other clients."""

from collections.abc import Mapping, Sequence

from bench.broker.sheets import Sheet, verdict
from bench.client.peers import JAVA, Peer
from bench.client.rows import Row
from bench.client.stage import Result

MISSING = "–"
AIM_SIZE = 100
"""Targets apply to bodies of this size."""

Results = Mapping[tuple[Row, int], Result]


def sheet(results: Results, peers: Sequence[Peer], notes: Sequence[str]) -> Sheet:
    """One table row for each load and size."""
    headings = ["load", "bytes", "msg/s", "client us", "broker us", "p50 us", "p99 us", "goals"]
    for peer in peers:
        headings += [peer.name, "times", "us"]
    rows = []
    for (row, size), result in results.items():
        measured = result.measured
        cells = [row.title, str(size), f"{measured.rate:,.0f}", f"{measured.client_us:.1f}", f"{result.broker_us:.1f}"]
        cells += [_time(measured.p50_us), _time(measured.p99_us), aims(row, size, result)]
        for peer in peers:
            cells += beside(row, size, result, peer)
        rows.append(cells)
    said = [peer.problem for peer in peers if peer.problem]
    return Sheet("client", headings, rows, [*notes, *said])


def aims(row: Row, size: int, result: Result) -> str:
    """Each target, and whether it is met."""
    if size != AIM_SIZE:
        return ""
    said = []
    if row.rate_aim is not None:
        said.append(f"≥ {row.rate_aim:,.0f}/s: {verdict(result.measured.rate >= row.rate_aim)}")
    if row.cost_aim_us is not None:
        said.append(f"≤ {row.cost_aim_us:g} us: {verdict(result.measured.client_us <= row.cost_aim_us)}")
    return ", ".join(said)


def beside(row: Row, size: int, result: Result, peer: Peer) -> list[str]:
    """The rate of another client in the closest load, the factor to ours, and its CPU time per message."""
    name = row.java_peer if peer.name == JAVA else row.python_peer
    other = peer.rates.get((name, size)) if name is not None else None
    if other is None:
        return [MISSING, "", ""]
    return [f"{other.rate:,.0f}", f"{result.measured.rate / other.rate:.2f}", f"{other.client_us:.1f}"]


def _time(us: float) -> str:
    return f"{us:,.0f}" if us else MISSING
