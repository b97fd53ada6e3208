"""Administration: maintenance of the store, settings, statistics.

The store deletes expired files by itself; the maintenance requests only trigger it.
"""

import logging
from collections.abc import Callable

from pocketmq.broker.setting_keys import change_keys, write_keys
from pocketmq.broker.settings import BrokerSettings, SettingsInUse
from pocketmq.broker.stats.broker_stats import BrokerStats
from pocketmq.broker.stats.group_progress import GroupProgress
from pocketmq.broker.stats.runtime_info import RuntimeInfo
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import ImpossibleRequest, NoPermission
from pocketmq.net.dispatcher import Handler, Reply, Request
from pocketmq.protocol.api.administration import (
    BrokerConfigReply,
    GetBrokerConsumeStats,
    GetConsumeStats,
    ViewBrokerStats,
)
from pocketmq.protocol.api.messages import QueryConsumeTimeSpan
from pocketmq.protocol.bodies.body import DataVersion, KVTable
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.bodies.topics import ReplicationStatus
from pocketmq.protocol.fields import NoFields
from pocketmq.protocol.java_json import write_body
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("pocketmq.broker")


class MaintenanceHandlers:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.drop_log_files,
            RequestCode.GET_BROKER_HA_STATUS: self.replication,
        }

    def clean_queues(self, request: Request[NoFields]) -> Reply:
        """Remove queue entries of deleted messages; a few at every tick, after the answer.

        Apache RocketMQ also forgets the end of a queue whose messages have all expired, and begins at 0 again. Offsets of
        groups would then be beyond its end. Here the queue keeps its end.
        """
        self._store.drop_expired_entries()
        log.info("Removing expired queue entries, as requested by %s", request.peer.address)
        return Reply()

    def drop_log_files(self, request: Request[NoFields]) -> Reply:
        """Delete log files older than the retention time now, not only at the configured hour."""
        dropped = self._store.drop_expired()
        log.info("Deleted %d expired log files, as requested by %s", dropped, request.peer.address)
        return Reply()

    def replication(self, request: Request[NoFields]) -> Reply:
        """Without replication, the broker has no replicas."""
        return Reply(body=write_body(ReplicationStatus(True, self._store.facts.log_end)))


class SettingHandlers:
    """Requests about settings. `apply` is called with changed settings."""

    def __init__(self, settings: SettingsInUse, clock: Clock, apply: Callable[[BrokerSettings], None]) -> None:
        self._settings = settings
        self._clock = clock
        self._apply = apply
        self._version = DataVersion(timestamp=clock.now_ms())

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.get,
        }

    def update(self, request: Request[NoFields]) -> Reply:
        """Apply all changes, or none."""
        properties = read_properties(request.command.body)
        before = self._settings.now
        try:
            after = change_keys(before, properties)
        except NoPermission as refusal:
            log.warning("Rejected a change of settings by %s: %r", request.peer.address, refusal.remark)
            raise
        if properties:
            self._settings.now = after
            self._version = self._version.next_version(self._clock.now_ms())
        for name, text in properties.items():
            log.info("Changed setting %s to %r, as requested by %s", name, text, request.peer.address)
        if after != before:
            self._apply(after)
        return Reply()

    def get(self, request: Request[NoFields]) -> Reply:
        version = write_body(self._version).decode()
        return Reply(BrokerConfigReply(version), write_properties(write_keys(self._settings.now)))


class StatisticsHandlers:
    """Requests for statistics. `address` returns the address for clients, known once the broker listens."""

    def __init__(
        self, info: RuntimeInfo, stats: BrokerStats, progress: GroupProgress, clock: Clock, address: Callable[[], str]
    ) -> None:
        self._info = info
        self._stats = stats
        self._progress = progress
        self._clock = clock
        self._address = address

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view,
            RequestCode.GET_CONSUME_STATS: self.of_group,
            RequestCode.GET_BROKER_CONSUME_STATS: self.of_all_groups,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_spans,
        }

    def runtime_info(self, request: Request[NoFields]) -> Reply:
        return Reply(body=write_body(KVTable(self._info.table())))

    def view(self, request: Request[ViewBrokerStats]) -> Reply:
        name, key = request.header.stats_name, request.header.stats_key
        found = self._stats.view(name, key)
        if found is None:
            raise ImpossibleRequest(f"The stats <{name}> <{key}> not exist")
        return Reply(body=write_body(found))

    async def of_group(self, request: Request[GetConsumeStats]) -> Reply:
        header = request.header
        topics = [header.topic] if header.topic else [topic for topic in (header.topic_list or "").split(";") if topic]
        return Reply(body=write_body(await self._progress.of_group(header.consumer_group, topics)))

    async def of_all_groups(self, request: Request[GetBrokerConsumeStats]) -> Reply:
        found = await self._progress.of_all(self._address(), ordered_only=request.header.is_order)
        return Reply(body=write_body(found))

    async def time_spans(self, request: Request[QueryConsumeTimeSpan]) -> Reply:
        header = request.header
        return Reply(body=write_body(await self._progress.time_spans(header.group, header.topic, self._clock.now_ms())))
