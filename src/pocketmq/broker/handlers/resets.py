"""Requests of administrators, who set the offsets of a group, compare them, or copy them to another group.

    by the broker (server_side_reset)    offsets are set ──► held pulls wake ──► every next pull is redirected (21)
    by the members                       the new offsets are pushed to each member (220); it drops its messages and commits

Changes are saved before the answer.
"""

import logging
from collections.abc import Iterable, Mapping

from pocketmq.broker.groups.consumer_group import ClientInfo, peer_of, require_version
from pocketmq.broker.groups.offsets import QueueFacts, pushed_target, reject_broker_group, reset_target
from pocketmq.broker.state import BrokerState
from pocketmq.codes import Language, RequestCode, Version
from pocketmq.errors import ConsumerNotOnline, GroupNotFound, InvalidParameter, PocketMQError, TopicNotFound
from pocketmq.model import MessageQueue
from pocketmq.net import Handler, Reply, Request
from pocketmq.protocol.api.messages import CloneGroupOffset, QueryCorrectionOffset, ResetOffset
from pocketmq.protocol.bodies.topics import CorrectionOffsets, CppResetOffsets, ResetOffsets
from pocketmq.protocol.command import Command

log = logging.getLogger("pocketmq.broker")


class ResetHandlers:
    """Requests that change offsets."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.QUERY_CORRECTION_OFFSET: self.corrections,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    async def reset(self, request: Request[ResetOffset]) -> Reply:
        header = request.header
        reject_broker_group(header.group)
        targets = self._targets(header)
        if not self._state.settings.now.server_side_reset:
            return self._push(request, targets)
        self._state.offsets.reset(header.group, header.topic, targets)
        for queue_id in targets:
            self._state.arrivals.wake(header.topic, queue_id)
        self._log_change("reset", request, len(targets))
        await self._state.snapshots.save_offsets()
        return Reply(body=self._body(header.topic, targets).encode())

    def _targets(self, header: ResetOffset) -> dict[int, int]:
        """The new offset by queue: of one queue if it is named, else of all."""
        topic = self._state.topics.get(header.topic)
        if topic is None:
            raise TopicNotFound(f"Topic {header.topic} does not exist")
        if header.group not in self._state.groups:
            raise GroupNotFound(f"Group {header.group} does not exist")
        if header.queue_id is None or header.queue_id < 0:
            return {queue_id: self._target(header, queue_id, None) for queue_id in range(topic.read_queue_nums)}
        if header.queue_id >= topic.read_queue_nums:
            raise InvalidParameter(
                f"topic {header.topic} has no queue {header.queue_id} to read from; it has {topic.read_queue_nums}"
            )
        return {header.queue_id: self._target(header, header.queue_id, header.offset)}

    def _target(self, header: ResetOffset, queue_id: int, offset: int | None) -> int:
        topic, store = header.topic, self._state.store
        facts = QueueFacts(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id), first_in_memory=False)
        return reset_target(
            facts, offset, header.timestamp, lambda when_ms: store.offset_at_time(topic, queue_id, when_ms)
        )

    def _body(self, topic: str, targets: Mapping[int, int]) -> ResetOffsets:
        name = self._state.settings.now.broker_name
        return ResetOffsets({MessageQueue(topic, name, queue_id): offset for queue_id, offset in targets.items()})

    def _log_change(self, done: str, request: Request[ResetOffset], queues: int) -> None:
        header = request.header
        log.info(
            "%s %s group %s in %d queues of topic %s: time %d, offset %s",
            request.peer.address,
            done,
            header.group,
            queues,
            header.topic,
            header.timestamp,
            header.offset,
        )

    # by the members

    def _push(self, request: Request[ResetOffset], targets: Mapping[int, int]) -> Reply:
        header = request.header
        group = self._state.members.group(header.group)
        if group is None:
            raise ConsumerNotOnline(
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}"
            )
        clients = [member.client for member in group.members.values()]
        for client in clients:
            require_version(client, Version.V3_0_7_SNAPSHOT)
        pushed = {
            queue_id: pushed_target(
                target, self._state.offsets.stored(header.group, header.topic, queue_id), force=header.is_force
            )
            for queue_id, target in targets.items()
        }
        body = self._body(header.topic, pushed)
        unreached = _push_to_members(clients, header, body)
        self._log_change("requested the members to reset", request, len(pushed))
        remark = (
            f"not pushed to clients whose connection is full or closing: {', '.join(unreached)}" if unreached else None
        )
        return Reply(body=body.encode(), remark=remark)

    # comparing and copying

    def corrections(self, request: Request[QueryCorrectionOffset]) -> Reply:
        header = request.header
        left_out = (header.filter_groups or "").split(",")
        least = self._state.offsets.corrections(
            header.topic,
            header.compare_group,
            left_out,
            lambda queue_id: self._state.store.min_offset(header.topic, queue_id),
        )
        return Reply(body=CorrectionOffsets(least).encode())

    async def clone(self, request: Request[CloneGroupOffset]) -> Reply:
        header = request.header
        reject_broker_group(header.dest_group)
        if header.src_group not in self._state.groups and not self._state.offsets.topics_of(header.src_group):
            raise GroupNotFound(f"group {header.src_group} does not exist on this broker: it has no offsets to clone")
        self._state.groups.ensure(header.dest_group, self._state.clock.now_ms())
        wanted = [header.topic] if header.topic else self._state.offsets.topics_of(header.src_group)
        topics = [topic for topic in wanted if self._may_clone(header, topic)]
        cloned = self._state.offsets.clone(header.src_group, header.dest_group, topics)
        log.info(
            "%s set group %s to the offsets of %s in %s",
            request.peer.address,
            header.dest_group,
            header.src_group,
            ", ".join(cloned) or "no topic",
        )
        await self._state.snapshots.save_offsets()
        return Reply()

    def _may_clone(self, header: CloneGroupOffset, topic: str) -> bool:
        """Skip deleted topics, and those that the members no longer subscribe to, unless requested."""
        group = self._state.members.group(header.src_group)
        is_wanted = bool(header.offline) or group is None or not group.subscriptions or topic in group.subscriptions
        return topic in self._state.topics and is_wanted


def _push_to_members(clients: Iterable[ClientInfo], header: ResetOffset, body: ResetOffsets) -> list[str]:
    """Push a reset to these members. Return the ids of those that could not be reached."""
    # Members only use the table. RocketMQ always sends isForce=false.
    ext = ResetOffset(header.group, header.topic, header.timestamp, is_force=False).encode()
    unreached = []
    for client in clients:
        is_cpp = client.language == Language.CPP.name
        command = Command(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext, (CppResetOffsets.of(body) if is_cpp else body).encode()
        )
        try:
            peer_of(client.connection).oneway(command)
        except PocketMQError as error:
            log.warning(
                "Cannot push the reset of group %s to client %s: %s; the answer names the client",
                header.group,
                client.client_id,
                error,
            )
            unreached.append(client.client_id)
    return unreached
