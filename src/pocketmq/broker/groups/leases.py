"""Leases: which messages members of a group have popped, until when, and what of it the log knows.

    pop ──► check point, a timed message ──┬── acks, timed messages too ──► all acknowledged: the timer drops the records
                                           └── the time is over ──► `lapses`: to the retry topic, and acknowledged there

    committed ─────────── check points that are synced ─────────── position: the next pop reads here
                                                  └──► committed once they are synced

The records in the log decide; they are RocketMQ's own (`protocol.pop`), and `revive` joins them. This table has the
leases since the start, so that the usual case needs no join: at most `max_leases` of them, further ones are joined from
the log. What is here:

- `Leases`: leases by key, by end, and by the log offset of their check point. Settled records are those of finished
  leases, none of which has reached the revive topic yet.
- `Positions`: a group's committed offset follows its check points, when a power loss can no longer remove them.
"""

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.protocol.pop import CheckPoint

QueueOfGroup = tuple[str, str, int]
"""Group, topic and queue id. The topic is the one that messages are in: it may be a retry topic."""
MAX_SEARCHED: Final = 10_000
"""Limit on leases among which the oldest one of a queue is searched for a report."""
LeaseKey = tuple[str, str, int, int, int]
"""Group, topic, queue id, start offset and pop time."""


class Lease:
    """The messages of one queue that one pop returned. `ends_ms` is in uptime, which no step of the wall clock changes."""

    __slots__ = (
        "acking",
        "broker",
        "ends_ms",
        "in_revive_topic",
        "invisible_ms",
        "key",
        "offsets",
        "queue",
        "records",
        "revive_queue",
        "unacked",
    )

    def __init__(
        self, key: LeaseKey, offsets: Sequence[int], invisible_ms: int, broker: str, revive_queue: int, ends_ms: int
    ) -> None:
        self.key = key
        self.queue: QueueOfGroup = key[:3]
        self.offsets = offsets
        self.invisible_ms = invisible_ms
        self.broker = broker
        self.revive_queue = revive_queue
        self.ends_ms = ends_ms
        self.unacked = dict.fromkeys(offsets)
        self.acking: set[int] = set()
        """Those of them whose ack is in a turn that is not stored yet."""
        self.records: list[int] = []
        """Log offsets of its check point and its acks."""
        self.in_revive_topic = False
        """Whether one of its records is there, so that all others must follow."""

    @property
    def check_point(self) -> CheckPoint:
        group, topic, queue_id, start, pop_ms = self.key
        distances = tuple([offset - start for offset in self.offsets])
        times = pop_ms, self.invisible_ms
        return CheckPoint(
            start, *times, queue_id, topic, group, len(distances), distances, self.broker, revive_ms=sum(times)
        )


