"""ACK, BATCH_ACK and CHANGE_MESSAGE_INVISIBLETIME.

    ack ── topic, queue, offset ── handle ─┬─ orderly ──► the group's offset moves behind what is acknowledged
                                           └─ else ─────► an ack in the log
    change ── the same ────────────────────┬─ orderly ──► the message is visible at another time
                                           └─ else ─────► a new check point of one message, an ack of the old one

Acknowledging twice, late, or with the handle of another group is a success that changes nothing, as in RocketMQ. With
sync flush, the answer waits for the disk.
"""

import logging
from collections.abc import Coroutine
from typing import Any, Final

from pocketmq.broker.pop.journal import Journal
from pocketmq.broker.state import BrokerState
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import FlushDiskTimeout, ImpossibleRequest, PocketMQError, RemoteError, TopicNotFound
from pocketmq.net import Handler, PlainRequest, Reply, Request
from pocketmq.protocol.api.messages import AckMessage, ChangeInvisibleTime, ChangeInvisibleTimeReply
from pocketmq.protocol.pop import ORDERLY_QUEUE, BatchAck, BatchAckEntry, Handle, flag_of
from pocketmq.store.settings import FlushMode

log = logging.getLogger("pocketmq.broker")

Outcome = Reply | Coroutine[Any, Any, Reply]
_NOT_IN_BATCH: Final = -1
_OTHER_BATCH: Final = -2


class AckHandlers:
    """Requests about leased messages."""

    def __init__(self, state: BrokerState, journal: Journal) -> None:
        self._state = state
        self._journal = journal
        self.stale = 0
        """Acks that changed nothing: repeated, late or forged ones."""

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
        }

    # acks

    def ack(self, request: Request[AckMessage]) -> Outcome:
        header = request.header
        low, high = self._check_queue(header.topic, header.queue_id)
        if not low <= header.offset <= high:
            raise _no_message(header.topic, header.queue_id, header.offset, low, high)
        handle = Handle.parse(header.extra_info)._replace(queue_id=header.queue_id)
        if handle.revive_queue == ORDERLY_QUEUE:
            self._ack_orderly(header.consumer_group, header.topic, handle, header.offset)
            return self._when_saved(Reply())
        self._acknowledge(header.consumer_group, header.topic, handle, [header.offset])
        return self._when_safe(Reply())

    def batch_ack(self, request: PlainRequest) -> Outcome:
        """Acks of several pops. An entry with a mistake is left out, so that the others count."""
        acks = BatchAck.decode(request.command.body).acks if request.command.body else ()
        if not acks:
            raise RemoteError("there is no ack in the request", ResponseCode.NO_MESSAGE)
        is_orderly = False
        for entry in acks:
            try:
                is_orderly |= self._ack_entry(entry)
            except PocketMQError as error:
                if error.retriable:
                    raise
                self.stale += 1
                log.warning("An entry of a batch ack of %s is left out: %s", request.peer.address, error)
        return self._when_saved(Reply()) if is_orderly else self._when_safe(Reply())

    def _ack_entry(self, entry: BatchAckEntry) -> bool:
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
            for offset in offsets:
                self._ack_orderly(entry.group, topic, handle, offset)
            return True
        if offsets:
            self._acknowledge(entry.group, topic, handle, offsets)
        return False

    def _acknowledge(self, group: str, topic: str, handle: Handle, offsets: list[int]) -> None:
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

    def _ack_orderly(self, group: str, topic: str, handle: Handle, offset: int) -> None:
        queue = group, topic, handle.queue_id
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

    def change(self, request: Request[ChangeInvisibleTime]) -> Outcome:
        """Java needs the numbers of the answer in failures too."""
        try:
            return self._change(request.header)
        except PocketMQError as error:
            code = error.response_code if isinstance(error, RemoteError) else error.code
            remark = error.remark if isinstance(error, RemoteError) else str(error)
            return Reply(ChangeInvisibleTimeReply(0, 0, 0), code=code, remark=remark)

    def _change(self, header: ChangeInvisibleTime) -> Outcome:
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
            return self._when_saved(Reply(self._change_orderly(header, handle, invisible_ms)))
        renewed = self._journal.renew(header.consumer_group, header.topic, handle, invisible_ms)
        return self._when_safe(
            Reply(ChangeInvisibleTimeReply(renewed.pop_ms, renewed.invisible_ms, renewed.revive_queue))
        )

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

    def _when_safe(self, reply: Reply) -> Outcome:
        """The answer: at once, or when the log is on disk if the broker promises that."""
        store = self._state.store
        if store.settings.flush is not FlushMode.SYNC and store.busy_since is None:
            return reply
        return self._wait(reply)

    async def _wait(self, reply: Reply) -> Reply:
        if not await self._state.appender.safe():
            raise FlushDiskTimeout("the ack is stored, but not yet synced to disk")
        return reply

    def _when_saved(self, reply: Reply) -> Outcome:
        """The same for orderly leases, which are in tables."""
        return self._save(reply) if self._state.store.settings.flush is FlushMode.SYNC else reply

    async def _save(self, reply: Reply) -> Reply:
        await self._state.snapshots.save_parts()
        await self._state.snapshots.save_offsets()
        return reply


def _no_message(topic: str, queue_id: int, offset: int, low: int, high: int) -> RemoteError:
    return RemoteError(
        f"request offset[{offset}] is illegal, topic:[{topic}] queueId:[{queue_id}] minOffset:[{low}] maxOffset:[{high}]",
        ResponseCode.NO_MESSAGE,
    )
