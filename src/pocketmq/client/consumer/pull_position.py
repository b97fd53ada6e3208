"""Where the pulls of a queue are, and whether its broker still has the log that was pulled: after a crash it may be shorter, and
its offsets are given to other messages.

    a pull failed, the master was connected again, or a file of offsets was read
                                          ──► is the last message that was pulled still where it was?
        yes ──► what a filter has passed over lately is pulled again: other messages may be there now
        no  ──► the queue is begun anew where messages are as young as the last one

Offsets alone do not tell: new messages may have passed the old ones already.
"""

import logging
from math import inf
from typing import Final

from pocketmq.client.cluster.message_calls import OffsetCalls
from pocketmq.client.consumer.offsets import Offsets
from pocketmq.client.consumer.pulling import Pulling, PullResult, PullStatus
from pocketmq.errors import RemoteError
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.net.peer import Peer
from pocketmq.protocol.bodies.offsets import LogMark

log = logging.getLogger("pocketmq.client")

CERTAIN_S: Final = 60.0
"""What a queue had so long ago a crash of its broker cannot take: logs are synced at least every ten seconds."""


class PullPosition:
    """Where the next pull of a queue begins, and what is known of the log behind it."""

    def __init__(
        self, queue: MessageQueue, next_offset: int, *, start_after_s: float = 0.0, reread: bool = False
    ) -> None:
        self.queue = queue
        self.begin_at(next_offset)
        self.start_after_s = start_after_s
        """The first pull waits so long: another member may still be finishing what it has of the queue."""
        self.reread = reread
        """Ask once more where the group is before the first pull."""
        self.awaits_topic = False
        """The topic was deleted: when there is one again, ask where the group is, and begin at 0 if it is nowhere."""
        self.last_pulled: StoredMessage | LogMark | None = None
        """The last message that was pulled, without its body, also before the queue was begun anew: by it the log is known."""
        self.is_in_doubt = False
        """A pull failed since, or the master was connected again: the broker may be another process by now, whose log is shorter."""
        self.connection: Peer | None = None
        """To the master of its broker, when it was pulled last."""

    def begin_at(self, offset: int) -> None:
        """Where the first pull begins."""
        self.next_offset = offset
        self.certain = offset
        """Before it nothing was passed over by a filter so lately that a crash of the broker could take it."""
        self.passed = offset, -inf
        """Up to where a filter had passed messages over, and when that was noted: `certain` follows it."""

    def note_passed(self, now: float) -> None:
        """A pull brought nothing that is wanted, and goes on behind what it has looked at."""
        offset, noted_at = self.passed
        if now - noted_at >= CERTAIN_S:
            self.certain = offset
            self.passed = self.next_offset, now


class LogChanges:
    """Looks after the logs behind the queues of one consumer."""

    def __init__(self, calls: OffsetCalls, pulling: Pulling, offsets: Offsets, *, timeout_s: float) -> None:
        self._calls = calls
        self._pulling = pulling
        self._offsets = offsets
        self._timeout_s = timeout_s

    async def new_begin(self, position: PullPosition) -> int | None:
        """Where to begin a queue anew whose log became shorter; None when it is the same log, of which nothing is in doubt then."""
        last = position.last_pulled
        if last is not None:
            found = await self._pulling.peek(position.queue, last.queue_offset, timeout_s=self._timeout_s)
            match found.status:
                case PullStatus.FOUND:
                    at_offset = (one for one in found.messages if one.queue_offset == last.queue_offset)
                    is_same = all(one.store_ms == last.store_ms for one in at_offset)
                case PullStatus.OFFSET_ILLEGAL:  # else retention has taken it
                    is_same = last.queue_offset < found.min_offset == found.next_offset
                case _:
                    is_same = found.max_offset > last.queue_offset
            if not is_same:
                begin = await self._first_new(position, found)
                log.warning(
                    "the log of %s became shorter (it has %d to %d): going on at %d",
                    position.queue,
                    found.min_offset,
                    found.max_offset,
                    begin,
                )
                return begin
        self._scan_again(position)
        position.is_in_doubt = False
        return None

    async def resumed_at(self, position: PullPosition, answer: PullResult) -> int:
        """Where a queue goes on whose next offset does not exist."""
        is_shorter = position.next_offset > answer.max_offset
        return await self._first_new(position, answer) if is_shorter else answer.next_offset

    async def _first_new(self, position: PullPosition, answer: PullResult) -> int:
        """Where new messages begin in a log that has become shorter: they have offsets that were used before.

        Apache's brokers send a group to the end, past all of these. So the first message is looked for that is as young as the last one
        that was pulled. What is handled counts if it is less, and so does what the broker knows of the group.
        """
        is_told = answer.status is PullStatus.OFFSET_ILLEGAL
        limits = [answer.next_offset] if is_told and not (self._offsets.are_local and position.last_pulled) else []
        if (handled := self._offsets.get(position.queue)) is not None:
            limits.append(handled)
        if position.last_pulled is not None:
            try:
                limits.append(await self._calls.at_time(position.queue, position.last_pulled.store_ms))
            except RemoteError as error:  # anything else is tried again, with all that led here
                log.warning("the broker does not say where new messages of %s begin: %s", position.queue, error)
                limits.append(answer.next_offset if is_told else answer.min_offset)
        position.last_pulled = None  # it is of the older log
        return max(min(limits, default=answer.next_offset), answer.min_offset)

    def _scan_again(self, position: PullPosition) -> None:
        """Pull again what a filter has passed over lately: none of it was given to a listener."""
        pulled = -1 if position.last_pulled is None else position.last_pulled.queue_offset
        offset = min(max(position.certain, pulled + 1), position.next_offset)
        position.next_offset = offset
        noted = self._offsets.get(position.queue)
        if noted is not None and noted > offset:
            self._offsets.move(position.queue, offset)
