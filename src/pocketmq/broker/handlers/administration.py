"""Administration: maintenance of the store, statistics, and settings that administrators query and change.

The store deletes expired files by itself; the maintenance requests only trigger it.

`GroupProgress`: committed offsets, lag, and the age of the next message.

    queue   0 ─────────── consumed ─────────── pulled ─────────── end
                              └──── in flight ────┘                │
                              └─────────────── lag ────────────────┘

An answer may contain tens of thousands of queues, each with a read of the log. So it is made in steps with other work
in between; changes in the meantime may or may not appear in it. Larger answers are rejected.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from pocketmq.broker.setting_keys import change_keys, write_keys
from pocketmq.broker.settings import BrokerSettings
from pocketmq.broker.state import BrokerState
from pocketmq.broker.stats.runtime_info import RuntimeInfo
from pocketmq.codes import RequestCode
from pocketmq.errors import ImpossibleRequest, NoPermission
from pocketmq.model import MessageQueue
from pocketmq.net import Handler, PlainRequest, Reply, Request, Steps
from pocketmq.protocol.api.administration import (
    BrokerConfigReply,
    GetBrokerConsumeStats,
    GetConsumeStats,
    ViewBrokerStats,
)
from pocketmq.protocol.api.messages import QueryConsumeTimeSpan
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.bodies.topics import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    DataVersion,
    KVTable,
    OffsetProgress,
    QueueTimeSpan,
    ReplicationStatus,
    TopicConfig,
)
from pocketmq.protocol.pop import retried_topic

log = logging.getLogger("pocketmq.broker")


class MaintenanceHandlers:
    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.drop_log_files,
            RequestCode.GET_BROKER_HA_STATUS: self.replication,
        }

    def clean_queues(self, request: PlainRequest) -> Reply:
        """Remove queue entries of deleted messages; a few at every tick, after the answer.

        Apache RocketMQ also forgets the end of a queue whose messages have all expired, and begins at 0 again. Offsets of
        groups would then be beyond its end. Here the queue keeps its end.
        """
        self._state.store.drop_expired_entries()
        log.info("Removing expired queue entries, as requested by %s", request.peer.address)
        return Reply()

    def drop_log_files(self, request: PlainRequest) -> Reply:
        """Delete log files older than the retention time now, not only at the configured hour."""
        dropped = self._state.store.drop_expired()
        log.info("Deleted %d expired log files, as requested by %s", dropped, request.peer.address)
        return Reply()

    def replication(self, request: PlainRequest) -> Reply:
        """The slaves of a master, or the progress of a slave."""
        state, facts = self._state, self._state.store.facts
        if state.settings.now.is_slave:
            return Reply(body=ReplicationStatus(ha_client_runtime_info=state.master.progress(facts.log_end)).encode())
        slaves = state.replicas.rows(facts.log_end, state.settings.now.replication.max_gap_bytes)
        in_sync = sum(slave.in_sync for slave in slaves)
        return Reply(body=ReplicationStatus(True, facts.log_end, in_sync, slaves).encode())


MAX_QUEUES_PER_ANSWER: Final = 20_000
"""Limit on the queues of one answer."""


class _QueueSteps(Steps):
    """Also limits the queues of the answer."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        super().__init__()
        self._queues = 0

    async def next_queue(self) -> None:
        self._queues += 1
        if self._queues > MAX_QUEUES_PER_ANSWER:
            raise ImpossibleRequest(
                f"the answer would have more than {MAX_QUEUES_PER_ANSWER} queues; request one group and one topic at a time"
            )
        await self.pause()


