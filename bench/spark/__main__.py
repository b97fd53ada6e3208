"""Run the micro benchmarks of the Spark connector and print them as one table; Spark itself takes no part.

python -m bench.spark                     all of them, about half a minute
python -m bench.spark all sink            those whose name holds one of these words
python -m bench.spark --rounds 50         longer, on a noisy machine
"""

import argparse
from collections.abc import Sequence
from time import process_time

from rich.console import Console
from rich.table import Table

from bench.method import Subject, Timing, best_peer, machine, measure
from bench.spark import decoding, sinking

ROUNDS = 11
ROUND_MS = 60.0
WIDTH = 118


def main(arguments: Sequence[str] | None = None, *, subjects: Sequence[Subject] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.spark", description="Micro benchmarks of the Spark connector.")
    parser.add_argument("words", nargs="*", help="run the subjects whose name holds one of these words")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds in which the candidates take turns")
    parser.add_argument("--round-ms", type=float, default=ROUND_MS, help="how long a candidate runs in one round")
    options = parser.parse_args(arguments)
    known = [*decoding.subjects(), *sinking.subjects()] if subjects is None else subjects
    chosen = [one for one in known if not options.words or any(word in one.name for word in options.words)]
    if not chosen:
        parser.error(f"no subject is called so; there are: {'; '.join(one.name for one in known)}")
    if options.rounds < 1:
        parser.error("at least one round is needed")

    table = _empty_table(options.rounds, options.round_ms)
    for subject in chosen:
        _add_rows(table, subject, measure(subject, options.rounds, options.round_ms, process_time))
    Console(width=WIDTH).print(table)


def _empty_table(rounds: int, round_ms: float) -> Table:
    table = Table(
        title=f"nanoseconds per row · {machine()}",
        caption=(
            f"processor time: median and minimum of {rounds} rounds of {round_ms:g} ms each, candidates interleaved; "
            "million rows/s and speed by medians"
        ),
    )
    table.add_column("subject", no_wrap=True)
    table.add_column("candidate", no_wrap=True)
    for heading in ("median", "min", "Mrow/s", "speed", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    return table


def _add_rows(table: Table, subject: Subject, timings: Sequence[Timing]) -> None:
    peer = best_peer(timings)
    for number, timing in enumerate(timings):
        aim_us = subject.aim_us if number == 0 else None
        table.add_row(
            "" if number else subject.name,
            f"[bold]{timing.candidate.name}[/]" if timing.candidate.ours else timing.candidate.name,
            f"{timing.median_us * 1000:.0f}",
            f"{timing.min_us * 1000:.0f}",
            f"{1 / timing.median_us:.2f}",
            f"{peer.median_us / timing.median_us:.1f}×" if peer else "",
            "" if aim_us is None else f"≥ {1 / aim_us:.1f}",
            "" if aim_us is None else "[green]ok[/]" if timing.median_us <= aim_us else "[red]missed[/]",
            end_section=number == len(timings) - 1,
        )


if __name__ == "__main__":
    main()
