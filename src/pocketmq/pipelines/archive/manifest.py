"""The manifest of a lake: its files, the offsets in each, lost ranges, and the next offset of each queue.

    commit 1 ── commit 2 ── … ── commit n ══► Manifest           each adds files; a compaction also removes the files it replaced

On disk it is a small file for each commit, and from time to time one for all of them:

    _manifest/0000000101.json … 0000000137.json     one commit each: written new, synced, renamed
    _manifest/0000000100.whole.json                 all commits up to 100; older files are removed

A lock on `_manifest/lock` admits one writer at a time. Readers need no lock: every commit that they see is complete, and if a listed
file was removed meanwhile they read the list again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self, TypeVar

import msgspec

from pocketmq.errors import StoreDamaged, StoreLocked, WrongState
from pocketmq.files import DiskFiles, NamedFiles, WrittenFile, write_atomically
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.pipelines.archive.contents import kept_after
from pocketmq.pipelines.archive.form import MANIFEST, padded
from pocketmq.spark.read.offsets import Cause, Lost

VERSION: Final = 1


class Span(msgspec.Struct, frozen=True, order=True):
    """Messages of one queue in one file: `rows` messages from `range.start` to before `range.end`."""

    range: QueueRange
    rows: int


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the lake. `path` is relative to the lake; all messages have one topic."""

    path: str
    topic: str
    spans: tuple[Span, ...]
    bytes: int
    first_store_ms: int
    last_store_ms: int

    @property
    def rows(self) -> int:
        return sum(span.rows for span in self.spans)

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    def holds(self, queue: MessageQueue, offset: int) -> bool:
        return any(span.range.queue == queue and span.range.start <= offset < span.range.end for span in self.spans)


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one step. `ends` are the ranges that it read, whose ends are the next offsets."""

    number: int
    made_ms: int
    query: str = ""
    batch: int | None = None
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = ()
    ends: tuple[QueueRange, ...] = ()
    """A list of ranges, because JSON cannot have queues as keys."""
    version: int = VERSION


class Manifest(msgspec.Struct, kw_only=True):
    """All commits up to `number`, combined."""

    number: int = 0
    files: dict[str, DataFile] = {}
    lost: list[Lost] = []
    ranges: list[QueueRange] = []
    """The ranges that were read of each queue, including lost messages; adjacent ranges are joined."""
    former: list[QueueRange] = []
    """Those whose offsets new messages have, or will have: of topics that were re-created since, and of lost ends of queues."""
    batches: dict[str, int] = {}
    """The last batch of each query."""
    version: int = VERSION

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    @property
    def topics(self) -> list[str]:
        return sorted({file.topic for file in self.files.values()} | {one.queue.topic for one in self.ranges})

    def current(self) -> list[QueueRange]:
        """The ranges of topics as they are now."""
        return [self.ranges[at] for at in self._current()]

    def ends(self) -> dict[MessageQueue, int]:
        """The next offset of each queue."""
        ends: dict[MessageQueue, int] = {}
        for one in self.current():
            ends[one.queue] = max(one.end, ends.get(one.queue, 0))
        return ends

    def _current(self) -> list[int]:
        """The positions of current ranges. Former ones of a queue are before them."""
        left = Counter(self.former)
        found = []
        for at, one in enumerate(self.ranges):
            if left[one]:
                left[one] -= 1
            else:
                found.append(at)
        return found

    def add(self, commit: Commit) -> None:
        """Apply a commit; WrongState if it is not the next one."""
        check_version(commit.version)
        if commit.number != self.number + 1:
            raise WrongState(f"the manifest lacks commit {self.number + 1}; the next commit found is {commit.number}")
        if missing := [path for path in commit.removed if path not in self.files]:
            raise WrongState(f"commit {commit.number} removes {missing[0]}, which the manifest does not have")
        for path in commit.removed:
            del self.files[path]
        self.files.update({file.path: file for file in commit.added})
        self.lost.extend(commit.lost)
        recreated = recreated_in(commit.lost)
        if recreated:
            self.former += [one for one in self.current() if one.queue in recreated]
        for one in commit.lost:
            if one.cause is Cause.TRUNCATION:
                self._end_at(one.range)
        for done in commit.ends:
            self._extend(done)
        if commit.batch is not None:
            self.batches[commit.query] = commit.batch
        self.number = commit.number

    def _end_at(self, lost: QueueRange) -> None:
        """Make the lost end of a queue a former range: new messages get its offsets."""
        for at in self._current():
            one = self.ranges[at]
            if one.queue == lost.queue and one.start < lost.end and lost.start < one.end:
                end = QueueRange(one.queue, max(one.start, lost.start), one.end)
                self.former.append(end)
                if end != one:
                    self.ranges[at] = QueueRange(one.queue, one.start, end.start)
                    self.ranges.append(end)

    def _extend(self, done: QueueRange) -> None:
        own = [at for at in self._current() if self.ranges[at].queue == done.queue]
        near = [at for at in own if self.ranges[at].start <= done.end and done.start <= self.ranges[at].end]
        if not near:
            self.ranges.append(done)
            return
        parts = [done, *(self.ranges[at] for at in near)]
        self.ranges[near[0]] = QueueRange(done.queue, min(one.start for one in parts), max(one.end for one in parts))
        for at in reversed(near[1:]):
            del self.ranges[at]

    def has_batch(self, query: str, batch: int) -> bool:
        return self.batches.get(query, -1) >= batch

    def at_offset(
        self, topic: str, offset: int, *, broker: str | None = None, queue_id: int | None = None
    ) -> list[DataFile]:
        """The files with the message at `offset` of a topic, in all queues or in the given ones."""

        def matches(span: Span) -> bool:
            queue = span.range.queue
            named = broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
            return named and span.range.start <= offset < span.range.end

        return [file for file in self.of_topic(topic) if any(map(matches, file.spans))]

    def at_time(self, topic: str, start_ms: int, end_ms: int | None = None) -> list[DataFile]:
        """The files with messages stored from `start_ms` to before `end_ms`; without `end_ms`, those around `start_ms`."""
        end_ms = start_ms + 1 if end_ms is None else end_ms
        return [
            file for file in self.of_topic(topic) if file.first_store_ms < end_ms and file.last_store_ms >= start_ms
        ]

    def of_topic(self, topic: str) -> Iterator[DataFile]:
        return (file for _, file in sorted(self.files.items()) if file.topic == topic)


def recreated_in(lost: Iterable[Lost]) -> set[MessageQueue]:
    """The queues of topics that were deleted and created again."""
    return {one.range.queue for one in lost if one.cause is Cause.RECREATION}


def missing_ranges(wanted: Iterable[QueueRange], known: Iterable[QueueRange], lost: Iterable[Lost]) -> list[QueueRange]:
    """The parts of ranges that are not in the lake, after a batch with these losses."""
    return _without(wanted, kept_after(known, lost))


def in_rounds(ranges: Iterable[QueueRange]) -> list[list[QueueRange]]:
    """The ranges in lists that have one range of each queue at most."""
    rounds: list[list[QueueRange]] = []
    seen: Counter[MessageQueue] = Counter()
    for one in ranges:
        if seen[one.queue] == len(rounds):
            rounds.append([])
        rounds[seen[one.queue]].append(one)
        seen[one.queue] += 1
    return rounds


def check_within(wanted: Iterable[QueueRange], spans: Iterable[Span]) -> None:
    """WrongState if files have messages that are not in the ranges of their commit."""
    by_queue = {one.queue: one for one in wanted}
    for span in spans:
        whole = by_queue.get(span.range.queue)
        if whole is None or not whole.start <= span.range.start < span.range.end <= whole.end:
            raise WrongState(
                f"the batch has {span.range}, which is not in its planned range {whole}; nothing was changed"
            )


def not_covered(wanted: Iterable[QueueRange], spans: Iterable[Span]) -> list[Lost]:
    """The parts of ranges that were read and are in no file: brokers had deleted them."""
    return [Lost(one, Cause.RETENTION) for one in _without(wanted, (span.range for span in spans))]


def _without(wanted: Iterable[QueueRange], parts: Iterable[QueueRange]) -> list[QueueRange]:
    by_queue: dict[MessageQueue, list[QueueRange]] = {}
    for part in parts:
        by_queue.setdefault(part.queue, []).append(part)
    found = []
    for one in wanted:
        at = one.start
        for part in sorted(by_queue.get(one.queue, ())):
            if at < (next_start := min(part.start, one.end)):
                found.append(QueueRange(one.queue, at, next_start))
            at = max(at, part.end)
        if at < one.end:
            found.append(QueueRange(one.queue, at, one.end))
    return found


def check_version(version: int) -> None:
    if version != VERSION:
        raise WrongState(
            f"the manifest has version {version}, and this PocketMQ reads version {VERSION}; use the PocketMQ that wrote it"
        )


COMMITS_UNTIL_WHOLE: Final = 100
READ_ATTEMPTS: Final = 3
_WHOLE: Final = ".whole.json"
_COMMIT: Final = ".json"
_LOCK: Final = "lock"

M = TypeVar("M")


def read_manifest(lake: Path, files: NamedFiles | None = None) -> Manifest:
    """The manifest of a lake; an empty one if there is none yet."""
    files = files or DiskFiles()
    for left in range(READ_ATTEMPTS - 1, -1, -1):
        try:
            return _read(lake / MANIFEST, files)
        except (FileNotFoundError, WrongState):  # a writer combined commits, and removed listed files
            if not left:
                raise
    raise AssertionError("the last attempt returns or raises")


class ManifestLog:
    """The manifest of a lake, for its writer."""

    def __init__(self, lake: Path, files: NamedFiles | None = None) -> None:
        self._folder = lake / MANIFEST
        self._files = files or DiskFiles()
        self._files.make_dir(self._folder)
        self._lock: WrittenFile = self._files.open(self._folder / _LOCK, create=True)
        if not self._lock.lock():
            self._lock.close()
            raise StoreLocked(
                f"another process writes to the lake {lake}; run one archive at a time, or use one lake for each"
            )
        with ExitStack() as undo:
            undo.callback(self._lock.close)
            self.manifest = _read(self._folder, self._files)
            undo.pop_all()

    def commit(self, commit: Commit) -> None:
        """Make a commit part of the lake; after a failure it is not."""
        found = self._folder / f"{padded(commit.number)}{_COMMIT}"
        write_atomically(self._files, found, msgspec.json.encode(commit))
        self.manifest.add(commit)
        if commit.number % COMMITS_UNTIL_WHOLE == 0:
            self._make_whole()

    def last(self) -> Commit | None:
        """The last commit, which a killed run may not have published; None in a new lake."""
        path = self._folder / f"{padded(self.manifest.number)}{_COMMIT}"
        return _decoded(path, Commit, self._files) if self.manifest.number else None

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _make_whole(self) -> None:
        number = self.manifest.number
        write_atomically(self._files, self._folder / f"{padded(number)}{_WHOLE}", msgspec.json.encode(self.manifest))
        for name in self._files.list(self._folder):
            if name.endswith(_COMMIT) and name < padded(number):  # the last one stays: it may not be published yet
                self._files.unlink(self._folder / name)


def _read(folder: Path, files: NamedFiles) -> Manifest:
    names = [name for name in files.list(folder) if name.endswith(_COMMIT)]
    wholes = [name for name in names if name.endswith(_WHOLE)]
    manifest = _decoded(folder / wholes[-1], Manifest, files) if wholes else Manifest()
    check_version(manifest.version)
    for name in names:
        if not name.endswith(_WHOLE) and name > padded(manifest.number) + _COMMIT:
            manifest.add(_decoded(folder / name, Commit, files))
    return manifest


def _decoded(path: Path, kind: Callable[..., M], files: NamedFiles) -> M:
    try:
        return msgspec.json.decode(files.read(path), type=kind)  # type: ignore[no-any-return]
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"{path} is damaged: {error}") from None
