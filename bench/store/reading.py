"""Measures a pull of 32 messages at a random offset of a queue, and the search for an offset by time.

If only one queue is written, its messages are adjacent in the log. With eight queues they are not, and the answer has 32 pieces.
All entries but the last few hundred are in the file of the queue, not in memory.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from bench.method import Candidate, Subject
from bench.store.hosted import HostedStore
from bench.store.messages import BORN_MS, TOPIC, Draft, drafts, in_turns
from bench.store.peers import PlainFile, SqliteQueues, records
from bench.store.rows import Pace, Row, rows_of
from bench.store.scale import Scale

READ = 32
READS = 16
"""Different offsets at which one call reads."""
TURN = 64
AIM_US = 1.0

Place = tuple[int, int]
"""Queue and offset."""


def read_rows(folder: Path, scale: Scale, pace: Pace) -> Iterator[Row]:
    messages = drafts(scale.read_messages, 100)
    for queues in (1, 8):
        yield from _read(folder / str(queues), messages, queues, pace)


def _read(folder: Path, messages: list[Draft], queues: int, pace: Pace) -> Iterator[Row]:
    folder.mkdir()
    choice = random.Random(1)
    most = len(messages) // queues - READ
    places = [(choice.randrange(queues), choice.randrange(most)) for _ in range(READS)]
    with ExitStack() as stack:
        hosted = stack.enter_context(HostedStore(folder / "store", index_enabled=False))
        file = stack.enter_context(closing(PlainFile(folder / "file")))
        database = stack.enter_context(closing(SqliteQueues(folder / "database", "NORMAL", queues)))
        hosted.append(in_turns(hosted.queues(queues), messages, TURN))
        database.append(messages[at : at + TURN] for at in range(0, len(messages), TURN))
        hosted.rest()
        read = hosted.store.read

        def with_views() -> None:
            for queue, offset in places:
                assert read(TOPIC, queue, offset, READ).count == READ

        def with_body() -> None:
            for queue, offset in places:
                read(TOPIC, queue, offset, READ).body()

        def with_select() -> None:
            for queue, offset in places:
                assert len(database.read(queue, offset, READ)) == READ

        candidates = [
            Candidate("store.read", with_views, ours=True),
            Candidate("store.read, joined", with_body, ours=True),
            Candidate("sqlite3, SELECT", with_select),
            Candidate("os.pread", _plain_read(file, messages, queues, places)),
        ]
        name = f"read {READ} of {queues} queue{'s' * (queues > 1)}"
        yield from rows_of(Subject(name, READS * READ, candidates, AIM_US), pace)


def _plain_read(file: PlainFile, messages: list[Draft], queues: int, places: list[Place]) -> Callable[[], None]:
    """The same bytes from a plain file at known positions: in one piece, or in 32."""
    raw = records(messages)
    file.append([b"".join(raw)])
    ends = [0]
    for record in raw:
        ends.append(ends[-1] + len(record))
    pieces = []
    for queue, offset in places:
        numbers = range(offset * queues + queue, (offset + READ) * queues + queue, queues)
        if queues == 1:
            pieces.append((ends[numbers[0]], ends[numbers[-1] + 1] - ends[numbers[0]]))
        else:
            pieces += [(ends[number], len(raw[number])) for number in numbers]

    def run() -> None:
        for at, size in pieces:
            file.read(at, size)

    return run


def time_rows(folder: Path, scale: Scale, pace: Pace) -> Iterator[Row]:
    """One queue in which every turn was stored a millisecond after the one before."""
    turns = [drafts(TURN, 100, first) for first in range(0, scale.read_messages, TURN)]
    with ExitStack() as stack:
        hosted = stack.enter_context(HostedStore(folder / "store", index_enabled=False))
        database = stack.enter_context(closing(SqliteQueues(folder / "database", "NORMAL", 1)))
        queues = hosted.queues(1)
        begun_ms = hosted.clock.now_ms()
        for turn in turns:
            hosted.clock.wall_ahead_ms += 1
            hosted.append([in_turns(queues, turn, TURN)[0]])
        database.append(turns)
        database.index_times()
        hosted.rest()
        choice = random.Random(2)
        waits_ms = [choice.randrange(len(turns)) for _ in range(READS)]

        def with_store() -> None:
            for wait_ms in waits_ms:
                hosted.store.offset_at_time(TOPIC, 0, begun_ms + wait_ms)

        def with_select() -> None:
            for wait_ms in waits_ms:
                database.offset_at_time(0, BORN_MS + wait_ms)

        candidates = [
            Candidate("store.offset_at_time", with_store, ours=True),
            Candidate("sqlite3, index on time", with_select),
        ]
        note = f"{len(turns) * TURN:,} messages"
        yield from rows_of(Subject("offset by time", READS, candidates), pace, notes=[note])
