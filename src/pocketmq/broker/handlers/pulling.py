"""Pulls: what a consumer may read, and the answer if there is nothing to read.

    pull ── access ── filter ── a reset pending? ── yes ──► 21, continue at the offset of the reset
                                  └─ no ── read ─┬─ found ──────────────────────────────► 0 and the records
                                                 ├─ nothing matches ────────────────────► 20, continue after it
                                                 ├─ an entry does not match the log ────► 2, retry
                                                 ├─ before the first message ───────────► 21, continue at the first
                                                 ├─ beyond the end ─────────────────────► 21, continue at the stored offset
                                                 └─ at the end ── may it wait? ── no ───► 19
                                                                       └─ held until a message arrives, then
                                                                          the same again, without waiting

A wrong 21 makes clients lose or repeat messages, so it is used only for offsets outside the queue.
"""

from collections.abc import Callable, Sequence
from typing import Final

from pocketmq import compiled
from pocketmq.broker.groups.offsets import reject_broker_group
from pocketmq.broker.handlers.checked_pulls import CheckedPulls
from pocketmq.broker.reads.filters import EVERYTHING, Filter
from pocketmq.broker.state import BrokerState
from pocketmq.codes import Perm, PullFlag, ResponseCode
from pocketmq.errors import (
    GroupNotFound,
    ImpossibleRequest,
    InvalidExpression,
    InvalidParameter,
    NoPermission,
    PocketMQError,
    SystemBusy,
    TopicNotFound,
)
from pocketmq.model import Subscription, is_retry
from pocketmq.net import Peer
from pocketmq.protocol.api.messages import PullMessage
from pocketmq.protocol.bodies.clients import MessageModel, SubscriptionGroupConfig
from pocketmq.protocol.body_pack import pack_bodies
from pocketmq.protocol.command import ONEWAY, Command, encode_command
from pocketmq.protocol.hot_headers import LitePullHead, PullHead, PullReplies
from pocketmq.protocol.pending_calls import failure_reply
from pocketmq.store.reading import ReadResult, ReadStatus

MAX_HOLD_S: Final = 60.0
"""Limit on the time that a pull is held."""
FILTER_SECONDS: Final = 0.01
"""Time limit of one pull with an SQL92 expression; the next pull continues. A short expression needs a fifth of it for 800
messages, the limit of one pull; an expression of a thousand comparisons would need half a second."""
MAX_CACHED: Final = 10_000
"""Limit on cached subscriptions and on cached filters."""
MAX_CACHED_CHARS: Final = 1_000
"""Longer expressions are parsed for every pull that includes them."""

_FOUND: Final = ResponseCode.SUCCESS
_NOTHING_NEW: Final = ResponseCode.PULL_NOT_FOUND
_RETRY: Final = ResponseCode.PULL_RETRY_IMMEDIATELY
_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED

_OUTCOMES: Final[dict[ReadStatus, tuple[ResponseCode, str]]] = {
    ReadStatus.FOUND: (_FOUND, "FOUND"),
    ReadStatus.NO_MATCH: (_RETRY, "NO_MATCHED_MESSAGE"),
    ReadStatus.REMOVED: (_RETRY, "MESSAGE_WAS_REMOVING"),
    ReadStatus.NO_QUEUE: (_MOVED, "NO_MATCHED_LOGIC_QUEUE"),
    ReadStatus.NO_MESSAGE: (_MOVED, "NO_MESSAGE_IN_QUEUE"),
    ReadStatus.OFFSET_TOO_SMALL: (_MOVED, "OFFSET_TOO_SMALL"),
    ReadStatus.OVERFLOW_ONE: (_NOTHING_NEW, "OFFSET_OVERFLOW_ONE"),
    ReadStatus.OVERFLOW_BADLY: (_MOVED, "OFFSET_OVERFLOW_BADLY"),
}
_OF_MEMBERS: Final = PullFlag.LITE_PULL | PullFlag.COMMIT_OFFSET
_RESET: Final = (_MOVED, "OFFSET_RESET")
_EMPTY: Final = frozenset({ReadStatus.NO_QUEUE, ReadStatus.NO_MESSAGE})


