"""Snapshots: the broker's tables on disk, so that a new life of the broker goes on where the last one was.

    save_topics, save_groups, save_offsets ─┐
    save_soon ──────────────────────────────┼─► the next round ──► bytes taken, on the loop ──► written and synced, in a thread
    save_changed, save_parts: now and then ─┘                       └─ the disk refuses: the bytes stay, and are tried again

One round at a time. Whoever comes while one is under way joins the next, so a hundred administrators who wait share one write.
What is to be saved soon comes the later, the larger the tables are: each of ten thousand topics that clients make by using them
must not write all the others again. A crash before that loses no topic: its queues tell that it was there.
Taking the bytes of a table clears its mark of change; so they are kept here until they are on the disk.

Within a round offsets come first: a crash in the middle of a deletion must not leave offsets of something that is gone.

After a start the tables are brought into step with the log. Where they disagree, the log is right.

    a queue has messages, no table knows its topic ──► the topic is there again      made by sending to it, moments before a crash
    a group is ahead of the end of its queue ────────► it is set back to the end     a power loss took what it had consumed
    members are ahead of the end, and go on running ─► their next pull is set back   see `offsets`

A message that is acknowledged must be readable, and one that takes the place of a lost one must not be taken for consumed.
What an administrator has deleted stays deleted: the store gives no queues back of topics that are gone.

Pages of a table: a slave reads its master's topics and groups in parts.

    from row 0, 100 rows ──► these, the version, how many there are ──► from row 100, with that version ──► …
                                                                          └─ the table changed meanwhile: from row 0 again

Who asks without any of it, as all callers up to 5.3.3 do, gets the whole table. Tools and consoles do so again and again, and
thousands of rows take long to write: so the bytes are kept until the table is another.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from pocketmq.broker.groups.groups import GroupTable
from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.topics import MAX_QUEUES, TopicTable
from pocketmq.clock import Clock
from pocketmq.errors import InvalidParameter, StoreBusy, StoreError, WrongState
from pocketmq.model.names import LMQ_PREFIX, group_of
from pocketmq.protocol.bodies import groups as group_bodies
from pocketmq.protocol.bodies import topics as topic_bodies
from pocketmq.protocol.bodies.body import DataVersion
from pocketmq.protocol.bodies.groups import SubscriptionGroupConfig
from pocketmq.protocol.bodies.offsets import SavedOffsets
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.frames import DEFAULT_LIMITS
from pocketmq.protocol.java_json import read_body, write_body
from pocketmq.store.message_store import MessageStore
from pocketmq.store.tables import TABLE_LIMITS, Tables

log = logging.getLogger("pocketmq.broker")

TOPICS_FILE: Final = "topics.json"
GROUPS_FILE: Final = "subscriptionGroup.json"
OFFSETS_FILE: Final = "consumerOffset.json"

STOP_SECONDS: Final = 10.0
"""How long stopping waits for a disk that does not answer."""

SOON_BYTES_PER_S: Final = 4_000_000
"""What saving soon writes in the long run; a topic takes about 150 bytes."""

Failures = dict[str, StoreError]
"""Why files could not be saved."""

T = TypeVar("T")


class Savable(Protocol):
    """A table with a file of its own. Its owner reads the file, with `Tables.load`."""

    @property
    def is_changed(self) -> bool:
        """Whether there is something that no `snapshot_json` holds yet."""

    def snapshot_json(self, now_ms: int) -> bytes:
        """The whole table as the bytes of its file. It counts as unchanged from then on."""


class _SavedFile:
    """A table and what of it is not on the disk yet."""

    __slots__ = ("_is_failing", "name", "part", "unsaved")

    def __init__(self, name: str, part: Savable) -> None:
        self.name = name
        self.part = part
        self.unsaved: bytes | None = None
        self._is_failing = False

    def take(self, now_ms: int) -> bytes | None:
        """The bytes to write; None when the disk has them."""
        if self.part.is_changed:
            self.unsaved = self.part.snapshot_json(now_ms)
        return self.unsaved

    def tell_failure(self, failure: StoreError) -> None:
        if not self._is_failing:
            self._is_failing = True
            log.error("%s; it is kept in memory and tried again", failure)

    def tell_success(self) -> None:
        self.unsaved = None
        if self._is_failing:
            self._is_failing = False
            log.info("%s is saved again", self.name)


class _Round:
    """Files that are saved together, and the task that does it."""

    __slots__ = ("names", "task")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.task: asyncio.Task[Failures]


class _Versioned:
    """Topics or groups: changed when their version is not the one that was taken last."""

    def __init__(self, table: TopicTable | GroupTable) -> None:
        self._table = table
        self.taken: DataVersion | None = None

    @property
    def is_changed(self) -> bool:
        return self._table.version != self.taken

    def snapshot_json(self, now_ms: int) -> bytes:
        self.taken = self._table.version
        return write_body(self._table.snapshot())


class _VersionedGroups(_Versioned):
    """Groups: a row takes long to write, and there may be many of them, so its text is kept until the row changes."""

    def __init__(self, table: GroupTable) -> None:
        super().__init__(table)
        self._groups = table
        self._texts: dict[str, tuple[SubscriptionGroupConfig, msgspec.Raw]] = {}

    def snapshot_json(self, now_ms: int) -> bytes:
        self.taken = self._groups.version
        table, before = self._groups.snapshot(), self._texts
        self._texts = {
            name: kept if (kept := before.get(name)) and kept[0] is row else (row, msgspec.Raw(write_body(row)))
            for name, row in table.subscription_group_table.items()
        }
        texts = {name: text for name, (_, text) in self._texts.items()}
        return write_body(msgspec.structs.replace(table, subscription_group_table=texts))


class Snapshots:
    """Saves the tables of a broker. All but the writing happens on the loop."""

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
        """Save this table, too."""
        assert file_name not in self._files, f"two tables want to be {file_name}"
        self._files[file_name] = _SavedFile(file_name, part)

    def load(self) -> None:
        """Take over what the last life of the broker left, or a broker of Apache. StoreDamaged when it cannot be read."""
        if topics := self._read(TOPICS_FILE, topic_bodies.TopicTable):
            self._topics.restore(topics)
            self._saved_topics.taken = topics.data_version
        if groups := self._read(GROUPS_FILE, group_bodies.GroupTable):
            self._groups.restore(groups)
            self._saved_groups.taken = groups.data_version
        if offsets := self._read(OFFSETS_FILE, SavedOffsets):
            strange = self._offsets.restore(offsets)
            if strange:
                log.warning("%s: left out, because they are not topic@group: %s", OFFSETS_FILE, ", ".join(strange))

    def _read(self, file_name: str, body: type[T]) -> T | None:
        return self._tables.load(file_name, partial(read_body, body, limits=TABLE_LIMITS))

    def save_put_right(self, names: Iterable[str]) -> None:
        """At the start, before anything is served: save those of these tables that were put right, and wait for the disk.

        The next crash may come at once, and what is in the log by then must not make true again what was wrong.
        """
        for name in names:
            file = self._files[name]
            if (data := file.take(self._clock.now_ms())) is not None:
                self._tables.save(name, data)
                file.tell_success()

    # saving

    async def save_topics(self) -> None:
        """Return when the topics are on the disk as they are now. StoreError when the disk refuses."""
        await self._save(TOPICS_FILE)

    async def save_groups(self) -> None:
        """Return when the groups are on the disk as they are now. StoreError when the disk refuses."""
        await self._save(GROUPS_FILE)

    async def save_offsets(self) -> None:
        """Return when the offsets are on the disk as they are now. StoreError when the disk refuses."""
        await self._save(OFFSETS_FILE)

    async def save_changed(self) -> None:
        """Save topics, groups and offsets, those that changed. What fails is told in the log, and comes again next time."""
        await self._finished(self._own)

    async def save_parts(self) -> None:
        """The same for the tables that were added."""
        await self._finished(self._files.keys() - set(self._own))

    def save_soon(self) -> None:
        """Begin to save topics and groups, at once or a moment later, and wait for nothing: they were made by using them."""
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
        """Save everything a last time. A disk that does not answer within `stop_s` is not waited for any longer."""
        if self._stopped:
            return
        if self._soon is not None:
            self._soon.cancel()
        last = self._join(self._files)
        self._stopped = True
        await asyncio.wait((last.task,), timeout=self._stop_s)
        lost = [name for name, file in self._files.items() if file.unsaved is not None or file.part.is_changed]
        if lost:
            log.error("stopped without saving what changed last in %s", ", ".join(lost))
        last.task.cancel()

    async def _save(self, file_name: str) -> None:
        failure = (await self._finished((file_name,))).get(file_name)
        if failure is not None:
            # Each of those who wait gets an error of its own.
            raise type(failure)(*failure.args)

    async def _finished(self, names: Iterable[str]) -> Failures:
        # Shielded: who asked may hang up meanwhile, and others wait for the same round.
        return await asyncio.shield(self._join(names).task)

    def _join(self, names: Iterable[str]) -> _Round:
        if self._stopped:
            raise WrongState("tables are not saved any more: the broker has stopped")
        if self._next is None:
            self._next = _Round()
            self._next.task = asyncio.get_running_loop().create_task(self._carry_out(self._next))
            self._next.task.add_done_callback(_tell_surprise)
        self._next.names.update(names)
        return self._next

    async def _carry_out(self, current: _Round) -> Failures:
        async with self._one_at_a_time:
            self._next = None
            failures: Failures = {}
            for name, file in self._files.items():
                if name in current.names and (failure := await self._write(file)):
                    failures[name] = failure
            return failures

    async def _write(self, file: _SavedFile) -> StoreError | None:
        data = file.take(self._clock.now_ms())
        if data is None:
            return None
        loop = asyncio.get_running_loop()
        self._rests_until = max(self._rests_until, loop.time()) + len(data) / SOON_BYTES_PER_S
        try:
            await loop.run_in_executor(None, self._tables.save, file.name, data)
        except RuntimeError as error:  # no thread can be started now: the next round tries again
            failure = StoreBusy(f"the table {file.name} waits to be saved: {error}")
            file.tell_failure(failure)
            return failure
        except StoreError as failure:
            file.tell_failure(failure)
            return failure
        file.tell_success()
        return None


def _tell_surprise(task: asyncio.Task[Failures]) -> None:
    """A round that ends with anything but a refusal of the disk: a fault of ours."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("tables could not be saved", exc_info=error)


