"""The tables: rows a second, beside Parquet and Kafka in the same rounds, and the CPU of everybody who took part."""

from collections.abc import Mapping, Sequence
from statistics import mode

from bench.broker.sheets import Sheet, verdict
from bench.spark.cases import KAFKA, OURS, PARQUET, PARQUET_SHARE_AIM, Case
from bench.spark.costs import Shot

Results = Mapping[tuple[str, str], tuple[Case, Shot]]
"""By who and what."""

HEADINGS = (
    "case",
    "krow/s",
    "MB/s",
    "of Parquet",
    "of Kafka",
    "server",
    "Python",
    "Java",
    "us/row",
    "per core",
    "aims",
)
NOTES = (
    "server, Python, Java: microseconds of CPU for a row, all threads, user and system; us/row is their sum",
    "of Parquet, of Kafka: rate by rate; per core: rows for a second of CPU beside Kafka's",
    "streams: rows by the time of the triggers that brought them; CPU with the start of the query",
)


def sheet(results: Results, body_bytes: int, notes: Sequence[str] = ()) -> Sheet:
    """All cases with rows of one size."""
    count = mode(case.rows for case, _ in results.values())
    title = f"{'1 KB' if body_bytes == 1024 else f'{body_bytes} B'}, {count:,} rows"
    return Sheet(title, HEADINGS, [_line(one, results, body_bytes) for one in results.values()], [*NOTES, *notes])


def _line(measured: tuple[Case, Shot], results: Results, body_bytes: int) -> list[str]:
    case, shot = measured
    rate = case.rows / shot.seconds
    cells = [f"{case.who}: {case.what}", f"{rate / 1e3:,.0f}", f"{rate * body_bytes / 1e6:,.0f}"]
    cells += [_times(rate, results.get((who, case.what))) if case.who == OURS else "" for who in (PARQUET, KAFKA)]
    parts = (shot.server_s, shot.python_s, shot.java_s, shot.cpu_s)
    cells += [f"{part * 1e6 / case.rows:z.2f}" for part in parts]
    cells += [_per_core(measured, results), aims(measured, results)]
    return cells


def aims(measured: tuple[Case, Shot], results: Results) -> str:
    """Each aim, and whether it is met."""
    case, shot = measured
    said = []
    rate = case.rows / shot.seconds
    if case.rate_aim is not None:
        said.append(f"≥ {case.rate_aim / 1e3:,.0f} krow/s: {verdict(rate >= case.rate_aim)}")
    if case.has_share_aim:
        if (parquet := results.get((PARQUET, case.what))) is not None:
            share = rate / _rate(parquet)
            said.append(f"≥ {PARQUET_SHARE_AIM:.0%} of Parquet: {verdict(share >= PARQUET_SHARE_AIM)}")
        if (kafka := results.get((KAFKA, case.what))) is not None:
            said.append(f"ahead of Kafka per core: {verdict(_cost(measured) < _cost(kafka))}")
    return ", ".join(said)


def _per_core(measured: tuple[Case, Shot], results: Results) -> str:
    kafka = results.get((KAFKA, measured[0].what))
    if measured[0].who != OURS or kafka is None:
        return ""
    return f"{_cost(kafka) / max(_cost(measured), 1e-9):.2f}"


def _times(rate: float, other: tuple[Case, Shot] | None) -> str:
    return "" if other is None else f"{rate / _rate(other):.2f}"


def _rate(measured: tuple[Case, Shot]) -> float:
    return measured[0].rows / measured[1].seconds


def _cost(measured: tuple[Case, Shot]) -> float:
    return measured[1].cpu_s / measured[0].rows
