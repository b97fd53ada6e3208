"""One queue beside the log: what its files say of each message, and whether its messages are all there.

    files:   nothing here … expired … ┃ entry = record │ entry = record │ … ┃ zeros
                 head, before the log ┃ body: message by message            ┃ tail, behind the last message

A record whose offset is not the next one of its queue is judged by the entries: they were written when it was stored, so they can
tell a record with a wrong offset from a message that is missing and from a topic that was deleted and made again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.files import Files
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.store.checks.condition import Condition
from pocketmq.store.checks.findings import Kind
from pocketmq.store.checks.log_facts import LogFacts
from pocketmq.store.checks.runs import RunBudget, Runs
from pocketmq.store.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    NOTHING_HERE_SIZE,
    is_entry,
    is_head,
    is_message,
    log_offset_of,
)
from pocketmq.store.log_scan import nonzero_range
from pocketmq.store.queue_entries import QueueEntries, QueueFile

_NO_ENTRY: Final = bytes(ENTRY_BYTES)
_BLOCK_BYTES: Final = 4096 * ENTRY_BYTES
_UNSEEN: Final = -1

Flaw = tuple[Kind, str]
"""What is wrong with a record, by its place in its queue."""


class Surroundings(NamedTuple):
    """What all queues of a store have in common."""

    files: Files
    facts: LogFacts
    condition: Condition
    file_entries: int
    budget: RunBudget


class CheckedQueue:
    __slots__ = (
        "_around",
        "_gap_told",
        "_last_log",
        "_misfits",
        "_odd",
        "absent",
        "entries",
        "files",
        "first",
        "is_checked",
        "is_delay",
        "label",
        "next",
        "restarts",
        "runs",
        "topic",
    )

    def __init__(self, around: Surroundings, topic: str, queue_id: int, folder: Path, files: list[QueueFile]) -> None:
        self._around = around
        self.topic = topic
        self.label = f"{topic}/{queue_id}"
        self.is_delay = topic == SCHEDULE_TOPIC
        self.files = files
        self.entries = QueueEntries(around.files, folder, around.file_entries)
        self.runs = Runs(around.budget)
        self.is_checked = True
        self.first = self.next = _UNSEEN
        self.restarts = 0
        self.absent = 0
        """Messages of a queue that has no files, though they must be there by now."""
        self._last_log = _UNSEEN
        self._gap_told = False
        self._odd = _UNSEEN - 1
        """What the last record that did not belong here said: if the next one goes on from there, it did."""
        file_bytes = around.file_entries * ENTRY_BYTES
        self._misfits = frozenset(file.path for file in files if file.size not in (0, file_bytes))

    # body

    def see(self, message: StoredMessage, entry: bytes) -> Flaw | None:
        """The next record of this queue, and the entry that it must have."""
        if message.queue_offset != self.next:
            return self._out_of_step(message, entry)
        if self.entries.raw(self.next) != entry:
            self._note_difference(message, entry)
        self._go_on(message)
        return None

    def _go_on(self, message: StoredMessage) -> None:
        self.next += 1
        self._last_log = message.log_offset

    def _out_of_step(self, message: StoredMessage, entry: bytes) -> Flaw | None:
        offset, at = message.queue_offset, message.log_offset
        if self.next == _UNSEEN:
            return self._begin(message, entry)
        if self.entries.raw(self.next) == entry:
            flaw = f"it says that it is message {offset} of {self.label}, but it is message {self.next}"
            self._go_on(message)
            return Kind.LOG_ORDER, flaw
        if offset > self.next and self._is_gap(offset, entry):
            return self._skip_to(message, entry)
        if offset == 0 and not self._points_before(0, at):
            self._begin_anew()
            return self.see(message, entry)
        self._odd = offset
        self._around.facts.add_hole(at, at + message.size)
        return Kind.LOG_ORDER, f"it says that it is message {offset} of {self.label}, whose next message is {self.next}"

    def _is_gap(self, offset: int, entry: bytes) -> bool:
        """Whether messages before this one are missing; else it is the one that is not where it belongs."""
        is_explained = self._around.facts.last_hole_end > self._last_log
        return self.entries.raw(offset) == entry or is_explained or not self.files or offset == self._odd + 1

    def _begin(self, message: StoredMessage, entry: bytes) -> Flaw | None:
        """The first message of this queue in the log: those before it must be gone with older log files."""
        facts, offset = self._around.facts, message.queue_offset
        flaw = None
        if offset and not facts.start and facts.last_hole_end < 0 and not _is_nothing(self.entries.raw(offset - 1)):
            if self.entries.raw(0) == entry:
                self.first = self.next = 0
                return self._out_of_step(message, entry)
            if not self.files:
                facts.add_hole(message.log_offset, message.log_offset + message.size)
                return Kind.LOG_ORDER, f"it says that it is message {offset} of {self.label}, which has none before it"
            flaw = self._gap(0, offset)
        self.first = self.next = offset
        self.see(message, entry)
        return flaw

    def _skip_to(self, message: StoredMessage, entry: bytes) -> Flaw | None:
        is_explained = self._around.facts.last_hole_end > self._last_log
        flaw = None if is_explained else self._gap(self.next, message.queue_offset)
        self.next = message.queue_offset
        self.see(message, entry)
        return flaw

    def _gap(self, begin: int, end: int) -> Flaw:
        self._gap_told = True
        which = f"message {begin}" if end == begin + 1 else f"messages {begin} to {end - 1}"
        return Kind.LOG_GAP, f"it is message {end} of {self.label}, but {which} of that queue cannot be found before it"

    def _begin_anew(self) -> None:
        """The topic was deleted and made again. The files are of the later series; nothing that was found counts."""
        self.restarts += 1
        self.runs.clear()
        self.absent = 0
        self.first = self.next = 0

    def _points_before(self, offset: int, log_offset: int) -> bool:
        raw = self.entries.raw(offset)
        return len(raw) == ENTRY_BYTES and is_message(ENTRY.unpack(raw)) and ENTRY.unpack(raw)[0] < log_offset

    def _note_difference(self, message: StoredMessage, entry: bytes) -> None:
        condition = self._around.condition
        may_be_late = not condition.is_clean and message.store_ms > condition.safe.queue_ms
        if not self.files:
            self.absent += not may_be_late
            return
        path, at = self.entries.place(self.next)
        raw = self.entries.raw(self.next)
        if len(raw) < ENTRY_BYTES and path in self._misfits:
            return  # the size of the file is told, and says it all
        detail = f"the log has {_told(entry)}"
        if may_be_late:
            kind = Kind.QUEUE_BEHIND
        elif len(raw) < ENTRY_BYTES:
            kind = Kind.QUEUE_MISSING
        elif raw == _NO_ENTRY:
            kind = Kind.QUEUE_ENTRY_MISSING
        else:
            kind, detail = Kind.QUEUE_ENTRY_WRONG, f"the file has {_told(raw)}, {detail}"
        self.runs.add(kind, path, at, ENTRY_BYTES, self.next, detail)

    # head and tail

    def check_ends(self) -> None:
        """After the pass: what lies in the files before the first message and behind the last."""
        if self.first != _UNSEEN and not self._gap_told and self.files:
            for offset in range(self.files[0].first // ENTRY_BYTES, self.first):
                self._check_head(offset)
        self.entries.forget()
        begin = self.next * ENTRY_BYTES if self.next != _UNSEEN else 0
        for file in self.files:
            if file.first + file.size > begin:
                for offset, raw in self._used_entries(file, max(0, begin - file.first)):
                    self._check_tail(offset, raw)

    def _check_head(self, offset: int) -> None:
        raw = self.entries.raw(offset)
        path, at = self.entries.place(offset)
        if len(raw) < ENTRY_BYTES and path in self._misfits:
            return
        facts = self._around.facts
        if len(raw) == ENTRY_BYTES:
            entry = ENTRY.unpack(raw)
            at_log = log_offset_of(entry)
            if is_head(entry) or (is_entry(entry) and (0 <= at_log < facts.start or facts.in_hole(at_log))):
                return
        detail = f"it lies before the first message that the log has, and the file has {_told(raw)}"
        self.runs.add(Kind.QUEUE_ENTRY_WRONG, path, at, ENTRY_BYTES, offset, detail)

    def _used_entries(self, file: QueueFile, begin: int) -> Iterator[tuple[int, bytes]]:
        """The entries of a file, from byte `begin` on, that are not zeros."""
        stop = min(file.size, self._around.file_entries * ENTRY_BYTES)
        if self._around.files.status(file.path) is None:
            return  # a broker that uses the store has removed it meanwhile
        with self._around.files.open(file.path, write=False) as opened:
            found = nonzero_range(opened, begin, stop)
            if found is None:
                return
            for at in range(found[0] - found[0] % ENTRY_BYTES, found[1], _BLOCK_BYTES):
                block = opened.read_at(at, min(_BLOCK_BYTES, stop - at))
                for place in range(0, len(block) - ENTRY_BYTES + 1, ENTRY_BYTES):
                    raw = block[place : place + ENTRY_BYTES]
                    if raw != _NO_ENTRY:
                        yield (file.first + at + place) // ENTRY_BYTES, raw

    def _check_tail(self, offset: int, raw: bytes) -> None:
        facts, condition = self._around.facts, self._around.condition
        entry = ENTRY.unpack(raw)
        kind = Kind.QUEUE_ENTRY_STALE
        if is_message(entry):
            if facts.in_hole(entry[0]) or (self.next == _UNSEEN and entry[0] < facts.start):
                return
            if entry[0] >= facts.end:
                if condition.is_clean:
                    facts.note_known(entry[0] + entry[1], f"entry {offset} of {self.label}")
                if condition.is_clean or condition.is_in_use:
                    return
                kind = Kind.QUEUE_AHEAD
        elif _is_nothing(raw) and self.next == _UNSEEN:
            return
        path, at = self.entries.place(offset)
        self.runs.add(kind, path, at, ENTRY_BYTES, offset, f"the file has {_told(raw)}")


def _is_nothing(raw: bytes) -> bool:
    """Whether the entry says that its offset has no message."""
    return len(raw) == ENTRY_BYTES and ENTRY.unpack(raw)[1] == NOTHING_HERE_SIZE


def _told(raw: bytes) -> str:
    if len(raw) < ENTRY_BYTES or raw == _NO_ENTRY:
        return "nothing"
    log_offset, size, tags_code = ENTRY.unpack(raw)
    return f"log offset {log_offset}, size {size}, tags code {tags_code}"
