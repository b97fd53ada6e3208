"""Opens a store after any kind of stop. Every start runs the same recovery; a clean stop only shortens the scan.

    lock, abort file ─► find files ─► choose L ─► queues up to L ─► scan the log from L ─► cut ─► complete the queues

The checkpoint is written after the derived files are synced, so these contain everything before L. Entries at or
after L may be lost, torn or stale, and are rebuilt from the log. The scan ends at the first bytes that are not a
valid record, and the log is truncated there. Every step may be interrupted and started again.
"""

import errno
import logging
from math import inf

import msgspec

from pocketmq.errors import StoreError, StoreFull
from pocketmq.files import File
from pocketmq.model import is_topic
from pocketmq.store.log.log_scan import RecoveryScan, ScanEnd, has_lost_part
from pocketmq.store.parts import StoreParts
from pocketmq.store.recovery.queue_recovery import QueueRecovery, RecoveryReport
from pocketmq.store.resume import ResumePoint

log = logging.getLogger(__name__)

SAFETY_MS = 3_000
"""The scan begins in a file that is so much older than the checkpoint, as in RocketMQ."""
COPY_BYTES = 1024 * 1024

__all__ = ["RecoveryReport", "recover"]


def recover(parts: StoreParts) -> RecoveryReport:
    """Lock the folder and make all files match the log; afterwards the store can be written."""
    started = parts.clock.monotonic()
    clean = parts.owner.take()
    try:
        report = _Recovery(parts, clean).run()
    except OSError as error:
        raise _cannot_open(parts, error) from error
    report.seconds = parts.clock.monotonic() - started
    if report.is_new:
        log.info("created a new, empty store in %s", parts.settings.folder)
    else:
        level = logging.INFO if clean and not report.cut else logging.WARNING
        log.log(level, "opened the store in %s %s", parts.settings.folder, report)
    return report


def _cannot_open(parts: StoreParts, error: OSError) -> StoreError:
    text = f"the store in {parts.settings.folder} cannot be opened: {error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"{text}. Recovery needs some free space: free it, then open the store again")
    return StoreError(text)


