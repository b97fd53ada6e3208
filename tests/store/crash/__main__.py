"""`python -m tests.store.crash`: explore crash states of the store, as many as asked for, or one seed again."""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import click
from tests.store.crash.explorer import LIVES, MOMENTS, STATES, explore, explore_quietly

STATES_PER_SEED = LIVES * MOMENTS * STATES


@click.command()
@click.option("--states", default=5000, show_default=True, help="How many states to look at.")
@click.option("--from", "first", default=0, show_default=True, help="The first seed.")
@click.option("--seed", type=int, help="Explore one seed alone, with what the store logs.")
def main(states: int, first: int, seed: int | None) -> None:
    """Pull the plug in every way, and see whether the store keeps its promises."""
    if seed is not None:
        click.echo(f"seed {seed}: {explore(seed)} states, all sound")
        return
    seeds = range(first, first - (-states // STATES_PER_SEED))
    began, seen, told = time.monotonic(), 0, 0.0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for count in pool.map(explore_quietly, seeds, chunksize=4):
            seen += count
            if time.monotonic() >= told + 10:
                told = time.monotonic()
                click.echo(f"{seen} of {len(seeds) * STATES_PER_SEED} states", err=True)
    took = time.monotonic() - began
    click.echo(
        f"{seen} states of the seeds {first} to {seeds[-1]} in {took:.0f} s ({seen / took:.0f} a second), all sound"
    )


if __name__ == "__main__":
    main()
