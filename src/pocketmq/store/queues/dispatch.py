"""From a record to its queue entry. The same rules run when a message is stored and when a queue is rebuilt.

Entries of a turn are made when a message is staged, and enter their queue when the turn is written:

    stage ──► (queue, entries) ─┬─ the turn is written ──► the end of the queue ──► arrivals
                                └─ the write fails ──────► their offsets are assigned again

Entries are kept in the form of a queue file: a batch, or all entries of one queue in a turn, is one piece of bytes.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from pocketmq.model.delay import DelayLevels
from pocketmq.model.flags import SysFlag
from pocketmq.model.java_hash import java_hash
from pocketmq.model.properties import raw_property
from pocketmq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue
from pocketmq.store.queues.queues import Queues

KNOWN_TAGS: Final = 4096
LONGEST_KNOWN_TAG: Final = 64
"""Tags are few, short and recur. A long one is probably data, and caching thousands would take memory."""
_known_codes: dict[bytes, int] = {}
_MAX_INT: Final = 2**31 - 1


def enters_queue(sys_flag: int) -> bool:
    """Prepared and rolled-back transaction records stay in the log alone."""
    return not sys_flag & SysFlag.TRANSACTION_PREPARED


def tags_code_of(raw_properties: bytes, is_delay: bool, store_ms: int, levels: DelayLevels) -> int:
    """The tags code of a queue entry: the tag's hash; in the delay topic, when the message is due."""
    if is_delay:
        level = delay_level_of(raw_properties)
        if level > 0:
            return levels.due_ms(level, store_ms)
    # What `raw_property` does, at half the price: this runs once per message.
    at = raw_properties.rfind(b"TAGS\x01")
    if at < 0:
        return 0
    if at and raw_properties[at - 1] != 2:  # the end of a longer name
        return _code_of_tag(raw_property(raw_properties, b"TAGS") or b"")
    end = raw_properties.find(b"\x02", at)
    tag = raw_properties[at + 5 : end] if end >= 0 else raw_properties[at + 5 :]
    code = _known_codes.get(tag)
    return _code_of_tag(tag) if code is None else code


def delay_level_of(raw_properties: bytes) -> int:
    """The delay level, 0 when there is none that means anything."""
    text = (raw_property(raw_properties, b"DELAY") or b"").removeprefix(b"+")
    level = int(text) if text.isdigit() and len(text) <= len(str(_MAX_INT)) else 0
    return level if level <= _MAX_INT else 0


def _code_of_tag(tag: bytes) -> int:
    code = java_hash(tag.decode("utf-8", "replace"))
    if len(tag) <= LONGEST_KNOWN_TAG:
        if len(_known_codes) >= KNOWN_TAGS:
            _known_codes.clear()
        _known_codes[tag] = code
    return code


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
                queues.mark_dirty(queue)
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
    """The log offset of the last of these messages. There is at least one."""
    # Places in the log are compared as they are packed, the high byte first: a turn may bring each message to another queue.
    return int.from_bytes(max([entries[-ENTRY_BYTES:-_BEHIND_LOG_OFFSET] for _, entries in staged]), "big")


def arrivals_of(staged: Iterable[Entered]) -> Iterator[Arrival]:
    """The arrivals one by one; mostly unused."""
    for queue, entries in staged:
        for log_offset, size, tags_code in ENTRY.iter_unpack(entries):
            yield queue, log_offset, size, tags_code
