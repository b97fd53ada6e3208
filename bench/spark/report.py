"""The tables: rows a second, beside Parquet and Kafka in the same rounds, and the CPU of everybody who took part."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mode
from typing import NamedTuple

from bench.broker.sheets import Sheet, verdict
from bench.spark.cases import (
    ARCHIVE_CPU_AIM,
    ARCHIVE_SHARE_AIM,
    ARCHIVED,
    DIRECT,
    KAFKA,
    OURS,
    PARQUET,
    PARQUET_SHARE_AIM,
    Case,
)
from bench.spark.costs import Shot


class Measured(NamedTuple):
    """A case, the median of each number of its shots, and the seconds of the quickest of them."""

    case: Case
    shot: Shot
    least_s: float


Results = Mapping[tuple[str, str], Measured]
"""By who and what."""

HEADINGS = (
    "case",
    "krow/s",
    "quickest",
    "MB/s",
    "of Parquet",
    "of Kafka",
    "server",
    "Python",
    "Java",
    "us/row",
    "per core",
    "goals",
)
NOTES = (
    "server, Python, Java: microseconds of CPU for a row, all threads, user and system, with the driver; us/row is their sum",
    "quickest: krow/s of one round; its distance from the median shows how much the machine was disturbed",
    "of Parquet, of Kafka: rate by rate; per core: rows for a second of CPU beside Kafka's",
    "streams: rows by the time of the triggers that brought them; CPU with the start of the query",
    "archive: into Parquet, beside Spark's copies of equal columns from Parquet and from Kafka, in batches of a million rows",
)


def sheet(results: Results, body_bytes: int, notes: Sequence[str] = ()) -> Sheet:
    """All cases with rows of one size."""
    count = mode(one.case.rows for one in results.values())
    title = f"{'1 KB' if body_bytes == 1024 else f'{body_bytes} B'}, {count:,} rows"
    return Sheet(title, HEADINGS, [_line(one, results, body_bytes) for one in results.values()], [*NOTES, *notes])


def _line(measured: Measured, results: Results, body_bytes: int) -> list[str]:
    case, shot, least_s = measured
    rate = case.rows / shot.seconds
    cells = [f"{case.who}: {case.what}", f"{rate / 1e3:,.0f}", f"{case.rows / least_s / 1e3:,.0f}"]
    cells.append(f"{rate * body_bytes / 1e6:,.0f}")
    cells += [_times(rate, results.get((who, case.what))) if case.who == OURS else "" for who in (PARQUET, KAFKA)]
    parts = (shot.server_s, shot.python_s, shot.java_s, shot.cpu_s)
    cells += [f"{part * 1e6 / case.rows:z.2f}" for part in parts]
    cells += [_per_core(measured, results), aims(measured, results)]
    return cells


def aims(measured: Measured, results: Results) -> str:
    """Each aim, and whether it is met."""
    case, shot, _ = measured
    said = []
    rate = case.rows / shot.seconds
    if case.rate_aim is not None:
        said.append(f"≥ {case.rate_aim / 1e3:,.0f} krow/s: {verdict(rate >= case.rate_aim)}")
    if case.has_share_aim:
        if (parquet := results.get((PARQUET, case.what))) is not None:
            share = rate / _rate(parquet)
            said.append(f"≥ {PARQUET_SHARE_AIM:.0%} of Parquet: {verdict(share >= PARQUET_SHARE_AIM)}")
        if (kafka := results.get((KAFKA, case.what))) is not None:
            wanted = "ahead of" if case.per_core_aim == 1 else f"≥ {case.per_core_aim:g} times"
            is_met = _cost(measured) * case.per_core_aim < _cost(kafka)
            said.append(f"{wanted} Kafka per core: {verdict(is_met)}")
    if case.kafka_aim is not None and (kafka := results.get((KAFKA, case.what))) is not None:
        said.append(f"≥ {case.kafka_aim:g} times Kafka: {verdict(rate >= case.kafka_aim * _rate(kafka))}")
    return ", ".join([*said, *(_archive_aims(measured, results) if case.has_archive_aims else ())])


def _archive_aims(measured: Measured, results: Results) -> Iterator[str]:
    what = measured.case.what
    if (parquet := results.get((PARQUET, what))) is not None:
        times = _cost(measured) / max(_cost(parquet), 1e-9)
        yield f"≤ {ARCHIVE_CPU_AIM} times Parquet's CPU: {times:.2f}, {verdict(times <= ARCHIVE_CPU_AIM)}"
    if (kafka := results.get((KAFKA, what))) is not None:
        yield f"faster than Kafka: {verdict(_rate(measured) > _rate(kafka))}"
    if what == ARCHIVED and (direct := results.get((OURS, DIRECT))) is not None:
        share = _rate(measured) / _rate(direct)
        yield f"≥ {ARCHIVE_SHARE_AIM:.0%} of direct: {share:.0%}, {verdict(share >= ARCHIVE_SHARE_AIM)}"


def _per_core(measured: Measured, results: Results) -> str:
    kafka = results.get((KAFKA, measured.case.what))
    if measured.case.who != OURS or kafka is None:
        return ""
    return f"{_cost(kafka) / max(_cost(measured), 1e-9):.2f}"


def _times(rate: float, other: Measured | None) -> str:
    return "" if other is None else f"{rate / _rate(other):.2f}"


def _rate(measured: Measured) -> float:
    return measured.case.rows / measured.shot.seconds


def _cost(measured: Measured) -> float:
    return measured.shot.cpu_s / measured.case.rows
