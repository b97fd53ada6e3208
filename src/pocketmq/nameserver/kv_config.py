"""The KV config: namespace → key → value, the only state that a name server keeps after a stop.

    put, delete ──► one at a time: changed copy ──► thread: written and synced ──► the table is the copy ──► answered
                                                      │ failure: the table stays as it was, and the caller gets an error

    kvConfig.json        {"configTable":{"ORDER_TOPIC_CONFIG":{"Orders":"broker-a:4"}}}     as RocketMQ writes it
    kvConfig.json.lock   locked while a name server uses the file; created with it

A namespace stays, empty, after its last key is deleted, as in RocketMQ.
"""

import asyncio
import errno
import logging
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.errors import (
    BodyError,
    InvalidParameter,
    ServerFailed,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    SystemBusy,
)
from pocketmq.files import File, Files, write_atomically
from pocketmq.protocol.bodies.topics import KVConfigFile
from pocketmq.protocol.java_json import JsonLimits

log = logging.getLogger("pocketmq.nameserver")

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Topic → `broker:queues;broker2:queues`: the queues of each broker that an ordered producer uses."""
_FILE_LIMITS: Final = JsonLimits(document_bytes=1 << 30, values=100_000_000)
"""A saved file must be readable, however large it is."""

Tables = dict[str, dict[str, str]]


class KvLimits(msgspec.Struct, frozen=True):
    """Limits of the KV config. Saved values stay even beyond them."""

    max_entries: int = 10_000
    """Limit on the keys of all namespaces; an empty namespace counts as one."""
    max_name_chars: int = 255
    max_value_chars: int = 65_536
    max_waiting: int = 256


class KvConfig:
    """The tables, and their file. Without a path they are in memory only."""

    def __init__(self, files: Files, path: Path | None, limits: KvLimits | None = None) -> None:
        self._files = files
        self._path = path
        self._limits = limits or KvLimits()
        self._tables: Tables = {}
        self._lock: File | None = None
        self._one_at_a_time = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Read the file if it exists. StoreDamaged if it is invalid, StoreLocked if it is in use."""
        if self._path is None or self._files.status(self._path) is None:
            return
        try:
            self._take_file(self._path)
            self._tables = KVConfigFile.decode(self._files.read(self._path), _FILE_LIMITS).config_table
        except OSError as error:
            self._release_file()
            raise StoreError(f"{self._path} cannot be read: {error.strerror}") from error
        except BodyError as error:
            self._release_file()
            raise StoreDamaged(
                f"{self._path} is damaged ({error}). Replace it with a valid copy, or move it away to start without it"
            ) from None

    async def close(self) -> None:
        """Wait for pending writes, and unlock the file. Harmless if called twice."""
        await asyncio.gather(*self._changes, return_exceptions=True)
        self._release_file()

    def get(self, namespace: str, key: str) -> str | None:
        return self._tables.get(namespace, {}).get(key)

    def table(self, namespace: str) -> dict[str, str] | None:
        """All keys of a namespace; None if it does not exist. Must not be changed."""
        return self._tables.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Store a value; it is on disk on return."""
        limits = self._limits
        for word, text in (("namespace", namespace), ("key", key)):
            if not 0 < len(text) <= limits.max_name_chars:
                raise InvalidParameter(
                    f"the {word} has {len(text)} characters; 1 to {limits.max_name_chars} are allowed"
                )
        if len(value) > limits.max_value_chars:
            raise InvalidParameter(
                f"the value has {len(value)} characters; at most {limits.max_value_chars} are allowed"
            )
        await self._change(namespace, key, value)

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a value; harmless if there is none."""
        await self._change(namespace, key, None)

    async def _change(self, namespace: str, key: str, value: str | None) -> None:
        if len(self._changes) >= self._limits.max_waiting:
            raise SystemBusy(f"{len(self._changes)} changes of the KV config wait for the disk; try again later")
        change = asyncio.get_running_loop().create_task(self._carry_out(namespace, key, value))
        self._changes.add(change)
        change.add_done_callback(self._settle)
        # Shielded: the caller may be cancelled, but a write must finish before the next one begins.
        await asyncio.shield(change)

    def _settle(self, change: asyncio.Task[None]) -> None:
        self._changes.discard(change)
        failure = None if change.cancelled() else change.exception()
        if isinstance(failure, StoreError):
            log.error("%s", failure)

    async def _carry_out(self, namespace: str, key: str, value: str | None) -> None:
        async with self._one_at_a_time:
            changed = self._changed(namespace, key, value)
            if changed is None:
                return
            if self._path is not None:
                try:
                    await asyncio.to_thread(self._save, self._path, changed)
                except RuntimeError as error:
                    raise StoreBusy(f"{self._path} cannot be saved now: {error}") from error
            self._tables = changed

    def _changed(self, namespace: str, key: str, value: str | None) -> Tables | None:
        """The tables after a change; None if it changes nothing."""
        table = self._tables.get(namespace, {})
        if table.get(key) == value:
            return None
        if value is None:
            return self._tables | {namespace: {name: text for name, text in table.items() if name != key}}
        changed = self._tables | {namespace: table | {key: value}}
        if _entries(self._tables) < _entries(changed) > self._limits.max_entries:
            limit = f"{self._limits.max_entries} entries, the limit of this name server (maxKvEntries)"
            raise ServerFailed(f"the KV config would have more than {limit}; delete some first")
        return changed

    def _save(self, path: Path, tables: Tables) -> None:
        try:
            if self._lock is None:
                self._begin_file(path)
            write_atomically(self._files, path, KVConfigFile(tables).encode())
        except OSError as error:
            kind = StoreFull if error.errno == errno.ENOSPC else StoreError
            raise kind(f"{path} could not be saved: {error.strerror}") from error

    def _begin_file(self, path: Path) -> None:
        """There was no file at the start: create its folder, and check that there is still no file."""
        folder = path.parent
        if self._files.status(folder) is None:
            self._files.make_dir(folder)
            self._files.sync_dir(folder.parent)
        self._take_file(path)
        if self._files.status(path) is not None:
            self._release_file()
            raise StoreLocked(f"{path} was created by another name server; restart this one, or use another folder")

    def _take_file(self, path: Path) -> None:
        lock = self._files.open(path.with_name(path.name + ".lock"), create=True)
        if not lock.lock():
            lock.close()
            raise StoreLocked(f"{path} is used by another name server; use another folder")
        self._lock = lock

    def _release_file(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()


def _entries(tables: Tables) -> int:
    return sum(max(1, len(table)) for table in tables.values())