class Leases:
    """The leases that began since the start of the broker."""

    def __init__(self, max_leases: int) -> None:
        self.max_leases = max_leases
        self._by_key: dict[LeaseKey, Lease] = {}
        self._by_record: dict[int, Lease] = {}
        self._ends: list[tuple[int, int, Lease]] = []
        self._settled: set[int] = set()
        self._serial = 0
        self._forgotten: dict[LeaseKey, None] = {}
        self.in_flight: Counter[QueueOfGroup] = Counter()
        """Leased messages of each queue that are not acknowledged."""
        self.lapsed = 0
        """Messages whose lease ended without an ack."""
        self.untracked = 0
        """Leases beyond the limit."""

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, key: LeaseKey) -> Lease | None:
        return self._by_key.get(key)

    def of_queue(self, queue: QueueOfGroup) -> tuple[int, int | None]:
        """The leased messages of a queue, and the wall time when the oldest of these leases began; None if it is not found soon."""
        count = self.in_flight.get(queue, 0)
        if not count:
            return 0, None
        oldest = islice(self._by_key.values(), MAX_SEARCHED)
        return count, next((lease.check_point.pop_ms for lease in oldest if lease.queue == queue), None)

    def add(self, lease: Lease, record: int, *, is_due: bool) -> None:
        """A lease began, with a check point at the log offset `record`; `is_due`: it was stored in the revive topic at once."""
        if len(self._by_key) >= self.max_leases:
            self.untracked += 1
            return
        lease.in_revive_topic = is_due
        lease.records = [record]
        if lease.key not in self._by_key:
            self.in_flight[lease.queue] += len(lease.unacked)
        self._by_key[lease.key] = self._by_record[record] = lease
        self.end_at(lease, lease.ends_ms)

    def acknowledged(self, lease: Lease, offsets: Sequence[int], record: int) -> None:
        """An ack of these offsets, each of which was not acknowledged before, is stored at the log offset `record`."""
        lease.records.append(record)
        unacked = lease.unacked
        before = len(unacked)
        if len(offsets) == before:  # all that are left
            unacked.clear()
            lease.acking.clear()
        else:
            lease.acking.difference_update(offsets)
            for offset in offsets:
                unacked.pop(offset, None)
        self.in_flight[lease.queue] -= before - len(unacked)
        if not unacked:
            self._finish(lease)

    def _finish(self, lease: Lease) -> None:
        if self._by_key.pop(lease.key, None) is None:
            return
        self._by_record.pop(lease.records[0], None)
        if not lease.in_revive_topic and len(self._settled) < 2 * self.max_leases:
            self._settled.update(lease.records)
        if not self.in_flight[lease.queue]:
            del self.in_flight[lease.queue]
        if len(self._ends) > 64 and len(self._ends) > 2 * len(self._by_key):
            self._ends = [entry for entry in self._ends if entry[2].unacked]
            heapq.heapify(self._ends)

    def lapses(self, uptime_ms: int, count: int) -> Sequence[Lease]:
        """Remove up to `count` leases that are over from the list of ends. The caller ends each, or calls `end_at`."""
        found: list[Lease] = []
        while self._ends and self._ends[0][0] <= uptime_ms and len(found) < count:
            lease = heapq.heappop(self._ends)[2]
            if lease.unacked:
                found.append(lease)
        return found

    def end_at(self, lease: Lease, uptime_ms: int) -> None:
        """A lease could not be ended: it is over at this time."""
        lease.ends_ms = uptime_ms
        self._serial += 1
        heapq.heappush(self._ends, (uptime_ms, self._serial, lease))

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Drop leases of a deleted topic or group: no member can get their messages. Their records are joined later."""
        gone = [lease for key, lease in self._by_key.items() if key[0] == group or key[1] == topic]
        for lease in gone:
            self._forgotten[lease.key] = None
            if len(self._forgotten) > self.max_leases:
                del self._forgotten[next(iter(self._forgotten))]
            lease.in_revive_topic = True
            self.in_flight[lease.queue] -= len(lease.unacked)
            lease.unacked.clear()
            self._finish(lease)

    def was_forgotten(self, key: LeaseKey) -> bool:
        """Whether its topic or group was deleted. Both may have been created again."""
        return key in self._forgotten

    # the timer

    def is_over(self, record: int) -> bool:
        """Whether the lease of the record at this log offset is finished: the timer need not keep it."""
        return record in self._settled

    def is_settled(self, record: int) -> bool:
        """Whether the timer may drop the record at this log offset. If not, it is moved to the revive topic."""
        if record in self._settled:
            return True
        if (lease := self._by_record.get(record)) is not None:
            lease.in_revive_topic = True
        return False

    def dropped(self, record: int) -> None:
        """The timer dropped a settled record."""
        self._settled.discard(record)


class Move(NamedTuple):
    """A group read up to `offset`, with a check point at the log offset `start`. The log ends at `end` after it."""

    start: int
    end: int
    queue: QueueOfGroup
    offset: int
    generation: int


class Positions:
    """Where the next pop of each queue reads. Only what is not committed yet is here."""

    def __init__(self, offsets: OffsetTable) -> None:
        self._offsets = offsets
        self._moves: deque[Move] = deque()
        self._ahead: dict[QueueOfGroup, tuple[int, int, int]] = {}
        """The position, how many moves lead to it, and their generation."""
        self._generation = 0

    def get(self, queue: QueueOfGroup) -> int | None:
        """The offset of the next pop; None if the group is new to the queue."""
        ahead = self._ahead.get(queue)
        return self._offsets.stored(*queue) if ahead is None else ahead[0]

    def move(self, queue: QueueOfGroup, offset: int, start: int, end: int) -> Move:
        """The group pops the messages before `offset`."""
        self._generation += 1
        _, count, generation = self._ahead.get(queue, (0, 0, self._generation))
        move = Move(start, end, queue, offset, generation)
        self._moves.append(move)
        self._ahead[queue] = offset, count + 1, generation
        return move

    def undo(self, move: Move) -> None:
        """The pop was not stored: the group is where it was before. Later moves of the queue began at this one."""
        ahead = self._ahead.get(move.queue)
        if ahead is None or ahead[2] != move.generation:
            return
        kept: deque[Move] = deque()
        own: list[Move] = []
        is_undone = False
        for one in self._moves:
            is_own = one.queue == move.queue and one.generation == move.generation
            is_undone |= one is move
            if not (is_own and is_undone):
                kept.append(one)
                own += [one] if is_own else []
        self._moves = kept
        if own:
            self._ahead[move.queue] = own[-1].offset, len(own), move.generation
        else:
            del self._ahead[move.queue]

    def set(self, queue: QueueOfGroup, offset: int) -> None:
        """The group begins there, whatever it popped before."""
        self._ahead.pop(queue, None)
        self._offsets.confirm_log(*queue)
        self._offsets.commit(*queue, offset)

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or a group was deleted."""
        for queue in [queue for queue in self._ahead if queue[0] == group or queue[1] == topic]:
            del self._ahead[queue]

    def commit(self, synced: int) -> None:
        """Commit what no power loss can undo any longer: the log is synced up to `synced`."""
        moves = self._moves
        while moves and moves[0].end <= synced:
            move = moves.popleft()
            ahead = self._ahead.get(move.queue)
            if ahead is None or ahead[2] != move.generation:
                continue
            position, count, generation = ahead
            if count > 1:
                self._ahead[move.queue] = position, count - 1, generation
            else:
                del self._ahead[move.queue]
            self._offsets.confirm_log(*move.queue)
            self._offsets.commit(*move.queue, move.offset)
        self._offsets.popped_to = min(synced, moves[0].start) if moves else synced

    @property
    def is_settled(self) -> bool:
        return not self._moves
