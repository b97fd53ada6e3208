"""`python -m tests.store.crash`: explore crash states of the store, a number of seeds or one seed again."""

import time

import click
from tests.store.crash.explorer import STATES_PER_SEED, explore, explore_all


@click.command()
@click.option("--states", default=5000, show_default=True, help="How many states to look at.")
@click.option("--from", "first", default=0, show_default=True, help="The first seed.")
@click.option("--seed", type=int, help="Explore one seed alone, with what the store logs.")
def main(states: int, first: int, seed: int | None) -> None:
    """Simulate power losses in every way, and check the guarantees of the store."""
    if seed is not None:
        click.echo(f"seed {seed}: {explore(seed).states} states, all sound")
        return
    seeds = range(first, first - (-states // STATES_PER_SEED))
    began = told = time.monotonic()
    seen = 0
    for count in explore_all(seeds):
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
