"""Offsets: how far this client is in each queue, and where that is kept.

    finished messages ──► noted here, in memory ── every 5 s, when a queue is lost, at the end ──► kept
                                                       clustering: by the broker of the queue, for the whole group
                                                       broadcasting: in a file of this client
                                                       `offset_store=…`: wherever the user's own store keeps them

What is kept may be older than what is noted, never newer: after a crash messages come again, none is left out.

Local offsets: how far a broadcasting consumer is, in a file of its own, as RocketMQ writes it.

    ~/.rocketmq_offsets/<client id>/<group>/offsets.json      and offsets.json.bak, what was saved before

    {
        "offsetTable":{{
                "brokerName":"broker-a",
                "queueId":3,
                "topic":"Orders"
            }:12
        }
    }

Broadcasting consumers of one machine have the same client id unless they are given instance names, and so the same file. A
save therefore changes only the queues it names and leaves all others as they are; but two such consumers of one group still
overwrite each other's progress, in Java as here.

Reads and writes wait for the disk: not on the loop's thread.
"""

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, TypeVarTuple

from pocketmq.client.cluster.message_calls import OffsetCalls, first_of_topics
from pocketmq.client.cluster.routes import QueueNames
from pocketmq.errors import InvalidSetting, PocketMQError, StoreError
from pocketmq.files import Files, home_folder
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.offsets import LocalOffsets as OffsetsFile
from pocketmq.protocol.bodies.offsets import LogMark
from pocketmq.protocol.java_json import read_body, write_pretty_json
from pocketmq.store.tables import TABLE_LIMITS, Tables

FOLDER: Final = ".rocketmq_offsets"
"""In the home folder of the user."""
FILE: Final = "offsets.json"


def offsets_folder(root: Path, client_id: str, group: str) -> Path:
    """Where a consumer's file is. InvalidSetting for an id that would lead elsewhere."""
    for word, name in (("client id", client_id), ("group", group)):
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise InvalidSetting(f"{word} {name!r} cannot be the name of a folder for local offsets; choose another")
    return root / client_id / group