USUAL_QUEUES: Final = 4
"""What clients ask for when a topic is made by sending to it: they may know of queues that have no message yet."""
MAX_NAMED: Final = 10
"""Names in one line of the log."""


def adopt_topics(topics: TopicTable, store: MessageStore, now_ms: int) -> list[str]:
    """Give a row to every topic that has messages and none; their names. Light topics have queues and never a row."""
    adopted = []
    for topic, queues in store.topic_queues().items():
        if topic in topics or topic.startswith(LMQ_PREFIX):
            continue
        is_users_own = group_of(topic) is None and not topics.is_system(topic)
        count = min(max(queues, USUAL_QUEUES if is_users_own else 1), MAX_QUEUES)
        topics.ensure(TopicConfig(topic, count, count), now_ms)
        adopted.append(topic)
    if adopted:
        log.warning("topics with messages that no table knows are there again: %s", _names(adopted))
    return adopted


def lower_offsets(offsets: OffsetTable, store: MessageStore, *, clean: bool) -> list[str]:
    """Set groups back that are ahead of what there is; which, as `topic@group`. `clean`: no crash can have taken anything."""
    lowered = offsets.lower_to(store.max_offset)
    if not clean:
        offsets.set_bounds(store.max_offset)
    if lowered:
        log.warning("groups were ahead of the end of the log, and are set back to it: %s", _names(lowered))
    return lowered


