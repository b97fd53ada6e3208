"""Measures whether the cost of an append stays the same with a long log and with many queues.

A growing store and a new store are measured in the same rounds, and the ratio is reported: 1 means that the cost is the same. The
log grows by appends of 64 KB bodies; at each mark, turns of 64 messages of 100 B are timed. Afterwards another process opens the
long log and reads at a thousand positions.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

from bench.method import Candidate, Subject, Timing, measure
from bench.store.apart import Memory, apart, memory
from bench.store.hosted import HostedStore
from bench.store.messages import TOPIC, drafts, in_turns
from bench.store.rows import Pace, Row
from bench.store.scale import Scale

AIM_RATIO = 1.2
"""The largest ratio that counts as constant cost. It leaves a margin for the noise of a shared machine."""
TURN = 64
MESSAGES = 512
LARGE_BODY = 64 * 1024
LARGE_TURN = 16
READS = 1000
MIB = 2**20


def log_rows(folder: Path, scale: Scale, pace: Pace) -> Iterator[Row]:
    with (
        HostedStore(folder / "store", index_enabled=False) as grown,
        HostedStore(folder / "new", index_enabled=False) as new,
    ):
        in_new, in_grown = (_appending(hosted, 8) for hosted in (new, grown))
        for mark in scale.log_marks:
            _grow(grown, mark)
            candidates = [Candidate("store", in_grown, ours=True), Candidate("new store", in_new, ours=True)]
            timings = measure(Subject("", MESSAGES, candidates), pace.rounds, pace.round_ms)
            yield _ratio_row(f"append to a log of {mark / 2**30:g} GiB", "times that to a new log", *timings)
    yield from _memory_rows(folder / "store", folder / "empty", scale.log_marks[-1])


def queue_rows(folder: Path, scale: Scale, pace: Pace) -> Iterator[Row]:
    with ExitStack() as stack:
        candidates = []
        for count in (1, *scale.queue_counts):
            hosted = stack.enter_context(HostedStore(folder / str(count), index_enabled=False))
            candidates.append(Candidate(f"{count:,}", _appending(hosted, count), ours=True))
        one, *more = measure(Subject("", MESSAGES, candidates), pace.rounds, pace.round_ms)
        for timing in more:
            yield _ratio_row(f"append to {timing.candidate.name} queues", "times that to one queue", timing, one)


def _appending(hosted: HostedStore, queues: int) -> Callable[[], None]:
    """Appends in turns of 64 to all queues by turns, a part of them with each call."""
    messages = drafts(-(-queues // MESSAGES) * MESSAGES, 100)
    turns = in_turns(hosted.queues(queues), messages, TURN)
    each = MESSAGES // TURN
    portions = cycle([turns[at : at + each] for at in range(0, len(turns), each)])
    return lambda: hosted.append(next(portions))


def _grow(hosted: HostedStore, size: int) -> None:
    (turn,) = in_turns(hosted.queues(8), drafts(LARGE_TURN, LARGE_BODY), LARGE_TURN)
    while hosted.store.end < size:
        hosted.append([turn])
    hosted.rest()


def _ratio_row(subject: str, candidate: str, timing: Timing, beside: Timing) -> Row:
    note = f"{timing.median_us:.2f} us beside {beside.median_us:.2f} us"
    median, least = timing.median_us / beside.median_us, timing.min_us / beside.min_us
    return Row(subject, candidate, median, least, "×", aim=AIM_RATIO, note=note)


def _memory_rows(store: Path, empty: Path, size: int) -> Iterator[Row]:
    long, none = (apart(memory_of_reader, folder) for folder in (store, empty))
    subject = f"memory, log of {size / 2**30:g} GiB"
    yield Row(subject, "of its own", long.own / MIB, None, "MiB", note=f"after reading at {READS} positions")
    yield Row(subject, "of its own, empty log", none.own / MIB, None, "MiB")
    note = "the system takes them back when it needs them"
    yield Row("in memory of the log itself", "mapped pages", long.of_files / MIB, None, "MiB", note=note)


# in a process of its own


def memory_of_reader(folder: Path) -> Memory:
    choice = random.Random(4)
    with HostedStore(folder, index_enabled=False) as hosted:
        read, most = hosted.store.read, hosted.store.max_offset(TOPIC, 0)
        for _ in range(READS if most else 0):
            read(TOPIC, 0, choice.randrange(most), 32).body()
        return memory()