class LocalOffsetFile:
    """The file of one consumer. StoreDamaged when neither it nor its backup can be read; StoreError when the disk refuses."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._tables = Tables(files, folder)

    def load(self) -> OffsetsFile:
        """What was saved last, or before that if the last is damaged; empty when nothing ever was."""
        return self._tables.load(FILE, _parse) or OffsetsFile()

    def save(self, offsets: Mapping[MessageQueue, int], marks: Mapping[MessageQueue, LogMark] | None = None) -> None:
        """Remember these, and the marks of these queues; on the disk when this returns."""
        if not offsets:
            return
        self._make_folders()
        self._tables.save(FILE, write_pretty_json(_changed(self.load(), offsets, marks or {})))

    def _make_folders(self) -> None:
        """The folders of the user, the client and the group, each safe before the next: else a crash could lose the file."""
        missing = [folder for folder in (self._folder, *self._folder.parents) if self._files.status(folder) is None]
        try:
            for folder in reversed(missing):
                self._files.make_dir(folder)
                self._files.sync_dir(folder.parent)
        except OSError as error:
            raise StoreError(f"the folder {self._folder} for local offsets cannot be made: {error.strerror}") from error


def _changed(
    kept: OffsetsFile, offsets: Mapping[MessageQueue, int], marks: Mapping[MessageQueue, LogMark]
) -> OffsetsFile:
    others = {queue: mark for queue, mark in (kept.log_table or {}).items() if queue not in offsets}
    return OffsetsFile({**kept.offset_table, **offsets}, {**others, **marks} or None)


def _parse(data: bytes) -> OffsetsFile:
    return read_body(OffsetsFile, data, TABLE_LIMITS)


log = logging.getLogger("pocketmq.client")

LARGEST_OFFSET = 2**63 - 1
"""Offsets travel as numbers of 64 bits."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class OffsetStore(ABC):
    """Where offsets are kept. Inherit from it, and give an object of yours as `offset_store=` to keep them yourself.

    All of it runs on the client's network thread, so what blocks belongs into `asyncio.to_thread`. Whatever is raised is logged and tried
    again; a queue whose offset cannot be loaded is not read.
    """

    async def require_readable(self) -> None:  # noqa: B027 not every store can tell beforehand
        """Look whether offsets can be read at all; what it raises is raised by the start of the consumer."""

    @abstractmethod
    async def load(self, queue: MessageQueue) -> int | None:
        """The offset that is kept; None when there is none, and the queue is begun where `start_at` says."""

    @abstractmethod
    async def save(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        """Keep these; with `wait`, they are kept when this returns."""

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        """Keep the first offset of a queue, at once."""
        await self.save({queue: offset}, wait=True)


class UserOffsets(OffsetStore):
    """A store of the user's: queues have the names that the user knows, and whatever it raises is a StoreError."""

    def __init__(self, store: OffsetStore, namespace: str | None) -> None:
        self._store = store
        self._names = QueueNames(namespace)

    async def require_readable(self) -> None:
        await self._do(self._store.require_readable)

    async def load(self, queue: MessageQueue) -> int | None:
        offset = await self._do(self._store.load, self._names.shown(queue))
        if offset is not None and (type(offset) is not int or offset > LARGEST_OFFSET):
            raise StoreError(
                f"the offset store {self._store!r} failed: it gave {offset!r} for {queue}, which is no offset"
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
    """Brokers keep them, for a group."""

    def __init__(self, calls: OffsetCalls, group: str) -> None:
        self._calls = calls
        self._group = group
        self._begun: set[tuple[str, str]] = set()
        """Brokers and topics of which they have an offset of the group: from then on its others may come at once."""

    async def require_readable(self) -> None:
        """Each broker is asked when its queues are begun."""

    async def load(self, queue: MessageQueue) -> int | None:
        return await self._calls.of_group(self._group, queue)

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        await self._calls.commit(self._group, queue, offset)

    async def save(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        """Each by itself, so that a broker that is away does not cost the offsets of the others."""
        if not wait:
            outcomes = await self._sent(self._calls.tell_commit, offsets)
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
        """What became of each."""
        sending = (send(self._group, queue, offset) for queue, offset in offsets.items())
        return await asyncio.gather(*sending, return_exceptions=True)


class LocalOffsets(OffsetStore):
    """A file of this client keeps them."""

    def __init__(self, file: LocalOffsetFile) -> None:
        self._file = file
        self._kept: OffsetsFile | None = None
        self.marks: dict[MessageQueue, LogMark] = {}
        """By which the logs of queues are known. They are saved with the offsets."""
        self._lock = asyncio.Lock()  # one at a time reads or writes the file

    async def require_readable(self) -> None:
        await self._load()

    async def load(self, queue: MessageQueue) -> int | None:
        return (await self._load()).offset_table.get(queue)

    async def _load(self) -> OffsetsFile:
        async with self._lock:
            if self._kept is None:
                self._kept = await _beside_the_loop(self._file.load)
                self.marks = {**(self._kept.log_table or {}), **self.marks}
            return self._kept

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        """A disk that refuses costs the memory of it, and not the messages: it is tried again with the offsets that follow."""
        self.marks.pop(queue, None)
        try:
            await self.save({queue: offset}, wait=True)
        except StoreError as error:
            log.warning("%s is begun at offset %d, which cannot be kept: %s", queue, offset, error)

    async def save(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        async with self._lock:
            kept = self._kept or OffsetsFile()
            table = kept.offset_table
            changed = {queue: offset for queue, offset in offsets.items() if table.get(queue) != offset}
            if changed:
                marks = {queue: mark for queue in changed if (mark := self.marks.get(queue))}
                await _beside_the_loop(self._file.save, changed, marks)
                self._kept = _changed(kept, changed, marks)


async def _beside_the_loop(function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """In a thread; in this one while the program ends, when no other can be had and nobody else is held up."""
    try:
        working = asyncio.get_running_loop().run_in_executor(None, function, *arguments)
    except RuntimeError:
        return function(*arguments)
    return await working


class LocalFolder(NamedTuple):
    """Where a client keeps offsets itself; `root` None is the usual folder in the home folder of the user."""

    files: Files
    root: str | os.PathLike[str] | None
    client_id: str


def offset_store(
    calls: OffsetCalls, group: str, local: LocalFolder | None, own: UserOffsets | None = None
) -> OffsetStore:
    """Where the offsets of a consumer of `group` are kept: by the user's `own` store, by brokers, or in a file of the `local` folder."""
    if own is not None:
        return own
    if local is None:
        return RemoteOffsets(calls, group)
    root = home_folder() / FOLDER if local.root is None else Path(local.root)
    return LocalOffsets(LocalOffsetFile(local.files, offsets_folder(root, local.client_id, group)))


class Offsets:
    """What is noted of the queues of one consumer, over the store that keeps it."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._noted: dict[MessageQueue, int] = {}
        self._complaint = ""

    @property
    def are_local(self) -> bool:
        """Whether somebody else than brokers keeps them, this client or the user's store."""
        return not isinstance(self._store, RemoteOffsets)

    def get(self, queue: MessageQueue) -> int | None:
        return self._noted.get(queue)

    def of_topic(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self._noted.items() if queue.topic == topic}

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """It is done up to before `offset`, or further already."""
        noted = self._noted.get(queue)
        if noted is None or offset > noted:
            self._noted[queue] = offset

    def move(self, queue: MessageQueue, offset: int) -> None:
        """It goes on at `offset`, wherever it was."""
        self._noted[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """Somebody else's from now on."""
        self._noted.pop(queue, None)

    def mark(self, queue: MessageQueue, last_pulled: StoredMessage | LogMark | None) -> None:
        """Its offsets are of the log that has this message; of one that is not known yet, if None."""
        if isinstance(self._store, LocalOffsets):
            if last_pulled is None:
                self._store.marks.pop(queue, None)
            else:
                self._store.marks[queue] = LogMark(last_pulled.queue_offset, last_pulled.store_ms)

    def mark_of(self, queue: MessageQueue) -> LogMark | None:
        """The message by which the log of the kept offset is known; None where brokers or the user keep it."""
        return self._store.marks.get(queue) if isinstance(self._store, LocalOffsets) else None

    async def require_readable(self) -> None:
        """StoreDamaged when there is a file of offsets that cannot be read: nobody could tell which messages are new."""
        await self._store.require_readable()

    async def load(self, queue: MessageQueue) -> int | None:
        """What is kept of `queue`, by whoever."""
        return await self._store.load(queue)

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        """Keep the first offset of a queue, which need not be ours, at once."""
        await self._store.begin(queue, offset)

    async def keep(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Note these and have them kept, now. A failure is a PocketMQError; what could be kept is kept."""
        self._noted.update(offsets)
        await self._store.save(offsets, wait=True)

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Keep what is noted of these queues, as far as it goes: what fails is tried again with the next round."""
        noted = {queue: self._noted[queue] for queue in queues if queue in self._noted}
        try:
            await self._store.save(noted, wait=wait)
        except PocketMQError as error:
            if type(error).__name__ != self._complaint:
                self._complaint = type(error).__name__
                log.warning("offsets cannot be kept, and are tried again: %s", error)
        else:
            self._complaint = ""
