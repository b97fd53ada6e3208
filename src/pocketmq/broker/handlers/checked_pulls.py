"""Checked pulls: the permission checks of a pull have the same result for the next pull of its kind, so it is cached.

    first of its kind ── checks, by `pulling` ── found something ──► cached: client, queue, filter, answer
    the next ones ── same group, topic, queue, flags, subscription, and no change ──► answered by the C twin
                  └─ anything else: nothing found, a reset, a wait, an error ───────► `pulling`

Everything that a check reads has a version: topics, groups with their forbidden topics, settings with the broker's
permission, and the members' subscriptions. When one of them changes, the cache is cleared. The bounds of the queue and
the log are read for each pull, and so are resets. If requests must be signed, nothing is cached, because each request is
verified. On a slave nothing is cached, because its answers depend on its master. Without the C twin, nothing is cached either, because only the twin uses the cache.
"""

from collections.abc import Collection
from typing import Final

from pocketmq import compiled
from pocketmq.broker.state import BrokerState
from pocketmq.broker.stats.rows import Tally
from pocketmq.codes import PullFlag
from pocketmq.errors import PocketMQError
from pocketmq.model import Subscription
from pocketmq.net import Peer
from pocketmq.protocol.frames import Frame
from pocketmq.protocol.hot_headers import LitePullHead, PullHead
from pocketmq.store.queues.consume_queue import ConsumeQueue
from pocketmq.store.settings import StoreSettings

MAX_CHECKED: Final = 4_000
"""Limit on cached kinds of pulls. Each may keep 20 KB of queue entries that were read ahead, 5 KB if its reader stops."""

_NONE: Final[tuple[int, list[bytes | memoryview]]] = (0, [])


class _CheckedPull:
    """The client of a cached pull, for the records after an answer. `subscription` is the one in the request."""

    __slots__ = ("commits", "group", "queue", "queue_id", "subscription", "tally", "topic")

    def __init__(
        self, head: PullHead | LitePullHead, queue: ConsumeQueue, subscription: Subscription | None, tally: Tally
    ) -> None:
        ext = head.ext
        self.group, self.topic, self.queue_id = ext.consumer_group, ext.topic, ext.queue_id
        self.queue = queue
        self.commits = bool(ext.sys_flag & PullFlag.COMMIT_OFFSET)
        self.subscription = subscription
        self.tally = tally


class CheckedPulls:
    """Caches pulls that passed their checks, and answers the next ones. `signed`: each request must be verified."""

    def __init__(self, state: BrokerState, *, signed: bool) -> None:
        self._state = state
        self._twin = None if signed or state.settings.now.is_slave else compiled.twin()
        self._pulls: dict[bytes, compiled.CheckedPull] = {}
        self._seen = self._versions()
        self.in_use = self._twin is not None
        self.apply(state.store.settings)

    def apply(self, settings: StoreSettings) -> None:
        self.max_count = max(settings.hot_read_count, settings.max_read_entries)
        """Limit on the messages of one pull."""

    def __len__(self) -> int:
        return len(self._pulls)

    def _versions(self) -> tuple[object, object, object, int]:
        """Versions of all that checks read: these objects are replaced, and the number grows, with every change."""
        state = self._state
        return state.topics.version, state.groups.version, state.settings.now, state.members.version

    def _forget_if_changed(self) -> None:
        state, (topics, groups, settings, members) = self._state, self._seen
        if (
            state.topics.version is not topics
            or state.groups.version is not groups
            or state.settings.now is not settings
            or state.members.version != members
        ):
            self._pulls.clear()
            self._seen = self._versions()

    def remember(
        self,
        head: PullHead | LitePullHead,
        tag_codes: Collection[int] | None,
        subscription: Subscription | None,
        answer: tuple[tuple[bytes, ...], tuple[bytes, ...]],
        tally: Tally,
    ) -> None:
        """A pull passed all checks. Its answers consist of these parts: near the end of the log, and far behind."""
        self._forget_if_changed()
        ext, key = head.ext, key_of(head)
        queue = self._state.store.find_queue(ext.topic, ext.queue_id)
        if queue is None or key in self._pulls:
            return
        if len(self._pulls) >= MAX_CHECKED:
            self._pulls.clear()
        who, reset_key = _CheckedPull(head, queue, subscription, tally), f"{ext.topic}@{ext.consumer_group}"
        self._pulls[key] = (
            who,
            queue,
            reset_key,
            tag_codes,
            *answer,
            [0, b""],
            self._state.store.entry_reader(queue, tag_codes),
        )

    def serve_run(self, frames: list[Frame], at: int, max_bytes: int) -> tuple[int, list[bytes | memoryview]]:
        """Answer consecutive pulls from `at` on, up to `max_bytes`. Return how many, and the pieces of their answers.

        A piece may be a view of the log: its bytes never change, and the view outlives a deleted file. 0 means that the first
        pull must be checked by itself.
        """
        self._forget_if_changed()
        if self._twin is None or not self._pulls:
            return _NONE
        store, began = self._state.store, self._state.clock.monotonic()
        bounds = store.read_bounds(self.max_count)
        try:
            run = self._twin.serve_pulls(
                frames, at, self._pulls, self._state.offsets.resets, bounds, store.map_at, max_bytes
            )
        except PocketMQError:  # an error of the disk: the pull gets it when it is served by itself
            return _NONE
        if run is None:
            return _NONE
        count, rows, answers = run
        self._record(count, rows, began)
        return count, answers

    def answer_run(self, peer: Peer, frames: list[Frame], at: int) -> int:
        """Answer consecutive pulls from `at` on. Return how many."""
        count, replies = self.serve_run(frames, at, peer.connection.answer_capacity)
        for piece in replies:
            peer.connection.write(piece)
        return count

    def _record(self, count: int, rows: list[compiled.PulledRow], began: float) -> None:
        """Record offsets, subscriptions and statistics of answered pulls."""
        now = self._state.clock.monotonic()
        seconds = (now - began) / count
        self._state.stats.get_times.record(seconds, count)
        offsets = self._state.offsets
        for who, next_offset, commit_offset, pulls, messages, size in rows:
            if who.commits:
                for _ in range(pulls):  # of repeated equal commits, only ignored ones are counted
                    if offsets.commit(who.group, who.topic, who.queue_id, commit_offset, who.queue.max_offset):
                        break
            offsets.record_pull(who.group, who.topic, who.queue_id, next_offset)
            if who.subscription is not None:
                self._state.subscriptions.record(who.group, who.subscription, now)
            tally = who.tally
            tally.count += messages
            tally.joined += messages - pulls
            tally.bytes += size
            tally.ms += seconds * 1000 * pulls


def key_of(head: PullHead | LitePullHead) -> bytes:
    """The key of pulls of one kind; the C twin builds the same. Names contain no such characters."""
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
