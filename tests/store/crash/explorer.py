"""The crash explorer: from one seed, several runs of a store on one disk, each ended by power losses at many moments.

    life ── operation ── operation ── … ── operation        every moment of it may be the last
                  └─ power loss ─► recover ─► check          a state
                         └─ the next life begins with one of them, or with the disk of a killed process

A seed does the same every time, so a failure names its seed, and the command that shows it again.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from multiprocessing import get_context
from random import Random
from typing import NamedTuple

from tests.store.crash import checks
from tests.store.crash.history import History, Legal, end_of
from tests.store.crash.life import Life, Setting, random_settings, read_log
from tests.store.open_store import OpenStore

from pocketmq.testing import FakeClock, FaultyFiles

LIVES = 4
MOMENTS = 6
"""Of each life, how many are looked at."""
STATES = 2
"""The number of crashes at each moment: unsynced bytes can be lost in many ways."""


STATES_PER_SEED = LIVES * MOMENTS * STATES


class Broken(AssertionError):
    """A state in which a guarantee is broken."""


class Explored(NamedTuple):
    """How many states were looked at, and a digest of all that was done to the disks."""

    states: int
    digest: str


def explore(seed: int) -> Explored:
    """Check the states of one seed. `Broken` names the fault, its moment, and the way to reproduce it."""
    exploration = _Exploration(seed)
    try:
        for _ in range(LIVES):
            exploration.live()
    except Exception as error:
        raise Broken(
            f"{error or type(error).__name__}\n  seed {seed}, {exploration.where}"
            f"\n  again: python -m tests.store.crash --seed {seed}"
        ) from error
    return Explored(exploration.states, exploration.digest.hexdigest())


def explore_quietly(seed: int) -> Explored:
    """The same without logs: recovery logs what it truncates, which is of no interest thousands of times."""
    logging.getLogger("pocketmq").setLevel(logging.CRITICAL + 1)
    return explore(seed)


def explore_all(seeds: Sequence[int]) -> Iterator[int]:
    """Explore many seeds on all cores; for each, in order, how many states it had."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for explored in pool.map(explore_quietly, seeds, chunksize=4):
            yield explored.states


class _Exploration:
    def __init__(self, seed: int) -> None:
        random = Random(f"crash {seed}")
        self._setting = Setting(random_settings(random), FakeClock(), random)
        self._disk = FaultyFiles(clock=self._setting.clock, seed=seed)
        self._history = History(Legal([], 0, {0}, 0), {}, {})
        self._sent_count = 0
        self._lives = 0
        self.states = 0
        self.digest = sha256()
        self.where = ""

    def live(self) -> None:
        """One run, and a check of some of the states in which it may end."""
        random = self._setting.random
        self._lives += 1
        self.where = f"life {self._lives}"
        life = Life(self._setting, self._disk, self._history, self._sent_count)
        life.live()
        self._sent_count = life.sent_count
        for operation in self._disk.operations:
            self.digest.update(f"{operation.kind} {operation.path} {operation.offset} {operation.size}\n".encode())
        for _ in range(MOMENTS):
            position = random.randint(0, self._disk.position)
            moment = self._disk.state_at(position)
            for _ in range(STATES):
                dice = random.random()
                self._look_at(position, moment.crash(Random(dice)), Random(dice))
        self._go_on_from(position, moment, Random(dice))

    def _look_at(self, position: int, disk: FaultyFiles, dice: Random) -> None:
        """Recover from one power loss, and check everything."""
        last = self._disk.operations[position - 1] if position else None
        what = f" ({last.kind} {last.path})" if last else ""
        self.where = f"life {self._lives}, power lost after operation {position} of {self._disk.position}{what}"
        self.states += 1
        history, settings, clock = self._history, self._setting.settings, self._setting.clock
        opened = OpenStore(settings, clock, disk)
        start, found = read_log(disk, settings)
        legal, deleted = history.legal_at(position), history.deleted_at(position)
        legal.judge(start, found)
        checks.check_queues(opened.store, found, deleted, legal.kept_from)
        checks.check_reads(opened.store, found)
        checks.check_times(opened.store, found)
        checks.check_tables(disk, history.tables_at(position))
        if dice.random() < 0.2:
            checks.check_repeats(opened, clock, disk, after_kill=dice.random() < 0.5)
        if dice.random() < 0.2:
            checks.check_rebuild(opened, clock, disk)
        checks.check_keys(opened.store, found, legal.kept_from, dice)
        if dice.random() < 0.1:
            # From the log alone, files that were dropped and reappeared, and deleted topics, look incomplete.
            checks.check_clean_stop(opened, clock, disk, verify=not deleted and legal.kept_from == start)

    def _go_on_from(self, position: int, moment: FaultyFiles, dice: Random) -> None:
        """The next run starts with the last checked state, or as after a kill at that moment."""
        history, settings = self._history, self._setting.settings
        legal, deleted, tables = (
            history.legal_at(position),
            history.deleted_at(position),
            history.tables_at(position),
        )
        if self._setting.random.random() < 0.3:
            self._disk = moment
        else:
            self._disk = moment.crash(dice)
            recovered = self._disk.crash(Random(0), survives="everything")
            OpenStore(settings, self._setting.clock, recovered)
            start, found = read_log(recovered, settings)
            end = end_of(start, found)
            deleted = {topic: {min(mark, end) for mark in marks} for topic, marks in deleted.items()}
            legal = Legal(found, len(found), {start}, legal.kept_from)
            tables = {name: {value} for name, value in checks.check_tables(recovered, tables).items()}
        self._history = History(legal, tables, deleted)
