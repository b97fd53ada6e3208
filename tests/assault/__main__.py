"""The command: `python -m tests.assault`, or `make assault`.

python -m tests.assault                     all scenes: some minutes
python -m tests.assault --only "stalls"     those whose name contains it
python -m tests.assault --write-docs        and their results into docs/generated/reliability.md
"""

import logging
import random
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final, NamedTuple

import click
from tests.assault import damage, disk, hostile, leases, limits
from tests.assault.injector import Injector, unavailable
from tests.assault.stage import Stage
from tests.client.processes import ROOT, processes

DOCUMENT: Final = ROOT / "docs" / "generated" / "reliability.md"
HEAD: Final = """# Results: make assault

Written by `python -m tests.assault --write-docs`; do not edit.
[Reliability](../explanation/reliability.md) explains the scenes.
"""
SCENES: Final[dict[str, Callable[[Stage], None]]] = {
    **disk.SCENES,
    **leases.SCENES,
    **limits.SCENES,
    **damage.SCENES,
    **hostile.SCENES,
}


class Result(NamedTuple):
    """The result of a scene; `broken` is empty if every guarantee was kept."""

    scene: str
    facts: str
    broken: str
    seconds: float

    def row(self) -> str:
        outcome = f"**broken**: {self.broken}" if self.broken else self.facts or "kept"
        return f"| {self.scene} | {outcome} | {self.seconds:.0f} s |"


def play(name: str, seed: int, injector: Injector) -> Result:
    """Run one scene in a folder and with processes of its own."""
    began = monotonic()
    facts: list[str] = []
    broken = ""
    with TemporaryDirectory() as folder, processes(Path(folder)) as children:
        stage = Stage(Path(folder), children, injector, seed)
        facts = stage.facts
        try:
            SCENES[name](stage)
        except Exception as error:
            broken = f"{type(error).__name__}: {error}"
    return Result(name, "; ".join(facts), broken, monotonic() - began)


def write_document(results: list[Result], seed: int) -> None:
    kept = sum(not result.broken for result in results)
    seconds = sum(result.seconds for result in results)
    lines = [
        f"Last run: {date.today()}, seed {seed}, {kept} of {len(results)} scenes kept every guarantee, {seconds / 60:.1f} minutes.",
        "",
        "| scene | result | time |",
        "| --- | --- | --- |",
        *(result.row() for result in results),
    ]
    DOCUMENT.write_text("\n".join([HEAD, *lines, ""]))


@click.command()
@click.option("--only", default="", help="Scenes whose name contains this.")
@click.option("--seed", type=int, help="Repeats the chances of an earlier run.")
@click.option("--write-docs", is_flag=True, help="Write the results into docs/generated/reliability.md.")
@click.option("--list", "only_list", is_flag=True, help="Print the names of the scenes.")
def main(only: str, seed: int | None, write_docs: bool, only_list: bool) -> None:
    """Cause faults in real server processes, and compare the acknowledged messages with the handled ones."""
    if only_list:
        click.echo("\n".join(SCENES))
        return
    if reason := unavailable():
        raise click.ClickException(reason)
    logging.getLogger("pocketmq").addHandler(logging.NullHandler())  # clients would report every injected fault
    seed = random.randrange(2**32) if seed is None else seed
    chosen = [name for name in SCENES if only in name]
    if not chosen:
        raise click.ClickException(f"no scene has {only!r} in its name; --list prints them all")
    results = []
    with TemporaryDirectory() as folder, Injector(Path(folder)) as injector:
        for number, name in enumerate(chosen, 1):
            result = play(name, seed, injector)
            results.append(result)
            outcome = f"BROKEN {result.broken}" if result.broken else f"kept: {result.facts}"
            click.echo(f"[{number}/{len(chosen)}] {name} ({result.seconds:.0f} s)\n    {outcome}")
    if write_docs:
        write_document(results, seed)
    broken = sum(bool(result.broken) for result in results)
    click.echo(f"seed {seed}: {len(results) - broken} passed, {broken} failed")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
