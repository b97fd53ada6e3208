"""The process queue: one queue that this member reads, and what is in flight of it.

        put            take               finish
    ─────────► waiting ─────► being consumed ─────► gone
                  ▲                 │
                  └──── give_back ──┘          (it failed, and is tried again here)

    offset   10  11  12  13  14  15  16  17
             ●   ·   ●   ·   ●   ○   ○   ○       ● being consumed   · done   ○ waiting
             └── commit offset: the smallest still here, so that a crash loses nothing; 18 once all are done

    taken ──► pulled, consumed ──► leave: nothing more is pulled or begun ──► idle, or time is up ──► drop

Listeners finish in any order. Messages that came together are mostly taken and finished together: such a stretch costs one step,
however many they are, and is parted when some of its messages fare otherwise than the rest. Concurrent and orderly listening use
the same steps; what an orderly one has taken is always the head, and is committed or rolled back as a whole. An orderly listener
that commits by itself leaves what it has handled here until then: `keep`.

    ring:   ◄─► 10 11 12 13 ◄─► 14 15 ◄─► 16 17 … 47 ◄─► (back to the first)
                being consumed   waiting   being consumed

Pulls are mostly faster than listeners: without `hold_back` a queue runs into its limit, waits 50 ms, and quick listeners have
nothing to do before that is over. Slow listeners are not waited for: the queue fills up to its limit.

Offsets only grow during the life of a process queue: whoever moves to another place in the queue (a reset, a seek, an illegal
offset) drops this one and makes a new one. A message that comes a second time is therefore left out.

Told the time, as monotonic seconds. No locks: only the client's loop changes it. Threads of orderly listeners ask whether they may
go on: `is_active`, `is_locked`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, Protocol

from pocketmq.client.consumer.pull_position import PullPosition
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.bodies.running_info import ProcessQueueInfo


class OffsetRange:
    """Some messages, with growing offsets. The list is exchanged when they change, never changed: others may hold it."""

    __slots__ = ("after", "before", "began", "body_bytes", "first", "last", "messages")

    def __init__(self, messages: list[StoredMessage], began: float | None = None) -> None:
        self.began = began
        """When their consumption began; None while they wait."""
        self.hold(messages)
        self.before = self.after = self

    def hold(self, messages: list[StoredMessage]) -> None:
        """These from now on."""
        self.messages = messages
        self.first, self.last = messages[0].queue_offset, messages[-1].queue_offset
        self.body_bytes = sum(map(len, [message.body for message in messages]))


class _Ring(OffsetRange):
    """Stands between the last and the first, and holds nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        self.before = self.after = self


class OffsetRanges:
    """All stretches of a queue that have messages in flight."""

    def __init__(self) -> None:
        self._ring = _Ring()

    def __iter__(self) -> Iterator[OffsetRange]:
        entry = self._ring.after
        while entry is not self._ring:
            after = entry.after
            yield entry
            entry = after

    @property
    def first(self) -> OffsetRange:
        return self._ring.after

    @property
    def last(self) -> OffsetRange:
        return self._ring.before

    def add(self, entry: OffsetRange, after: OffsetRange | None = None) -> None:
        """Before the one that is to come `after` it, or at the end."""
        after = after or self._ring
        before = after.before
        entry.before, entry.after = before, after
        before.after = after.before = entry

    def remove(self, entry: OffsetRange) -> None:
        entry.before.after, entry.after.before = entry.after, entry.before

    def split(self, entry: OffsetRange, count: int) -> OffsetRange:
        """Leave it its first messages; the others, as a stretch behind it."""
        rest = OffsetRange(entry.messages[count:], entry.began)
        self.add(rest, entry.after)
        entry.hold(entry.messages[:count])
        return rest

    def part(self, entry: OffsetRange, is_other: Callable[[StoredMessage], bool]) -> Iterator[tuple[bool, OffsetRange]]:
        """In place of a stretch, its messages parted wherever others follow; whether each part holds those others."""
        for others, messages in groupby(entry.messages, is_other):
            part = OffsetRange(list(messages), entry.began)
            self.add(part, entry)
            yield others, part
        self.remove(entry)


LOCK_SECONDS: Final = 30.0
"""How long a client believes in its lock on an ordered queue."""
LEASE_SECONDS: Final = 60.0
"""How long a broker keeps it for a client that does not ask again; then any other may have it."""
PULL_IDLE_SECONDS: Final = 120.0
"""A queue that was not pulled for so long is dead: it is dropped and begun anew."""
CATCH_UP_S: Final = 0.005
"""How long the next pull is held back for listeners."""
MAX_OVERDUE: Final = 16
"""Overdue messages that one clean-up takes from a queue."""
_MIB: Final = 1024 * 1024


