"""What storing a message costs, from `stage` to its queue entry, in turns of different sizes.

unsynced   the turn is acknowledged once it is written; a thread syncs behind it. Beside it the transient pool, which
           acknowledges before it is written
batches    the same for what comes in batches, each of which is a turn and goes to one queue; beside it the same turns, message
           by message
synced     group commit: the time until the whole turn is safe on the disk, one turn after the other

The key index is off here: it is made behind the writers, and `keys` measures it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from bench.method import Candidate, Subject
from bench.store.hosted import HostedStore
from bench.store.messages import Draft, drafts, in_turns
from bench.store.peers import PlainFile, SqliteQueues, records
from bench.store.rows import Pace, Row, rows_of
from bench.store.scale import Scale

BODIES = (100, 1024)
TURNS = (1, 64, 512)
QUEUES = 8
AIM_TURN, AIM_BODY, AIM_US = 64, 100, 2.0
BATCH = 32
MESSAGES = 512
"""Stored between two ticks when nothing waits for the disk."""


def unsynced_rows(folder: Path, _scale: Scale, pace: Pace) -> Iterator[Row]:
    for body_bytes in BODIES:
        for turn in TURNS:
            yield from _unsynced(folder / f"{body_bytes}-{turn}", drafts(MESSAGES, body_bytes), turn, pace)


def batch_rows(folder: Path, _scale: Scale, pace: Pace) -> Iterator[Row]:
    for body_bytes in BODIES:
        yield from _batches(folder / str(body_bytes), drafts(MESSAGES, body_bytes), pace)


def synced_rows(folder: Path, _scale: Scale, pace: Pace) -> Iterator[Row]:
    for body_bytes in BODIES:
        for turn in TURNS:
            yield from _synced(folder / f"{body_bytes}-{turn}", drafts(turn, body_bytes), pace)


def _unsynced(folder: Path, messages: list[Draft], turn: int, pace: Pace) -> Iterator[Row]:
    folder.mkdir()
    body_bytes = len(messages[0][0])
    with ExitStack() as stack:
        store = stack.enter_context(HostedStore(folder / "store", index_enabled=False))
        pooled = stack.enter_context(HostedStore(folder / "pooled", index_enabled=False, transient_pool=True))
        file = stack.enter_context(closing(PlainFile(folder / "file")))
        database = stack.enter_context(closing(SqliteQueues(folder / "database", "NORMAL", QUEUES)))
        turns = in_turns(store.queues(QUEUES), messages, turn)
        pooled_turns = in_turns(pooled.queues(QUEUES), messages, turn)
        raw = records(messages)
        raw_turns = [b"".join(raw[at : at + turn]) for at in range(0, len(raw), turn)]
        sqlite_turns = [messages[at : at + turn] for at in range(0, len(messages), turn)]
        candidates = [
            Candidate("store", lambda: store.append(turns), ours=True),
            Candidate("store, transient pool", lambda: pooled.append(pooled_turns), ours=True),
            Candidate("sqlite3, WAL, NORMAL", lambda: database.append(sqlite_turns)),
            Candidate("os.pwrite", lambda: file.append(raw_turns)),
        ]
        aim_us = AIM_US if (turn, body_bytes) == (AIM_TURN, AIM_BODY) else None
        name = f"append {body_bytes} B, turns of {turn}"
        yield from rows_of(Subject(name, len(messages), candidates, aim_us), pace)


def _batches(folder: Path, messages: list[Draft], pace: Pace) -> Iterator[Row]:
    folder.mkdir()
    body_bytes = len(messages[0][0])
    with ExitStack() as stack:
        at_once = stack.enter_context(HostedStore(folder / "at-once", index_enabled=False))
        one_by_one = stack.enter_context(HostedStore(folder / "one-by-one", index_enabled=False))
        batches, turns = (
            [(queues[at // BATCH % QUEUES], messages[at : at + BATCH]) for at in range(0, len(messages), BATCH)]
            for queues in (at_once.queues(QUEUES), one_by_one.queues(QUEUES))
        )
        items = [(queue, [(0, *draft) for draft in batch]) for queue, batch in batches]
        singles = [[(queue, *draft) for draft in batch] for queue, batch in turns]
        candidates = [
            Candidate("store, at once", lambda: at_once.append_batches(items), ours=True),
            Candidate("store, one by one", lambda: one_by_one.append(singles), ours=True),
        ]
        yield from rows_of(Subject(f"append {body_bytes} B, batches of {BATCH}", len(messages), candidates), pace)


def _synced(folder: Path, messages: list[Draft], pace: Pace) -> Iterator[Row]:
    folder.mkdir()
    turn, body_bytes = len(messages), len(messages[0][0])
    with ExitStack() as stack:
        store = stack.enter_context(HostedStore(folder / "store", index_enabled=False))
        file = stack.enter_context(closing(PlainFile(folder / "file")))
        database = stack.enter_context(closing(SqliteQueues(folder / "database", "FULL", QUEUES)))
        (ours,) = in_turns(store.queues(QUEUES), messages, turn)
        raw = b"".join(records(messages))
        candidates = [
            Candidate("store", lambda: store.append_safely(ours), ours=True),
            Candidate("sqlite3, WAL, FULL", lambda: database.append([messages])),
            Candidate("os.pwrite, os.fdatasync", lambda: file.append_safely(raw)),
        ]
        yield from rows_of(Subject(f"synced append {body_bytes} B, turns of {turn}", turn, candidates), pace)
