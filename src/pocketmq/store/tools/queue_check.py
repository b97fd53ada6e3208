"""Checks the consume queues against the log. Records come in the order of the log; each queue is read along with them.

    files:   no message … expired … ┃ entry = record │ entry = record │ … ┃ zeros
                head, before the log ┃ body: message by message            ┃ tail, after the last message

`CheckedQueue` is one queue. It keeps only its position, a block of entries and its findings, so memory does not grow
with messages. A record whose offset is not the next one of its queue is judged by the entries, which were written
when the record was stored. They distinguish a record with a wrong offset, a missing message, and a topic that was
deleted and created again. Findings are reported at the end: such a topic leaves two series of messages in the log,
and the files contain only the later one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.codes import SysFlag
from pocketmq.files import Files
from pocketmq.model import LMQ_PREFIX, SCHEDULE_TOPIC, StoredMessage, is_topic
from pocketmq.store.layout import QUEUES, StoreLayout
from pocketmq.store.log.log_scan import nonzero_range
from pocketmq.store.queues.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    NOTHING_HERE_SIZE,
    enters_queue,
    is_entry,
    is_head,
    is_message,
    log_offset_of,
    tags_code_of,
)
from pocketmq.store.queues.queue_entries import QueueEntries, QueueFile, list_queue_files, list_queue_ids
from pocketmq.store.tools.findings import Finding, Kind, LogFacts, Run, RunBudget, Runs
from pocketmq.store.tools.folder_check import Condition

_NO_ENTRY: Final = bytes(ENTRY_BYTES)
_BLOCK_BYTES: Final = 4096 * ENTRY_BYTES
_UNSEEN: Final = -1

Flaw = tuple[Kind, str]
"""The errors of a record, by its offset in its queue."""


class CheckContext(NamedTuple):
    """State that all queues of a store share."""

    files: Files
    facts: LogFacts
    condition: Condition
    file_entries: int
    budget: RunBudget


class CheckedQueue:
    __slots__ = (
        "_context",
        "_gap_reported",
        "_irregular",
        "_last_log",
        "_misfits",
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

    def __init__(self, context: CheckContext, topic: str, queue_id: int, folder: Path, files: list[QueueFile]) -> None:
        self._context = context
        self.topic = topic
        self.label = f"{topic}/{queue_id}"
        self.is_delay = topic == SCHEDULE_TOPIC
        self.files = files
        self.entries = QueueEntries(context.files, folder, context.file_entries)
        self.runs = Runs(context.budget)
        self.is_checked = True
        self.first = self.next = _UNSEEN
        self.restarts = 0
        self.absent = 0
        """Messages of a queue without files, although the files should exist by now."""
        self._last_log = _UNSEEN
        self._gap_reported = False
        self._irregular = _UNSEEN - 1
        """The offset in the last irregular record: if the next record continues it, it was right."""
        file_bytes = context.file_entries * ENTRY_BYTES
        self._misfits = frozenset(file.path for file in files if file.size not in (0, file_bytes))

    # body

    def see(self, message: StoredMessage, entry: bytes) -> Flaw | None:
        """Check the next record of this queue and its entry."""
        if message.queue_offset != self.next:
            return self._out_of_step(message, entry)
        if self.entries.raw(self.next) != entry:
            self._record_difference(message, entry)
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
        self._irregular = offset
        self._context.facts.add_hole(at, at + message.size)
        return Kind.LOG_ORDER, f"it says that it is message {offset} of {self.label}, whose next message is {self.next}"

    def _is_gap(self, offset: int, entry: bytes) -> bool:
        """Whether messages before this one are missing; otherwise this record has the wrong offset."""
        is_explained = self._context.facts.last_hole_end > self._last_log
        return self.entries.raw(offset) == entry or is_explained or not self.files or offset == self._irregular + 1

    def _begin(self, message: StoredMessage, entry: bytes) -> Flaw | None:
        """The first message of this queue in the log: older log files with earlier messages must be deleted."""
        facts, offset = self._context.facts, message.queue_offset
        flaw = None
        if offset and not facts.start and facts.last_hole_end < 0 and not _is_nothing(self.entries.raw(offset - 1)):
            if self.entries.raw(0) == entry:
                self.first = self.next = 0
                return self._out_of_step(message, entry)
            if not self.files:
                facts.add_hole(message.log_offset, message.log_offset + message.size)
                return Kind.LOG_ORDER, (
                    f"it says that it is message {offset} of {self.label}, which has no earlier messages"
                )
            flaw = self._gap(0, offset)
        self.first = self.next = offset
        self.see(message, entry)
        return flaw

    def _skip_to(self, message: StoredMessage, entry: bytes) -> Flaw | None:
        is_explained = self._context.facts.last_hole_end > self._last_log
        flaw = None if is_explained else self._gap(self.next, message.queue_offset)
        self.next = message.queue_offset
        self.see(message, entry)
        return flaw

    def _gap(self, begin: int, end: int) -> Flaw:
        self._gap_reported = True
        which = f"message {begin}" if end == begin + 1 else f"messages {begin} to {end - 1}"
        return (
            Kind.LOG_GAP,
            f"it is message {end} of {self.label}, but the log does not have {which} of that queue before it",
        )

    def _begin_anew(self) -> None:
        """The topic was deleted and created again. The files are of the later series; drop the findings so far."""
        self.restarts += 1
        self.runs.clear()
        self.absent = 0
        self.first = self.next = 0

    def _points_before(self, offset: int, log_offset: int) -> bool:
        raw = self.entries.raw(offset)
        return len(raw) == ENTRY_BYTES and is_message(ENTRY.unpack(raw)) and ENTRY.unpack(raw)[0] < log_offset

    def _record_difference(self, message: StoredMessage, entry: bytes) -> None:
        condition = self._context.condition
        may_be_late = not condition.is_clean and message.store_ms > condition.safe.queue_ms
        if not self.files:
            self.absent += not may_be_late
            return
        path, at = self.entries.position_of(self.next)
        raw = self.entries.raw(self.next)
        if len(raw) < ENTRY_BYTES and path in self._misfits:
            return  # the size of the file is reported, and explains it
        detail = f"the log has {_described(entry)}"
        if may_be_late:
            kind = Kind.QUEUE_BEHIND
        elif len(raw) < ENTRY_BYTES:
            kind = Kind.QUEUE_MISSING
        elif raw == _NO_ENTRY:
            kind = Kind.QUEUE_ENTRY_MISSING
        else:
            kind, detail = Kind.QUEUE_ENTRY_WRONG, f"the file has {_described(raw)}, {detail}"
        self.runs.add(kind, path, at, ENTRY_BYTES, self.next, detail)

    # head and tail

    def check_ends(self) -> None:
        """After the pass: check the files before the first message and after the last."""
        if self.first != _UNSEEN and not self._gap_reported and self.files:
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
        path, at = self.entries.position_of(offset)
        if len(raw) < ENTRY_BYTES and path in self._misfits:
            return
        facts = self._context.facts
        if len(raw) == ENTRY_BYTES:
            entry = ENTRY.unpack(raw)
            at_log = log_offset_of(entry)
            if is_head(entry) or (is_entry(entry) and (0 <= at_log < facts.start or facts.in_hole(at_log))):
                return
        detail = f"it is before the first message of the log, and the file has {_described(raw)}"
        self.runs.add(Kind.QUEUE_ENTRY_WRONG, path, at, ENTRY_BYTES, offset, detail)

    def _used_entries(self, file: QueueFile, begin: int) -> Iterator[tuple[int, bytes]]:
        """The nonzero entries of a file, from byte `begin` on."""
        stop = min(file.size, self._context.file_entries * ENTRY_BYTES)
        if self._context.files.status(file.path) is None:
            return  # a broker that uses the store has deleted it meanwhile
        with self._context.files.open(file.path, write=False) as opened:
            found = nonzero_range(opened, begin, stop)
            if found is None:
                return
            for at in range(found[0] - found[0] % ENTRY_BYTES, found[1], _BLOCK_BYTES):
                block = opened.read_at(at, min(_BLOCK_BYTES, stop - at))
                for start in range(0, len(block) - ENTRY_BYTES + 1, ENTRY_BYTES):
                    raw = block[start : start + ENTRY_BYTES]
                    if raw != _NO_ENTRY:
                        yield (file.first + at + start) // ENTRY_BYTES, raw

    def _check_tail(self, offset: int, raw: bytes) -> None:
        facts, condition = self._context.facts, self._context.condition
        entry = ENTRY.unpack(raw)
        kind = Kind.QUEUE_ENTRY_STALE
        if is_message(entry):
            if facts.in_hole(entry[0]) or (self.next == _UNSEEN and entry[0] < facts.start):
                return
            if entry[0] >= facts.end:
                if condition.is_clean:
                    facts.add_known(entry[0] + entry[1], f"entry {offset} of {self.label}")
                if condition.is_clean or condition.is_in_use:
                    return
                kind = Kind.QUEUE_AHEAD
        elif _is_nothing(raw) and self.next == _UNSEEN:
            return
        path, at = self.entries.position_of(offset)
        self.runs.add(kind, path, at, ENTRY_BYTES, offset, f"the file has {_described(raw)}")


def _is_nothing(raw: bytes) -> bool:
    """Whether the entry says that its offset has no message."""
    return len(raw) == ENTRY_BYTES and ENTRY.unpack(raw)[1] == NOTHING_HERE_SIZE


def _described(raw: bytes) -> str:
    if len(raw) < ENTRY_BYTES or raw == _NO_ENTRY:
        return "nothing"
    log_offset, size, tags_code = ENTRY.unpack(raw)
    return f"log offset {log_offset}, size {size}, tags code {tags_code}"


MAX_UNPLACED: Final = 1000
"""The limit on named topics without a valid queue; further ones are not named."""

_pack = ENTRY.pack

_SENTENCES: Final = {
    Kind.QUEUE_MISSING: "{entries} of {queue}: the file is missing",
    Kind.QUEUE_ENTRY_MISSING: "{entries} of {queue}: no entry; {detail}",
    Kind.QUEUE_ENTRY_WRONG: "{entries} of {queue}: {detail}",
    Kind.QUEUE_ENTRY_STALE: "{entries} of {queue}: the log has no such message; {detail}",
    Kind.QUEUE_BEHIND: "{entries} of {queue}: not written yet; the next start writes them",
    Kind.QUEUE_AHEAD: "{entries} of {queue}: beyond the end of the log; the next start removes them",
}


class QueueCheck:
    """All queues of a store."""

    def __init__(
        self, files: Files, layout: StoreLayout, condition: Condition, facts: LogFacts, topics: frozenset[str] | None
    ) -> None:
        """`topics` are the topics in the store's table; None if that is unknown."""
        self._files = files
        self._layout = layout
        self._topics = topics
        self._context = CheckContext(files, facts, condition, layout.queue_file_entries, RunBudget())
        self._table: dict[tuple[str, int], CheckedQueue] = {}
        self._unplaced: set[str] = set()
        self.foreign: list[Path] = []
        self._find_queues()
        self._has_files = bool(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def _find_queues(self) -> None:
        for topic in self._files.list(self._layout.queue_folder):
            folder = self._layout.queue_folder / topic
            if not (is_topic(topic) and self._is_dir(folder)):
                self.foreign.append(folder)
                continue
            ids = [id_ for id_ in list_queue_ids(self._files, folder) if self._is_dir(folder / str(id_))]
            for queue_id in ids:
                self._open_queue(topic, queue_id, folder / str(queue_id))
            self.foreign += [folder / name for name in self._files.list(folder) if name not in map(str, ids)]

    def _open_queue(self, topic: str, queue_id: int, folder: Path) -> None:
        found = list_queue_files(self._files, folder)
        known = {file.path.name for file in found}
        self.foreign += [folder / name for name in self._files.list(folder) if name not in known]
        queue = CheckedQueue(self._context, topic, queue_id, folder, found)
        queue.is_checked = not topic.startswith(LMQ_PREFIX)
        self._table[topic, queue_id] = queue

    def _is_dir(self, path: Path) -> bool:
        status = self._files.status(path)
        return status is not None and status.is_dir

    def see(self, message: StoredMessage) -> Flaw | None:
        """Check the next record of the log. Returns its errors, by its offset in its queue."""
        if not enters_queue(message.sys_flag):
            return None
        queue = self._table.get((message.topic, message.queue_id)) or self._new_queue(message)
        if queue is None:
            return self._no_queue(message.topic)
        if message.sys_flag & SysFlag.INNER_BATCH:
            queue.is_checked = False
        if not queue.is_checked:
            return None
        code = tags_code_of(
            message.raw_properties,
            is_delay=queue.is_delay,
            store_ms=message.store_ms,
            levels=self._layout.delay_levels,
        )
        return queue.see(message, _pack(message.log_offset, message.size, code))

    def _new_queue(self, message: StoredMessage) -> CheckedQueue | None:
        if message.queue_id < 0 or not is_topic(message.topic):
            return None
        folder = self._layout.queue_folder / message.topic / str(message.queue_id)
        queue = CheckedQueue(self._context, message.topic, message.queue_id, folder, [])
        self._table[message.topic, message.queue_id] = queue
        return queue

    def _no_queue(self, topic: str) -> Flaw | None:
        if topic in self._unplaced or len(self._unplaced) >= MAX_UNPLACED:
            return None
        self._unplaced.add(topic)
        return Kind.LOG_TOPIC, f"its topic {topic[:80]!r} is invalid, so its messages are in no queue"

    # at the end

    def finish(self) -> Iterator[Finding]:
        """The findings of the queues; call it after the end of the log."""
        in_order = [queue for _, queue in sorted(self._table.items())]
        absent = [queue for queue in in_order if queue.absent]
        if absent and not self._has_files:
            text = f"there are no consume queues; the log has messages of {len(absent)}, such as {absent[0].label}"
            yield Finding(Kind.QUEUE_MISSING, QUEUES, text)
        for queue in in_order:
            if queue.is_checked:
                queue.check_ends()
                yield from self._findings_of(queue)
            elif queue.files:
                text = f"{queue.label} has entries that are not checked: batches, or light queues"
                yield Finding(Kind.QUEUE_UNCHECKED, self._layout.name_of(queue.entries.folder), text)

    def _findings_of(self, queue: CheckedQueue) -> Iterator[Finding]:
        name = self._layout.name_of(queue.entries.folder)
        if queue.absent and self._has_files:
            yield self._absent(queue, name)
        if queue.restarts:
            text = f"{queue.label} started again: its topic was deleted and created again, and older messages are in no queue"
            yield Finding(Kind.QUEUE_DELETED, name, text)
        for file in queue.files:
            if file.size not in (0, self._layout.queue_file_bytes) or file.first % self._layout.queue_file_bytes:
                text = f"the file has {file.size} bytes; queue files of this store have {self._layout.queue_file_bytes}"
                yield Finding(Kind.QUEUE_FILE_SIZE, self._layout.name_of(file.path), text, 0, file.size)
        for run in queue.runs:
            yield self._finding(run, queue)
        if queue.runs.unlisted:
            text = f"{queue.runs.unlisted} more entries of {queue.label} are missing, wrong or stale"
            yield Finding(Kind.QUEUE_ENTRY_WRONG, name, text)

    def _absent(self, queue: CheckedQueue, name: str) -> Finding:
        if self._topics is not None and queue.topic not in self._topics:
            text = (
                f"{queue.label} has no files, and its topic is in no table: it was deleted; the log still has messages"
            )
            return Finding(Kind.QUEUE_DELETED, name, text)
        text = f"{queue.label} has no files; the log has its messages {queue.first} to {queue.next - 1}"
        return Finding(Kind.QUEUE_MISSING, name, text)

    def _finding(self, run: Run, queue: CheckedQueue) -> Finding:
        entries = run.named("entry", "entries")
        detail = run.detail if run.count == 1 else f"of the first, {run.detail}"
        text = _SENTENCES[run.kind].format(entries=entries, queue=queue.label, detail=detail)
        return Finding(run.kind, self._layout.name_of(run.path), text, run.begin, run.end)
