"""The process queue: messages of one owned queue that were pulled and are not done with.

        put            take               finish
    ─────────► waiting ─────► being consumed ─────► gone
                  ▲                 │
                  └──── give_back ──┘          (it failed, and is tried again here)

    offset   10  11  12  13  14  15  16  17
             ●   ·   ●   ·   ●   ○   ○   ○       ● being consumed   · done   ○ waiting
             └── commit offset: the smallest still here, so that a crash loses nothing; 18 once all are done

Listeners finish in any order, so what is done in the middle is only remembered; the deque loses it when it gets to an end.
Every step costs a constant time per message. Concurrent and orderly listening use the same steps; what an orderly one has
taken is always the head, and is committed or rolled back as a whole.

Offsets only grow during the life of a process queue: whoever moves to another place in the queue (a reset, a seek, an
illegal offset) drops this one and begins a new one. A message that comes a second time is therefore left out.

Told the time, as monotonic seconds. For one thread: the client's loop.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from pocketmq.model.message import StoredMessage
from pocketmq.protocol.bodies.running_info import ProcessQueueInfo

LOCK_SECONDS: Final = 30.0
"""How long a client believes in its lock on an ordered queue; the broker's own lease is twice as long."""
PULL_IDLE_SECONDS: Final = 120.0
"""A queue that was not pulled for so long is dead: it is dropped and begun anew."""
MAX_OVERDUE: Final = 16
"""Overdue messages that one clean-up takes from a queue."""
_MIB: Final = 1024 * 1024


