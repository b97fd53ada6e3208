"""Offsets: the committed offset of each group in each queue, and pending resets.

    commit ──► stored ◄── reset ──► pending ──► applied by the next pull; commits count again after it
                 │
                 ├─► query: pending, else stored, else a rule about the queue
                 └─► snapshot: "topic@group" ──► queue id ──► offset, and pending resets

A commit overwrites the stored offset, lower or not, as in RocketMQ: a client may have reset itself. Lower commits are
counted. While a reset is pending, commits are ignored: they come from members that do not know of it.

A queue can become shorter under running members: after a crash that loses unsynced messages, or if its topic is deleted
and created again. Such members still have offsets of the older log, and offsets of new messages soon exceed these. So
the table keeps a bound for each group until its next pull of the queue: the end of the log at the start after a crash,
or 0 for a deleted topic. A pull or commit beyond the bound is from the older log: the pull is redirected to the group's
stored offset, or to the beginning if its members had not committed yet; the commit is ignored. A group without an offset
that asks for one is new to the queue, and has no bound from then on. RocketMQ's members save their old offset once more after such a pull, so commits
beyond what the group has pulled since are ignored, too. Bounds survive restarts, because members may be away during
several of them, and no bound grows by another crash. They are dropped when a broker has run for a day.

Every row keeps its text until it changes, so a save writes only the changed rows. Names contain no '@' (see
`model.names`), so a key can always be parsed.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

import msgspec

from pocketmq.broker.settings import MAX_QUEUES
from pocketmq.errors import ImpossibleRequest, NoPermission
from pocketmq.model import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_GROUP
from pocketmq.protocol.bodies.topics import ConsumerOffsets, DataVersion, SavedOffsets

LARGEST = 2**63 - 1
NOTHING_TO_CORRECT = LARGEST
"""The correction of a queue in which the compared group is behind all others."""

BOUNDS_KEPT_MS = 24 * 3_600_000
"""How long a broker runs until it drops the bounds of an earlier crash: all members have returned by then."""
MAX_RECREATED = 4_096
"""Limit on groups of deleted topics that are kept; the oldest are removed first."""

# Strict JSON, queue ids in quotes: both releases of Apache read it, and it parses twenty times as fast as bare numbers.
_encode = msgspec.json.Encoder().encode


class QueueFacts(NamedTuple):
    """What the store knows of a queue. `first_in_memory`: message 0 exists and is in memory."""

    min_offset: int
    max_offset: int
    first_in_memory: bool


class _Row:
    """One group in one topic. A dirty row differs from its text in the last snapshot.

    `older`: the offset of a redirected pull, until the group has pulled that far again.
    """

    __slots__ = ("is_dirty", "key", "offsets", "older", "pulled")

    def __init__(self, key: str) -> None:
        self.key = key
        self.offsets: dict[int, int] = {}
        self.pulled: dict[int, int] = {}
        self.older: dict[int, int] = {}
        self.is_dirty = False


class OffsetTable:
    """All rows, by group and topic. Counts lower commits and ignored commits.

    A row holds at most `max_queues` queues; commits for others are ignored.
    """

    def __init__(self, *, max_queues: int = MAX_QUEUES, started_ms: int = 0) -> None:
        self._rows: dict[str, dict[str, _Row]] = {}
        self._pending: dict[str, dict[int, int]] = {}
        self._dirty: list[_Row] = []
        self._texts: dict[str, bytes] = {}
        self._recovered: Mapping[str, Mapping[int, int]] | None = None
        """After a crash: the ends that queues had at the start, by topic."""
        self._confirmed: dict[str, dict[int, int]] = {}
        """Queues that a group has pulled since a crash, by `topic@group`: their bounds are LARGEST, or of a later crash."""
        self._bounds_until_ms = 0
        self._bounds_text: bytes | None = b""
        """The bounds after a crash in the next snapshot; None if they changed."""
        self._recreated: dict[str, set[int]] = {}
        """Groups with offsets in a topic when it was deleted, and the queues that they have pulled since."""
        self._max_queues = max_queues
        self.version = DataVersion(timestamp=started_ms)
        self.commits_lowered = 0
        self.commits_ignored = 0
        self.popped_to: int | None = None
        """The offsets include all check points of pops before this log offset. None if it is not known."""
        self.is_restored = False

    # consuming

    def commit(self, group: str, topic: str, queue_id: int, offset: int, end: int = LARGEST) -> bool:
        """Store the offset of a group. False if it is ignored: a reset is pending, or the offset is not valid.

        An offset beyond the `end` of the queue is of an older log.
        """
        row = self._row(group, topic)
        before = row.offsets.get(queue_id)
        pending = bool(self._pending) and queue_id in self._pending.get(row.key, ())
        if (
            pending
            or self._is_older(row.key, queue_id, offset)
            or (queue_id in row.older and offset > row.pulled.get(queue_id, offset))
            or not 0 <= offset <= end
            or (before is None and not self._has_capacity(row, queue_id))
        ):
            self.commits_ignored += 1
            return False
        if offset == before:
            return True
        if before is not None and offset < before:
            self.commits_lowered += 1
        row.offsets[queue_id] = offset
        if not row.is_dirty:
            self._touch(row)
        return True

    def record_pull(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Store the offset of the next pull: messages between the committed offset and this one are in flight."""
        row = self._row(group, topic)
        if queue_id in row.pulled or self._has_capacity(row, queue_id):
            row.pulled[queue_id] = next_offset
            if row.older and next_offset >= row.older.get(queue_id, next_offset):
                row.older.pop(queue_id, None)

    def pop_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The new offset for the first pull after a reset; None for all others. Such a pull commits nothing."""
        if not self._pending:
            return None
        key = f"{topic}@{group}"
        pending = self._pending.get(key, {})
        offset = pending.pop(queue_id, None)
        if offset is None:
            return None
        if not pending:
            del self._pending[key]
        self._touch(self._row(group, topic))  # it must not be applied again after a restart
        return offset

    def redirect_older(self, group: str, topic: str, queue_id: int, offset: int, low: int) -> int | None:
        """The new offset for a pull whose `offset` is of an older log, once; None for others. The queue begins at
        `low`.
        """
        if self._recovered is None and not self._recreated:
            return None
        row = self._row(group, topic)
        is_older = self._is_older(row.key, queue_id, offset)
        self._confirm_log(row.key, queue_id)
        if not is_older:
            return None
        target = max(row.offsets.get(queue_id, low), low)
        self._set(row, {queue_id: target})  # also for the next member, if this one ends before its first commit
        if queue_id in row.offsets and offset > target:
            row.pulled[queue_id], row.older[queue_id] = target, offset
        return target

    def confirm_log(self, group: str, topic: str, queue_id: int) -> None:
        """The group itself uses offsets of this log: they are valid from now on."""
        if self._recovered is not None or self._recreated:
            self._confirm_log(f"{topic}@{group}", queue_id)
        if (row := self._find(group, topic)) is not None and row.older:
            row.older.pop(queue_id, None)

    def resume_at(self, group: str, topic: str, queue_id: int, low: int, end: int) -> int:
        """The offset for a pull beyond the `end`: the group's stored offset, or the start of the queue."""
        stored = self.stored(group, topic, queue_id)
        return low if stored is None else max(min(stored, end), low)

    def _is_older(self, key: str, queue_id: int, offset: int) -> bool:
        """Whether an offset of a group is beyond its bound in the queue."""
        if self._recovered is not None:
            bound = self._confirmed.get(key, {}).get(queue_id)
            if bound is None:
                topic, _, _ = key.partition("@")
                bound = self._recovered.get(topic, {}).get(queue_id, 0)
            if offset > bound:
                return True
        return offset > 0 and self._is_recreated(key, queue_id)

    def _is_recreated(self, key: str, queue_id: int) -> bool:
        """Whether the topic was deleted, and the group has not pulled the queue since."""
        return bool(self._recreated) and queue_id not in self._recreated.get(key, (queue_id,))

    def _confirm_log(self, key: str, queue_id: int) -> None:
        """The group has pulled the queue, or was set to an offset in it: its offsets are of this log."""
        if self._recovered is not None:
            bounds = self._confirmed.setdefault(key, {})
            if bounds.get(queue_id) != LARGEST:
                bounds[queue_id] = LARGEST
                self._bounds_text = None
        if (confirmed := self._recreated.get(key)) is not None and queue_id not in confirmed:
            confirmed.add(queue_id)

    @property
    def resets(self) -> Mapping[str, Mapping[int, int]]:
        """Resets that no pull has applied yet, by `topic@group`."""
        return self._pending

    # queries

    def stored(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that was committed or set; None if there is none."""
        row = self._find(group, topic)
        return None if row is None else row.offsets.get(queue_id)

    def pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset of the group's next pull; the committed one if it has not pulled since the start."""
        row = self._find(group, topic)
        return None if row is None else row.pulled.get(queue_id, row.offsets.get(queue_id))

    def query(
        self, group: str, topic: str, queue_id: int, queue: QueueFacts | None, *, zero_if_new: bool = True
    ) -> int | None:
        """The offset where a member begins; None for "not found": the member then decides. `queue` may not exist.

        A group that is new to a queue begins at 0 while the queue's first message is still in memory, as in RocketMQ 5.
        It also begins at 0 in a queue that never contained a message. There RocketMQ answers "not found", and a member that
        then requests the end of the queue loses a message that arrived in between.
        """
        stored = self.stored(group, topic, queue_id)
        if stored is None and self._is_recreated(f"{topic}@{group}", queue_id):
            return 0  # the group is not new: the topic is
        if stored is not None or not zero_if_new or queue is None:
            return stored
        never_used = queue.max_offset <= 0
        return 0 if never_used or (queue.min_offset <= 0 and queue.first_in_memory) else None

    def topics_of(self, group: str) -> list[str]:
        """Topics in which the group has an offset."""
        return [topic for topic, row in self._rows.get(group, {}).items() if row.offsets]

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have an offset in the topic."""
        return [group for group, rows in self._rows.items() if topic in rows and rows[topic].offsets]

    def by_topic(self, topics: Container[str]) -> dict[str, dict[str, Mapping[int, int]]]:
        """For each of these topics with offsets: the groups, and their offsets by queue."""
        found: dict[str, dict[str, Mapping[int, int]]] = {}
        for group, rows in self._rows.items():
            for topic, row in rows.items():
                if row.offsets and topic in topics:
                    found.setdefault(topic, {})[group] = row.offsets
        return found

    def corrections(
        self, topic: str, compared: str, left_out: Iterable[str], min_offset: Callable[[int], int]
    ) -> dict[int, int]:
        """The smallest offset of all groups by queue, without groups that are `left_out` or behind the start of the queue.

        `NOTHING_TO_CORRECT` where the compared group is behind all others.
        """
        least: dict[int, int] = {}
        without = set(left_out)
        for group in self.groups_of(topic):
            if group not in without:
                for queue_id, offset in self._rows[group][topic].offsets.items():
                    if offset >= min_offset(queue_id):
                        least[queue_id] = min(offset, least.get(queue_id, offset))
        if row := self._find(compared, topic):
            for queue_id, offset in row.offsets.items():
                if least.get(queue_id, offset) > offset:
                    least[queue_id] = NOTHING_TO_CORRECT
        return least

    # changes

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set a group to these offsets. Its members get them by their next pull of each queue."""
        if not offsets:
            raise ImpossibleRequest(f"topic {topic} has no queue in which group {group} could be reset")
        row = self._row(group, topic)
        self._set(row, offsets)
        self._pending.setdefault(row.key, {}).update(offsets)

    def clone(self, source: str, target: str, topics: Iterable[str] | None = None) -> list[str]:
        """Copy one group's offsets to another, in all its topics or in some. Return the topics with offsets."""
        cloned = []
        for topic in self.topics_of(source) if topics is None else topics:
            found = self._find(source, topic)
            if found and found.offsets and source != target:
                row = self._row(target, topic)
                row.offsets = {}
                self._pending.pop(row.key, None)
                self._set(row, found.offsets)
                cloned.append(topic)
        return cloned

    def lower_to(self, end_of: Callable[[str, int], int]) -> list[str]:
        """Lower offsets beyond the end of a queue to the end. Return the keys of changed rows, as `topic@group`."""
        lowered = []
        for rows in self._rows.values():
            for topic, row in rows.items():
                ends = ((queue_id, end_of(topic, queue_id)) for queue_id in row.offsets)
                ahead = {queue_id: end for queue_id, end in ends if row.offsets[queue_id] > end}
                if ahead:
                    self._set(row, ahead)
                    pending = self._pending.get(row.key, {})
                    pending.update({queue_id: end for queue_id, end in ahead.items() if queue_id in pending})
                    lowered.append(row.key)
        return lowered

    def set_bounds(self, ends: Mapping[str, Mapping[int, int]], now_ms: int) -> None:
        """After a crash, members may have offsets of lost messages. `ends` of all queues, when no offset is beyond its end."""
        before = self._recovered
        if before is None:
            self._recovered = ends
        else:  # members that have not returned since an earlier crash
            self._recovered = {
                topic: {queue_id: min(end, before.get(topic, {}).get(queue_id, 0)) for queue_id, end in queues.items()}
                for topic, queues in ends.items()
            }
        for key, bounds in self._confirmed.items():
            queues = ends.get(key.partition("@")[0], {})
            self._confirmed[key] = {queue_id: min(bound, queues.get(queue_id, 0)) for queue_id, bound in bounds.items()}
        # The broker's own offsets are of the log that it has read itself.
        self._confirmed |= {f"{topic}@{TRANSACTION_CHECK_GROUP}": {0: LARGEST} for topic in (HALF_TOPIC, OP_HALF_TOPIC)}
        self._bounds_text = None
        self.keep_bounds(now_ms)

    def keep_bounds(self, now_ms: int) -> None:
        """At a start: keep the bounds of earlier crashes for their time from now on."""
        self._bounds_until_ms = now_ms + BOUNDS_KEPT_MS

    def delete_topic(self, topic: str) -> None:
        """Delete all offsets of a topic. Their groups begin at 0 if the topic is created again."""
        for group in [group for group, rows in self._rows.items() if topic in rows]:
            row = self._rows[group].pop(topic)
            self._confirmed.pop(row.key, None)
            if row.offsets or row.pulled:  # a member may have pulled and not committed yet
                self._recreated.pop(row.key, None)
                self._recreated[row.key] = set()
            self._empty(row)
            if not self._rows[group]:
                del self._rows[group]
        while len(self._recreated) > MAX_RECREATED:
            del self._recreated[next(iter(self._recreated))]

    def delete_group(self, group: str) -> None:
        for row in self._rows.pop(group, {}).values():
            self._empty(row)
            self._confirmed.pop(row.key, None)
        for key in [key for key in self._recreated if key.endswith(f"@{group}")]:
            del self._recreated[key]

    def _empty(self, row: _Row) -> None:
        """Remove the row's text from the next snapshot. A new row with the same key is later among the dirty ones."""
        row.offsets = {}
        self._pending.pop(row.key, None)
        self._touch(row)

    def _set(self, row: _Row, offsets: Mapping[int, int]) -> None:
        row.offsets.update(offsets)
        row.pulled = {queue_id: offset for queue_id, offset in row.pulled.items() if queue_id not in offsets}
        row.older = {queue_id: offset for queue_id, offset in row.older.items() if queue_id not in offsets}
        for queue_id in offsets:
            self._confirm_log(row.key, queue_id)
        self._touch(row)

    def _touch(self, row: _Row) -> None:
        if not row.is_dirty:
            row.is_dirty = True
            self._dirty.append(row)

    def _has_capacity(self, row: _Row, queue_id: int) -> bool:
        return queue_id >= 0 and max(len(row.offsets), len(row.pulled)) < self._max_queues

    def _find(self, group: str, topic: str) -> _Row | None:
        rows = self._rows.get(group)
        return None if rows is None else rows.get(topic)

    def _row(self, group: str, topic: str) -> _Row:
        rows = self._rows.get(group)
        if rows is None:
            rows = self._rows[group] = {}
        row = rows.get(topic)
        if row is None:
            row = rows[topic] = _Row(f"{topic}@{group}")
        return row

    # saving

    @property
    def is_changed(self) -> bool:
        """Whether there are changes that no `snapshot_json` contains yet."""
        return bool(self._dirty) or self._bounds_text is None

    def snapshot(self) -> ConsumerOffsets:
        """The value of consumerOffset.json."""
        rows = (row for rows in self._rows.values() for row in rows.values() if row.offsets)
        return ConsumerOffsets(self.version, {row.key: dict(row.offsets) for row in rows})

    def snapshot_json(self, now_ms: int) -> bytes:
        """The bytes of consumerOffset.json. Only rows that changed since the last call are encoded again."""
        if self._recovered is not None and now_ms > self._bounds_until_ms:
            self._recovered, self._confirmed, self._bounds_text = None, {}, None
        if self.is_changed:
            self.version = self.version.next_version(now_ms)
        for row in self._dirty:
            row.is_dirty = False
            if row.offsets:
                self._texts[row.key] = _encode({row.key: row.offsets})[1:-1]
            else:
                self._texts.pop(row.key, None)
        self._dirty.clear()
        resets = b',"resetTable":%b' % _encode(self._pending) if self._pending else b""
        if self._recreated:
            resets += b',"recreatedTable":%b' % _encode(self._recreated)
        if self._bounds_text is None:
            self._bounds_text = self._encode_bounds()
        resets += self._bounds_text
        if self.popped_to is not None:
            resets += b',"poppedTo":%d' % self.popped_to
        texts = b",".join(self._texts.values())
        return b'{"dataVersion":%b,"offsetTable":{%b}%b}' % (_encode(self.version), texts, resets)

    def _encode_bounds(self) -> bytes:
        if self._recovered is None:
            return b""
        return b',"recoveredTable":%b,"confirmedTable":%b' % (_encode(self._recovered), _encode(self._confirmed))

    def restore(self, saved: ConsumerOffsets) -> list[str]:
        """Fill a new table from a saved one. Return the keys that are not `topic@group`."""
        strange = []
        for key, offsets in saved.offset_table.items():
            topic, _, group = key.partition("@")
            if not topic or not group or "@" in group:
                strange.append(key)
            elif kept := {queue_id: offset for queue_id, offset in offsets.items() if offset >= 0}:
                self._row(group, topic).offsets = kept
                self._texts[key] = _encode({key: kept})[1:-1]
        if isinstance(saved, SavedOffsets):
            self._restore_resets(saved.reset_table)
            self._recreated = {key: set(confirmed) for key, confirmed in saved.recreated_table.items()}
            if saved.recovered_table is not None:
                self._recovered = saved.recovered_table
                self._confirmed = {key: dict(bounds) for key, bounds in saved.confirmed_table.items()}
                self._bounds_text = self._encode_bounds()
            self.popped_to = saved.popped_to
        self.version = saved.data_version
        self.is_restored = True
        return strange

    def follow(self, table: ConsumerOffsets) -> None:
        """On a slave: add the offsets of the master."""
        for key, offsets in table.offset_table.items():
            topic, _, group = key.partition("@")
            if topic and group and "@" not in group:
                row = self._row(group, topic)
                if row.offsets | offsets != row.offsets:
                    self._set(row, offsets)

    def _restore_resets(self, resets: Mapping[str, Mapping[int, int]]) -> None:
        """Keep resets for members that ran while the broker was stopped, except where the group committed since."""
        for key, offsets in resets.items():
            topic, _, group = key.partition("@")
            kept = {queue_id: at for queue_id, at in offsets.items() if self.stored(group, topic, queue_id) == at}
            if kept:
                self._pending[key] = kept


def reject_broker_group(group: str) -> None:
    """NoPermission for the group that stores the state of transactions: a changed offset would hide some of them."""
    if group == TRANSACTION_CHECK_GROUP:
        raise NoPermission(f"group {group} belongs to the broker itself; its offsets cannot be set")


def reset_target(queue: QueueFacts, offset: int | None, time_ms: int, at_time: Callable[[int], int]) -> int:
    """The new offset in one queue: `offset` if present (-1 means none), else by time; a negative time is the end."""
    if offset is not None and offset != -1:
        if not max(queue.min_offset, 0) <= offset <= queue.max_offset:
            raise ImpossibleRequest(
                f"offset {offset} is not in the queue, which has {queue.min_offset} to {queue.max_offset}"
            )
        return offset
    return queue.max_offset if time_ms < 0 else at_time(time_ms)


def pushed_target(target: int, stored: int | None, *, force: bool) -> int:
    """The new offset if the members do the reset: without `force` only backwards."""
    return target if force or stored is None else min(target, stored)
