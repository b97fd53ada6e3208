"""Run the micro benchmarks and print them as one table.

python -m bench                    all of them, about ten seconds
python -m bench record batch       those whose name holds one of these words
python -m bench --rounds 200       longer, on a noisy machine
"""

import argparse
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench import batch_body, frame_split, send_header, send_reply, stored_record
from bench.method import Subject, Timing, best_peer, machine, measure

ROUNDS = 41
ROUND_MS = 6.0
WIDTH = 118


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench", description="Micro benchmarks of the codecs.")
    parser.add_argument("words", nargs="*", help="run the subjects whose name holds one of these words")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds in which the candidates take turns")
    parser.add_argument("--round-ms", type=float, default=ROUND_MS, help="how long a candidate runs in one round")
    options = parser.parse_args(arguments)
    chosen = [subject for subject in all_subjects() if _is_wanted(subject, options.words)]
    if not chosen:
        parser.error(f"no subject is called so; there are: {', '.join(subject.name for subject in all_subjects())}")
    if options.rounds < 1:
        parser.error("at least one round is needed")

    table = _empty_table(options.rounds, options.round_ms)
    for subject in chosen:
        _add_rows(table, subject, measure(subject, options.rounds, options.round_ms))
    Console(width=WIDTH).print(table)


def all_subjects() -> list[Subject]:
    modules = (send_header, send_reply, stored_record, frame_split, batch_body)
    return [subject for module in modules for subject in module.subjects()]


def _is_wanted(subject: Subject, words: Sequence[str]) -> bool:
    return not words or any(word in subject.name for word in words)


def _empty_table(rounds: int, round_ms: float) -> Table:
    table = Table(
        title=f"microseconds per message · {machine()}",
        caption=(
            f"median and minimum of {rounds} rounds of {round_ms:g} ms each, candidates interleaved, 100-byte bodies; "
            "speed: times that of the best other way, by medians"
        ),
    )
    table.add_column("subject", no_wrap=True)
    table.add_column("candidate", no_wrap=True)
    for heading in ("median", "min", "speed", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    return table


def _add_rows(table: Table, subject: Subject, timings: Sequence[Timing]) -> None:
    peer = best_peer(timings)
    for number, timing in enumerate(timings):
        is_first = number == 0
        aim_us = subject.aim_us if is_first else None
        table.add_row(
            subject.name if is_first else "",
            f"[bold]{timing.candidate.name}[/]" if timing.candidate.ours else timing.candidate.name,
            f"{timing.median_us:.2f}",
            f"{timing.min_us:.2f}",
            f"{peer.median_us / timing.median_us:.1f}×" if peer else "",
            "" if aim_us is None else f"≤ {aim_us:g}",
            "" if aim_us is None else verdict(timing, aim_us),
            end_section=number == len(timings) - 1,
        )


def verdict(timing: Timing, aim_us: float) -> str:
    return "[green]ok[/]" if timing.median_us <= aim_us else "[red]over[/]"


if __name__ == "__main__":
    main()
