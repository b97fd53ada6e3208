"""Queue entries between their turn and their queue: made when a message is staged, entered when it is written.

    stage ──► (queue, entries) ─┬─ the turn is written ──► the end of the queue ──► arrivals
                                └─ it is not ────────────► their offsets are given out again

Entries travel as a queue keeps them: a batch, or what one turn brings to a queue, is one piece.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from pocketmq.store.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue
from pocketmq.store.queues import Queues

_BEHIND_LOG_OFFSET = ENTRY_BYTES - 8
"""Bytes of an entry that follow its log offset."""

Entered = tuple[ConsumeQueue, bytes]
"""A queue, and entries that go to its end."""

Arrival = tuple[ConsumeQueue, int, int, int]
"""A message that became readable: its queue, log offset, size and tags code."""


def enter_all(staged: Sequence[Entered], queues: Queues) -> tuple[Collection[ConsumeQueue], int]:
    """Put entries to the ends of their queues, all or none; which of the `queues` these are, and how many entries."""
    touched: dict[ConsumeQueue, None] = {}  # in the order of the turn, which a set would not keep
    count = number = 0
    try:
        for number, (queue, entries) in enumerate(staged):  # noqa: B007 how far it came, if it fails
            if queue not in touched:
                queues.note_dirty(queue)
                touched[queue] = None
            # What `ConsumeQueue.append` does, without its call. Whatever can fail comes before the first change.
            added = len(entries) // ENTRY_BYTES
            max_offset = queue.max_offset + added
            count += added
            queue.pending += entries
            queue.max_offset = max_offset
    except BaseException:
        take_out(staged[:number])
        raise
    return touched, count


def take_out(entered: Sequence[Entered]) -> None:
    """Undo `enter_all`, before anything else happens to the queues."""
    for queue, entries in reversed(entered):
        del queue.pending[len(queue.pending) - len(entries) :]
        queue.max_offset -= len(entries) // ENTRY_BYTES


def give_back(staged: Iterable[Entered]) -> None:
    """The offsets that these entries had are free again."""
    for queue, entries in staged:
        queue.next_offset -= len(entries) // ENTRY_BYTES


def newest_log_offset(staged: Iterable[Entered]) -> int:
    """Where the last of these messages lies in the log. There is at least one."""
    # Places in the log are compared as they are packed, the high byte first: a turn may bring each message to another queue.
    return int.from_bytes(max([entries[-ENTRY_BYTES:-_BEHIND_LOG_OFFSET] for _, entries in staged]), "big")


def arrivals_of(staged: Iterable[Entered]) -> Iterator[Arrival]:
    """One by one, for who wants to know: mostly nobody does."""
    for queue, entries in staged:
        for log_offset, size, tags_code in ENTRY.iter_unpack(entries):
            yield queue, log_offset, size, tags_code
