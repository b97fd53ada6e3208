"""Retries and dead letters: where a message goes that a consumer group failed to consume.

    sent back (code 36) ─┬─ attempts left ──► delay level 3 + n ──► SCHEDULE_TOPIC_XXXX ──► %RETRY%group, any queue
                         └─ none left, or given up ─────────────────────────────────────────► %DLQ%group, queue 0
    sent to %RETRY%group by a client whose send-back failed, or that consumes in order: the same two ends

    a lease of it ended (`pop`): ─┬─ attempts left ──► %RETRY%group_topic or %RETRY%group+topic, queue 0
                                  └─ none left ──────► %DLQ%group, queue 0

The message keeps its body, birth time and tags. RETRY_TOPIC names its topic, ORIGIN_MESSAGE_ID its first message id.
The rules are in `model.retries`.

On any answer but success, the consumer sends the message again by itself, or keeps it and retries later.
"""

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from pocketmq.broker.messages import Draft
from pocketmq.broker.state import BrokerState
from pocketmq.codes import Perm, RequestCode, TopicFlag, Version
from pocketmq.errors import FlushDiskTimeout, NoPermission, ServerFailed
from pocketmq.model import GroupName, StoredMessage, TopicName, dlq_topic, group_of, parse_topic
from pocketmq.model import properties as names
from pocketmq.model.retries import DEAD_LETTER_LEVEL, max_attempts, resent_is_dead, retry_level, sent_back_is_dead
from pocketmq.net import Handler, Reply, Request
from pocketmq.protocol.api.messages import SendMessage, SendMessageBack
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.pop import pop_retry_topic, retried_topic


