"""Snapshots: saves the tables of a broker, and restores them at the start.

    save_topics, save_groups, save_offsets ─┐
    save_soon ──────────────────────────────┼─► next round ──► bytes encoded on the loop ──► written and synced in a thread
    save_changed, save_parts: regularly ────┘                    └─ a disk error: the bytes stay, and are retried

One round at a time. Requests during a round join the next one, so a hundred administrators share one write. The larger
the tables, the longer `save_soon` waits, so that ten thousand new topics do not write all tables ten thousand times. A
crash before that loses no topic, because its queues remain. Encoding a table marks it as unchanged, so its bytes are
kept until they are on disk. Within a round offsets come first: a crash during a deletion must not leave offsets of a
deleted topic.

After a start, the tables are repaired from the log:

    a queue has messages, and no table has its topic ──► the topic is created again      a crash after it was created
    a group is beyond the end of its queue ────────────► its offset is set to the end    a power loss
    running members are beyond the end ────────────────► their next pull is redirected   see `offsets`

An acknowledged message must be readable, and a message at the offset of a lost one must not count as consumed. Deleted
topics stay deleted: the store returns no queues of them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from pocketmq.broker.groups.groups import GroupTable
from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.topics import TopicTable
from pocketmq.clock import Clock
from pocketmq.errors import StoreBusy, StoreError, WrongState
from pocketmq.model import LMQ_PREFIX
from pocketmq.protocol.bodies import clients as group_bodies
from pocketmq.protocol.bodies import topics as topic_bodies
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import DataVersion, SavedOffsets
from pocketmq.store.message_store import MessageStore
from pocketmq.store.tables import TABLE_LIMITS, Tables

log = logging.getLogger("pocketmq.broker")

TOPICS_FILE: Final = "topics.json"
GROUPS_FILE: Final = "subscriptionGroup.json"
OFFSETS_FILE: Final = "consumerOffset.json"

STOP_SECONDS: Final = 10.0
"""How long stopping waits for the disk."""

SOON_BYTES_PER_S: Final = 4_000_000
"""Average rate of `save_soon`; a topic needs about 150 bytes."""

Failures = dict[str, StoreError]
"""Errors by file name."""

T = TypeVar("T")


class Savable(Protocol):
    """A table with a file of its own. Its owner reads the file with `Tables.load`."""

    @property
    def is_changed(self) -> bool:
        """Whether there are changes that no `snapshot_json` contains yet."""

    def snapshot_json(self, now_ms: int) -> bytes:
        """The bytes of the file. The table is unchanged from then on."""


class _SavedFile:
    """A table, and its bytes that are not on disk yet."""

    __slots__ = ("_is_failing", "name", "part", "unsaved")

    def __init__(self, name: str, part: Savable) -> None:
        self.name = name
        self.part = part
        self.unsaved: bytes | None = None
        self._is_failing = False

    def pending(self, now_ms: int) -> bytes | None:
        """The bytes to write; None if the disk has them."""
        if self.part.is_changed:
            self.unsaved = self.part.snapshot_json(now_ms)
        return self.unsaved

    def log_failure(self, failure: StoreError) -> None:
        if not self._is_failing:
            self._is_failing = True
            log.error("%s; the table is kept in memory, and saving it is retried", failure)

    def mark_saved(self) -> None:
        self.unsaved = None
        if self._is_failing:
            self._is_failing = False
            log.info("Saved %s again", self.name)


class _Round(NamedTuple):
    """Files that are saved together, and the task that saves them."""

    names: set[str]
    task: asyncio.Task[Failures]


class _Versioned:
    """Topics or groups: changed if their version is not the last saved one."""

    def __init__(self, table: TopicTable | GroupTable) -> None:
        self._table = table
        self.saved_version: DataVersion | None = None

    @property
    def is_changed(self) -> bool:
        return self._table.version != self.saved_version

    def snapshot_json(self, now_ms: int) -> bytes:
        self.saved_version = self._table.version
        return self._table.snapshot().encode()


class _VersionedGroups(_Versioned):
    """Groups: the encoded text of each row is cached, because there may be many slow ones."""

    def __init__(self, table: GroupTable) -> None:
        super().__init__(table)
        self._groups = table
        self._texts: dict[str, tuple[SubscriptionGroupConfig, msgspec.Raw]] = {}

    def snapshot_json(self, now_ms: int) -> bytes:
        self.saved_version = self._groups.version
        table, before = self._groups.snapshot(), self._texts
        self._texts = {
            name: kept if (kept := before.get(name)) and kept[0] is row else (row, msgspec.Raw(row.encode()))
            for name, row in table.subscription_group_table.items()
        }
        texts = {name: text for name, (_, text) in self._texts.items()}
        return msgspec.structs.replace(table, subscription_group_table=texts).encode()


class Snapshots:
    """Saves the tables of a broker. Only the write happens in a thread."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        *,
        stop_s: float = STOP_SECONDS,
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._saved_topics, self._saved_groups = _Versioned(topics), _VersionedGroups(groups)
        self._files: dict[str, _SavedFile] = {}
        self.add(OFFSETS_FILE, offsets)
        self.add(TOPICS_FILE, self._saved_topics)
        self.add(GROUPS_FILE, self._saved_groups)
        self._own = tuple(self._files)
        self._stop_s = stop_s
        self._one_at_a_time = asyncio.Lock()
        self._next: _Round | None = None
        self._rests_until = 0.0
        self._soon: asyncio.TimerHandle | None = None
        self._stopped = False

    def add(self, file_name: str, part: Savable) -> None:
        assert file_name not in self._files, f"two tables have the name {file_name}"
        self._files[file_name] = _SavedFile(file_name, part)

    def load(self) -> None:
        """Restore the tables of the last run, or of Apache RocketMQ. StoreDamaged if they cannot be read."""
        if topics := self._read(TOPICS_FILE, topic_bodies.TopicTable.decode):
            self._topics.restore(topics)
            self._saved_topics.saved_version = topics.data_version
        if groups := self._read(GROUPS_FILE, group_bodies.GroupTable.decode):
            self._groups.restore(groups)
            self._saved_groups.saved_version = groups.data_version
        if offsets := self._read(OFFSETS_FILE, SavedOffsets.decode):
            strange = self._offsets.restore(offsets)
            if strange:
                log.warning("%s: ignored keys that are not topic@group: %s", OFFSETS_FILE, ", ".join(strange))

    def _read(self, file_name: str, decode: Callable[..., T]) -> T | None:
        return self._tables.load(file_name, partial(decode, limits=TABLE_LIMITS))

    def save_repaired(self, names: Iterable[str]) -> None:
        """Save the repaired tables at the start, before anything is served, and wait for the disk.

        Another crash may come at once; new messages in the log must not make the old contents seem valid.
        """
        for name in names:
            file = self._files[name]
            if (data := file.pending(self._clock.now_ms())) is not None:
                self._tables.save(name, data)
                file.mark_saved()

    # saving

    async def save_topics(self) -> None:
        """Return when the current topics are on disk. StoreError if that fails."""
        await self._save(TOPICS_FILE)

    async def save_groups(self) -> None:
        """Return when the current groups are on disk. StoreError if that fails."""
        await self._save(GROUPS_FILE)

    async def save_offsets(self) -> None:
        """Return when the current offsets are on disk. StoreError if that fails."""
        await self._save(OFFSETS_FILE)

    async def save_changed(self) -> None:
        """Save changed topics, groups and offsets. Failures are logged and retried next time."""
        await self._finished(self._own)

    async def save_parts(self) -> None:
        """The same for the tables that were added."""
        await self._finished(self._files.keys() - set(self._own))

    def save_soon(self) -> None:
        """Begin to save topics and groups, at once or a moment later, without waiting."""
        if not self._stopped and self._soon is None:
            loop = asyncio.get_running_loop()
            if loop.time() < self._rests_until:
                self._soon = loop.call_at(self._rests_until, self._save_now)
            else:
                self._save_now()

    def _save_now(self) -> None:
        self._soon = None
        self._join((TOPICS_FILE, GROUPS_FILE))

    async def stop(self) -> None:
        """Save everything a last time. Waits at most `stop_s` for the disk."""
        if self._stopped:
            return
        if self._soon is not None:
            self._soon.cancel()
        last = self._join(self._files)
        self._stopped = True
        await asyncio.wait((last.task,), timeout=self._stop_s)
        lost = [name for name, file in self._files.items() if file.unsaved is not None or file.part.is_changed]
        if lost:
            log.error("Stopped without saving the last changes of %s", ", ".join(lost))
        last.task.cancel()

    async def _save(self, file_name: str) -> None:
        failure = (await self._finished((file_name,))).get(file_name)
        if failure is not None:
            # Each waiting caller gets an error of its own.
            raise type(failure)(*failure.args)

    async def _finished(self, names: Iterable[str]) -> Failures:
        # Shielded: a caller may be cancelled while others wait for the same round.
        return await asyncio.shield(self._join(names).task)

    def _join(self, names: Iterable[str]) -> _Round:
        if self._stopped:
            raise WrongState("the broker has stopped; tables can no longer be saved")
        if self._next is None:
            together: set[str] = set()
            task = asyncio.get_running_loop().create_task(self._save_round(together))
            task.add_done_callback(_log_unexpected)
            self._next = _Round(together, task)
        self._next.names.update(names)
        return self._next

    async def _save_round(self, names: set[str]) -> Failures:
        async with self._one_at_a_time:
            self._next = None
            failures: Failures = {}
            for name, file in self._files.items():
                if name in names and (failure := await self._write(file)):
                    failures[name] = failure
            return failures

    async def _write(self, file: _SavedFile) -> StoreError | None:
        data = file.pending(self._clock.now_ms())
        if data is None:
            return None
        loop = asyncio.get_running_loop()
        self._rests_until = max(self._rests_until, loop.time()) + len(data) / SOON_BYTES_PER_S
        try:
            await loop.run_in_executor(None, self._tables.save, file.name, data)
        except RuntimeError as error:  # no thread can be started now: the next round tries again
            failure = StoreBusy(f"table {file.name} cannot be saved now: {error}")
            file.log_failure(failure)
            return failure
        except StoreError as failure:
            file.log_failure(failure)
            return failure
        file.mark_saved()
        return None


