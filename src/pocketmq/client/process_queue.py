"""The process queue: messages of one owned queue that were pulled and are not done with.

        put            take               finish
    ─────────► waiting ─────► being consumed ─────► gone
                  ▲                 │
                  └──── give_back ──┘          (it failed, and is tried again here)

    offset   10  11  12  13  14  15  16  17
             ●   ·   ●   ·   ●   ○   ○   ○       ● being consumed   · done   ○ waiting
             └── commit offset: the smallest still here, so that a crash loses nothing; 18 once all are done

Listeners finish in any order. Messages that came together are mostly taken and finished together, and such a stretch costs one step,
however many they are. Concurrent and orderly listening use the same steps; what an orderly one has taken is always the head, and is
committed or rolled back as a whole. An orderly listener that commits by itself leaves what it has handled here until then: `keep`.

Offsets only grow during the life of a process queue: whoever moves to another place in the queue (a reset, a seek, an
illegal offset) drops this one and begins a new one. A message that comes a second time is therefore left out.

Told the time, as monotonic seconds. For one thread: the client's loop.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from pocketmq.client.stretches import Stretch, Stretches
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.bodies.running_info import ProcessQueueInfo

LOCK_SECONDS: Final = 30.0
"""How long a client believes in its lock on an ordered queue."""
LEASE_SECONDS: Final = 60.0
"""How long a broker keeps it for a client that does not ask again; then any other may have it."""
PULL_IDLE_SECONDS: Final = 120.0
"""A queue that was not pulled for so long is dead: it is dropped and begun anew."""
MAX_OVERDUE: Final = 16
"""Overdue messages that one clean-up takes from a queue."""
_MIB: Final = 1024 * 1024


class ProcessQueue:
    """What is in flight of one queue, and since when. Bodies must not be exchanged while their messages are here."""

    __slots__ = (
        "_flight",
        "_kept_to",
        "_last_consume",
        "_last_pull",
        "_locked_at",
        "_max_offset",
        "_taken",
        "_waiting",
        "body_bytes",
        "count",
        "is_dropped",
        "is_orderly",
        "is_taken_over",
        "kept",
        "unlock_attempts",
        "waiting",
    )

    def __init__(self, now: float, *, is_orderly: bool = False) -> None:
        self.is_orderly = is_orderly
        self.unlock_attempts = 0
        """How often it could not be given up because a listener was still at work; counted by whoever tries."""
        self.count = 0
        """Messages in flight."""
        self.waiting = 0
        """Those that nobody consumes."""
        self.kept = 0
        """Those that were handled and are not committed yet; see `keep`."""
        self._kept_to = -1
        self.body_bytes = 0
        """Bytes of all bodies in flight."""
        self._flight = Stretches()
        self._waiting: deque[Stretch] = deque()
        """Those that wait, in the order in which they will be taken."""
        self._taken: dict[int, Stretch] = {}
        """Those that are being consumed, by their first offset."""
        self._max_offset = -1
        self.is_dropped = False
        """Whether the queue is not ours any more: see `drop`."""
        self.is_taken_over = False
        """Whether another client may have had its lock: what is here, that one may have handled by now."""
        self._locked_at: float | None = None
        self._last_pull = now
        self._last_consume = now

    # what is here

    @property
    def consuming(self) -> int:
        return self.count - self.waiting - self.kept

    @property
    def span(self) -> int:
        """From the smallest offset in flight to the largest: how far one slow message lets the others run ahead."""
        flight = self._flight
        return flight.last.last - flight.first.first if self.count else 0

    @property
    def min_offset(self) -> int:
        """The smallest offset in flight; -1 when nothing is."""
        return self._flight.first.first if self.count else -1

    @property
    def max_offset(self) -> int:
        """The largest offset that was ever here; -1 before the first."""
        return self._max_offset

    @property
    def commit_offset(self) -> int | None:
        """Where the group would go on if this client vanished now; None while nothing has ever been here."""
        if self.count:
            return self._flight.first.first
        return self._max_offset + 1 if self._max_offset >= 0 else None

    def is_consuming(self, message: StoredMessage) -> bool:
        """Whether it was taken and is neither finished nor given back; a clean-up may have finished it meanwhile."""
        offset = message.queue_offset
        return any(offset == one.queue_offset for stretch in self._holding({offset}) for one in stretch.messages)

    def is_passed(self, offset: int) -> bool:
        """Whether a message of this offset, or of a later one, was here already; it would be left out."""
        return offset <= self._max_offset

    # the way of a message

    def put(self, messages: Sequence[StoredMessage]) -> int:
        """Let pulled messages wait, in offset order; how many were new. A dropped queue takes none."""
        if self.is_dropped:
            return 0
        count = len(messages)
        first = messages[0].queue_offset if count else 0
        if first > self._max_offset and [one.queue_offset for one in messages] == list(range(first, first + count)):
            new = list(messages)
        else:
            new = self._new_ones(messages)
        if new:
            stretch = Stretch(new)
            self._flight.add(stretch)
            self._waiting.append(stretch)
            self._max_offset = stretch.last
            self.count += len(new)
            self.waiting += len(new)
            self.body_bytes += stretch.body_bytes
        return len(new)

    def _new_ones(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        largest = self._max_offset
        new: list[StoredMessage] = []
        for message in messages:
            if message.queue_offset > largest:
                largest = message.queue_offset
                new.append(message)
        return new

    def take(self, limit: int, now: float) -> list[StoredMessage]:
        """The next messages to consume, at most `limit`; none when nothing waits, or the queue was dropped.

        The list is not to be changed.
        """
        if self.is_dropped:
            return []
        self._last_consume = now
        batch: list[StoredMessage] = []
        while self._waiting and len(batch) < limit:
            stretch = self._take_first(limit - len(batch), now)
            batch = batch + stretch.messages if batch else stretch.messages
        self.waiting -= len(batch)
        return batch

    def _take_first(self, limit: int, now: float) -> Stretch:
        stretch = self._waiting.popleft()
        if len(stretch.messages) > limit:
            self._waiting.appendleft(self._flight.split(stretch, limit))
        stretch.began = now
        self._taken[stretch.first] = stretch
        return stretch

    def finish(self, messages: Sequence[StoredMessage], now: float) -> int | None:
        """Messages are done with. The offset to commit; None once the queue was dropped: its offset is another's by then.

        What is not being consumed is passed over: a clean-up was faster.
        """
        self._last_consume = now
        stretch = self._taken.get(messages[0].queue_offset) if messages else None
        if stretch is not None and stretch.messages == messages:
            self._let_go(stretch, [])
        else:
            done = {message.queue_offset for message in messages}
            for each in self._holding(done):
                self._let_go(each, [one for one in each.messages if one.queue_offset not in done])
        return None if self.is_dropped else self.commit_offset

    def _let_go(self, stretch: Stretch, left: list[StoredMessage]) -> None:
        """Of what is being consumed, all but what is `left`."""
        del self._taken[stretch.first]
        self.count -= len(stretch.messages) - len(left)
        self.body_bytes -= stretch.body_bytes
        self._flight.keep(stretch, left)
        if left:
            self._taken[stretch.first] = stretch
            self.body_bytes += stretch.body_bytes

    def give_back(self, messages: Sequence[StoredMessage]) -> None:
        """Messages that are being consumed wait again, before all that were never taken."""
        offsets = {message.queue_offset for message in messages}
        again: list[Stretch] = []
        for stretch in self._holding(offsets):
            del self._taken[stretch.first]
            for is_back, part in self._flight.part(stretch, lambda one: one.queue_offset in offsets):
                if is_back:
                    part.began = None
                    again.append(part)
                    self.waiting += len(part.messages)
                else:
                    self._taken[part.first] = part
        self._waiting.extendleft(sorted(again, key=_first_offset, reverse=True))

    def _holding(self, offsets: set[int]) -> list[Stretch]:
        """The stretches in consumption that may hold messages with these offsets."""
        if not offsets:
            return []
        smallest, largest = min(offsets), max(offsets)
        return [one for one in self._taken.values() if one.first <= largest and smallest <= one.last]

    def keep(self, messages: Sequence[StoredMessage]) -> None:
        """Messages at the head were handled, and stay until `commit` or `rollback`. They hold the commit offset back."""
        if messages:
            self.kept += len(messages)
            self._kept_to = messages[-1].queue_offset

    def commit(self, now: float) -> int | None:
        """All that was taken is done with; as `finish`."""
        self.kept = 0
        return self.finish(self._taken_ones(), now)

    def rollback(self) -> None:
        """All that was taken waits again, also what was kept; as `give_back`."""
        self.kept = 0
        self.give_back(self._taken_ones())

    def put_back(self) -> None:
        """All that was taken waits again, but for what was kept."""
        taken = self._taken_ones()
        self.give_back([one for one in taken if one.queue_offset > self._kept_to] if self.kept else taken)

    def _taken_ones(self) -> list[StoredMessage]:
        return [message for stretch in self._taken.values() for message in stretch.messages]

    def overdue(self, now: float, timeout_s: float) -> list[StoredMessage]:
        """Messages at the head that have been consumed for longer than `timeout_s`; they hold the commit offset back.

        They stay until they are finished. Only the head is looked at, until the first that is in time.
        """
        found: list[StoredMessage] = []
        for stretch in self._flight:
            if stretch.began is None or now - stretch.began <= timeout_s or len(found) >= MAX_OVERDUE:
                break
            found += stretch.messages
        return found[:MAX_OVERDUE]

    # ownership

    def drop(self) -> None:
        """The queue is not ours any more. What listeners still hold may end, but counts for nothing."""
        self.is_dropped = True

    def lock(self, asked_at: float) -> None:
        """The broker gave us its lock, or renewed it. `asked_at`: before the request left, so that we never believe too long."""
        if self._locked_at is not None and asked_at - self._locked_at > LEASE_SECONDS:
            self.is_taken_over = True
        self._locked_at = asked_at

    @property
    def locked_at(self) -> float | None:
        """When the lock that is ours was asked for last."""
        return self._locked_at

    def unlock(self) -> None:
        """The broker refused the lock, because it is another client's."""
        self._locked_at = None
        self.is_taken_over = True

    def is_locked(self, now: float) -> bool:
        """Whether an orderly listener may work on it."""
        if self._locked_at is None or self.is_taken_over:
            return False
        return now - self._locked_at <= LOCK_SECONDS

    # its health

    def note_pull(self, now: float) -> None:
        """A pull was sent, or put off on purpose."""
        self._last_pull = now

    def is_pull_dead(self, now: float) -> bool:
        """Whether its pulls must have got lost."""
        return now - self._last_pull > PULL_IDLE_SECONDS

    def info(self, committed: int, now: float, now_ms: int) -> ProcessQueueInfo:
        """What an administrator is told, with times as the wall clock would have shown them."""

        def wall_ms(moment: float | None) -> int:
            return 0 if moment is None else now_ms - round((now - moment) * 1000)

        cached = list(self._waiting if self.is_orderly else self._flight)
        taken = list(self._taken.values()) if self.is_orderly else []
        return ProcessQueueInfo(
            commit_offset=committed,
            cached_msg_min_offset=cached[0].first if cached else 0,
            cached_msg_max_offset=cached[-1].last if cached else 0,
            cached_msg_count=self.waiting if self.is_orderly else self.count,
            cached_msg_size_in_mib=self.body_bytes // _MIB,
            transaction_msg_min_offset=min((one.first for one in taken), default=0),
            transaction_msg_max_offset=max((one.last for one in taken), default=0),
            transaction_msg_count=self.count - self.waiting if self.is_orderly else 0,
            locked=self.is_locked(now),
            try_unlock_times=self.unlock_attempts,
            last_lock_timestamp=wall_ms(self._locked_at),
            dropped=self.is_dropped,
            last_pull_timestamp=wall_ms(self._last_pull),
            last_consume_timestamp=wall_ms(self._last_consume),
        )


def _first_offset(stretch: Stretch) -> int:
    return stretch.first
