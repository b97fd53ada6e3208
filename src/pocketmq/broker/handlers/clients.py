"""Clients: heartbeats, member lists and queue locks.

    heartbeat ──► create groups and, unless there are too many, their retry topics ──► members ──► notices
                  (a group that may not be created is left out, the others are served)

A heartbeat is checked as a whole first: a rejected one changes nothing.
"""

import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from pocketmq.broker.groups.consumer_group import ClientInfo
from pocketmq.broker.groups.notices import Notices
from pocketmq.broker.state import BrokerState
from pocketmq.codes import RequestCode, TopicFlag
from pocketmq.errors import ConsumerNotOnline, GroupNotFound, ImpossibleRequest
from pocketmq.model import GroupName, MessageQueue, retry_topic
from pocketmq.net import Handler, Peer, PlainRequest, Reply, Request
from pocketmq.protocol.api.administration import ForProducerGroup
from pocketmq.protocol.api.messages import ForConsumerGroup, HeartbeatReply, UnregisterClient
from pocketmq.protocol.bodies.clients import (
    CheckClientConfig,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    LockedQueues,
    QueueLocks,
    SubscriptionGroupConfig,
)

log = logging.getLogger("pocketmq.broker")

MAX_SHOWN: Final = 20
"""Limit on conflicts with full text in the runtime information; all are counted."""
_MAX_REJECTED_GROUPS: Final = 1_000
"""Limit on rejected groups that are kept, so that each is logged once and not every 30 s."""


