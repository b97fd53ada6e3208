"""Assignments: which queues of a topic a member consumes, and whether it pulls or pops them.

    mode PULL    AVG, AVG_BY_CIRCLE                the queues are divided among the members
    mode POP     no queue is shared                one queue -1: each member pops from all queues
                 shared with n other members       its own part, and the parts of the next n members

An administrator sets the mode of a group in a topic. The table is RocketMQ's messageRequestMode.json.
"""

import logging
from collections.abc import Sequence
from typing import Final

from pocketmq.broker.state import BrokerState
from pocketmq.codes import RequestCode
from pocketmq.errors import ImpossibleRequest, InvalidParameter, NoPermission, TopicNotFound
from pocketmq.model import MessageQueue, is_retry
from pocketmq.net import Handler, PlainRequest, Reply
from pocketmq.protocol.bodies.clients import (
    MessageModel,
    QueryAssignment,
    QueueAssignment,
    QueueAssignments,
    RequestMode,
    RequestModes,
)
from pocketmq.protocol.java_json import write_pretty_json

log = logging.getLogger("pocketmq.broker")

MODES_FILE: Final = "messageRequestMode.json"
PULL: Final = "PULL"
POP: Final = "POP"
MAX_MODES: Final = 100_000
"""Limit on pairs of topic and group with a mode of their own."""


class RequestModeTable:
    """The modes that administrators set."""

    def __init__(self) -> None:
        self._modes: dict[tuple[str, str], RequestMode] = {}
        self.is_changed = False

    def get(self, topic: str, group: str) -> RequestMode | None:
        return self._modes.get((topic, group))

    def put(self, mode: RequestMode) -> None:
        key = mode.topic, mode.consumer_group
        if key not in self._modes and len(self._modes) >= MAX_MODES:
            raise InvalidParameter(f"the limit of {MAX_MODES} request modes is reached")
        self._modes[key] = mode
        self.is_changed = True

    def body(self) -> RequestModes:
        table: dict[str, dict[str, RequestMode]] = {}
        for (topic, group), mode in self._modes.items():
            table.setdefault(topic, {})[group] = mode
        return RequestModes(table)

    def snapshot_json(self, now_ms: int) -> bytes:
        """The bytes of messageRequestMode.json."""
        self.is_changed = False
        return write_pretty_json(self.body())

    def load(self, saved: RequestModes | None) -> None:
        for topic, modes in (saved.message_request_mode_map if saved else {}).items():
            self._modes |= {(topic, group): mode for group, mode in modes.items()}


class AssignmentHandlers:
    """Requests about assignments."""

    def __init__(self, state: BrokerState, modes: RequestModeTable) -> None:
        self._state = state
        self._modes = modes

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.all_modes,
            RequestCode.POP_ROLLBACK: self.export_leases,
        }

    # modes

    async def set_mode(self, request: PlainRequest) -> Reply:
        mode = RequestMode.decode(request.command.body)
        if is_retry(mode.topic):
            raise NoPermission(f"retry topic {mode.topic} is not allowed to set mode")
        if mode.topic not in self._state.topics:
            raise TopicNotFound(f"topic[{mode.topic}] not exist")
        if mode.mode not in (PULL, POP):
            raise InvalidParameter(f"the mode {mode.mode[:20]!r} must be PULL or POP")
        # As in RocketMQ: an administrator sets the mode before the first member of the group starts.
        self._state.groups.ensure(mode.consumer_group, self._state.clock.now_ms())
        self._state.snapshots.save_soon()
        self._modes.put(mode)
        log.info("%s set the request mode of a group: %s", request.peer.address, mode)
        await self._state.snapshots.save_parts()
        return Reply()

    def all_modes(self, request: PlainRequest) -> Reply:
        return Reply(body=self._modes.body().encode())

    def export_leases(self, request: PlainRequest) -> Reply:
        """Moves leases that RocketMQ keeps outside of the log into the log, where all leases of this broker are."""
        return Reply()

    # assignments

    def query(self, request: PlainRequest) -> Reply:
        wanted = QueryAssignment.decode(request.command.body)
        mode = self._modes.get(wanted.topic, wanted.consumer_group)
        if mode is None:
            settings = self._state.settings.now.pop
            name = PULL if is_retry(wanted.topic) else settings.default_mode
            mode = RequestMode(wanted.topic, wanted.consumer_group, name, settings.default_share)
        queues = self._queues_of(wanted, mode)
        assigned = None if queues is None else tuple(QueueAssignment(queue, mode.mode) for queue in queues)
        return Reply(body=QueueAssignments(assigned).encode())

    def _queues_of(self, wanted: QueryAssignment, mode: RequestMode) -> Sequence[MessageQueue] | None:
        """The queues of a member; None if it keeps what it has."""
        topic = self._state.topics.get(wanted.topic)
        if topic is None:
            return None
        broker = self._state.settings.now.broker_name
        queues = [MessageQueue(wanted.topic, broker, queue_id) for queue_id in range(topic.read_queue_nums)]
        if wanted.message_model is MessageModel.BROADCASTING or not self._state.settings.now.pop.assigns_queues:
            return queues
        clients = sorted(self._state.members.client_ids(wanted.consumer_group))
        if not queues or not clients:
            return None
        if wanted.strategy_name not in ("AVG", "AVG_BY_CIRCLE"):
            raise ImpossibleRequest(
                f"unknown allocation strategy {wanted.strategy_name[:40]!r}; use AVG or AVG_BY_CIRCLE"
            )
        if mode.mode == POP:
            whole = MessageQueue(wanted.topic, broker, -1)
            return shared(queues, clients, wanted.client_id, wanted.strategy_name, mode.pop_share_queue_num, whole)
        return divided(queues, clients, wanted.client_id, wanted.strategy_name)


def divided(
    queues: Sequence[MessageQueue], clients: Sequence[str], client: str, strategy: str
) -> Sequence[MessageQueue]:
    """The part of a member: neighbouring queues with AVG, every n-th with AVG_BY_CIRCLE. Empty for a stranger."""
    if client not in clients:
        return []
    index, count = clients.index(client), len(clients)
    if strategy == "AVG_BY_CIRCLE":
        return queues[index::count]
    size, larger = divmod(len(queues), count)
    start = index * size + min(index, larger)
    return queues[start : start + size + (index < larger)]


def shared(
    queues: Sequence[MessageQueue],
    clients: Sequence[str],
    client: str,
    strategy: str,
    share: int,
    whole: MessageQueue,
) -> Sequence[MessageQueue]:
    """The queues that a member pops: `whole` for all of them, or its own part and those of the next members."""
    if share <= 0 or share >= len(clients) - 1:
        return [whole]
    if client not in clients:
        return []
    index, count = clients.index(client), len(clients)
    if count > len(queues):
        return [queues[index % len(queues)]]
    parts = [divided(queues, clients, clients[(index + step) % count], strategy) for step in range(share + 1)]
    return [queue for part in parts for queue in part]