class QueueObserver(Protocol):
    """Who consumes the messages of process queues."""

    def arrived(self, owned: "ProcessQueue") -> int | None:
        """Messages wait in it. With more in flight than the returned number, the next pull is held back; None: it never is."""

    def left(self, owned: "ProcessQueue") -> None:
        """Nothing more of it may be begun. When it is given up, its offset is kept next."""


class ProcessQueue:
    """A queue from when it is taken until it is dropped. Bodies must not be exchanged while their messages are here."""

    def __init__(
        self,
        pulls: PullPosition,
        observer: QueueObserver,
        now: float,
        *,
        is_orderly: bool = False,
    ) -> None:
        self.queue = pulls.queue
        self._observer = observer
        self.is_orderly = is_orderly
        # what is in flight
        self.count = 0
        """Messages in flight."""
        self.waiting = 0
        """Those that nobody consumes."""
        self.kept = 0
        """Those that were handled and are not committed yet; see `keep`."""
        self._kept_to = -1
        self.body_bytes = 0
        """Bytes of all bodies in flight."""
        self._flight = OffsetRanges()
        self._waiting: deque[OffsetRange] = deque()
        """Those that wait, in the order in which they will be taken."""
        self._taken: dict[int, OffsetRange] = {}
        """Those that are being consumed, by their first offset."""
        self.max_offset = -1
        """The largest offset that was ever here; -1 before the first."""
        self._last_consume = now
        # its pulls
        self.pulls = pulls
        self.is_paused = False
        self._last_pull = now
        self._enough: int | None = None
        """With more than this in flight the next pull is held back."""
        self._go_on: Callable[[], None] | None = None
        """Sends the pull that is held back."""
        self._catching_up: asyncio.TimerHandle | None = None
        # its owner
        self.is_active = True
        """Whether messages of it may be pulled, and given to listeners."""
        self.is_dropped = False
        """Whether the queue is not ours any more: see `drop`."""
        self.is_taken_over = False
        """Whether another client may have had its lock: what is here, that one may have handled by now."""
        self.locked_at: float | None = None
        """When the lock that is ours was asked for last."""
        self.unlock_attempts = 0
        """How often it could not be given up because a listener was still at work; counted by whoever tries."""
        self.earlier: ProcessQueue | None = None
        """The same queue before it was begun anew, if a listener may still work on it that nobody else may meet."""
        self._idle: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<ProcessQueue {self.queue} at {self.pulls.next_offset}>"

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
    def commit_offset(self) -> int | None:
        """Where the group would go on if this client vanished now; None while nothing has ever been here."""
        if self.count:
            return self._flight.first.first
        return self.max_offset + 1 if self.max_offset >= 0 else None

    def is_consuming(self, message: StoredMessage) -> bool:
        """Whether it was taken and is neither finished nor given back; a clean-up may have finished it meanwhile."""
        offset = message.queue_offset
        return any(offset == one.queue_offset for entry in self._holding({offset}) for one in entry.messages)

    # the way of a message

    def put(self, messages: Sequence[StoredMessage]) -> int:
        """Let pulled messages wait, in offset order, and tell the observer; how many were new. A dropped queue takes none."""
        if self.is_dropped:
            return 0
        count = len(messages)
        first = messages[0].queue_offset if count else 0
        if first > self.max_offset and [one.queue_offset for one in messages] == list(range(first, first + count)):
            new = list(messages)
        else:
            new = self._new_ones(messages)
        if new:
            entry = OffsetRange(new)
            self._flight.add(entry)
            self._waiting.append(entry)
            self.max_offset = entry.last
            self.count += len(new)
            self.waiting += len(new)
            self.body_bytes += entry.body_bytes
            self._enough = self._observer.arrived(self)
        return len(new)

    def _new_ones(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        largest = self.max_offset
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
        while self._waiting and (left := limit - len(batch)) > 0:
            entry = self._waiting.popleft()
            if len(entry.messages) > left:
                self._waiting.appendleft(self._flight.split(entry, left))
            entry.began = now
            self._taken[entry.first] = entry
            batch = batch + entry.messages if batch else entry.messages
        self.waiting -= len(batch)
        return batch

    def finish(self, messages: Sequence[StoredMessage], now: float) -> int | None:
        """Messages are done with. The offset to commit; None once the queue was dropped: its offset is another's by then.

        What is not being consumed is passed over: a clean-up was faster.
        """
        self._last_consume = now
        entry = self._taken.get(messages[0].queue_offset) if messages else None
        if entry is not None and entry.messages == messages:
            self._let_go(entry, [])
        else:
            done = {message.queue_offset for message in messages}
            for each in self._holding(done):
                self._let_go(each, [one for one in each.messages if one.queue_offset not in done])
        return None if self.is_dropped else self.commit_offset

    def _let_go(self, entry: OffsetRange, left: list[StoredMessage]) -> None:
        """Of what is being consumed, all but what is `left`."""
        del self._taken[entry.first]
        self.count -= len(entry.messages) - len(left)
        self.body_bytes -= entry.body_bytes
        if left:
            entry.hold(left)
            self._taken[entry.first] = entry
            self.body_bytes += entry.body_bytes
        else:
            self._flight.remove(entry)

    def give_back(self, messages: Sequence[StoredMessage]) -> None:
        """Messages that are being consumed wait again, before all that were never taken."""
        offsets = {message.queue_offset for message in messages}
        again: list[OffsetRange] = []
        for entry in self._holding(offsets):
            del self._taken[entry.first]
            for is_back, part in self._flight.part(entry, lambda one: one.queue_offset in offsets):
                if is_back:
                    part.began = None
                    again.append(part)
                    self.waiting += len(part.messages)
                else:
                    self._taken[part.first] = part
        self._waiting.extendleft(sorted(again, key=attrgetter("first"), reverse=True))

    def _holding(self, offsets: set[int]) -> list[OffsetRange]:
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
        return [message for entry in self._taken.values() for message in entry.messages]

    def overdue(self, now: float, timeout_s: float) -> list[StoredMessage]:
        """Messages at the head that have been consumed for longer than `timeout_s`; they hold the commit offset back.

        They stay until they are finished. Only the head is looked at, until the first that is in time.
        """
        found: list[StoredMessage] = []
        for entry in self._flight:
            if entry.began is None or now - entry.began <= timeout_s or len(found) >= MAX_OVERDUE:
                break
            found += entry.messages
        return found[:MAX_OVERDUE]

    # back-pressure

    def hold_back(self, go_on: Callable[[], None]) -> bool:
        """Whether the next pull is held back: `go_on` is called when listeners have caught up, or after 5 ms."""
        if self._enough is None or self.count <= self._enough:
            return False
        self._go_on = go_on
        self._catching_up = asyncio.get_running_loop().call_later(CATCH_UP_S, self._release_pull)
        return True

    def _release_pull(self) -> None:
        go_on, self._go_on = self._go_on, None
        if self._catching_up is not None:
            self._catching_up.cancel()
        if go_on is not None:
            go_on()

    def note_done(self) -> None:
        """Something that was being consumed is not any more."""
        if self._go_on is not None and (self._enough is None or self.count <= self._enough):
            self._release_pull()
        if self._idle is not None and not self.consuming:
            self._idle.set()

    async def wait_idle(self, timeout_s: float) -> bool:
        """Whether nothing of it is being consumed, at once or before the time is up."""
        if self.earlier is not None and not await self.earlier.wait_idle(timeout_s):
            return False
        self.earlier = None
        if not self.consuming:
            return True
        self._idle = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        finally:
            self._idle = None
        return True

    # ownership

    def leave(self) -> None:
        """Nothing more of it is pulled or begun."""
        self.is_active = False
        self._observer.left(self)

    def stay(self) -> None:
        """It was to be given up, and is wanted again."""
        self.is_active = True
        if self.waiting:
            self._enough = self._observer.arrived(self)

    def drop(self) -> None:
        """The queue is not ours any more. What listeners still hold may end, but counts for nothing."""
        self.is_dropped = True
        self.leave()

    def lock(self, asked_at: float) -> None:
        """The broker gave us its lock, or renewed it. `asked_at`: before the request left, so that we never believe too long."""
        if self.locked_at is not None and asked_at - self.locked_at > LEASE_SECONDS:
            self.is_taken_over = True
        self.locked_at = asked_at

    def unlock(self) -> None:
        """The broker refused the lock, because it is another client's."""
        self.locked_at = None
        self.is_taken_over = True

    def is_locked(self, now: float) -> bool:
        """Whether an orderly listener may work on it. Its thread asks, too, while the loop may hear that the lock is refused."""
        locked_at = self.locked_at  # read once: it may be None by the next look
        return locked_at is not None and not self.is_taken_over and now - locked_at <= LOCK_SECONDS

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
            last_lock_timestamp=wall_ms(self.locked_at),
            dropped=self.is_dropped,
            last_pull_timestamp=wall_ms(self._last_pull),
            last_consume_timestamp=wall_ms(self._last_consume),
        )
