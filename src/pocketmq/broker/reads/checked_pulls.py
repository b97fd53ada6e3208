"""Checked pulls: what a pull has to pass is the same for the next one of its kind, so it is looked at once.

    first of its kind ── checks, by `handlers.pulling` ── found something ──► remembered: who, queue, filter, answer
    the next ones ── same group, topic, queue, flags, subscription, and nothing changed ──► answered by the compiled twin
                  └─ anything else: nothing to be found, a reset, a hold, an error ───────► `handlers.pulling`

What a check looks at has a version: topics, groups and what is forbidden to them, settings with the broker's permission, and
what members subscribe to. When one of them changes all is forgotten. Where the queue and the log begin and end is no check: it
is looked at with each pull. So are resets. Where requests must be signed nothing is remembered, as each has to be verified.

Without the compiled twin nothing is remembered either: it is the twin that makes use of it.
"""

from collections.abc import Collection
from typing import Final, Protocol

from pocketmq import compiled
from pocketmq.broker.groups.groups import GroupTable
from pocketmq.broker.groups.members import Members
from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.reads.filters import RequestSubscriptions
from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.stats.rows import Tally
from pocketmq.broker.topics import TopicTable
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError
from pocketmq.model.durations import Durations
from pocketmq.model.flags import PullFlag
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.frames import Frame
from pocketmq.protocol.hot_headers import LitePullHead, PullHead
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.consume_queue import ConsumeQueue
from pocketmq.store.settings import StoreSettings

MAX_CHECKED: Final = 4_000
"""Kinds of pulls that are remembered. Each may hold twenty kilobytes of queue entries that were read ahead, five if its reader does not go on."""

_NONE: Final[tuple[int, list[bytes | memoryview]]] = (0, [])


class PullStats(Protocol):
    """Counts what was read. `missed` are pulls that found nothing."""

    get_times: Durations
    missed: int

    def pulled(self, group: str, topic: str) -> Tally:
        """What a group pulls of a topic."""
        ...


class _Checked:
    """Who pulls, for what follows when it was answered. `carried` is the subscription that came with it."""

    __slots__ = ("carried", "commits", "group", "queue", "queue_id", "tally", "topic")

    def __init__(
        self, head: PullHead | LitePullHead, queue: ConsumeQueue, carried: Subscription | None, tally: Tally
    ) -> None:
        ext = head.ext
        self.group, self.topic, self.queue_id = ext.consumer_group, ext.topic, ext.queue_id
        self.queue = queue
        self.commits = bool(ext.sys_flag & PullFlag.COMMIT_OFFSET)
        self.carried = carried
        self.tally = tally


class CheckedPulls:
    """Remembers pulls that passed their checks, and answers their like. `signed`: each request has to be verified."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        members: Members,
        carried: RequestSubscriptions,
        settings: SettingsInUse,
        clock: Clock,
        stats: PullStats,
        *,
        signed: bool,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._members = members
        self._carried = carried
        self._settings = settings
        self._clock = clock
        self._stats = stats
        self._twin = None if signed else compiled.twin()
        self._places: dict[bytes, compiled.PullPlace] = {}
        self._seen = self._versions()
        self.in_use = self._twin is not None
        self.apply(store.settings)

    def apply(self, settings: StoreSettings) -> None:
        """Go by these settings from now on."""
        self.max_count = max(settings.hot_read_count, settings.max_read_entries)
        """The most messages that a pull can ask for."""

    def __len__(self) -> int:
        return len(self._places)

    def _versions(self) -> tuple[object, object, object, int]:
        """All that checks look at: these objects are replaced, and the number grows, when anything about them changes."""
        return self._topics.version, self._groups.version, self._settings.now, self._members.version

    def _forget_if_changed(self) -> None:
        topics, groups, settings, members = self._seen
        if (
            self._topics.version is not topics
            or self._groups.version is not groups
            or self._settings.now is not settings
            or self._members.version != members
        ):
            self._places.clear()
            self._seen = self._versions()

    def remember(
        self,
        head: PullHead | LitePullHead,
        tag_codes: Collection[int] | None,
        carried: Subscription | None,
        answer: tuple[tuple[bytes, ...], tuple[bytes, ...]],
        tally: Tally,
    ) -> None:
        """A pull has passed all checks just now, and is answered with these parts: near the end of the log, and far behind."""
        self._forget_if_changed()
        ext, key = head.ext, key_of(head)
        queue = self._store.find_queue(ext.topic, ext.queue_id)
        if queue is None or key in self._places:
            return
        if len(self._places) >= MAX_CHECKED:
            self._places.clear()
        who, reset_key = _Checked(head, queue, carried, tally), f"{ext.topic}@{ext.consumer_group}"
        self._places[key] = (
            who,
            queue,
            reset_key,
            tag_codes,
            *answer,
            [0, b""],
            self._store.entry_reader(queue, tag_codes),
        )

    def serve_run(self, frames: list[Frame], at: int, room: int) -> tuple[int, list[bytes | memoryview]]:
        """Answer pulls that follow one another from `at` on, until `room` bytes are full: how many, and the pieces of their answers.

        A piece may be a view of the log: what was entered there never changes, and the view outlives a file that is removed.

        None of them: the first has to be looked at by itself.
        """
        self._forget_if_changed()
        if self._twin is None or not self._places:
            return _NONE
        store, began = self._store, self._clock.monotonic()
        bounds = store.read_bounds(self.max_count)
        try:
            run = self._twin.serve_pulls(frames, at, self._places, self._offsets.resets, bounds, store.map_at, room)
        except PocketMQError:  # the disk: who asks is told so when the pull is looked at by itself
            return _NONE
        if run is None:
            return _NONE
        count, rows, answers = run
        self._note(count, rows, began)
        return count, answers

    def _note(self, count: int, rows: list[compiled.PulledRow], began: float) -> None:
        """What follows from pulls that were answered, apart from the answers."""
        now = self._clock.monotonic()
        seconds = (now - began) / count
        self._stats.get_times.note(seconds, count)
        offsets = self._offsets
        for who, next_offset, commit_offset, pulls, messages, size in rows:
            if who.commits:
                for _ in range(pulls):  # of the same commit again and again, only those that are ignored are counted
                    if offsets.commit(who.group, who.topic, who.queue_id, commit_offset, who.queue.max_offset):
                        break
            offsets.note_pull(who.group, who.topic, who.queue_id, next_offset)
            if who.carried is not None:
                self._carried.note(who.group, who.carried, now)
            tally = who.tally
            tally.count += messages
            tally.joined += messages - pulls
            tally.bytes += size
            tally.ms += seconds * 1000 * pulls


def key_of(head: PullHead | LitePullHead) -> bytes:
    """What pulls of one kind have in common; the compiled twin writes it in the same way. Names hold no such characters."""
    ext = head.ext
    optional = (f"\x02{text}" if text is not None else "" for text in (ext.subscription, ext.expression_type))
    parts = (
        str(int(head.code)),
        f"\x02{ext.consumer_group}",
        f"\x02{ext.topic}",
        str(ext.queue_id),
        str(ext.sys_flag),
        str(ext.sub_version),
        *optional,
    )
    return "\x01".join(parts).encode("utf-8", "surrogatepass")
