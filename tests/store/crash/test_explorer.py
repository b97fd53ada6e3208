"""Power losses at any moment and in any way that a disk allows; `make crash N=…` looks at more of them."""

import logging

import pytest
from tests.store.crash.explorer import LIVES, MOMENTS, STATES, explore

SEEDS = 110
SEEDS_PER_TEST = 10


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_after_any_power_loss_the_store_keeps_its_promises(first: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "pocketmq")

    seen = sum(explore(seed) for seed in range(first, first + SEEDS_PER_TEST))

    assert seen == SEEDS_PER_TEST * LIVES * MOMENTS * STATES


def test_enough_states_are_looked_at() -> None:
    assert SEEDS * LIVES * MOMENTS * STATES >= 5000