class ProcessQueue:
    """What is in flight of one queue, and since when. Bodies must not be exchanged while their messages are here."""

    __slots__ = (
        "_body_bytes",
        "_done",
        "_flight",
        "_is_dropped",
        "_last_consume",
        "_last_pull",
        "_locked_at",
        "_max_offset",
        "_taken",
        "_waiting",
        "is_orderly",
        "unlock_attempts",
    )

    def __init__(self, now: float, *, is_orderly: bool = False) -> None:
        self.is_orderly = is_orderly
        self.unlock_attempts = 0
        """How often it could not be given up because a listener was still at work; counted by whoever tries."""
        self._flight: deque[StoredMessage] = deque()
        """Everything in offset order; both ends are in flight, between them may be messages that are done."""
        self._done: set[int] = set()
        """Offsets that are done and still in `_flight`."""
        self._waiting: deque[StoredMessage] = deque()
        self._taken: dict[int, float] = {}
        """Offset → when its consumption began."""
        self._body_bytes = 0
        self._max_offset = -1
        self._is_dropped = False
        self._locked_at: float | None = None
        self._last_pull = now
        self._last_consume = now

    # what is here

    @property
    def count(self) -> int:
        """Messages in flight."""
        return len(self._flight) - len(self._done)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def consuming(self) -> int:
        return len(self._taken)

    @property
    def body_bytes(self) -> int:
        """Bytes of all bodies in flight."""
        return self._body_bytes

    @property
    def span(self) -> int:
        """From the smallest offset in flight to the largest: how far one slow message lets the others run ahead."""
        flight = self._flight
        return flight[-1].queue_offset - flight[0].queue_offset if flight else 0

    @property
    def commit_offset(self) -> int | None:
        """Where the group would go on if this client vanished now; None while nothing has ever been here."""
        if self._flight:
            return self._flight[0].queue_offset
        return self._max_offset + 1 if self._max_offset >= 0 else None

    def is_consuming(self, message: StoredMessage) -> bool:
        """Whether it was taken and is neither finished nor given back; a clean-up may have finished it meanwhile."""
        return message.queue_offset in self._taken

    # the way of a message

    def put(self, messages: Sequence[StoredMessage]) -> int:
        """Let pulled messages wait, in offset order; how many were new. A dropped queue takes none."""
        if self._is_dropped:
            return 0
        count = len(messages)
        first = messages[0].queue_offset if count else 0
        if first > self._max_offset and [one.queue_offset for one in messages] == list(range(first, first + count)):
            self._max_offset = first + count - 1
            self._flight.extend(messages)
            self._waiting.extend(messages)
            self._body_bytes += sum([len(one.body) for one in messages])
            return count
        largest, added, size = self._max_offset, 0, 0
        flight, waiting = self._flight, self._waiting
        for message in messages:
            offset = message.queue_offset
            if offset > largest:
                largest = offset
                flight.append(message)
                waiting.append(message)
                size += len(message.body)
                added += 1
        self._max_offset = largest
        self._body_bytes += size
        return added

    def take(self, limit: int, now: float) -> list[StoredMessage]:
        """The next messages to consume, at most `limit`; none when nothing waits, or the queue was dropped."""
        if self._is_dropped:
            return []
        self._last_consume = now
        waiting, taken = self._waiting, self._taken
        if limit < len(waiting):
            batch = [waiting.popleft() for _ in range(limit)]
        else:
            batch = list(waiting)
            waiting.clear()
        taken.update(dict.fromkeys([message.queue_offset for message in batch], now))
        return batch

    def finish(self, messages: Iterable[StoredMessage], now: float) -> int | None:
        """Messages are done with. The offset to commit; None once the queue was dropped: its offset is another's by then.

        What is not being consumed is passed over: a clean-up was faster.
        """
        self._last_consume = now
        flight, taken, size = self._flight, self._taken, 0
        for message in messages:
            offset = message.queue_offset
            if taken.pop(offset, None) is None:
                continue
            size += len(message.body)
            if flight[0].queue_offset == offset:
                flight.popleft()
            else:
                self._done.add(offset)
        self._body_bytes -= size
        if self._done:
            self._trim()
        return None if self._is_dropped else self.commit_offset

    def _trim(self) -> None:
        """Let go of what is done at both ends."""
        flight, done = self._flight, self._done
        while flight and flight[0].queue_offset in done:
            done.remove(flight.popleft().queue_offset)
        while flight and flight[-1].queue_offset in done:
            done.remove(flight.pop().queue_offset)

    def give_back(self, messages: Sequence[StoredMessage]) -> None:
        """Messages that are being consumed wait again, before all that were never taken."""
        again = [message for message in messages if self._taken.pop(message.queue_offset, None) is not None]
        again.sort(key=_offset)
        self._waiting.extendleft(reversed(again))

    def commit(self, now: float) -> int | None:
        """All that is being consumed is done with; as `finish`."""
        return self.finish(self._being_consumed(), now)

    def rollback(self) -> None:
        """All that is being consumed waits again; as `give_back`."""
        self.give_back(self._being_consumed())

    def _being_consumed(self) -> list[StoredMessage]:
        taken = self._taken
        return list(islice((message for message in self._flight if message.queue_offset in taken), len(taken)))

    def overdue(self, now: float, timeout_s: float) -> list[StoredMessage]:
        """Messages at the head that have been consumed for longer than `timeout_s`; they hold the commit offset back.

        They stay until they are finished. Only the head is looked at, until the first that is in time.
        """
        found: list[StoredMessage] = []
        for message in self._flight:
            began = self._taken.get(message.queue_offset)
            if began is None:
                if message.queue_offset in self._done:
                    continue
                break
            if now - began <= timeout_s or len(found) == MAX_OVERDUE:
                break
            found.append(message)
        return found

    # ownership

    @property
    def is_dropped(self) -> bool:
        return self._is_dropped

    def drop(self) -> None:
        """The queue is not ours any more. What listeners still hold may end, but counts for nothing."""
        self._is_dropped = True

    def lock(self, asked_at: float) -> None:
        """The broker gave us its lock, or renewed it. `asked_at`: before the request left, so that we never believe too long."""
        self._locked_at = asked_at

    @property
    def locked_at(self) -> float | None:
        """When the lock that is ours was asked for last."""
        return self._locked_at

    def unlock(self) -> None:
        """The broker refused the lock, or has it back."""
        self._locked_at = None

    def is_locked(self, now: float) -> bool:
        """Whether an orderly listener may work on it."""
        return self._locked_at is not None and now - self._locked_at <= LOCK_SECONDS

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

        cached = self._waiting if self.is_orderly else self._flight
        taken = sorted(self._taken) if self.is_orderly else []
        return ProcessQueueInfo(
            commit_offset=committed,
            cached_msg_min_offset=cached[0].queue_offset if cached else 0,
            cached_msg_max_offset=cached[-1].queue_offset if cached else 0,
            cached_msg_count=self.waiting if self.is_orderly else self.count,
            cached_msg_size_in_mib=self._body_bytes // _MIB,
            transaction_msg_min_offset=taken[0] if taken else 0,
            transaction_msg_max_offset=taken[-1] if taken else 0,
            transaction_msg_count=len(taken),
            locked=self.is_locked(now),
            try_unlock_times=self.unlock_attempts,
            last_lock_timestamp=wall_ms(self._locked_at),
            dropped=self._is_dropped,
            last_pull_timestamp=wall_ms(self._last_pull),
            last_consume_timestamp=wall_ms(self._last_consume),
        )


def _offset(message: StoredMessage) -> int:
    return message.queue_offset