def _log_unexpected(task: asyncio.Task[Failures]) -> None:
    """A round must only end with errors of the disk; anything else is a bug."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("Cannot save tables because of an unexpected error; retrying with the next round", exc_info=error)


MAX_NAMED: Final = 10
"""Limit on names in one log message."""


def adopt_topics(topics: TopicTable, store: MessageStore, now_ms: int) -> list[str]:
    """Create a row for every topic with messages and no row. Return their names. Light topics never have a row."""
    adopted = []
    for topic, queues in store.topic_queues().items():
        if topic in topics or topic.startswith(LMQ_PREFIX):
            continue
        topics.adopt(topic, queues, now_ms)
        adopted.append(topic)
    if adopted:
        log.warning("Created topics again that have messages but no table entry: %s", _names(adopted))
    return adopted


def lower_offsets(offsets: OffsetTable, store: MessageStore, now_ms: int, *, clean: bool) -> list[str]:
    """Lower offsets beyond the end of the log. Return the changed rows, as `topic@group`. `clean`: there was no crash."""
    lowered = offsets.lower_to(store.max_offset)
    if clean:
        offsets.keep_bounds(now_ms)
    else:
        offsets.set_bounds(store.queue_ends(), now_ms)
    if lowered:
        log.warning("Lowered offsets of groups to the end of the log, because they were beyond it: %s", _names(lowered))
    return lowered


def _names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
