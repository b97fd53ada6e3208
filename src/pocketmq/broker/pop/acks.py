"""ACK, BATCH_ACK and CHANGE_MESSAGE_INVISIBLETIME.

    ack ── topic, queue, offset ── handle ─┬─ orderly ──► the group's offset moves behind what is acknowledged
                                           └─ else ─────► an ack in the log
    change ── the same ────────────────────┬─ orderly ──► the message is visible at another time
                                           └─ else ─────► a new check point of one message, an ack of the old one

Acknowledging twice, late, or with the handle of another group is a success that changes nothing, as in RocketMQ. With
sync flush, the answer waits for the disk.

Acks that follow one another in a turn become one record for each lease.
"""

import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Final

from pocketmq import compiled
from pocketmq.broker.groups.leases import QueueOfGroup
from pocketmq.broker.pop.journal import Journal, OrderedChange
from pocketmq.broker.state import BrokerState
from pocketmq.codes import HeaderEncoding, ResponseCode
from pocketmq.errors import (
    FlushDiskTimeout,
    ImpossibleRequest,
    PocketMQError,
    RemoteError,
    StoreBusy,
    StoreError,
    TopicNotFound,
)
from pocketmq.net import Peer, Reply
from pocketmq.protocol.api.messages import ChangeInvisibleTime, ChangeInvisibleTimeReply
from pocketmq.protocol.command import ONEWAY, RESPONSE, Command, encode_command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.frames import Frame, join_frame
from pocketmq.protocol.hot_headers import ACKED, AckHead, BatchAckHead, ChangeHead, decode_head
from pocketmq.protocol.pop import ORDERLY_QUEUE, BatchAck, BatchAckEntry, Handle, flag_of
from pocketmq.store.settings import FlushMode

log = logging.getLogger("pocketmq.broker")

StagedLease = tuple[bytes, bool] | Coroutine[Any, Any, bytes | None]
"""The answer for when the turn is stored, and whether that waits for the disk; or what to wait for before the answer. If
it returns None, the request is served again.
"""

PLAIN_ACK: Final = b'{"code":200051,'
MAX_RUN: Final = 64
"""Limit on acks that are staged at once, about 300 µs of work. Then the turn checks the time again."""
_JSON: Final = int(HeaderEncoding.JSON)
_NOT_IN_BATCH: Final = -1
_OTHER_BATCH: Final = -2


def read_acks(frames: Sequence[Frame], at: int, most: int, answer: tuple[bytes, bytes]) -> compiled.AckRun | None:
    """Up to `most` plain acks that follow one another from `at` on, by lease, and their answers. None if the first is not
    a plain one.
    """
    leases: dict[tuple[str, str, int, str], compiled.AckedLease] = {}
    answered: list[bytes] = []
    before, behind = answer
    count = 0
    for _, header, _ in frames[at : at + most]:
        head = decode_head((_JSON, header, b"")) if header.startswith(PLAIN_ACK) else None
        if type(head) is not AckHead:
            break
        ext = head.ext
        text, _, last = ext.extra_info.rpartition(" ")
        if ext.offset < 0 or not (last.isascii() and last.isdecimal()):
            break
        key = ext.consumer_group, ext.topic, ext.queue_id, text
        if key not in leases:
            if (handle := _whole_handle(f"{text} 0")) is None:
                break
            leases[key] = *key[:3], handle[:6], count, []
        leases[key][5].append(ext.offset)
        count += 1
        if not head.flag & ONEWAY:
            answered.append(join_frame(_JSON, b"%b%d%b" % (before, head.opaque, behind)))
    return (count, [*leases.values()], b"".join(answered)) if count else None


def _whole_handle(text: str) -> Handle | None:
    """A receipt handle as brokers write it; None for a shorter, longer or odd one."""
    try:
        handle = Handle.parse(text)
    except ImpossibleRequest:
        return None
    return handle if handle.text() == text and max(map(abs, handle[:5])) < 10**18 else None


