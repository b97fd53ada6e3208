"""Checks the log by itself: its files, its records one by one, and its end.

    0000…0000   0000…8000   0001…0000       one size, no file missing
    record ─ record ─ ??? ─ record ─ zeros
                      │              └ nothing may follow; other bytes are stale, or the rest of a lost record
                      └ from the last valid byte to the next valid one

The log alone does not show whether its end was lost; other files do.
"""

from collections.abc import Iterator

from pocketmq.files import Files
from pocketmq.model import StoredMessage
from pocketmq.model.properties import CRC32
from pocketmq.protocol.record import LOG_OFFSET_AT, MAGIC_V1, MAGIC_V2, encode_message, property_crc_matches
from pocketmq.store.layout import LOG, StoreLayout
from pocketmq.store.log.log_scan import LogFile, LogScan, Unreadable
from pocketmq.store.log.segments import NAME_DIGITS
from pocketmq.store.tools.findings import Finding, Kind, LogFacts
from pocketmq.store.tools.folder_check import Condition

_CRC_NAME = CRC32.encode()


class LogCheck:
    """The log of a store. Calls come in the order of the log."""

    def __init__(self, files: Files, layout: StoreLayout, condition: Condition, facts: LogFacts) -> None:
        self._files = files
        self._layout = layout
        self._condition = condition
        self._facts = facts
        self._last_ms = 0

    # files

    def check_files(self) -> Iterator[Finding]:
        expected: int | None = None
        for log_file in self._layout.log_files:
            if expected is not None and log_file.first > expected:
                yield self._missing(expected, log_file.first)
            if not log_file.size and log_file is self._layout.log_files[-1]:
                text = "the file is empty: the store stopped while creating it; the next start removes it"
                yield Finding(Kind.LOG_FILE_UNFINISHED, self._layout.name_of(log_file.path), text)
            elif flaw := self._file_flaw(log_file, expected):
                yield Finding(Kind.LOG_FILE_SIZE, self._layout.name_of(log_file.path), flaw, 0, log_file.size)
            expected = log_file.first + self._layout.log_file_bytes

    def _missing(self, expected: int, found: int) -> Finding:
        count = -(-(found - expected) // self._layout.log_file_bytes)
        files = "a file is" if count == 1 else f"{count} files are"
        text = f"{files} missing: the log has no bytes from {expected} to {found}"
        return Finding(Kind.LOG_FILE_MISSING, f"{LOG}/{expected:0{NAME_DIGITS}d}", text)

    def _file_flaw(self, log_file: LogFile, expected: int | None) -> str:
        file_bytes = self._layout.log_file_bytes
        if log_file.size != file_bytes:
            lost = f", so the log has nothing from {log_file.first + log_file.size} to {log_file.first + file_bytes}"
            return f"the file has {log_file.size} bytes instead of {file_bytes}{lost if log_file.size < file_bytes else ''}"
        if expected is not None and log_file.first < expected:
            return f"the file begins at {log_file.first}, but the one before it ends at {expected}"
        if log_file.first % file_bytes:
            return f"the file begins at {log_file.first}, which is not a multiple of the file size {file_bytes}"
        return ""

    def _is_short(self, log_offset: int) -> bool:
        """Whether the file that should hold this offset is too short, which is already reported."""
        file_bytes = self._layout.log_file_bytes
        return any(
            log_file.first <= log_offset < log_file.first + file_bytes and log_file.size < file_bytes
            for log_file in self._layout.log_files
        )

    # records

    def see(self, message: StoredMessage) -> Finding | None:
        """Check the next valid record."""
        store_ms, last_ms = message.store_ms, self._last_ms
        self._last_ms = store_ms
        self._facts.newest_ms = max(self._facts.newest_ms, store_ms)
        if _CRC_NAME in message.raw_properties and not property_crc_matches(encode_message(message)):
            text = f"the record at log offset {message.log_offset} differs from its own checksum {CRC32}"
            return self.finding(Kind.LOG_RECORD, message, text)
        if store_ms < last_ms:
            text = (
                f"the record at log offset {message.log_offset} was stored {last_ms - store_ms} ms before the one that "
                "precedes it: the clock was set back, and a search by time may miss messages"
            )
            return self.finding(Kind.LOG_TIME, message, text)
        return None

    def unreadable(self, hole: Unreadable) -> Finding | None:
        """Check a part of the log without valid records. None if the missing file or wrong size is already reported."""
        self._facts.add_hole(hole.begin, hole.end)
        if hole.path is None or (self._is_short(hole.begin) and hole.end % self._layout.log_file_bytes == 0):
            return None
        first = int(hole.path.name)
        text = f"no valid record from log offset {hole.begin} to {hole.end}: {hole.reason}"
        return Finding(Kind.LOG_RECORD, self._layout.name_of(hole.path), text, hole.begin - first, hole.end - first)

    def changed(self, log_offset: int) -> Finding:
        """A record whose key differs from the index."""
        path, begin = self._position(log_offset)
        text = f"the record at log offset {log_offset} had another topic or other keys when the index was made from it"
        return Finding(Kind.LOG_CHANGED, path, text, begin, None)

    def finding(self, kind: Kind, message: StoredMessage, text: str) -> Finding:
        """A finding about one record."""
        path, begin = self._position(message.log_offset)
        return Finding(kind, path, text, begin, begin + message.size)

    def _position(self, log_offset: int) -> tuple[str, int]:
        for log_file in reversed(self._layout.log_files):
            if log_file.first <= log_offset:
                return self._layout.name_of(log_file.path), log_offset - log_file.first
        return LOG, log_offset

    def begins_record(self, log_offset: int) -> bool:
        """Whether a record with this log offset begins here."""
        for log_file in self._layout.log_files:
            if 0 <= log_offset - log_file.first < log_file.size:
                with self._files.open(log_file.path, write=False) as file:
                    head = file.read_at(log_offset - log_file.first, LOG_OFFSET_AT + 8)
                magic, offset = int.from_bytes(head[4:8], "big"), int.from_bytes(head[LOG_OFFSET_AT:], "big")
                return magic in (MAGIC_V1, MAGIC_V2) and offset == log_offset
        return False

    # the end

    def check_end(self, scan: LogScan) -> Iterator[Finding]:
        """After all checks: whether the log lost its end."""
        reason = self.lost_tail
        if self._condition.is_in_use or self._is_short(scan.end):
            return
        if not reason:
            for tail in scan.tails:
                text = f"bytes after the end of the log at {scan.end} are not zero and belong to no message"
                yield Finding(Kind.LOG_STALE_BYTES, self._layout.name_of(tail.path), text, tail.begin, tail.end)
            return
        path, begin = self._position(scan.end)
        if scan.tails:
            end = max(scan.tails[0].end, self._facts.known_end - scan.end + begin)
            text = f"no valid record at log offset {scan.end}: {scan.ending}; {reason}"
            yield Finding(Kind.LOG_RECORD, path, text, begin, end)
        else:
            text = f"the log ends at {scan.end}, but {reason}"
            yield Finding(Kind.LOG_LOST_TAIL, path, text, begin, None)

    @property
    def lost_tail(self) -> str:
        """What shows that messages after the end of the log existed; empty if nothing does."""
        facts, safe_ms = self._facts, self._condition.safe.log_ms
        if facts.known_end > facts.end:
            return f"{facts.known_by} points to a message that ends at {facts.known_end}"
        if self._condition.knows_later(facts.newest_ms):
            return (
                f"the checkpoint covers a message stored at {safe_ms} ms, {safe_ms - facts.newest_ms} ms after "
                "the newest message of the log"
            )
        return ""