class ClientHandlers:
    """Requests of clients, and of administrators about clients.

    `announce` registers changed topics; it must not wait.
    """

    def __init__(self, state: BrokerState, announce: Callable[[], None]) -> None:
        self._state = state
        self.notices = Notices(state.settings)
        self._announce = announce
        self._rejected_groups: dict[str, None] = {}
        self._late_topics_logged = False
        self.groups_refused = 0
        """Groups in heartbeats that do not exist and may not be created."""

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
            RequestCode.CHECK_CLIENT_CONFIG: self.check,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.producers,
        }

    # heartbeats

    def heartbeat(self, request: PlainRequest) -> Reply:
        command = request.command
        changed = self.process_heartbeat(request.peer, command.language.name, command.version, command.body)
        return Reply(HeartbeatReply(support_heartbeat_v2=True, sub_change=changed))

    def process_heartbeat(self, peer: Peer, language: str, version: int, body: bytes) -> bool:
        """Process a heartbeat. Return whether the client must send all its subscriptions."""
        heartbeat = HeartbeatData.decode(body)
        if not peer.is_open:
            return True  # lost while its heartbeat waited; it must not join now
        client = ClientInfo(peer, heartbeat.client_id, str(peer.address), language, version)
        self._state.members.check(client, heartbeat)
        now, now_ms = self._state.clock.monotonic(), self._state.clock.now_ms()
        topics_before = self._state.topics.version
        accepted, quiet = [], set()
        for data in heartbeat.consumer_data_set:
            group = self._group_of(client, data, now_ms)
            if group is None:
                continue
            self._ensure_retry(group, data, heartbeat, now_ms)
            accepted.append(data)
            if not group.notify_consumer_ids_changed_enable:
                quiet.add(group.group_name)
        if self._state.topics.version != topics_before:
            self._announce()
        heartbeat = replace(heartbeat, consumer_data_set=tuple(accepted))
        changes = self._state.members.heartbeat(client, heartbeat, now, now_ms, quiet=quiet)
        self.notices.apply(changes)
        return changes.resend

    def _group_of(self, client: ClientInfo, data: ConsumerData, now_ms: int) -> SubscriptionGroupConfig | None:
        try:
            return self._state.groups.ensure(data.group_name, now_ms)
        except GroupNotFound as refusal:
            self.groups_refused += 1
            if data.group_name not in self._rejected_groups:
                if len(self._rejected_groups) >= _MAX_REJECTED_GROUPS:
                    del self._rejected_groups[next(iter(self._rejected_groups))]
                self._rejected_groups[data.group_name] = None
                log.warning(
                    "Client %s at %s cannot join its group: %s", client.client_id, client.address, refusal.remark
                )
            return None

    def _ensure_retry(
        self, group: SubscriptionGroupConfig, data: ConsumerData, heartbeat: HeartbeatData, now_ms: int
    ) -> None:
        name = GroupName(group.group_name)
        own = retry_topic(name)  # it is among the subscriptions too, and must not decide on itself
        order = None
        if not (heartbeat.without_sub and heartbeat.heartbeat_fingerprint):
            order = any(
                self._state.topics.is_order(one.topic) for one in data.subscription_data_set if one.topic != own
            )
        sys_flag = TopicFlag.UNIT_SUB if data.unit_mode else 0
        if own not in self._state.topics and not self._state.topics.creates_retry_topics_early:
            if not self._late_topics_logged:
                self._late_topics_logged = True
                log.warning(
                    "%d retry and dead-letter topics exist, half of maxRetryTopics; from now on, the retry topic of a new group is "
                    "created when a message is first sent back",
                    self._state.topics.retry_topics,
                )
            return
        self._state.topics.ensure_retry(name, group.retry_queue_nums, now_ms, order=order, sys_flag=sys_flag)

    def unregister(self, request: Request[UnregisterClient]) -> Reply:
        header, peer = request.header, request.peer
        group = self._state.members.group(header.consumer_group or "")
        leaving = group.members.get(peer) if group else None
        changes = self._state.members.unregister(
            peer, consumer_group=header.consumer_group, producer_group=header.producer_group
        )
        if group and leaving and leaving.client.client_id not in group.client_ids():
            self._state.locks.release(leaving.client.client_id, group.name)
        self.notices.apply(changes)
        return Reply()

    def lost(self, peer: Peer) -> None:
        """A connection was lost. Locks of its client stay until they expire: see `queue_locks`."""
        self.notices.apply(self._state.members.lost(peer))

    def expire(self) -> None:
        """Remove expired members, locks and subscriptions. Called every `expiry_scan_ms`."""
        now = self._state.clock.monotonic()
        self.notices.apply(self._state.members.expire(now))
        self._state.locks.sweep(now)
        self._state.subscriptions.expire(now)

    # queries of clients

    def consumer_list(self, request: Request[ForConsumerGroup]) -> Reply:
        group = request.header.consumer_group
        client_ids = self._state.members.client_ids(group)
        if not client_ids:
            raise ImpossibleRequest(f"no consumer for this group, {group}")
        return Reply(body=ConsumerIdList(client_ids).encode())

    def lock(self, request: PlainRequest) -> Reply:
        requested = QueueLocks.decode(request.command.body)
        queues = filter(self._is_local, requested.mq_set)
        locked = self._state.locks.lock(
            requested.consumer_group, requested.client_id, queues, self._state.clock.monotonic()
        )
        return Reply(body=LockedQueues(locked).encode())

    def unlock(self, request: PlainRequest) -> Reply:
        requested = QueueLocks.decode(request.command.body)
        self._state.locks.unlock(requested.consumer_group, requested.client_id, requested.mq_set)
        return Reply()

    def _is_local(self, queue: MessageQueue) -> bool:
        """Whether the queue can be consumed here; other queues are not locked."""
        topic = self._state.topics.get(queue.topic)
        is_read = topic is not None and 0 <= queue.queue_id < topic.read_queue_nums
        return is_read and queue.broker_name == self._state.settings.now.broker_name

    def check(self, request: PlainRequest) -> Reply:
        """Whether the broker can serve a subscription. Consumers call it before they start."""
        wanted = CheckClientConfig.decode(request.command.body).subscription_data
        if wanted is not None and not wanted.is_tag:
            if not self._state.settings.now.property_filter:
                raise ImpossibleRequest(
                    f"The broker does not support consumer to filter message by {wanted.expression_type}; "
                    "enablePropertyFilter is off"
                )
            self._state.filters.of(wanted)
        return Reply()

    # queries of administrators

    def consumer_connections(self, request: Request[ForConsumerGroup]) -> Reply:
        group = request.header.consumer_group
        if self._state.members.group(group) is None:
            raise ConsumerNotOnline(f"the consumer group[{group}] not online")
        return Reply(body=self._state.members.consumer_connections(group).encode())

    def producer_connections(self, request: Request[ForProducerGroup]) -> Reply:
        group = request.header.producer_group
        try:
            found = self._state.members.producers.connections(group)
        except ImpossibleRequest:
            raise ImpossibleRequest(f"the producer group[{group}] not exist") from None
        return Reply(body=found.encode())

    def producers(self, request: PlainRequest) -> Reply:
        return Reply(body=self._state.members.producers.table().encode())

    def runtime_info(self) -> dict[str, str]:
        """Conflicting subscriptions, for `mqadmin brokerStatus` (code 28)."""
        conflicts = self._state.members.conflicts()
        shown = {f"subscriptionConflict_{conflict.group}": str(conflict) for conflict in conflicts[:MAX_SHOWN]}
        return {"subscriptionConflicts": str(len(conflicts)), **shown}