class GroupProgress:
    """Reads the tables and the store; changes nothing."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._broker_name = state.settings.now.broker_name

    async def of_group(self, group: str, topics: Iterable[str] = ()) -> ConsumeStats:
        """A group in these topics, or in all topics where it has an offset. Unknown topics are left out."""
        steps = _QueueSteps()
        table: dict[MessageQueue, OffsetProgress] = {}
        tps = 0.0
        for config in self._subscribed_topics(group, list(topics) or self._state.offsets.topics_of(group)):
            table |= await self._in_topic(group, config, steps)
            tps += self._state.stats.get_tps(group, config.topic_name)
        return ConsumeStats(table, tps)

    async def of_all(self, broker_address: str, *, ordered_only: bool) -> ConsumeStatsList:
        """Every group of this broker by topic, and the total lag."""
        steps = _QueueSteps()
        rows: list[dict[str, tuple[ConsumeStats, ...]]] = []
        behind = in_flight = 0
        for group in [config.group_name for config in self._state.groups]:
            found = []
            for config in self._subscribed_topics(group, self._state.offsets.topics_of(group)):
                if ordered_only and not config.order:
                    continue
                table = await self._in_topic(group, config, steps)
                found.append(ConsumeStats(table, self._state.stats.get_tps(group, config.topic_name)))
                behind += sum(queue.broker_offset - queue.consumer_offset for queue in table.values())
                in_flight += sum(queue.pull_offset - queue.consumer_offset for queue in table.values())
            rows.append({group: tuple(found)})
        return ConsumeStatsList(tuple(rows), broker_address, behind, in_flight)

    def _subscribed_topics(self, group: str, topics: Iterable[str]) -> list[TopicConfig]:
        """Existing topics. If the group has members with subscriptions, only the subscribed ones, and the retry topics of
        their popped messages.
        """
        members = self._state.members.group(group)
        wanted = members.subscriptions if members else {}
        configs = (self._state.topics.get(topic) for topic in topics)
        return [
            config
            for config in configs
            if config
            and (not wanted or config.topic_name in wanted or retried_topic(group, config.topic_name) in wanted)
        ]

    async def _in_topic(
        self, group: str, config: TopicConfig, steps: _QueueSteps
    ) -> dict[MessageQueue, OffsetProgress]:
        topic = config.topic_name
        table = {}
        for queue_id in range(config.read_queue_nums):
            await steps.next_queue()
            consumed = self._state.offsets.stored(group, topic, queue_id) or 0
            leased, since_ms = self._state.leases.of_queue((group, topic, queue_id))
            pulled = self._state.offsets.pulled(group, topic, queue_id) or 0
            table[MessageQueue(topic, self._broker_name, queue_id)] = OffsetProgress(
                self._state.store.max_offset(topic, queue_id),
                consumed,
                max(pulled, consumed + leased) if leased else pulled,  # the difference is "Inflight" in mqadmin
                self._state.store.store_ms(topic, queue_id, consumed - 1) or 0,
                leased or None,
                since_ms,
            )
        return table

    async def time_spans(self, group: str, topic: str, now_ms: int) -> ConsumeTimeSpans:
        """The store times of the first, the last and the last consumed message of each queue; TopicNotFound."""
        steps = _QueueSteps()
        spans = []
        for queue_id in range(self._state.topics.require(topic).write_queue_nums):
            await steps.next_queue()
            spans.append(self._time_span(group, topic, queue_id, now_ms))
        return ConsumeTimeSpans(tuple(spans))

    def _time_span(self, group: str, topic: str, queue_id: int, now_ms: int) -> QueueTimeSpan:
        """-1 for a missing message. The delay is the age of the group's next message."""
        store = self._state.store

        def stored_ms(offset: int) -> int:
            found = store.store_ms(topic, queue_id, offset)
            return -1 if found is None else found

        first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        first_ms = stored_ms(first)
        consumed = self._state.offsets.stored(group, topic, queue_id) or 0
        next_ms = stored_ms(max(consumed, first)) if consumed < end else -1  # deleted messages do not wait
        return QueueTimeSpan(
            MessageQueue(topic, self._broker_name, queue_id),
            first_ms,
            stored_ms(end - 1),
            stored_ms(consumed - 1) if consumed > 0 else first_ms,
            max(0, now_ms - next_ms) if next_ms >= 0 else 0,
        )


class StatisticsHandlers:
    """Requests for statistics. `address` returns the address for clients, known once the broker listens."""

    def __init__(self, state: BrokerState, info: RuntimeInfo, address: Callable[[], str]) -> None:
        self._state = state
        self._info = info
        self._progress = GroupProgress(state)
        self._address = address

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view,
            RequestCode.GET_CONSUME_STATS: self.of_group,
            RequestCode.GET_BROKER_CONSUME_STATS: self.of_all_groups,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_spans,
        }

    def runtime_info(self, request: PlainRequest) -> Reply:
        return Reply(body=KVTable(self._info.table()).encode())

    def view(self, request: Request[ViewBrokerStats]) -> Reply:
        name, key = request.header.stats_name, request.header.stats_key
        found = self._state.stats.view(name, key)
        if found is None:
            raise ImpossibleRequest(f"The stats <{name}> <{key}> not exist")
        return Reply(body=found.encode())

    async def of_group(self, request: Request[GetConsumeStats]) -> Reply:
        header = request.header
        topics = [header.topic] if header.topic else [topic for topic in (header.topic_list or "").split(";") if topic]
        return Reply(body=(await self._progress.of_group(header.consumer_group, topics)).encode())

    async def of_all_groups(self, request: Request[GetBrokerConsumeStats]) -> Reply:
        found = await self._progress.of_all(self._address(), ordered_only=request.header.is_order)
        return Reply(body=found.encode())

    async def time_spans(self, request: Request[QueryConsumeTimeSpan]) -> Reply:
        header = request.header
        return Reply(
            body=(await self._progress.time_spans(header.group, header.topic, self._state.clock.now_ms())).encode()
        )


class SettingHandlers:
    """Requests about settings. `apply` is called with changed settings."""

    def __init__(self, state: BrokerState, apply: Callable[[BrokerSettings], None]) -> None:
        self._state = state
        self._apply = apply
        self._version = DataVersion(timestamp=state.clock.now_ms())

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.get,
        }

    def update(self, request: PlainRequest) -> Reply:
        """Apply all changes, or none."""
        properties = read_properties(request.command.body)
        before = self._state.settings.now
        try:
            after = change_keys(before, properties)
        except NoPermission as refusal:
            log.warning("Rejected a change of settings by %s: %r", request.peer.address, refusal.remark)
            raise
        if properties:
            self._state.settings.now = after
            self._version = self._version.next_version(self._state.clock.now_ms())
        for name, text in properties.items():
            log.info("Changed setting %s to %r, as requested by %s", name, text, request.peer.address)
        if after != before:
            self._apply(after)
        return Reply()

    def get(self, request: PlainRequest) -> Reply:
        version = self._version.encode().decode()
        return Reply(BrokerConfigReply(version), write_properties(write_keys(self._state.settings.now)))
