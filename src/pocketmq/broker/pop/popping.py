"""POP, PEEK, NOTIFICATION and POLLING_INFO.

    pop ── access ── filter ── read ─┬─ messages ──► check points written ──► 0 and the records
                                     ├─ nothing, and it may wait ──► held ── woken ──► the same again, in a later turn
                                     ├─ nothing, and too many wait ──► 209
                                     └─ nothing, or its time is over ──► 210

Java needs the numbers of the answer's header in 209 and 210 too. The time of a held pop counts from its birth on the
client, so a pop that came late is answered at once.
"""

from collections.abc import Coroutine
from typing import Any, Final

from pocketmq.broker.pop.acks import StagedLease, encoded, failed_with_numbers
from pocketmq.broker.pop.journal import Journal, OrderedChange
from pocketmq.broker.pop.reading import Found, PopQuery, Reading, Source
from pocketmq.broker.reads.filters import EVERYTHING, Filter
from pocketmq.broker.reads.waiting_pops import WaitingKey, WaitingPops
from pocketmq.broker.state import BrokerState
from pocketmq.codes import Perm, RequestCode, ResponseCode
from pocketmq.errors import (
    ImpossibleRequest,
    InvalidParameter,
    NoPermission,
    PocketMQError,
    StoreBusy,
    TopicNotFound,
)
from pocketmq.model import Subscription
from pocketmq.net import Handler, Peer, Reply, Request
from pocketmq.protocol.api.messages import (
    Notification,
    NotificationReply,
    PeekMessage,
    PollingInfo,
    PollingInfoReply,
    PopMessage,
    PopReply,
)
from pocketmq.protocol.hot_headers import PopHead, pop_reply
from pocketmq.protocol.pop import ORDERLY_QUEUE, flag_of

MAX_MESSAGES: Final = 32
LATE_MS: Final = 500
"""A pop whose time is over for so long is not served."""
EARLY_MS: Final = 50
"""A held pop is answered so long before its time is over."""
MAX_HOLD_MS: Final = 60_000
MAX_CACHED: Final = 10_000
"""Limit on cached subscriptions."""
MAX_CACHED_CHARS: Final = 1_000

_NOTHING: Final = "NO_MESSAGE_IN_QUEUE"
Outcome = Reply | Coroutine[Any, Any, Reply]