class Forbidden(NoPermission):
    """A pull that is not allowed. `kind` reports the missing permission to clients."""

    BROKER, GROUP, TOPIC, BROADCAST, SUBSCRIPTION = range(1, 6)

    def __init__(self, kind: int, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Pulling:
    """The pull handler, for `turns`."""

    def __init__(self, state: BrokerState, checked: CheckedPulls) -> None:
        self._state = state
        self._checked = checked
        self._is_slave = state.settings.now.is_slave
        self._max_count = checked.max_count
        twin = compiled.twin()
        self._pack_bodies: Callable[[list[bytes | memoryview], int, int], bytes | bytearray | None] = (
            pack_bodies if twin is None else twin.pack_bodies
        )
        self._parsed: dict[tuple[str, str | None, str | None], Subscription] = {}
        self._filters_in_use: dict[tuple[str, str], tuple[Subscription, Filter]] = {}
        self._replies: dict[tuple[int, str, int], PullReplies] = {}

    def pull(
        self, peer: Peer, head: PullHead | LitePullHead, body: bytes = b"", *, may_wait: bool = True
    ) -> bytes | None:
        """The answer to a pull; None while it is held."""
        ext = head.ext
        if self._is_slave and not self._state.settings.now.slave_read:
            raise SystemBusy("[REJECTREQUEST]system busy, start flow control for a while, cause: slaveReadEnable=false")
        try:
            group = self._check_access(head, is_new=may_wait)
            wanted = self._select_filter(ext, group)
        except Forbidden as refusal:
            return _forbidden(head.opaque, refusal)
        new_offset = self._state.offsets.pop_reset(ext.consumer_group, ext.topic, ext.queue_id)
        if new_offset is None:
            new_offset = self._redirect_older(ext)
        if new_offset is not None:
            return self._redirect(head, group, new_offset)
        found, seconds = self._read(ext, wanted)
        where = ext.consumer_group, ext.topic, ext.queue_id
        code, remark = _OUTCOMES[found.status]
        if self._is_slave:
            return self._answer_on_slave(peer, head, wanted, group, found, seconds, may_wait=may_wait)
        if ext.queue_offset > found.max_offset:
            found.next_offset = self._state.offsets.resume_at(*where, found.min_offset, found.max_offset)
        elif may_wait and ext.sys_flag & PullFlag.COMMIT_OFFSET:
            reject_broker_group(ext.consumer_group)
            self._state.offsets.commit(*where, ext.commit_offset, found.max_offset)
        if not ext.queue_offset and found.status in _EMPTY:
            code = _NOTHING_NEW
        if code == _NOTHING_NEW and may_wait and ext.sys_flag & PullFlag.SUSPEND and self._hold(peer, head, wanted):
            return None
        if found.count and wanted.matches is None and self._checked.in_use:
            self._remember(head, group, wanted)
        return self._answer(head, group, found, seconds, code, remark)

    def _answer_on_slave(
        self,
        peer: Peer,
        head: PullHead | LitePullHead,
        wanted: Filter,
        group: SubscriptionGroupConfig,
        found: ReadResult,
        seconds: float,
        *,
        may_wait: bool,
    ) -> bytes | None:
        """A slave never moves or commits an offset, because it may be behind. With a master, readers that are not far behind
        return to it; without one, a slave holds pulls, too.
        """
        ext = head.ext
        code, remark = _OUTCOMES[found.status]
        if code == _MOVED:
            code, found.next_offset = _RETRY, ext.queue_offset
        if code != _FOUND and self._state.master.address is not None and not found.far_behind:
            code = _RETRY
        elif code == _NOTHING_NEW and may_wait and ext.sys_flag & PullFlag.SUSPEND and self._hold(peer, head, wanted):
            return None
        return self._answer(head, group, found, seconds, code, remark)

    def _redirect_older(self, ext: PullMessage) -> int | None:
        """The new offset for a member with an offset of an older log. Readers that choose their own offsets are not
        members.
        """
        if ext.sys_flag & (PullFlag.SUBSCRIPTION | _OF_MEMBERS) == PullFlag.SUBSCRIPTION:
            self._state.offsets.confirm_log(ext.consumer_group, ext.topic, ext.queue_id)
            return None
        low = self._state.store.min_offset(ext.topic, ext.queue_id)
        return self._state.offsets.redirect_older(ext.consumer_group, ext.topic, ext.queue_id, ext.queue_offset, low)

    def _remember(self, head: PullHead | LitePullHead, group: SubscriptionGroupConfig, wanted: Filter) -> None:
        """Cache the checks of this kind of pull until something changes."""
        ext = head.ext
        subscriptions = None
        if ext.sys_flag & PullFlag.SUBSCRIPTION:
            subscriptions = self._parsed.get((ext.topic, ext.subscription, ext.expression_type))
            if subscriptions is None:
                return
        near, far = (self._replies_of(_FOUND, "FOUND", self._suggested(group, behind)) for behind in (False, True))
        tally = self._state.stats.pulled(ext.consumer_group, ext.topic)
        self._checked.remember(head, wanted.tag_codes, subscriptions, (near.parts, far.parts), tally)

    def _read(self, ext: PullMessage, wanted: Filter) -> tuple[ReadResult, float]:
        """Read messages. Return the result and its duration in seconds."""
        monotonic = self._state.clock.monotonic
        began = monotonic()
        found = self._state.store.read(
            ext.topic,
            ext.queue_id,
            ext.queue_offset,
            min(ext.max_msg_nums, self._max_count),
            wanted.tag_codes,
            wanted.matches,
            (lambda: monotonic() - began < FILTER_SECONDS) if wanted.matches else None,
        )
        seconds = self._state.clock.monotonic() - began
        self._state.stats.get_times.record(seconds)
        if not found.count:
            self._state.stats.missed += 1
        return found, seconds

    # access

    def _check_access(self, head: PullHead | LitePullHead, *, is_new: bool) -> SubscriptionGroupConfig:
        """The group, if it may pull from the queue. Checks in RocketMQ's order.

        `is_new` is False for a pull that was held: it must not create a group that was deleted in the meantime.
        """
        ext, settings = head.ext, self._state.settings.now
        if not settings.permission & Perm.READ:
            raise Forbidden(Forbidden.BROKER, f"the broker[{settings.broker_name}] pulling message is forbidden")
        if isinstance(head, LitePullHead) and not settings.lite_pull:
            raise NoPermission(f"the broker[{settings.broker_name}] for lite pull consumer is forbidden")
        group = self._state.groups.get(ext.consumer_group)
        if group is None:
            if not is_new:
                raise GroupNotFound(f"group {ext.consumer_group} was deleted while its pull was held")
            group = self._state.groups.ensure(ext.consumer_group, self._state.clock.now_ms())
        if not group.consume_enable:
            raise Forbidden(Forbidden.GROUP, f"subscription group no permission, {ext.consumer_group}")
        topic = self._state.topics.get(ext.topic)
        if topic is None:
            raise TopicNotFound(f"topic[{ext.topic}] not exist, apply first please!")
        if not topic.perm & Perm.READ:
            raise Forbidden(Forbidden.TOPIC, f"the topic[{ext.topic}] pulling message is forbidden")
        if not 0 <= ext.queue_id < topic.read_queue_nums:
            raise InvalidParameter(
                f"queueId[{ext.queue_id}] is illegal, topic:[{ext.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]"
            )
        if not self._state.groups.may_read(ext.consumer_group, ext.topic):
            raise Forbidden(
                Forbidden.SUBSCRIPTION,
                f"the group {ext.consumer_group} is forbidden to read topic {ext.topic}",
            )
        return group

    # filter

    def _select_filter(self, ext: PullMessage, group: SubscriptionGroupConfig) -> Filter:
        if ext.sys_flag & PullFlag.SUBSCRIPTION:
            subscription = self._subscription_of(ext)
        else:
            self._refuse_broadcast(group)
            subscription = self._state.members.subscription(ext.consumer_group, ext.topic, ext.sub_version)
        if not subscription.is_tag and not self._state.settings.now.property_filter:
            raise ImpossibleRequest(
                f"The broker does not support consumer to filter message by {subscription.expression_type}"
            )
        if subscription.matches_all:
            return EVERYTHING
        key = ext.consumer_group, ext.topic
        cached = self._filters_in_use.get(key)
        if cached is not None and cached[0] is subscription:
            return cached[1]
        if len(self._filters_in_use) >= MAX_CACHED:
            self._filters_in_use.clear()
        wanted = self._filter_of(ext, subscription)
        self._filters_in_use[key] = subscription, wanted
        return wanted

    def _subscription_of(self, ext: PullMessage) -> Subscription:
        key = ext.topic, ext.subscription, ext.expression_type
        subscription = self._parsed.get(key)
        if subscription is None:
            subscription = Subscription.parse(*key)
            if len(subscription.sub_string) <= MAX_CACHED_CHARS:
                if len(self._parsed) >= MAX_CACHED:
                    self._parsed.clear()
                self._parsed[key] = subscription
        self._state.subscriptions.record(ext.consumer_group, subscription, self._state.clock.monotonic())
        return subscription

    def _refuse_broadcast(self, group: SubscriptionGroupConfig) -> None:
        if group.consume_broadcast_enable:
            return
        members = self._state.members.group(group.group_name)
        if members and members.message_model is MessageModel.BROADCASTING:
            raise Forbidden(
                Forbidden.BROADCAST, f"the consumer group[{group.group_name}] can not consume by broadcast way"
            )

    def _filter_of(self, ext: PullMessage, subscription: Subscription) -> Filter:
        try:
            if is_retry(ext.topic):
                return self._state.filters.of_retries(
                    subscription, lambda topic: self._subscribed(ext.consumer_group, topic)
                )
            return self._state.filters.of(subscription)
        except InvalidExpression as error:
            raise InvalidExpression(
                f"invalid filter of group {ext.consumer_group} on topic {ext.topic}: {error}"
            ) from None

    def _subscribed(self, group: str, topic: str) -> Subscription | None:
        members = self._state.members.group(group)
        return members.subscriptions.get(topic) if members else None

    # long polling

    def _hold(self, peer: Peer, head: PullHead | LitePullHead, wanted: Filter) -> bool:
        settings, ext = self._state.settings.now, head.ext
        wait_ms = ext.suspend_timeout_millis if settings.long_polling else settings.short_polling_ms
        if wait_ms <= 0 or head.flag & ONEWAY or not self._state.arrivals.has_capacity:
            return False
        seconds = min(wait_ms / 1000, MAX_HOLD_S)
        return peer.run(self._answer_later(peer, head, wanted, seconds, self._state.arrivals.wake_calls))

    async def _answer_later(
        self, peer: Peer, head: PullHead | LitePullHead, wanted: Filter, seconds: float, calls: int
    ) -> None:
        ext, arrivals = head.ext, self._state.arrivals
        # Since the pull, others may have sent or reset, or the limit of held pulls may be reached.
        unchanged = (
            calls == arrivals.wake_calls and self._state.store.max_offset(ext.topic, ext.queue_id) <= ext.queue_offset
        )
        if unchanged and arrivals.has_capacity:
            await arrivals.wait(ext.topic, ext.queue_id, wanted, seconds)
        try:
            reply = self.pull(peer, head, may_wait=False)
        except PocketMQError as error:
            reply = encode_command(failure_reply(Command(head.code, opaque=head.opaque), error))
        if reply is not None:
            peer.connection.write(reply)

    # answers

    def _answer(
        self,
        head: PullHead | LitePullHead,
        group: SubscriptionGroupConfig,
        found: ReadResult,
        seconds: float,
        code: int,
        remark: str,
    ) -> bytes:
        ext = head.ext
        self._state.offsets.record_pull(ext.consumer_group, ext.topic, ext.queue_id, found.next_offset)
        replies = self._replies_of(code, remark, self._suggested(group, found.far_behind))
        pieces: Sequence[bytes | bytearray | memoryview] = found.pieces
        size = found.size
        # Bodies have no offsets: they are used only if no message is missing.
        if ext.sys_flag & PullFlag.ONLY_BODIES and found.count == found.next_offset - ext.queue_offset > 0:
            pack = self._pack_bodies(found.pieces, found.count, found.size)
            if pack is not None:
                pieces, size = [pack], len(pack)
        start = replies.head(head.opaque, found.next_offset, found.min_offset, found.max_offset, size)
        if not found.count:
            return start
        tally = self._state.stats.pulled(ext.consumer_group, ext.topic)
        tally.count += found.count
        tally.joined += found.count - 1
        tally.bytes += found.size
        tally.ms += seconds * 1000
        return b"".join((start, *pieces))

    def _redirect(self, head: PullHead | LitePullHead, group: SubscriptionGroupConfig, offset: int) -> bytes:
        ext = head.ext
        low, high = (
            self._state.store.min_offset(ext.topic, ext.queue_id),
            self._state.store.max_offset(ext.topic, ext.queue_id),
        )
        return self._replies_of(*_RESET, self._suggested(group, far_behind=False)).head(head.opaque, offset, low, high)

    def _suggested(self, group: SubscriptionGroupConfig, far_behind: bool) -> int:
        """The id of the broker for the next pull."""
        if not self._state.settings.now.slave_read:
            return 0
        if self._is_slave and not far_behind and self._state.master.address is not None:
            return 0
        return group.which_broker_when_consume_slowly if far_behind else group.broker_id

    def _replies_of(self, code: int, remark: str, broker_id: int) -> PullReplies:
        key = code, remark, broker_id
        replies = self._replies.get(key)
        if replies is None:
            replies = self._replies[key] = PullReplies(code, remark, broker_id)
        return replies


def _forbidden(opaque: int, refusal: Forbidden) -> bytes:
    reply = failure_reply(Command(0, opaque=opaque), refusal)
    reply.ext = {"forbiddenType": str(refusal.kind)}
    return encode_command(reply)
