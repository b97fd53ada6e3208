"""Verifies every meaningful byte of a store, and reports what is wrong. Changes nothing.

    tables ─► one pass over the log ─► queues: heads and tails ─► index: the rest ─► the end of the log, checkpoint
                 │ each record: sound? its queue entry? its keys?
                 └ memory for each queue, not for each message

The log is the reference: a derived file that differs from it is wrong, and can be rebuilt. Other files show whether the
log itself lost something: queue entries, the checkpoint, the offsets of its own records.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from pocketmq.clock import SystemClock
from pocketmq.files import Files
from pocketmq.model import StoredMessage
from pocketmq.store.index.index_file import list_index_files
from pocketmq.store.index.key_index import KeyIndex
from pocketmq.store.layout import INDEX, StoreLayout
from pocketmq.store.log.log_scan import LogScan, Unreadable, written_bytes
from pocketmq.store.log.segments import MAX_OFFSET
from pocketmq.store.settings import StoreSettings
from pocketmq.store.tools.findings import Finding, Kind, LogFacts, Progress, Severity
from pocketmq.store.tools.folder_check import Condition, TableCheck, find_foreign, foreign, look_at
from pocketmq.store.tools.index_check import IndexCheck
from pocketmq.store.tools.log_check import LogCheck
from pocketmq.store.tools.queue_check import QueueCheck

PROGRESS_BYTES: Final = 1024 * 1024
"""Bytes of the log between two reports of progress."""

Event = Finding | Progress


class Summary(msgspec.Struct):
    """The totals of a check, and the most severe finding."""

    log_files: int = 0
    log_start: int = 0
    log_end: int = 0
    messages: int = 0
    queues: int = 0
    index_files: int = 0
    index_entries: int = 0
    tables: int = 0
    worst: Severity = Severity.NOTE
    findings: dict[str, int] = {}
    """The number of findings of each kind."""


class Verification:
    """One verification of a store. Iterate over `run`; then `summary` contains the totals."""

    def __init__(self, files: Files, layout: StoreLayout, *, with_index: bool = True) -> None:
        self._files = files
        self._layout = layout
        self._with_index = with_index
        self.summary = Summary(log_files=len(layout.log_files), log_start=layout.log_start)

    def run(self) -> Iterator[Event]:
        """All findings, as they are found, with progress in between."""
        for event in self._run():
            if isinstance(event, Finding):
                self.summary.worst = max(self.summary.worst, event.severity)
                self.summary.findings[event.kind] = self.summary.findings.get(event.kind, 0) + 1
            yield event

    def _run(self) -> Iterator[Event]:
        condition = look_at(self._files, self._layout.folder)
        yield from condition.findings()
        tables = TableCheck(self._files, self._layout.folder)
        yield from tables.run()
        self.summary.tables = tables.tables
        yield from find_foreign(self._files, self._layout)

        facts = LogFacts(self._layout.log_start)
        log = LogCheck(self._files, self._layout, condition, facts)
        queues = QueueCheck(self._files, self._layout, condition, facts, tables.topics)
        for path in queues.foreign:
            yield foreign(self._layout, path)
        index = self._index_check(condition, facts, log)
        yield from log.check_files()
        scan = LogScan(self._files, self._layout.log_files, self._layout.log_file_bytes)
        yield from self._pass_over(scan, log, queues, index)
        facts.end = self.summary.log_end = scan.end

        yield from queues.finish()
        self.summary.queues = len(queues)
        has_lost_tail = bool(log.lost_tail)
        if has_lost_tail:
            facts.add_hole(scan.end, MAX_OFFSET)
        yield from self._finish_index(index, log)
        yield from log.check_end(scan)
        if not has_lost_tail:
            yield from condition.check_checkpoint(facts.newest_ms)

    def _index_check(self, condition: Condition, facts: LogFacts, log: LogCheck) -> IndexCheck | None:
        if not self._with_index or self._layout.index_shape is None:
            return None
        # Uses only one rule of the index: the keys of a record.
        rule = KeyIndex(StoreSettings(folder=self._layout.folder), self._files, SystemClock())
        return IndexCheck(self._files, self._layout, condition, facts, rule.keys_of, log.begins_record)

    def _pass_over(self, scan: LogScan, log: LogCheck, queues: QueueCheck, index: IndexCheck | None) -> Iterator[Event]:
        total = written_bytes(self._files, self._layout.log_files)
        start = self._layout.log_start
        report_at = start
        for found in scan:
            if isinstance(found, Unreadable):
                finding = log.unreadable(found)
                if finding is not None:
                    yield finding
                continue
            yield from _judge(found, log, queues)
            if index is not None:
                index.see(found)
            self.summary.messages += 1
            if found.log_offset >= report_at:
                yield Progress(min(found.log_offset - start, total), total)
                report_at = found.log_offset + PROGRESS_BYTES
        yield Progress(total, total)

    def _finish_index(self, index: IndexCheck | None, log: LogCheck) -> Iterator[Finding]:
        paths = list_index_files(self._files, self._layout.index_folder)
        self.summary.index_files = len(paths)
        if index is not None:
            yield from index.finish()
            yield from map(log.changed, index.take_changed())
            self.summary.index_entries = index.entries
        elif self._with_index:
            text = (
                f"{len(paths)} index files were not checked: their number of slots and entries is not in "
                "the files. Give index_slots and index_entries (maxHashSlotNum, maxIndexNum)"
            )
            yield Finding(Kind.INDEX_UNCHECKED, INDEX, text)


def _judge(message: StoredMessage, log: LogCheck, queues: QueueCheck) -> Iterator[Finding]:
    finding = log.see(message)
    if finding is not None:
        yield finding
    flaw = queues.see(message)
    if flaw is not None:
        kind, text = flaw
        yield log.finding(kind, message, f"the record at log offset {message.log_offset}: {text}")