class Retries:
    """Makes drafts of the next attempt or the dead letter of failed messages. Creates the topics for them."""

    def __init__(self, state: BrokerState, announce: Callable[[], None], chance: Random) -> None:
        self._state = state
        self._announce = announce
        self._chance = chance

    def retry_topic_of(self, group: SubscriptionGroupConfig, *, unit_mode: bool) -> TopicConfig:
        """The retry topic of a group, created if it is new. NoPermission if it is not writable."""
        topic = self._create(
            lambda: self._state.topics.ensure_retry(
                GroupName(group.group_name),
                group.retry_queue_nums,
                self._state.clock.now_ms(),
                sys_flag=TopicFlag.UNIT_SUB if unit_mode else 0,
            )
        )
        if not topic.perm & Perm.WRITE:
            raise NoPermission(f"the topic[{topic.topic_name}] sending message is forbidden")
        return topic

    def sent_back(
        self,
        message: StoredMessage,
        group: SubscriptionGroupConfig,
        retry_topic: TopicConfig,
        header: SendMessageBack,
        version: int,
    ) -> Draft:
        """The next attempt of a message that a consumer sends back."""
        draft = Draft.of(message)
        draft.properties.setdefault(names.RETRY_TOPIC, message.topic)
        draft.properties.setdefault(names.ORIGIN_MESSAGE_ID, message.offset_id)
        draft.properties[names.WAIT] = "false"
        draft.reconsume_times += 1
        draft.prepared_offset = 0
        most = _most_attempts(group, header.max_reconsume_times, version)
        if sent_back_is_dead(header.delay_level, message.reconsume_times, most):
            self._make_dead_letter(draft, GroupName(group.group_name), delay=0)
        else:
            draft.topic, draft.queue_id = retry_topic.topic_name, self._any_queue(group, retry_topic)
            draft.properties[names.DELAY] = str(retry_level(header.delay_level, message.reconsume_times))
        return draft

    def retarget_resend(self, draft: Draft, header: SendMessage, version: int) -> None:
        """Turn a draft that a client sends to %RETRY%group into a dead letter if no attempt is left. GroupNotFound
        without its group.
        """
        name = group_of(draft.topic)
        assert name is not None, f"topic {draft.topic} belongs to no group"
        group = self._state.groups.ensure(name, self._state.clock.now_ms())
        most = _most_attempts(group, header.max_reconsume_times, version)
        in_order = self._state.locks.has_locks(name, self._state.clock.monotonic())
        if resent_is_dead(draft.reconsume_times, most, group_holds_locks=in_order):
            self._make_dead_letter(draft, name, delay=DEAD_LETTER_LEVEL)

    def returned(self, message: StoredMessage, group: SubscriptionGroupConfig, pop_ms: int, lease: str) -> Draft:
        """The next attempt of a message whose lease is over, or its dead letter. `lease` names its lease."""
        draft = Draft.of(message)
        for name in (*names.DELAYING_PROPERTIES, names.POP_CK):
            draft.properties.pop(name, None)
        draft.properties.setdefault(names.FIRST_POP_TIME, str(pop_ms))
        draft.properties[names.POP_RETURNED] = lease
        draft.born_host = self._state.store.store_host
        draft.reconsume_times += 1
        draft.prepared_offset = 0
        name = GroupName(group.group_name)
        if sent_back_is_dead(0, message.reconsume_times, group.retry_max_times):
            draft.properties.setdefault(names.RETRY_TOPIC, retried_topic(name, message.topic))
            draft.properties.setdefault(names.ORIGIN_MESSAGE_ID, message.offset_id)
            self._make_dead_letter(draft, name, delay=0)
        else:
            draft.topic, draft.queue_id = self._pop_retry_topic(name, message.topic), 0
        for added in (names.POP_RETURNED, names.FIRST_POP_TIME, names.ORIGIN_MESSAGE_ID, names.RETRY_TOPIC):
            if added not in message.properties and len(draft.packed_properties()) > names.MAX_BYTES:
                draft.properties.pop(added, None)
        return draft

    def _pop_retry_topic(self, group: GroupName, topic: str) -> TopicName:
        """The retry topic of a group for messages of `topic`, created if it is new. It may be one already."""
        if retried_topic(group, topic) == topic:
            topic = pop_retry_topic(group, topic, v2=self._state.settings.now.pop.retry_topic_v2)
        name = parse_topic(topic)
        if name not in self._state.topics:
            self._create(lambda: self._state.topics.ensure_pop_retry(name, self._state.clock.now_ms()))
            self._state.offsets.commit(group, name, 0, 0)
        return name

    def _make_dead_letter(self, draft: Draft, group: GroupName, *, delay: int) -> None:
        self._create(lambda: self._state.topics.ensure_dlq(group, self._state.clock.now_ms()))
        draft.topic, draft.queue_id = dlq_topic(group), 0
        draft.properties[names.DELAY] = str(delay)

    def _any_queue(self, group: SubscriptionGroupConfig, topic: TopicConfig) -> int:
        """A queue that the group reads. The topic may have fewer queues than the group is configured for."""
        return self._chance.randrange(
            max(1, min(group.retry_queue_nums, topic.read_queue_nums, topic.write_queue_nums))
        )

    def _create(self, make: Callable[[], TopicConfig]) -> TopicConfig:
        version = self._state.topics.version
        topic = make()
        if self._state.topics.version != version:
            self._announce()
        return topic


def _most_attempts(group: SubscriptionGroupConfig, client_max: int | None, version: int) -> int:
    return max_attempts(client_max, group.retry_max_times, client_max_counts=version >= Version.V3_4_9)


class RetryHandlers:
    """Accepts messages that are sent back."""

    def __init__(self, state: BrokerState, retries: Retries) -> None:
        self._state = state
        self._retries = retries

    def table(self) -> dict[RequestCode, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, request: Request[SendMessageBack]) -> Reply | Coroutine[Any, Any, Reply]:
        """The message is stored on return; the coroutine only waits for the disk."""
        header = request.header
        group = self._state.groups.ensure(header.group, self._state.clock.now_ms())
        if not self._state.settings.now.permission & Perm.WRITE:
            raise NoPermission(f"the broker[{self._state.settings.now.broker_name}] sending message is forbidden")
        if group.retry_queue_nums <= 0:
            return Reply()
        retry_topic = self._retries.retry_topic_of(group, unit_mode=bool(header.unit_mode))
        message = self._state.message(header.offset)
        if message is None:
            raise ServerFailed(f"look message by offset failed, {header.offset}")
        draft = self._retries.sent_back(message, group, retry_topic, header, request.command.version)
        self._state.appender.append(draft)
        tally = self._state.stats.sent_back(header.group, message.topic)
        tally.count += 1
        tally.bytes += len(message.body)
        return self._when_safe()

    async def _when_safe(self) -> Reply:
        if not await self._state.appender.safe():
            raise FlushDiskTimeout("the message is stored for its next attempt, but not yet synced to disk")
        return Reply()
