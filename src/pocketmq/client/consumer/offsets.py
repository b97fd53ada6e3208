"""Offsets: up to where this client has consumed each queue, and where that is stored.

    finished messages ──► recorded in memory ── every 5 s, at a release of the queue, at the stop ──► stored
                                                  clustering: by the broker of the queue, for the whole group
                                                  broadcasting: in a local file
                                                  `offset_store=…`: by the user's own store

Stored offsets may be older than recorded ones, never newer: after a crash messages are repeated, but none is lost.

The file of a broadcasting consumer has RocketMQ's format:

    ~/.rocketmq_offsets/<client id>/<group>/offsets.json      and offsets.json.bak, the previous version

    {
        "offsetTable":{{
                "brokerName":"broker-a",
                "queueId":3,
                "topic":"Orders"
            }:12
        }
    }

Without instance names, the broadcasting consumers of one machine have the same client id, and so the same file. A save therefore changes only
the given queues. But two such consumers of one group overwrite each other's offsets, as in Java.

File access runs in a thread.
"""

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, TypeVarTuple

from pocketmq.client.cluster.calls import OffsetCalls, first_of_topics
from pocketmq.client.cluster.routes import QueueNames
from pocketmq.errors import InvalidSetting, PocketMQError, StoreError
from pocketmq.files import Files, user_folder
from pocketmq.model import MessageQueue, StoredMessage
from pocketmq.protocol.bodies.topics import LocalOffsets as OffsetsFile
from pocketmq.protocol.bodies.topics import LogMark
from pocketmq.protocol.java_json import write_pretty_json
from pocketmq.store.tables import TABLE_LIMITS, Tables

FOLDER: Final = ".rocketmq_offsets"
"""In the home folder of the user."""
FILE: Final = "offsets.json"


def offsets_folder(root: Path, client_id: str, group: str) -> Path:
    """The folder of a consumer's file. Raises InvalidSetting for names that are no folder name."""
    for word, name in (("client id", client_id), ("group", group)):
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise InvalidSetting(f"{word} {name!r} cannot be used as the name of a folder for local offsets")
    return root / client_id / group