class _Recovery:
    def __init__(self, parts: StoreParts, clean: bool) -> None:
        self._parts = parts
        self._log = parts.log
        self._report = RecoveryReport(clean, rebuilt_queues=[], foreign=[])

    def run(self) -> RecoveryReport:
        parts, report = self._parts, self._report
        self._log.load()
        index_ms = parts.checkpoint.load(clean=report.clean).index_ms
        if self._log.segments.files:
            self._recover()
        else:
            self._begin_empty()
        report.discarded_index_files = parts.index.recover(
            self._log.start, self._log.end, crashed_at_ms=None if report.clean else index_ms
        )
        if not report.clean or report.cut:
            self._lower_checkpoint()
        elif parts.index.newest_ms > index_ms:
            self._raise_checkpoint()
        report.log_end = self._log.end
        report.foreign = [*self._log.segments.foreign, *parts.queues.foreign, *parts.index.foreign]
        return report

    def _begin_empty(self) -> None:
        """Without a log, queues have no messages."""
        was_used = self._parts.checkpoint.physic_ms > 0
        self._report.is_new = self._report.clean and not was_used
        if was_used:
            log.warning(
                "no log files in %s, although the store was used before; starting with an empty log",
                self._log.segments.folder,
            )
        self._forget_resume()
        self._parts.queues.wipe()
        self._log.cut(0)

    def _recover(self) -> None:
        report = self._report
        resume = self._usable_resume()
        if resume is None:
            self._forget_resume()
            resume = ResumePoint(clean=False)
        queues = QueueRecovery(self._parts, report, resume)
        self._parts.queues.doubt_names(not report.clean)
        resumed = report.clean and resume.clean and queues.resume()
        if resumed:
            report.scanned_from = resume.log_end
            self._record_newest(resume.last_record)
        elif report.clean:
            report.scanned_from = self._file_of(queues.load())
        else:
            start = self._first_file_behind_checkpoint()
            # Without any queue the checkpoint covers nothing.
            report.scanned_from = start if queues.cut_to(start) else self._log.start
        self._scan(queues)
        self._keep_deletions(resume)
        queues.finish(trim=not resumed or bool(report.cut))
        self._parts.queues.doubt_names(False)

    def _forget_resume(self) -> None:
        """Replace a resume file that does not match the store, so that no later start uses it."""
        if self._parts.files.status(self._parts.resume.path) is not None:
            self._parts.resume.save(ResumePoint(clean=False))

    def _keep_deletions(self, resume: ResumePoint) -> None:
        """Keep deleted topics deleted. If the log has lost its end, later messages at these offsets are not deleted."""
        end = self._log.end
        deleted = {topic: min(mark, end) for topic, mark in resume.deleted.items() if mark > self._log.start}
        if any(mark > end for mark in resume.deleted.values()):
            self._parts.resume.save(msgspec.structs.replace(resume, deleted=deleted))
        self._parts.deleted_topics = deleted

    # the start of the scan

    def _usable_resume(self) -> ResumePoint | None:
        """The resume point; after a clean stop, only if the store has not changed since."""
        resume = self._parts.resume.load()
        if resume is None or not all(is_topic(topic) for topic, _ in resume.queues):
            return None
        if not self._report.clean:
            return resume
        if not resume.clean or resume.checkpoint != self._parts.checkpoint.raw:
            return None
        if not self._log.start <= resume.log_end <= self._log.segments.end_of_files:
            return None
        if resume.last_record >= 0 and self._log.record(resume.last_record) is None:
            return None
        return resume

    def _record_newest(self, log_offset: int) -> None:
        self._parts.last_record = log_offset
        if log_offset >= 0:
            self._parts.last_store_ms = self._log.store_ms_at(log_offset)

    def _file_of(self, log_offset: int) -> int:
        """The start of the log file with `log_offset`; the first file if the offset is before it."""
        return max((first for first in self._log.first_offsets if first <= log_offset), default=self._log.start)

    def _first_file_behind_checkpoint(self) -> int:
        """After a crash, begin with the newest file that was created well before the checkpoint."""
        checkpoint, segments = self._parts.checkpoint, self._log.segments
        safe_ms = min(checkpoint.physic_ms, checkpoint.logics_ms) - SAFETY_MS
        for first in reversed(self._log.first_offsets):
            scan = RecoveryScan(self._read_log, segments.file_bytes, first, first + segments.file_bytes)
            for _, message in scan:
                if message.store_ms <= safe_ms:
                    return first
                break
        return self._log.start

    # the scan

    def _scan(self, queues: QueueRecovery) -> None:
        parts, report, segments = self._parts, self._report, self._log.segments
        scan = RecoveryScan(self._read_log, segments.file_bytes, report.scanned_from, segments.end_of_files)
        # After a clean stop, every record is certain, however new it is.
        safe_ms = inf if report.clean else parts.checkpoint.physic_ms
        newest, newest_ms, doubtful = parts.last_record, parts.last_store_ms, None
        for log_offset, message in scan:
            store_ms = message.store_ms
            if store_ms >= safe_ms:
                if has_lost_part(message, log_offset % segments.file_bytes):
                    scan.refuse(log_offset, "a part of the record is lost")
                    break
                doubtful = log_offset if doubtful is None else doubtful
            newest = log_offset
            if store_ms > newest_ms:
                newest_ms = store_ms
            queues.dispatch(log_offset, message)
        parts.last_record, parts.last_store_ms = newest, newest_ms
        self._cut(scan)
        if doubtful is not None:
            self._write_again(doubtful)
        self._log.sync_from(report.scanned_from)
        parts.files.sync_dir(segments.folder)

    def _cut(self, scan: RecoveryScan) -> None:
        report = self._report
        report.records = scan.records
        report.cut_bytes = self._log.cut(scan.end)
        if scan.ending is ScanEnd.DAMAGE:
            report.cut = scan.reason
        elif report.cut_bytes:
            report.cut = f"at log offset {scan.end}: nothing was written there, but there are bytes after it"

    def _write_again(self, start: int) -> None:
        """Write the end of the log again. After a failed sync, bytes may be readable but not on the disk, and a later
        sync would not write them.
        """
        for segment in self._log.segments.between(start, self._log.end):
            begin, end = max(start, segment.first), min(self._log.end, segment.end)
            _copy_onto_itself(segment.file, begin - segment.first, end - segment.first)

    def _read_log(self, offset: int, size: int) -> bytes:
        return bytes(self._log.view(offset, size))

    def _lower_checkpoint(self) -> None:
        """The checkpoint may cover derived files whose messages were not synced. Those messages are lost, and new
        ones get their offsets, perhaps with earlier times: the checkpoint must not cover these.
        """
        checkpoint = self._parts.checkpoint
        if checkpoint.lower(self._parts.last_store_ms, self._parts.index.newest_ms):
            self._save_checkpoint()

    def _raise_checkpoint(self) -> None:
        """RocketMQ's checkpoint does not cover its newest index file, even after a clean stop. Update it, or a crash
        deletes the file.
        """
        checkpoint, index = self._parts.checkpoint, self._parts.index
        index.sync_newer(checkpoint.index_ms)
        checkpoint.index_ms = index.newest_ms
        self._save_checkpoint()

    def _save_checkpoint(self) -> None:
        checkpoint = self._parts.checkpoint
        for path in checkpoint.save():
            with self._parts.files.open(path) as file:
                file.sync()
            checkpoint.saved()


def _copy_onto_itself(file: File, start: int, end: int) -> None:
    for at in range(start, end, COPY_BYTES):
        file.write_at(at, file.read_at(at, min(COPY_BYTES, end - at)))