def _names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


MAX_KEPT_BYTES: Final = DEFAULT_LIMITS.frame_bytes
"""What is larger cannot be told in one answer anyway."""


class Page(NamedTuple):
    """Which rows somebody asks for. `seen` is the version, as JSON, of the table that the rows before were from."""

    start: int | None
    limit: int | None
    seen: str | None

    @property
    def is_whole(self) -> bool:
        """Whether all rows are asked for, by somebody who has seen none."""
        return not self.start and self.limit is None and not self.seen

    def of(self, rows: Mapping[str, T], version: DataVersion) -> dict[str, T]:
        """The rows of the page, in the order of the table, which stays the same while the version does."""
        start, limit = self.start or 0, len(rows) if self.limit is None else self.limit
        if start < 0 or limit < 0:
            raise InvalidParameter(f"a page of {limit} rows from row {start} on cannot be; neither may be below 0")
        if self.seen and read_body(DataVersion, self.seen.encode()) != version:
            start = 0
        return dict(islice(rows.items(), start, start + limit))


class CachedTable:
    """The last answer to somebody who asked for a whole table."""

    def __init__(self) -> None:
        self._version: DataVersion | None = None
        self._body = b""

    def body(self, version: DataVersion, write: Callable[[], bytes]) -> bytes:
        """The table of this version; `write` is called when that is another than last time."""
        if version == self._version:
            return self._body
        body = write()
        if len(body) <= MAX_KEPT_BYTES:
            self._version, self._body = version, body
        return body