class LocalOffsetFile:
    """The file of one consumer. Raises StoreDamaged if neither it nor its backup is readable, and StoreError for a disk error."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._tables = Tables(files, folder)

    def load(self) -> OffsetsFile:
        """The saved file, or its backup if the file is damaged. Empty without a file."""
        return self._tables.load(FILE, _parse) or OffsetsFile()

    def save(self, offsets: Mapping[MessageQueue, int], marks: Mapping[MessageQueue, LogMark] | None = None) -> None:
        """Save offsets, and marks of their queues; they are on the disk when this returns."""
        if not offsets:
            return
        self._make_folders()
        self._tables.save(FILE, write_pretty_json(_changed(self.load(), offsets, marks or {})))

    def _make_folders(self) -> None:
        """Create the folders of the user, the client and the group. Each is synced before the next, so that a crash cannot lose the file."""
        missing = [folder for folder in (self._folder, *self._folder.parents) if self._files.status(folder) is None]
        try:
            for folder in reversed(missing):
                self._files.make_dir(folder)
                self._files.sync_dir(folder.parent)
        except OSError as error:
            raise StoreError(
                f"the folder {self._folder} for local offsets cannot be created: {error.strerror}"
            ) from error


def _changed(
    stored: OffsetsFile, offsets: Mapping[MessageQueue, int], marks: Mapping[MessageQueue, LogMark]
) -> OffsetsFile:
    others = {queue: mark for queue, mark in (stored.log_table or {}).items() if queue not in offsets}
    return OffsetsFile({**stored.offset_table, **offsets}, {**others, **marks} or None)


def _parse(data: bytes) -> OffsetsFile:
    return OffsetsFile.decode(data, TABLE_LIMITS)


log = logging.getLogger("pocketmq.client")

LARGEST_OFFSET = 2**63 - 1
"""Offsets are 64-bit numbers in requests."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class OffsetStore(ABC):
    """Stores offsets. Inherit from it, and pass an instance as `offset_store=` to store them yourself.

    The methods run on the client's network thread: use `asyncio.to_thread` for code that blocks. Exceptions are logged and the call is
    repeated; a queue is not consumed until its offset is loaded.
    """

    async def require_readable(self) -> None:  # noqa: B027 optional
        """Check whether offsets can be read. An exception makes the start of the consumer fail."""

    @abstractmethod
    async def load(self, queue: MessageQueue) -> int | None:
        """The stored offset; None without one: `start_at` applies then."""

    @abstractmethod
    async def save(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        """Store offsets; with `wait`, return when they are stored."""

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        """Store the first offset of a queue."""
        await self.save({queue: offset}, wait=True)


class UserOffsets(OffsetStore):
    """The user's store: translates queue names, and raises its exceptions as StoreError."""

    def __init__(self, store: OffsetStore, namespace: str | None) -> None:
        self._store = store
        self._names = QueueNames(namespace)

    async def require_readable(self) -> None:
        await self._do(self._store.require_readable)

    async def load(self, queue: MessageQueue) -> int | None:
        offset = await self._do(self._store.load, self._names.shown(queue))
        if offset is not None and (type(offset) is not int or offset > LARGEST_OFFSET):
            raise StoreError(
                f"the offset store {self._store!r} failed: it returned {offset!r} for {queue}; expected an offset or None"
            )
        return offset

    async def save(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        if offsets:
            shown = {self._names.shown(queue): offset for queue, offset in offsets.items()}
            await self._do(partial(self._store.save, shown, wait=wait))

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        await self._do(self._store.begin, self._names.shown(queue), offset)

    async def _do(self, work: Callable[[*Ts], Awaitable[T]], *arguments: *Ts) -> T:
        try:
            return await work(*arguments)
        except PocketMQError:
            raise
        except Exception as error:
            raise StoreError(f"the offset store {self._store!r} failed: {type(error).__name__}: {error}") from error


class RemoteOffsets(OffsetStore):
    """Stored by brokers, for a group."""

    def __init__(self, calls: OffsetCalls, group: str) -> None:
        self._calls = calls
        self._group = group
        self._begun: set[tuple[str, str]] = set()
        """Brokers and topics for which an offset was committed: offsets of other queues may be committed in parallel then."""

    async def require_readable(self) -> None:
        """The offset of each queue is loaded when it is assigned."""

    async def load(self, queue: MessageQueue) -> int | None:
        return await self._calls.of_group(self._group, queue)

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        await self._calls.commit(self._group, queue, offset)

    async def save(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        """Commit each offset by itself, so that a broker that is away does not affect the others."""
        if not wait:
            outcomes = await self._sent(self._calls.commit_one_way, offsets)
        else:
            first = {q: offsets[q] for q in first_of_topics(offsets) if (q.broker_name, q.topic) not in self._begun}
            outcomes = await self._sent(self._calls.commit, first)
            self._begun.update(
                (q.broker_name, q.topic) for q, outcome in zip(first, outcomes, strict=True) if outcome is None
            )
            outcomes += await self._sent(self._calls.commit, {q: offsets[q] for q in offsets if q not in first})
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _sent(
        self, send: Callable[[str, MessageQueue, int], Awaitable[None]], offsets: Mapping[MessageQueue, int]
    ) -> list[BaseException | None]:
        """The result of each."""
        sending = (send(self._group, queue, offset) for queue, offset in offsets.items())
        return await asyncio.gather(*sending, return_exceptions=True)


class LocalOffsets(OffsetStore):
    """Stored in a local file."""

    def __init__(self, file: LocalOffsetFile) -> None:
        self._file = file
        self._stored: OffsetsFile | None = None
        self.marks: dict[MessageQueue, LogMark] = {}
        """Messages that identify the logs of queues. They are saved with the offsets."""
        self._lock = asyncio.Lock()  # one at a time reads or writes the file

    async def require_readable(self) -> None:
        await self._load()

    async def load(self, queue: MessageQueue) -> int | None:
        return (await self._load()).offset_table.get(queue)

    async def _load(self) -> OffsetsFile:
        async with self._lock:
            if self._stored is None:
                self._stored = await _in_thread(self._file.load)
                self.marks = {**(self._stored.log_table or {}), **self.marks}
            return self._stored

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        """A disk error does not prevent the consumption: the offset is saved again with later ones."""
        self.marks.pop(queue, None)
        try:
            await self.save({queue: offset}, wait=True)
        except StoreError as error:
            log.warning(
                "start offset %d of %s could not be saved: %s; retrying with the next offsets", offset, queue, error
            )

    async def save(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        async with self._lock:
            stored = self._stored or OffsetsFile()
            table = stored.offset_table
            changed = {queue: offset for queue, offset in offsets.items() if table.get(queue) != offset}
            if changed:
                marks = {queue: mark for queue in changed if (mark := self.marks.get(queue))}
                await _in_thread(self._file.save, changed, marks)
                self._stored = _changed(stored, changed, marks)


async def _in_thread(function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Call in a thread; directly at the exit of the program, when no thread can be started."""
    try:
        working = asyncio.get_running_loop().run_in_executor(None, function, *arguments)
    except RuntimeError:
        return function(*arguments)
    return await working


class LocalFolder(NamedTuple):
    """The folder of local offsets; `root` None is the default in the user's home folder."""

    files: Files
    root: str | os.PathLike[str] | None
    client_id: str


def offset_store(
    calls: OffsetCalls, group: str, local: LocalFolder | None, own: UserOffsets | None = None
) -> OffsetStore:
    """The store of a consumer: the user's `own` store, the brokers, or a file in the `local` folder."""
    if own is not None:
        return own
    if local is None:
        return RemoteOffsets(calls, group)
    root = user_folder() / FOLDER if local.root is None else Path(local.root)
    return LocalOffsets(LocalOffsetFile(local.files, offsets_folder(root, local.client_id, group)))


class Offsets:
    """The recorded offsets of one consumer, and the store that keeps them."""

    def __init__(self, store: OffsetStore) -> None:
        self.store = store
        self._offsets: dict[MessageQueue, int] = {}
        self._last_error = ""

    @property
    def are_local(self) -> bool:
        """Whether this client or the user's store keeps the offsets, instead of brokers."""
        return not isinstance(self.store, RemoteOffsets)

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def of_topic(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self._offsets.items() if queue.topic == topic}

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Record that the queue is consumed up to `offset`, exclusive. Never moves back."""
        known = self._offsets.get(queue)
        if known is None or offset > known:
            self._offsets[queue] = offset

    def move(self, queue: MessageQueue, offset: int) -> None:
        """Record `offset`, also if it is smaller."""
        self._offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """The queue belongs to another member from now on."""
        self._offsets.pop(queue, None)

    def mark(self, queue: MessageQueue, last_pulled: StoredMessage | LogMark | None) -> None:
        """The offsets of the queue belong to the log with this message; None if the log is unknown."""
        if isinstance(self.store, LocalOffsets):
            if last_pulled is None:
                self.store.marks.pop(queue, None)
            else:
                self.store.marks[queue] = LogMark(last_pulled.queue_offset, last_pulled.store_ms)

    def mark_of(self, queue: MessageQueue) -> LogMark | None:
        """The message that identifies the log of the stored offset; None unless offsets are stored locally."""
        return self.store.marks.get(queue) if isinstance(self.store, LocalOffsets) else None

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Record offsets and store them now. Raises PocketMQError if some of them could not be stored."""
        self._offsets.update(offsets)
        await self.store.save(offsets, wait=True)

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False, is_last: bool = False) -> None:
        """Store the recorded offsets of these queues. After an error, they are stored with later ones, unless these are the last."""
        offsets = {queue: self._offsets[queue] for queue in queues if queue in self._offsets}
        try:
            await self.store.save(offsets, wait=wait)
        except PocketMQError as error:
            if is_last:
                log.warning(
                    "offsets could not be stored at the stop: %s; messages since the last commit are delivered again",
                    error,
                )
            elif type(error).__name__ != self._last_error:
                self._last_error = type(error).__name__
                log.warning("offsets could not be stored: %s; retrying with the next commit", error)
        else:
            self._last_error = ""
