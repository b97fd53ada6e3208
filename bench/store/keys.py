"""The key index: what it costs to make, and what a look-up costs once it is large.

One key is the unique key alone, as most messages have it; two are the unique key and one that the sender chose. Sustained is what a broker does in the long run: store, enter the
queue, write its entries, tick, and index, until the last key can be found.
"""

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import perf_counter

from bench.method import Candidate, Subject
from bench.store.apart import apart
from bench.store.hosted import BenchClock, HostedStore, settings_for
from bench.store.messages import TOPIC, Draft, drafts, in_turns, key_of
from bench.store.peers import SqliteKeys, records
from bench.store.rows import Pace, Row, rows_of, seconds_row
from bench.store.scale import Scale
from bench.store.starting import AIM_START_S, timed_start
from pocketmq.files import DiskFiles
from pocketmq.model.properties import raw_property
from pocketmq.store.index.index_builder import IndexBuilder
from pocketmq.store.index.key_index import KeyIndex

TURN = 64
STEP = 8192
"""Messages that are made and stored at a time."""
INDEXED = 4096
"""Messages that one call indexes."""
AIM_ONE_KEY_US = 1.0


def index_rows(folder: Path, _scale: Scale, pace: Pace) -> Iterator[Row]:
    messages = drafts(INDEXED, 100)
    only_unique = [(body, properties[properties.index(b"UNIQ_KEY") :]) for body, properties in messages]
    yield from _index(folder / "one", "index of one key", only_unique, AIM_ONE_KEY_US, pace)
    yield from _index(folder / "two", "index of two keys", messages, None, pace)


def _index(folder: Path, name: str, messages: list[Draft], aim_us: float | None, pace: Pace) -> Iterator[Row]:
    folder.mkdir()
    log = b"".join(records(messages))
    index = KeyIndex(settings_for(folder / "store"), DiskFiles(), BenchClock())
    index.load()
    builder = IndexBuilder(index, lambda offset, size: log[offset % len(log) : offset % len(log) + size], len(log))
    pairs = [
        (key.decode(), number)
        for number, (_, properties) in enumerate(messages)
        for key in (raw_property(properties, b"UNIQ_KEY"), raw_property(properties, b"KEYS"))
        if key is not None
    ]

    def build() -> None:
        end = builder.indexed_to + len(log)
        while builder.work(0, end, INDEXED) and index.write_next():
            pass

    with closing(index), closing(SqliteKeys(folder / "database")) as database:
        candidates = [
            Candidate("store", build, ours=True),
            Candidate("sqlite3, WAL, NORMAL", lambda: database.add(pairs)),
        ]
        yield from rows_of(Subject(name, INDEXED, candidates, aim_us), pace)


def look_up_rows(folder: Path, scale: Scale, pace: Pace) -> Iterator[Row]:
    count = max(1, scale.index_entries // 2)
    entries = f"{2 * count:,} entries"
    sustained_s = fill(folder / "store", count)
    yield Row("append, sustained", "store, with its index", 1e6 * sustained_s / count, None, "us", note=entries)
    # A start that is not followed by a clean stop is a crash to the next one.
    clean, crashed = (apart(timed_start, folder / "store", False, True) for _ in range(2))
    yield seconds_row("clean start, with index", "store", [clean.seconds], aim=AIM_START_S, note=entries)
    note = f"{crashed.records:,} records scanned"
    yield seconds_row("crashed start, with index", "store", [crashed.seconds], note=note)
    choice = random.Random(3)
    keys = [key_of(choice.randrange(count)) for _ in range(scale.look_ups)]
    with HostedStore(folder / "store") as hosted, closing(SqliteKeys(folder / "database")) as database:
        for first in range(0, count, STEP):
            numbers = range(first, min(first + STEP, count))
            database.add(pair for n in numbers for pair in ((f"7F000001129C4E0E2F2A{n:012X}", n), (key_of(n), n)))

        def with_store() -> None:
            for key in keys:
                assert len(hosted.store.find_by_key(TOPIC, key, 32)) == 1

        def with_select() -> None:
            for key in keys:
                assert len(database.find(key)) == 1

        candidates = [
            Candidate("store.find_by_key", with_store, ours=True),
            Candidate("sqlite3, SELECT", with_select),
        ]
        notes = [f"{entries}; gives decoded messages", "gives row numbers"]
        yield from rows_of(Subject("search by key", len(keys), candidates), pace, notes=notes)


def fill(folder: Path, count: int) -> float:
    """Store and index so many messages; the seconds that took, without making them."""
    spent_s = 0.0
    with HostedStore(folder) as hosted:
        queues = hosted.queues(8)
        for first in range(0, count, STEP):
            turns = in_turns(queues, drafts(min(STEP, count - first), 100, first), TURN)
            started = perf_counter()
            hosted.append(turns)
            spent_s += perf_counter() - started
        started = perf_counter()
        while not hosted.store.find_by_key(TOPIC, key_of(count - 1), 1):
            hosted.tend()
        return spent_s + perf_counter() - started