class AckHandlers:
    """Requests about leased messages."""

    def __init__(self, state: BrokerState, journal: Journal) -> None:
        self._state = state
        self._journal = journal
        self._waits = state.store.settings.flush is FlushMode.SYNC
        twin = compiled.twin()
        self._read_acks = read_acks if twin is None else twin.read_acks
        self.stale = 0
        """Acks that changed nothing: repeated, late or forged ones."""

    def stages(self) -> dict[type[object], Callable[[Peer, Any, bytes], StagedLease]]:
        """The functions for `turns`, by head."""
        return {AckHead: self.stage_ack, BatchAckHead: self.stage_batch, ChangeHead: self.stage_change}

    # acks

    def stage_ack(self, peer: Peer, head: AckHead, body: bytes) -> StagedLease:
        with self._state.appender.all_or_none():
            header = head.ext
            low, high = self._check_queue(header.topic, header.queue_id)
            if not low <= header.offset <= high:
                raise _no_message(header.topic, header.queue_id, header.offset, low, high)
            handle = Handle.parse(header.extra_info)._replace(queue_id=header.queue_id)
            reply = ACKED.encode(head.opaque)
            if handle.revive_queue == ORDERLY_QUEUE:
                change = self._ack_orderly(header.consumer_group, header.topic, handle, [header.offset])
                return self._when_saved(reply, [change])
            self._acknowledge(header.consumer_group, header.topic, handle, [header.offset])
            return reply, self._waits

    def stage_run(self, peer: Peer, frames: list[Frame], at: int) -> tuple[int, bytes, bool]:
        """Stage plain acks that follow one another from `at` on. Return how many, their joined answers, and whether these
        wait for the disk. 0: the first is not a plain one, or has a mistake.
        """
        most = MAX_RUN
        while (run := self._read_acks(frames, at, most, ACKED.parts)) is not None:
            count, leases, answers = run
            handles = [self._handle_of(lease) for lease in leases]
            if None not in handles:
                with self._state.appender.all_or_none():
                    for (group, topic, _, _, _, offsets), handle in zip(leases, handles, strict=True):
                        assert handle is not None
                        self._acknowledge(group, topic, handle, offsets)
                return count, answers, self._waits
            most = leases[handles.index(None)][4]
        return 0, b"", False

    def _handle_of(self, lease: compiled.AckedLease) -> Handle | None:
        """None for acks that are to be handled one by one."""
        _, topic, queue_id, parts, _, offsets = lease
        try:
            low, high = self._check_queue(topic, queue_id)
        except PocketMQError:
            return None
        handle = Handle(*parts, queue_id, 0)
        is_plain = handle.revive_queue != ORDERLY_QUEUE and low <= min(offsets) and max(offsets) <= high
        return handle if is_plain else None

    def stage_batch(self, peer: Peer, head: BatchAckHead, body: bytes) -> StagedLease:
        """Acks of several pops. An entry with a mistake is left out, so that the others count."""
        acks = BatchAck.decode(body).acks if body else ()
        if not acks:
            raise RemoteError("there is no ack in the request", ResponseCode.NO_MESSAGE)
        changes: list[OrderedChange] = []
        reply = ACKED.encode(head.opaque)
        with self._state.appender.all_or_none():
            for entry in acks:
                try:
                    if (change := self._ack_entry(entry)) is not None:
                        changes.append(change)
                except PocketMQError as error:
                    if error.retriable:
                        raise
                    self.stale += 1
                    log.warning("An entry of a batch ack of %s is left out: %s", peer.address, error)
        return self._when_saved(reply, changes) if changes else (reply, self._waits)

    def _ack_entry(self, entry: BatchAckEntry) -> OrderedChange | None:
        topic = entry.real_topic()
        low, high = self._check_queue(topic, entry.queue_id)
        offsets = [offset for offset in entry.offsets() if low <= offset <= high]
        handle = Handle(
            entry.start,
            entry.pop_ms,
            entry.invisible_ms,
            entry.revive_queue,
            flag_of(topic),
            self._state.settings.now.broker_name,
            entry.queue_id,
            entry.start,
        )
        if handle.revive_queue == ORDERLY_QUEUE:
            return self._ack_orderly(entry.group, topic, handle, offsets)
        if offsets:
            self._acknowledge(entry.group, topic, handle, offsets)
        return None

    def _acknowledge(self, group: str, topic: str, handle: Handle, offsets: Collection[int]) -> None:
        acknowledged = self._journal.acknowledge(group, topic, handle, offsets)
        self.stale += len(offsets) - acknowledged

    def _check_queue(self, topic_name: str, queue_id: int) -> tuple[int, int]:
        """The first offset of the queue, and the one after its last message."""
        topic = self._state.topics.get(topic_name)
        if topic is None:
            raise TopicNotFound(f"topic[{topic_name}] not exist, apply first please!")
        if not 0 <= queue_id < topic.read_queue_nums:
            raise RemoteError(
                f"queueId[{queue_id}] is illegal, topic:[{topic_name}] topicConfig.readQueueNums:[{topic.read_queue_nums}]",
                ResponseCode.MESSAGE_ILLEGAL,
            )
        store = self._state.store
        return store.min_offset(topic_name, queue_id), store.max_offset(topic_name, queue_id)

    def _ack_orderly(self, group: str, topic: str, handle: Handle, offsets: Sequence[int]) -> OrderedChange:
        change = OrderedChange(self._state, (group, topic, handle.queue_id))
        for offset in offsets:
            self._ack_ordered(change.queue, handle, offset)
        change.made()
        return change

    def _ack_ordered(self, queue: QueueOfGroup, handle: Handle, offset: int) -> None:
        if offset < (self._state.offsets.stored(*queue) or 0):
            return
        now_ms = self._state.clock.steady_ms()
        next_offset = self._state.orders.acknowledge(queue, offset, handle.pop_ms, now_ms)
        if next_offset == _OTHER_BATCH:
            self.stale += 1
            return
        if next_offset == _NOT_IN_BATCH:
            raise RemoteError(f"offset {offset} is not in the last batch of its queue", ResponseCode.MESSAGE_ILLEGAL)
        self._state.positions.set(queue, next_offset)
        if not self._state.orders.is_blocked(queue, None, now_ms):
            self._state.waiting_pops.wake_group(*queue)
            self._state.waiting_notifications.wake_group(*queue)

    # changes

    def stage_change(self, peer: Peer, head: ChangeHead, body: bytes) -> StagedLease:
        try:
            with self._state.appender.all_or_none():
                return self._change(head.opaque, head.ext)
        except StoreBusy:
            raise  # it waits for the log
        except PocketMQError as error:
            return failed_with_numbers(head.opaque, ChangeInvisibleTimeReply(0, 0, 0), error), False

    def _change(self, opaque: int, header: ChangeInvisibleTime) -> StagedLease:
        low, high = self._check_queue(header.topic, header.queue_id)
        if not low <= header.offset < high:
            raise _no_message(header.topic, header.queue_id, header.offset, low, high)
        handle = Handle.parse(header.extra_info)._replace(queue_id=header.queue_id, offset=header.offset)
        invisible_ms = self._journal.longest_lease_ms(header.invisible_time)
        if invisible_ms < header.invisible_time:
            raise ImpossibleRequest(
                f"a lease of {header.invisible_time} ms is too long; the limit is {invisible_ms} ms (timerMaxDelaySec)"
            )
        if handle.revive_queue == ORDERLY_QUEUE:
            change = OrderedChange(self._state, (header.consumer_group, header.topic, header.queue_id))
            changed = self._change_orderly(header, handle, invisible_ms)
            change.made()
            return self._when_saved(encoded(opaque, Reply(changed)), [change])
        renewed = self._journal.renew(header.consumer_group, header.topic, handle, invisible_ms)
        reply = ChangeInvisibleTimeReply(renewed.pop_ms, renewed.invisible_ms, renewed.revive_queue)
        return encoded(opaque, Reply(reply)), self._waits

    def _change_orderly(
        self, header: ChangeInvisibleTime, handle: Handle, invisible_ms: int
    ) -> ChangeInvisibleTimeReply:
        queue = header.consumer_group, header.topic, header.queue_id
        if header.offset < (self._state.offsets.stored(*queue) or 0):
            return ChangeInvisibleTimeReply(0, 0, 0)
        visible_ms = self._state.clock.steady_ms() + invisible_ms
        self._state.orders.change(queue, header.offset, handle.pop_ms, visible_ms)
        return ChangeInvisibleTimeReply(handle.pop_ms, visible_ms - handle.pop_ms, ORDERLY_QUEUE)

    # safety

    def _when_saved(self, reply: bytes, changes: Sequence[OrderedChange]) -> StagedLease:
        """Orderly leases are in tables: with sync flush, the answer waits until they are saved."""
        return self._save(reply, changes) if self._waits else (reply, False)

    async def _save(self, reply: bytes, changes: Sequence[OrderedChange]) -> bytes:
        if not (await self._state.appender.written() and await self._state.appender.synced()):
            raise FlushDiskTimeout("the ack counts, but it is not yet synced to disk")
        if any(change.is_undone for change in changes):
            raise StoreError("the turn of the ack could not be written")
        await self._state.snapshots.save_parts()
        await self._state.snapshots.save_offsets()
        return reply


def encoded(opaque: int, reply: Reply) -> bytes:
    ext = None if reply.header is None else reply.header.encode()
    return encode_command(Command(reply.code, ext, reply.body, reply.remark, RESPONSE, opaque))


def failed_with_numbers(opaque: int, numbers: Fields, error: PocketMQError) -> bytes:
    """Java needs the numbers of the answer in failures too."""
    if isinstance(error, RemoteError):
        return encoded(opaque, Reply(numbers, code=error.response_code, remark=error.remark))
    return encoded(opaque, Reply(numbers, code=error.code, remark=str(error)))


def _no_message(topic: str, queue_id: int, offset: int, low: int, high: int) -> RemoteError:
    return RemoteError(
        f"request offset[{offset}] is illegal, topic:[{topic}] queueId:[{queue_id}] minOffset:[{low}] maxOffset:[{high}]",
        ResponseCode.NO_MESSAGE,
    )
