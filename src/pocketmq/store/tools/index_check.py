"""Checks that the key index has every key of the log with the right entry. Both are read once, side by side.

    log:      record 0 ─ record 1 ─────────── record 2 …          each with its unique key and its keys
    index:    entry 1    entry 2 ─ entry 3    entry 4  …          in the same order, file after file

If the two differ, the next entries decide. If a valid entry points to a later record, keys are missing. If the right
entry follows, the entries before it are surplus. Any other entry is wrong and replaces the right one.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pocketmq.files import Files
from pocketmq.model import StoredMessage
from pocketmq.store.index.index_file import HEADER_BYTES, Entry, IndexHeader, IndexShape, KeyEntry, list_index_files
from pocketmq.store.layout import INDEX, StoreLayout
from pocketmq.store.tools.checked_index_file import NO_ENTRY, CheckedIndexFile
from pocketmq.store.tools.findings import Finding, Kind, LogFacts, Run, RunBudget
from pocketmq.store.tools.folder_check import Condition

KeysOf = Callable[[bytes, bytes, int, int, int], list[KeyEntry]]
"""The keys of a record in index order, from its topic, properties, sysFlag, log offset and store time."""

_LOOK_AHEAD: Final = 256
"""How many entries are searched for the right one."""


class IndexCheck:
    """All index files of a store whose shape is known."""

    def __init__(
        self,
        files: Files,
        layout: StoreLayout,
        condition: Condition,
        facts: LogFacts,
        keys_of: KeysOf,
        begins_record: Callable[[int], bool],
    ) -> None:
        assert layout.index_shape is not None, "index files can be compared only if their shape is known"
        self._files = files
        self._layout = layout
        self._shape: IndexShape = layout.index_shape
        self._condition = condition
        self._facts = facts
        self._keys_of = keys_of
        self._begins_record = begins_record
        self._budget = RunBudget()
        self._waiting: list[Path] = []
        self._findings: list[Finding] = []
        self._blind: list[tuple[int, int]] = []
        self._file: CheckedIndexFile | None = None
        self._seen: tuple[int, list[KeyEntry]] = (-1, [])
        self._missing: _MissingKeys | None = None
        self._changed: list[int] = []
        self.entries = 0
        self.files = 0
        self._sort_files()
        self._next_file()

    def _sort_files(self) -> None:
        """Exclude files that cannot be index files of this store."""
        for path in list_index_files(self._files, self._layout.index_folder):
            with self._files.open(path, write=False) as file:
                size = file.size()
                header = IndexHeader.parse(file.read_at(0, HEADER_BYTES).ljust(HEADER_BYTES, b"\0"))
            self.files += 1
            if size == self._shape.file_bytes:
                self._waiting.append(path)
            elif not header.is_empty:
                text = f"the file has {size} bytes; index files of this store have {self._shape.file_bytes}"
                self._findings.append(Finding(Kind.INDEX_FILE_SIZE, self._layout.name_of(path), text, 0, size))
                self._blind.append((header.begin_offset, header.end_offset))

    # side by side

    def see(self, message: StoredMessage) -> None:
        """The next record of the log."""
        keys = self._keys_of(
            message.topic.encode(), message.raw_properties, message.sys_flag, message.log_offset, message.store_ms
        )
        if not keys:
            return
        file, done = self._file, 0
        if file is not None and self._missing is None:
            while done < len(keys) and file.matches(*keys[done]):
                done += 1
            self.entries += done
        if done < len(keys):
            self._compare(message, [key_hash for key_hash, _, _ in keys[done:]], is_first=not done)
        self._seen = message.log_offset, keys

    def _compare(self, message: StoredMessage, hashes: list[int], *, is_first: bool) -> None:
        """Check the keys of a record one by one, if something differs, or at the start or end of a file."""
        if is_first:
            self._pass_older(message.log_offset, hashes[0])
        for number, key_hash in enumerate(hashes):
            self._expect(message, key_hash, hashes[number + 1 :])

    def _expect(self, message: StoredMessage, key_hash: int, later: list[int]) -> None:
        log_offset = message.log_offset
        entry = self._entry(key_hash, log_offset)
        file = self._file
        if entry is None or file is None or self._belongs_to_a_later(entry, key_hash, log_offset, later):
            self._miss(message)
            return
        self._report_missing()
        self.entries += 1
        if not file.match(entry, key_hash, log_offset, message.store_ms):
            self._changed.append(log_offset)

    def _belongs_to_a_later(self, entry: Entry, key_hash: int, log_offset: int, later: list[int]) -> bool:
        """Whether a valid entry of another key or record is here instead of this one."""
        assert self._file is not None, "there is an entry"
        following = self._file.entry(1)
        if entry[1] == log_offset:
            is_swapped = following is not None and following[:2] == (key_hash, log_offset)
            return entry[0] != key_hash and entry[0] in later and not is_swapped
        in_order = following is None or entry[1] <= following[1]
        return entry[1] > log_offset and in_order and self._begins_record(entry[1])

    def _entry(self, key_hash: int, log_offset: int) -> Entry | None:
        """The next entry of the index, if necessary from the next file; None at its end."""
        while self._file is not None:
            entry = self._file.entry()
            if entry is not None:
                return entry
            extra = self._file.uncounted_entry()
            if extra is not None and extra[:2] == (key_hash, log_offset):
                self._file.count_more()
                return extra
            self._next_file()
        return None

    def _pass_older(self, log_offset: int, key_hash: int) -> None:
        """Skip surplus or optional entries of earlier records."""
        while self._file is not None and (entry := self._entry(key_hash, log_offset)) is not None:
            if entry[1] >= log_offset or entry == NO_ENTRY:
                return
            if self._may_be_there(entry):
                self._file.accept(entry)
            elif entry[1] == self._seen[0] and self._file.is_chained(entry):
                self._changed.append(entry[1])
                self._file.accept(entry)
            elif self._comes_soon(log_offset, key_hash):
                self._file.refuse(entry, "but no record there has such a key")
            else:
                return

    def _may_be_there(self, entry: Entry) -> bool:
        """Entries of missing or damaged records stay; RocketMQ adds the last message again after some restarts."""
        log_offset, keys = self._seen
        if entry[1] == log_offset:
            return any(entry[0] == key_hash for key_hash, _, _ in keys)
        return 0 <= entry[1] < self._facts.start or self._facts.in_hole(entry[1])

    def _comes_soon(self, log_offset: int, key_hash: int) -> bool:
        assert self._file is not None, "there is an entry"
        for ahead in range(1, _LOOK_AHEAD):
            entry = self._file.entry(ahead)
            if entry is None or entry[1] > log_offset:
                return False
            if entry[:2] == (key_hash, log_offset):
                return True
        return False

    def take_changed(self) -> list[int]:
        """Log offsets of records whose topic or keys were different when they were indexed, as the whole index shows."""
        changed, self._changed = self._changed, []
        return sorted(set(changed))

    # missing keys

    def _miss(self, message: StoredMessage) -> None:
        if any(begin <= message.log_offset <= end for begin, end in self._blind):
            return
        if self._missing is None:
            self._missing = _MissingKeys(message, None if self._file is None else self._file.path)
        self._missing.add(message)

    def _report_missing(self) -> None:
        if self._missing is not None:
            self._findings.append(self._missing.finding(Kind.INDEX_KEY_MISSING, self._layout))
            self._missing = None

    def _report_behind(self) -> None:
        """Keys are missing up to the end of the log: they may not be indexed yet."""
        if self._missing is None:
            return
        is_lost = self._missing.first_ms <= self._condition.safe.index_ms or (
            self._condition.is_clean and not self.files
        )
        kind = Kind.INDEX_KEY_MISSING if is_lost else Kind.INDEX_BEHIND
        self._findings.append(self._missing.finding(kind, self._layout))
        self._missing = None

    # the end of a file, and of the index

    def _next_file(self) -> None:
        if self._file is not None:
            self._finish_file(self._file)
        self._file = None
        while self._waiting and self._file is None:
            # A broker that uses the store may have deleted one meanwhile.
            with suppress(FileNotFoundError):
                self._file = CheckedIndexFile(self._files, self._waiting.pop(0), self._shape, self._budget)

    def _finish_file(self, file: CheckedIndexFile) -> None:
        file.finish(is_clean=self._condition.is_clean)
        name = self._layout.name_of(file.path)
        for flaw in file.flaws:
            self._findings.append(Finding(Kind.INDEX_HEADER, name, f"the header is wrong: {flaw}", 0, HEADER_BYTES))
        self._findings += [_finding(run, name) for run in file.runs]
        if file.runs.unlisted:
            text = f"{file.runs.unlisted} more slots and entries are wrong"
            self._findings.append(Finding(Kind.INDEX_ENTRY, name, text))

    def finish(self) -> Iterator[Finding]:
        """The findings of the index; call it after the end of the log."""
        while self._file is not None:
            entry = self._file.entry()
            if entry is None:
                self._next_file()
            elif self._may_be_there(entry) or (entry[1] >= self._facts.end and not self._condition.is_clean):
                self._file.accept(entry)
            else:
                self._file.refuse(entry, "but no record there has such a key")
        self._report_behind()
        yield from self._findings


class _MissingKeys:
    """Adjacent messages with keys that are not in the index."""

    def __init__(self, message: StoredMessage, before: Path | None) -> None:
        self.first = self.last = message.log_offset
        self.first_ms = message.store_ms
        self._before = before
        self._count = 0

    def add(self, message: StoredMessage) -> None:
        self._count += not self._count or message.log_offset != self.last
        self.last = message.log_offset

    def finding(self, kind: Kind, layout: StoreLayout) -> Finding:
        messages = "1 message" if self._count == 1 else f"{self._count} messages"
        where = f"at log offset {self.first}" if self._count == 1 else f"from log offset {self.first} to {self.last}"
        when = " yet; the open store adds them" if kind is Kind.INDEX_BEHIND else ""
        path = INDEX if self._before is None else layout.name_of(self._before)
        return Finding(kind, path, f"keys of {messages} {where} are not in the index{when}")


def _finding(run: Run, name: str) -> Finding:
    noun = ("slot", "slots") if run.kind is Kind.INDEX_SLOT else ("entry", "entries")
    detail = run.detail if run.count == 1 else f"of the first, {run.detail}"
    return Finding(run.kind, name, f"{run.named(*noun)}: {detail}", run.begin, run.end)
