"""Thousands of power losses, in every test run; more with `make crash N=…`."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.crash import checks
from tests.store.crash.explorer import STATES_PER_SEED, Broken, explore, explore_all, explore_quietly

STATES = 52 * STATES_PER_SEED
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """Exploring quietly silences all of PocketMQ; other tests read its log."""
    logger = logging.getLogger("pocketmq")
    level = logger.level
    yield
    logger.setLevel(level)


def test_after_any_power_loss_the_store_keeps_its_guarantees() -> None:
    seeds = range(STATES // STATES_PER_SEED)

    assert sum(explore_all(seeds)) == STATES


def test_a_seed_repeats_the_same_run() -> None:
    """Also in another process, where sets have another order."""
    code = "from tests.store.crash.explorer import explore_quietly; print(explore_quietly(7).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60
    )

    assert other.stdout.strip() == explore_quietly(7).digest


def test_a_broken_guarantee_is_reported_with_the_way_to_reproduce_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_fault(*_: object) -> None:
        raise AssertionError("message 5 is missing")

    monkeypatch.setattr(checks, "check_times", find_fault)

    with pytest.raises(Broken) as broken:
        explore(3)

    what, where, again = str(broken.value).splitlines()
    assert what == "message 5 is missing"
    assert where.startswith("  seed 3, life 1, power lost after operation ")
    assert again == "  again: python -m tests.store.crash --seed 3"
