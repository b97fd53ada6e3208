"""The process queue: messages of one assigned queue that were pulled and are not consumed yet.

        put            take               finish
    ─────────► waiting ─────► being consumed ─────► removed
                  ▲                 │
                  └───── requeue ───┘          (consumption failed; retried locally)

    offset   10  11  12  13  14  15  16  17
             ●   ·   ●   ·   ●   ○   ○   ○       ● being consumed   · done   ○ waiting
             └── commit offset: the smallest offset in flight, so that a crash loses nothing; 18 when all are done

    assigned ──► pulled and consumed ──► deactivate: no more pulls or calls ──► idle, or timeout ──► drop

Listeners finish in any order. Messages of one pull are usually taken and finished together, so they form one `OffsetRange` that costs
one step. A range is split when some of its messages have another result. Concurrent and orderly listening use the same steps. Orderly
listening always takes the head of the queue. With `auto_commit=False`, handled messages stay here until they are committed: `defer_commit`.

    in flight:   10 11 12 13  │  14 15  │  16 17 … 47
                 being consumed  waiting   being consumed

Pulls are usually faster than listeners. Without `hold_back`, a queue reaches its flow limit and waits 50 ms, in which fast listeners
run out of messages. Slow listeners do not delay pulls: the queue fills up to its limit.

Offsets only grow in a process queue, so a message that arrives twice is dropped. A reset, a seek or an illegal offset replaces the
process queue.

Times are monotonic seconds. Only the client's event loop changes a process queue, so there are no locks. Threads of orderly listeners
read `is_active`, `is_locked` and `in_flight`.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, Protocol

from pocketmq.client.consumer.pull_position import PullPosition
from pocketmq.model import StoredMessage
from pocketmq.protocol.bodies.clients import ProcessQueueInfo


class OffsetRange:
    """Some messages, with growing offsets. `messages` is replaced on a change, never modified: callers may keep the list."""

    __slots__ = ("began", "body_bytes", "first", "last", "messages")

    def __init__(self, messages: list[StoredMessage], began: float | None = None) -> None:
        self.began = began
        """When the consumption began; None while the messages wait."""
        self.set_messages(messages)

    def set_messages(self, messages: list[StoredMessage]) -> None:
        self.messages = messages
        self.first, self.last = messages[0].queue_offset, messages[-1].queue_offset
        self.body_bytes = sum(map(len, [message.body for message in messages]))


LOCK_SECONDS: Final = 30.0
"""How long a client trusts its lock on an orderly queue."""
LEASE_SECONDS: Final = 60.0
"""A broker releases a lock that was not renewed for this time."""
PULL_IDLE_SECONDS: Final = 120.0
"""A queue that was not pulled for this time is dropped and assigned again."""
CATCH_UP_S: Final = 0.005
"""How long the next pull waits for listeners."""
MAX_OVERDUE: Final = 16
"""Overdue messages of a queue that one clean-up handles."""
_MIB: Final = 1024 * 1024
_first = attrgetter("first")


class QueueObserver(Protocol):
    """The consumer of the messages in process queues."""

    def arrived(self, owned: "ProcessQueue") -> int | None:
        """Messages wait in the queue. The next pull waits while more messages than the returned number are in flight; None: never."""

    def deactivated(self, owned: "ProcessQueue") -> None:
        """No more messages of the queue may be consumed. If it was revoked, its offset is committed next."""


class ProcessQueue:
    """An assigned queue until it is dropped. Do not replace the bodies of messages that are in it."""

    is_leased = False
    """Whether its messages are leased, and belong to no assigned queue; see `pop_loop`."""

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
        # messages in flight
        self.count = 0
        self.waiting = 0
        """Messages in flight that are not being consumed."""
        self.uncommitted = 0
        """Messages that are handled and not committed; see `defer_commit`."""
        self._uncommitted_to = -1
        self.body_bytes = 0
        self._flight: list[OffsetRange] = []
        """By offset."""
        self._waiting: deque[OffsetRange] = deque()
        """In the order in which they are taken."""
        self._consuming: dict[int, OffsetRange] = {}
        """By first offset."""
        self.max_offset = -1
        """The largest offset that was ever in the queue; -1 before the first message."""
        self._last_consume = now
        # pulls
        self.pulls = pulls
        self.is_paused = False
        self._last_pull = now
        self._pull_threshold: int | None = None
        """The next pull waits while more messages than this are in flight."""
        self._send_pull: Callable[[], None] | None = None
        """Sends the pull that waits."""
        self._pull_timer: asyncio.TimerHandle | None = None
        # ownership
        self.is_active = True
        """Whether the queue may be pulled and consumed."""
        self.is_dropped = False
        self.was_locked_elsewhere = False
        """Whether another client may have had the lock, and may have consumed the messages that are here."""
        self.locked_at: float | None = None
        """When the current lock was requested last."""
        self.unlock_attempts = 0
        """How often the queue could not be released because a listener was running."""
        self.predecessor: ProcessQueue | None = None
        """The process queue that this one replaces, while a listener may still work on its messages."""
        self._idle: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<ProcessQueue {self.queue} at {self.pulls.next_offset}>"

    # content

    @property
    def consuming(self) -> int:
        return self.count - self.waiting - self.uncommitted

    @property
    def span(self) -> int:
        """The distance from the smallest offset in flight to the largest: one slow message lets it grow."""
        return self._flight[-1].last - self._flight[0].first if self._flight else 0

    @property
    def min_offset(self) -> int:
        """The smallest offset in flight; -1 when nothing is."""
        return self._flight[0].first if self._flight else -1

    @property
    def commit_offset(self) -> int | None:
        """The offset to commit now; None before the first message."""
        if self._flight:
            return self._flight[0].first
        return self.max_offset + 1 if self.max_offset >= 0 else None

    def is_consuming(self, message: StoredMessage) -> bool:
        """Whether the message was taken and is neither finished nor requeued. A clean-up may have finished it."""
        offset = message.queue_offset
        return any(offset == one.queue_offset for entry in self._entries_with({offset}) for one in entry.messages)

    # steps of a message

    def put(self, messages: Sequence[StoredMessage]) -> int:
        """Add pulled messages, by offset, and call the observer; returns how many are new. A dropped queue accepts none."""
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
            self._flight.append(entry)
            self._waiting.append(entry)
            self.max_offset = entry.last
            self.count += len(new)
            self.waiting += len(new)
            self.body_bytes += entry.body_bytes
            self._pull_threshold = self._observer.arrived(self)
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
        """The next messages to consume, at most `limit`. Do not change the list."""
        if self.is_dropped:
            return []
        self._last_consume = now
        batch: list[StoredMessage] = []
        while self._waiting and (left := limit - len(batch)) > 0:
            entry = self._waiting.popleft()
            if len(entry.messages) > left:
                rest = OffsetRange(entry.messages[left:])
                entry.set_messages(entry.messages[:left])
                self._flight.insert(self._index(entry) + 1, rest)
                self._waiting.appendleft(rest)
            entry.began = now
            self._consuming[entry.first] = entry
            batch = batch + entry.messages if batch else entry.messages
        self.waiting -= len(batch)
        return batch

    def finish(self, messages: Sequence[StoredMessage], now: float) -> int | None:
        """Remove consumed messages and return the offset to commit; None for a dropped queue, whose offset belongs to its new owner.

        Messages that are not being consumed are ignored: a clean-up has removed them.
        """
        self._last_consume = now
        entry = self._consuming.get(messages[0].queue_offset) if messages else None
        if entry is not None and entry.messages == messages:
            self._remove(entry, [])
        else:
            done = {message.queue_offset for message in messages}
            for each in self._entries_with(done):
                self._remove(each, [one for one in each.messages if one.queue_offset not in done])
        return None if self.is_dropped else self.commit_offset

    def _remove(self, entry: OffsetRange, left: list[StoredMessage]) -> None:
        """Remove the messages of a range but those in `left`."""
        del self._consuming[entry.first]
        self.count -= len(entry.messages) - len(left)
        self.body_bytes -= entry.body_bytes
        if left:
            entry.set_messages(left)
            self._consuming[entry.first] = entry
            self.body_bytes += entry.body_bytes
        else:
            del self._flight[self._index(entry)]

    def _index(self, entry: OffsetRange) -> int:
        return bisect_left(self._flight, entry.first, key=_first) if self._flight[0] is not entry else 0

    def requeue(self, messages: Sequence[StoredMessage]) -> None:
        """Let messages that are being consumed wait again, before the others."""
        offsets = {message.queue_offset for message in messages}
        again: list[OffsetRange] = []
        for entry in self._entries_with(offsets):
            del self._consuming[entry.first]
            parts = [
                (is_requeued, OffsetRange(list(found), None if is_requeued else entry.began))
                for is_requeued, found in groupby(entry.messages, lambda one: one.queue_offset in offsets)
            ]
            at = self._index(entry)
            self._flight[at : at + 1] = [part for _, part in parts]
            for is_requeued, part in parts:
                if is_requeued:
                    again.append(part)
                    self.waiting += len(part.messages)
                else:
                    self._consuming[part.first] = part
        self._waiting.extendleft(sorted(again, key=_first, reverse=True))

    def _entries_with(self, offsets: set[int]) -> list[OffsetRange]:
        """Ranges being consumed that may contain these offsets."""
        if not offsets:
            return []
        smallest, largest = min(offsets), max(offsets)
        return [one for one in self._consuming.values() if one.first <= largest and smallest <= one.last]

    def defer_commit(self, messages: Sequence[StoredMessage]) -> None:
        """Keep handled messages at the head until `commit` or `rollback`. They hold the commit offset."""
        if messages:
            self.uncommitted += len(messages)
            self._uncommitted_to = messages[-1].queue_offset

    def commit(self, now: float) -> int | None:
        """Finish all messages that were taken."""
        self.uncommitted = 0
        return self.finish(self.unfinished(), now)

    def rollback(self) -> None:
        """Requeue all messages that were taken, also those whose commit was deferred."""
        self.uncommitted = 0
        self.requeue(self.unfinished())

    def requeue_uncommitted(self) -> None:
        """Requeue the messages that were taken, but not those whose commit was deferred."""
        messages = self.unfinished()
        self.requeue(
            [one for one in messages if one.queue_offset > self._uncommitted_to] if self.uncommitted else messages
        )

    def unfinished(self) -> list[StoredMessage]:
        """The messages that are being consumed, or handled and not committed."""
        return [message for entry in self._consuming.values() for message in entry.messages]

    def in_flight(self) -> list[StoredMessage]:
        """All messages that are neither finished nor removed. Threads of orderly listeners call it, too."""
        return [message for entry in [*self._flight] for message in entry.messages]

    def untaken(self) -> list[StoredMessage]:
        """The messages that wait."""
        return [message for entry in self._waiting for message in entry.messages]

    def overdue(self, now: float, timeout_s: float) -> list[StoredMessage]:
        """Messages at the head that are being consumed for longer than `timeout_s`. They hold the commit offset until they are finished."""
        found: list[StoredMessage] = []
        for entry in self._flight:
            if entry.began is None or now - entry.began <= timeout_s or len(found) >= MAX_OVERDUE:
                break
            found += entry.messages
        return found[:MAX_OVERDUE]

    # back-pressure

    def hold_back(self, send_pull: Callable[[], None]) -> bool:
        """Whether the next pull has to wait: `send_pull` is called when listeners have caught up, or after 5 ms."""
        if self._pull_threshold is None or self.count <= self._pull_threshold:
            return False
        self._send_pull = send_pull
        self._pull_timer = asyncio.get_running_loop().call_later(CATCH_UP_S, self._release_pull)
        return True

    def _release_pull(self) -> None:
        send_pull, self._send_pull = self._send_pull, None
        if self._pull_timer is not None:
            self._pull_timer.cancel()
        if send_pull is not None:
            send_pull()

    def consumption_changed(self) -> None:
        """Messages were finished or requeued: send the pull that waits, and wake `wait_idle`."""
        if self._send_pull is not None and (self._pull_threshold is None or self.count <= self._pull_threshold):
            self._release_pull()
        if self._idle is not None and not self.consuming:
            self._idle.set()

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no message is being consumed; False after the timeout."""
        if self.predecessor is not None and not await self.predecessor.wait_idle(timeout_s):
            return False
        self.predecessor = None
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

    def deactivate(self) -> None:
        """Stop pulls and consumption."""
        self.is_active = False
        self._observer.deactivated(self)

    def reactivate(self) -> None:
        """The queue is assigned again before it was dropped."""
        self.is_active = True
        if self.waiting:
            self._pull_threshold = self._observer.arrived(self)

    def drop(self) -> None:
        """The queue is no longer assigned. Running listeners may end, but their results are ignored."""
        self.is_dropped = True
        self.deactivate()

    def lock(self, requested_at: float) -> None:
        """The broker granted or renewed the lock. `requested_at` is the time before the request, so that the lock is not trusted too long."""
        if self.locked_at is not None and requested_at - self.locked_at > LEASE_SECONDS:
            self.was_locked_elsewhere = True
        self.locked_at = requested_at

    def unlock(self) -> None:
        """Another client has the lock."""
        self.locked_at = None
        self.was_locked_elsewhere = True

    def is_locked(self, now: float) -> bool:
        """Whether an orderly listener may work on the queue. Called in its thread, too."""
        locked_at = self.locked_at  # read once: the loop may set it to None
        return locked_at is not None and not self.was_locked_elsewhere and now - locked_at <= LOCK_SECONDS

    # monitoring

    def record_pull(self, now: float) -> None:
        """A pull was sent, or delayed on purpose."""
        self._last_pull = now

    def is_pull_dead(self, now: float) -> bool:
        """Whether the pulls of the queue have stopped by mistake."""
        return now - self._last_pull > PULL_IDLE_SECONDS

    def info(self, committed: int | None, now: float, now_ms: int) -> ProcessQueueInfo:
        """For the consumer's running info; times are those of the wall clock."""

        def wall_ms(moment: float | None) -> int:
            return 0 if moment is None else now_ms - round((now - moment) * 1000)

        cached = list(self._waiting if self.is_orderly else self._flight)
        consuming = list(self._consuming.values()) if self.is_orderly else []
        return ProcessQueueInfo(
            commit_offset=-1 if committed is None else committed,
            cached_msg_min_offset=cached[0].first if cached else 0,
            cached_msg_max_offset=cached[-1].last if cached else 0,
            cached_msg_count=self.waiting if self.is_orderly else self.count,
            cached_msg_size_in_mib=self.body_bytes // _MIB,
            transaction_msg_min_offset=min((one.first for one in consuming), default=0),
            transaction_msg_max_offset=max((one.last for one in consuming), default=0),
            transaction_msg_count=self.count - self.waiting if self.is_orderly else 0,
            locked=self.is_locked(now),
            try_unlock_times=self.unlock_attempts,
            last_lock_timestamp=wall_ms(self.locked_at),
            dropped=self.is_dropped,
            last_pull_timestamp=wall_ms(self._last_pull),
            last_consume_timestamp=wall_ms(self._last_consume),
        )
