"""The pull position of a queue, and the check whether the broker still has the log that was pulled. After a crash the log may be
shorter, and its offsets are given to other messages.

    a pull failed, the master was connected again, or a file of local offsets was loaded
                              ──► is the last pulled message still at its offset?
        yes ──► pull again what a filter skipped lately: other messages may be there now
        no  ──► restart the queue at the first message that is as young as the last pulled one

Offsets alone do not show it: the new messages may already have passed the old offsets.
"""

import logging
from math import inf
from typing import Final

from pocketmq.client.cluster.calls import OffsetCalls
from pocketmq.client.consumer.offsets import Offsets
from pocketmq.client.consumer.pulling import Pulling, PullResult, PullStatus
from pocketmq.errors import RemoteError
from pocketmq.model import MessageQueue, StoredMessage
from pocketmq.net import Peer
from pocketmq.protocol.bodies.topics import LogMark

log = logging.getLogger("pocketmq.client")

SYNCED_AFTER_S: Final = 60.0
"""A crash of the broker cannot lose what the queue had this long ago: logs are synced at least every ten seconds."""


class PullPosition:
    """The offset of the next pull, and what is known about the log before it."""

    def __init__(
        self, queue: MessageQueue, next_offset: int, *, start_after_s: float = 0.0, reload_offset: bool = False
    ) -> None:
        self.queue = queue
        self.start_at_offset(next_offset)
        self.start_after_s = start_after_s
        """The first pull waits this long: the previous owner may still be finishing messages."""
        self.reload_offset = reload_offset
        """Load the committed offset again before the first pull."""
        self.awaits_topic = False
        """The topic was deleted. When it exists again, start at the committed offset, or at 0 without one."""
        self.last_pulled: StoredMessage | LogMark | None = None
        """The last pulled message without its body, kept across restarts: it identifies the log."""
        self.is_in_doubt = False
        """A pull failed, or the master was connected again, so the broker may have restarted with a shorter log."""
        self.connection: Peer | None = None
        """The connection to the master at the last pull."""

    def start_at_offset(self, offset: int) -> None:
        self.next_offset = offset
        self.synced_to = offset
        """Skipped messages before this offset are old enough to be synced on the broker."""
        self.filtered = offset, -inf
        """The offset up to which a filter had skipped messages, and when: `synced_to` follows it."""

    def record_filtered(self, now: float) -> None:
        """A pull returned no matching message, and the position moves past the skipped ones."""
        offset, recorded_at = self.filtered
        if now - recorded_at >= SYNCED_AFTER_S:
            self.synced_to = offset
            self.filtered = self.next_offset, now


class LogChanges:
    """Detects shorter logs behind the queues of one consumer."""

    def __init__(self, calls: OffsetCalls, pulling: Pulling, offsets: Offsets, *, timeout_s: float) -> None:
        self._calls = calls
        self._pulling = pulling
        self._offsets = offsets
        self._timeout_s = timeout_s

    async def restart_offset(self, position: PullPosition) -> int | None:
        """Where to restart a queue whose log became shorter. None when the log is the same; the doubt is removed then."""
        last = position.last_pulled
        if last is not None:
            found = await self._pulling.peek(position.queue, last.queue_offset, timeout_s=self._timeout_s)
            match found.status:
                case PullStatus.FOUND:
                    at_offset = (one for one in found.messages if one.queue_offset == last.queue_offset)
                    is_same = all(one.store_ms == last.store_ms for one in at_offset)
                case PullStatus.OFFSET_ILLEGAL:  # same log if retention deleted the message
                    is_same = last.queue_offset < found.min_offset == found.next_offset
                case _:
                    is_same = found.max_offset > last.queue_offset
            if not is_same:
                start = await self._first_new(position, found)
                log.warning(
                    "the log of %s became shorter (offsets %d to %d); consumption restarts at offset %d",
                    position.queue,
                    found.min_offset,
                    found.max_offset,
                    start,
                )
                return start
        self._pull_filtered_again(position)
        position.is_in_doubt = False
        return None

    async def offset_after_illegal(self, position: PullPosition, answer: PullResult) -> int:
        """Where to restart a queue whose next offset does not exist."""
        is_shorter = position.next_offset > answer.max_offset
        return await self._first_new(position, answer) if is_shorter else answer.next_offset

    async def _first_new(self, position: PullPosition, answer: PullResult) -> int:
        """The first new message of a log that became shorter: it reuses an offset.

        Apache brokers send the group to the end, past all new messages. So use the first message that is as young as the last pulled one,
        or the local offset or the broker's answer if they are smaller.
        """
        is_illegal = answer.status is PullStatus.OFFSET_ILLEGAL
        limits = [answer.next_offset] if is_illegal and not (self._offsets.are_local and position.last_pulled) else []
        if (handled := self._offsets.get(position.queue)) is not None:
            limits.append(handled)
        if position.last_pulled is not None:
            try:
                limits.append(await self._calls.at_time(position.queue, position.last_pulled.store_ms))
            except RemoteError as error:  # other errors repeat the whole check
                log.warning(
                    "the broker cannot find new messages of %s by time: %s; using the offsets of its answer",
                    position.queue,
                    error,
                )
                limits.append(answer.next_offset if is_illegal else answer.min_offset)
        position.last_pulled = None  # it belongs to the lost part of the log
        return max(min(limits, default=answer.next_offset), answer.min_offset)

    def _pull_filtered_again(self, position: PullPosition) -> None:
        """Move back before the messages that a filter skipped lately: no listener got them."""
        pulled = -1 if position.last_pulled is None else position.last_pulled.queue_offset
        offset = min(max(position.synced_to, pulled + 1), position.next_offset)
        position.next_offset = offset
        recorded = self._offsets.get(position.queue)
        if recorded is not None and recorded > offset:
            self._offsets.move(position.queue, offset)