class PopHandlers:
    """Requests for messages."""

    def __init__(self, state: BrokerState, journal: Journal, reading: Reading) -> None:
        self._state = state
        self._journal = journal
        self._reading = reading
        self._filters: dict[tuple[str, str | None, str | None], tuple[Subscription, Filter]] = {}

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def stage(self, peer: Peer, head: PopHead, body: bytes) -> StagedLease:
        """The answer for when the check points are stored; or how long the pop is held, then it is served again."""
        try:
            with self._state.appender.all_or_none():
                return self._pop(head)
        except StoreBusy:
            raise  # it waits for the log
        except PocketMQError as error:
            return failed_with_numbers(head.opaque, PopReply(0, 0, 0, 0), error), False

    def _pop(self, head: PopHead) -> StagedLease:
        now_ms, header = self._state.clock.steady_ms(), head.ext
        born_ms = header.born_time = header.born_time or now_ms
        if now_ms - born_ms - header.poll_time > LATE_MS:
            late = Reply(PopReply(0, 0, 0, 0), code=ResponseCode.POLLING_TIMEOUT, remark="the pop came too late")
            return encoded(head.opaque, late), False
        if header.max_msg_nums > MAX_MESSAGES:
            raise InvalidParameter(f"the broker's pop message limit is {MAX_MESSAGES}, requested {header.max_msg_nums}")
        if not self._state.settings.now.timer.enabled:
            raise ImpossibleRequest("the broker cannot serve pops: timerWheelEnable is off")
        self._check_access(header.consumer_group, header.topic, header.queue_id)
        query = PopQuery(
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            max_count=header.max_msg_nums,
            init_mode=header.init_mode,
            filter=self._filter(header.consumer_group, header.topic, header.exp_type, header.exp),
            order=bool(header.order),
            attempt_id=header.attempt_id,
        )
        answer = self._pop_now(head.opaque, header, query)
        return answer or self._hold(head.opaque, header, query, born_ms + header.poll_time - EARLY_MS - now_ms)

    def _check_access(self, group_name: str, topic_name: str, queue_id: int) -> None:
        """The checks of a pull, in RocketMQ's order for pops."""
        settings = self._state.settings.now
        if not settings.permission & Perm.READ:
            raise NoPermission(f"the broker[{settings.broker_name}] pop message is forbidden")
        topic = self._state.topics.get(topic_name)
        if topic is None:
            raise TopicNotFound(f"topic[{topic_name}] not exist, apply first please!")
        if not topic.perm & Perm.READ:
            raise NoPermission(f"the topic[{topic_name}] peeking message is forbidden")
        if queue_id >= topic.read_queue_nums:
            raise InvalidParameter(
                f"queueId[{queue_id}] is illegal, topic:[{topic_name}] topicConfig.readQueueNums:[{topic.read_queue_nums}]"
            )
        group = self._state.groups.get(group_name)
        if group is None:
            group = self._state.groups.ensure(group_name, self._state.clock.now_ms())
            self._state.snapshots.save_soon()
        if not group.consume_enable:
            raise NoPermission(f"subscription group no permission, {group_name}")
        if not self._state.groups.may_read(group_name, topic_name):
            raise NoPermission(f"the group {group_name} is forbidden to read topic {topic_name}")

    def _filter(self, group: str, topic: str, kind: str | None, expression: str | None) -> Filter:
        key = topic, kind, expression
        cached = self._filters.get(key)
        if cached is None:
            subscription = Subscription.parse(topic, expression or "*", kind or None)
            if not subscription.is_tag and not self._state.settings.now.property_filter:
                raise ImpossibleRequest(
                    f"The broker does not support consumer to filter message by {subscription.expression_type}"
                )
            wanted = EVERYTHING if subscription.matches_all else self._state.filters.of(subscription)
            cached = subscription, wanted
            if len(expression or "") <= MAX_CACHED_CHARS:
                if len(self._filters) >= MAX_CACHED:
                    self._filters.clear()
                self._filters[key] = cached
        self._state.subscriptions.record(group, cached[0], self._state.clock.monotonic())
        return cached[1]

    def _pop_now(self, opaque: int, header: PopMessage, query: PopQuery) -> tuple[bytes, bool] | None:
        """The answer with messages; None if there are none."""
        now_ms, chance = self._state.clock.steady_ms(), self._reading.chance()
        invisible_ms = self._journal.longest_lease_ms(header.invisible_time)
        source = self._reading.only_source(query, chance) if self._journal.begins_at_once else None
        if source is not None and (answer := self._pop_at_once(opaque, query, source, now_ms, invisible_ms)):
            return answer, False
        found = self._reading.read(query, chance)
        if not found.reads:
            return None
        for popped in found.popped:
            now_ms = self._unused_ms(query.group, popped.topic, popped.queue_id, popped.start, now_ms)
        found.pop_ms = now_ms
        revive_queue = ORDERLY_QUEUE if query.order else self._journal.next_revive_queue()
        counts: str | None = None
        if query.order:
            counts = self._begin_orderly(query, found, invisible_ms)
        else:
            self._journal.begin(query.group, found.popped, now_ms, invisible_ms, revive_queue)
        if not found.count:
            return None
        self._count(query, found.count, found.size)
        if found.rest:
            self._state.waiting_pops.wake(WaitingKey(query.topic, query.group, query.queue_id))
        parts = self._reading.parts(found)
        reply = PopReply(
            now_ms,
            invisible_ms,
            revive_queue,
            found.rest,
            ";".join([part.start_text() for part in parts]),
            ";".join([part.offsets_text() for part in parts]),
            counts,
        )
        pieces, size = self._reading.body(query, found, invisible_ms, revive_queue)
        return b"".join((pop_reply(opaque, reply, size), *pieces)), False

    def _pop_at_once(
        self, opaque: int, query: PopQuery, source: Source, now_ms: int, invisible_ms: int
    ) -> bytes | None:
        """The answer with messages of one queue; None if they must be read, leased and answered one after the other."""
        queue, start, rest = source
        began = self._state.clock.monotonic()
        pop_ms = self._unused_ms(query.group, query.topic, queue.queue_id, start, now_ms)
        answer = opaque, flag_of(query.topic), rest, queue.max_offset
        made = self._journal.begin_at_once(query.group, queue, start, query.max_count, pop_ms, invisible_ms, answer)
        if made is None:
            return None
        count, size, _, _, reply, rest = made
        self._state.stats.get_times.record(self._state.clock.monotonic() - began)
        self._count(query, count, size)
        if rest:
            self._state.waiting_pops.wake(WaitingKey(query.topic, query.group, query.queue_id))
        return reply

    def _unused_ms(self, group: str, topic: str, queue_id: int, start: int, now_ms: int) -> int:
        """The time of the pop. After a reset, another lease of the same millisecond may begin at the same offset."""
        while self._state.leases.find((group, topic, queue_id, start, now_ms)):
            now_ms += 1
        return now_ms

    def _begin_orderly(self, query: PopQuery, found: Found, invisible_ms: int) -> str:
        """The counts of an orderly pop. Its offsets are committed by acks; entries before the first message are skipped."""
        texts: list[str] = []
        for read in found.reads:
            popped = read.popped
            queue = query.group, popped.topic, popped.queue_id
            change = OrderedChange(self._state, queue)
            if not popped.offsets:
                self._state.positions.set(queue, popped.next_offset)
                change.made()
                continue
            self._state.positions.set(queue, popped.offsets[0])
            counts = self._state.orders.begin(queue, popped.offsets, found.pop_ms, invisible_ms, query.attempt_id)
            change.made()
            (entry,) = self._reading.parts(Found([read]))
            texts += entry.counts_texts(dict(counts))
        return ";".join(texts)

    def _count(self, query: PopQuery, count: int, size: int) -> None:
        tally = self._state.stats.pulled(query.group, query.topic)
        tally.count += count
        tally.joined += count - 1
        tally.bytes += size

    # holding

    def _hold(self, opaque: int, header: PopMessage, query: PopQuery, wait_ms: int) -> StagedLease:
        settings, held = self._state.settings.now, self._state.waiting_pops
        self._state.stats.missed += 1
        if header.poll_time <= 0 or wait_ms <= 0 or not settings.long_polling or held.is_stopped:
            return _nothing(opaque, header, ResponseCode.POLLING_TIMEOUT), False
        key = WaitingKey(query.topic, query.group, query.queue_id)
        if not held.has_capacity(key, settings.pop.max_waiting_per_queue, settings.pop.max_waiting):
            return _nothing(opaque, header, ResponseCode.POLLING_FULL), False
        seconds = self._until_free(query, min(wait_ms, MAX_HOLD_MS) / 1000)
        return self._wait(opaque, header, key, query.filter, seconds, held.wakes)

    async def _wait(
        self, opaque: int, header: PopMessage, key: WaitingKey, wanted: Filter, seconds: float, wakes: int
    ) -> bytes | None:
        """None: serve the pop again. Since the pop, others may have sent, or the limit of held pops may be reached."""
        held, settings = self._state.waiting_pops, self._state.settings.now.pop
        if wakes == held.wakes:
            if not held.has_capacity(key, settings.max_waiting_per_queue, settings.max_waiting):
                return _nothing(opaque, header, ResponseCode.POLLING_FULL)
            await held.wait(key, wanted, seconds)
        return None

    def _until_free(self, query: PopQuery, left_s: float) -> float:
        """How long to wait: an orderly queue may be free before a message arrives."""
        if not query.order or left_s <= 0:
            return left_s
        now_ms = self._state.clock.steady_ms()
        topic = self._state.topics.get(query.topic)
        queues = range(topic.read_queue_nums if topic else 0) if query.queue_id < 0 else (query.queue_id,)
        ends = (self._state.orders.free_ms((query.group, query.topic, queue_id)) for queue_id in queues)
        waits = [(end - now_ms) / 1000 for end in ends if end is not None and end > now_ms]
        return min([left_s, *waits])

    # other requests

    def peek(self, request: Request[PeekMessage]) -> Reply:
        """Messages without a lease: a look at what the next pop would return."""
        header = request.header
        if header.max_msg_nums > MAX_MESSAGES:
            raise InvalidParameter(
                f"the broker's peek message limit is {MAX_MESSAGES}, requested {header.max_msg_nums}"
            )
        self._check_access(header.consumer_group, header.topic, header.queue_id)
        query = PopQuery(
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            max_count=max(1, header.max_msg_nums),
            init_mode=1,
            filter=EVERYTHING,
        )
        found = self._reading.read(query, self._reading.chance())
        answer = PopReply(self._state.clock.steady_ms(), 0, 0, found.rest + found.count)
        if not found.count:
            return Reply(answer, code=ResponseCode.PULL_NOT_FOUND, remark=_NOTHING)
        body = b"".join(piece for read in found.reads for piece in read.bodies)
        return Reply(answer, body, remark="FOUND")

    def notify(self, request: Request[Notification]) -> Outcome:
        """Whether there are messages; a client may wait for them."""
        header, now_ms = request.header, self._state.clock.steady_ms()
        self._check_access(header.consumer_group, header.topic, header.queue_id)
        query = PopQuery(
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            max_count=1,
            init_mode=1,
            filter=self._filter(header.consumer_group, header.topic, header.exp_type, header.exp),
            order=bool(header.order),
            attempt_id=header.attempt_id,
        )
        if self._reading.has_messages(query):
            return Reply(NotificationReply(has_msg=True, polling_full=False))
        wait_ms = (header.born_time or now_ms) + header.poll_time - EARLY_MS - now_ms
        held, settings = self._state.waiting_notifications, self._state.settings.now.pop
        key = WaitingKey(query.topic, query.group, query.queue_id)
        if header.poll_time <= 0 or wait_ms <= 0:
            return Reply(NotificationReply(has_msg=False, polling_full=False))
        if not held.has_capacity(key, settings.max_waiting_per_queue, settings.max_waiting):
            return Reply(NotificationReply(has_msg=False, polling_full=True))
        return self._notify_later(held, key, query, min(wait_ms, MAX_HOLD_MS) / 1000)

    async def _notify_later(self, held: WaitingPops, key: WaitingKey, query: PopQuery, seconds: float) -> Reply:
        monotonic = self._state.clock.monotonic
        deadline = monotonic() + seconds
        while not (found := self._reading.has_messages(query)):
            left_s = self._until_free(query, deadline - monotonic())
            if left_s <= 0 or held.is_stopped:
                break
            await held.wait(key, query.filter, left_s)
        return Reply(NotificationReply(has_msg=found, polling_full=False))

    def polling_info(self, request: Request[PollingInfo]) -> Reply:
        """How many pops are held for exactly this queue id."""
        header = request.header
        self._check_access(header.consumer_group, header.topic, header.queue_id)
        key = WaitingKey(header.topic, header.consumer_group, header.queue_id)
        return Reply(PollingInfoReply(self._state.waiting_pops.waiting(key)))


def _nothing(opaque: int, header: PopMessage, code: ResponseCode) -> bytes:
    return encoded(opaque, Reply(PopReply(0, header.invisible_time, 0, 0, "", ""), code=code, remark=_NOTHING))
