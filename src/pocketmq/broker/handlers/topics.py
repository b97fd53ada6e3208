"""Topics: requests of administrators that create, change, list, count and delete topics.

    created or changed ──► table ──► saved, and the name servers know ──► answered
    deleted ──► table ──► offsets ──► queues and their files ──► held pulls wake, and find no topic ──► saved ──► answered

Name servers are not informed of a deletion: the administrator's tool does that when all brokers have deleted the topic.
The topic is removed from the table first, so that no client writes to half deleted queues. Deleting it again is
harmless, and completes a deletion that a disk error interrupted.

Pages: a slave reads its master's topics and groups in parts.

    from row 0, 100 rows ──► these, the version, the total ──► from row 100, with that version ──► …
                                                                └─ the table has changed: from row 0 again

Requests without a page, as of all clients up to 5.3.3, get the whole table. Tools and consoles repeat them, and large
tables take long to encode, so the bytes are cached until the table changes.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from pocketmq.broker.state import BrokerState
from pocketmq.broker.topics import Announced, parse_changes
from pocketmq.codes import RequestCode
from pocketmq.errors import InvalidParameter, TopicNotFound
from pocketmq.model import LMQ_PREFIX, MessageQueue, TopicName, parse_topic
from pocketmq.net import Handler, PlainRequest, Reply, Request
from pocketmq.protocol.api.administration import AllTopicsReply, CreateTopic, ForTopic, GetAllTopics
from pocketmq.protocol.bodies.clients import GroupList
from pocketmq.protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigList,
    TopicFilterType,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from pocketmq.protocol.frames import DEFAULT_LIMITS
from pocketmq.protocol.pop import pop_retry_topic

log = logging.getLogger("pocketmq.broker")

T = TypeVar("T")

MAX_CACHED_BYTES: Final = DEFAULT_LIMITS.frame_bytes
"""Larger tables do not fit into one answer."""


class Page(NamedTuple):
    """The requested rows. `seen` is the version, as JSON, of the table with the previous rows."""

    start: int | None
    limit: int | None
    seen: str | None

    @property
    def is_whole(self) -> bool:
        """Whether all rows are requested, by a client that has none."""
        return not self.start and self.limit is None and not self.seen

    def of(self, rows: Mapping[str, T], version: DataVersion) -> dict[str, T]:
        """The rows of the page, in the order of the table, which is stable for one version."""
        start, limit = self.start or 0, len(rows) if self.limit is None else self.limit
        if start < 0 or limit < 0:
            raise InvalidParameter(f"invalid page of {limit} rows from row {start}; both must be at least 0")
        if self.seen and DataVersion.decode(self.seen.encode()) != version:
            start = 0
        return dict(islice(rows.items(), start, start + limit))


class CachedTable:
    """The last encoded answer with a whole table."""

    def __init__(self) -> None:
        self._version: DataVersion | None = None
        self._body = b""

    def body(self, version: DataVersion, write: Callable[[], bytes]) -> bytes:
        """The table of this version; `write` is called if it is not cached."""
        if version == self._version:
            return self._body
        body = write()
        if len(body) <= MAX_CACHED_BYTES:
            self._version, self._body = version, body
        return body


class TopicHandlers:
    """Requests about topics. `announced` registers changes."""

    def __init__(self, state: BrokerState, announced: Announced) -> None:
        self._state = state
        self._announced = announced
        self._cached_table = CachedTable()

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.create_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused,
            RequestCode.GET_TOPIC_CONFIG: self.get,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.GET_TOPIC_STATS_INFO: self.stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.consumers,
        }

    # changing

    async def create(self, request: Request[CreateTopic]) -> Reply:
        return await self._put(request, [_config(request.header)])

    async def create_list(self, request: PlainRequest) -> Reply:
        configs = TopicConfigList.decode(request.command.body).topic_config_list
        return await self._put(request, list(configs))

    async def _put(self, request: Request[CreateTopic] | PlainRequest, configs: list[TopicConfig]) -> Reply:
        self._state.topics.put(configs, self._state.clock.now_ms())
        registered = self._announced()
        for config in configs:
            log.info("Set topic %s, as requested by %s: %s", config.topic_name, request.peer.address, config)
        await self._state.snapshots.save_topics()
        if registered is not None:
            await registered
        return Reply()

    async def delete(self, request: Request[ForTopic]) -> Reply:
        topic = parse_topic(request.header.topic)
        for name in [topic, *self._pop_retry_topics(topic)]:
            if self._delete(name):
                log.info("Deleted topic %s, as requested by %s", name, request.peer.address)
        await asyncio.gather(self._state.snapshots.save_topics(), self._state.snapshots.save_offsets())
        return Reply()

    def _delete(self, topic: TopicName) -> bool:
        known = self._state.topics.delete(topic, self._state.clock.now_ms())
        self._state.offsets.delete_topic(topic)
        try:
            # Waits for the disk on the event loop: no client may write to a half deleted topic.
            self._state.store.delete_topic(topic)
        finally:
            self._state.forget_topic(topic)
        return known

    def _pop_retry_topics(self, topic: TopicName) -> list[TopicName]:
        """The topics in which messages of this one wait for their next attempt, after a pop."""
        groups = self._state.offsets.groups_of(topic)
        names = [pop_retry_topic(group, topic, v2=v2) for group in groups for v2 in (False, True)]
        return [parse_topic(name) for name in names if name in self._state.topics]

    async def clean_unused(self, request: PlainRequest) -> Reply:
        """Remove the queues of topics that no longer exist. Light topics have queues and no row."""
        for topic in self._state.store.topics():
            if topic in self._state.topics or self._state.topics.is_system(topic) or topic.startswith(LMQ_PREFIX):
                continue
            self._state.store.delete_topic(topic)
            log.info("Removed the queues of unknown topic %s, as requested by %s", topic, request.peer.address)
            await asyncio.sleep(0)  # each deletion waits for the disk: serve other requests in between
        return Reply()

    # queries

    def get(self, request: Request[ForTopic]) -> Reply:
        found = self._state.topics.get(request.header.topic)
        if found is None:
            raise TopicNotFound(f"No topic in this broker. topic: {request.header.topic}")
        return Reply(body=found.encode())

    def get_all(self, request: Request[GetAllTopics]) -> Reply:
        header, count = request.header, AllTopicsReply(len(self._state.topics))
        page = Page(header.topic_seq, header.max_topic_num, header.data_version)
        if page.is_whole:
            return Reply(
                count,
                self._cached_table.body(self._state.topics.version, lambda: self._state.topics.registration().encode()),
            )
        table = self._state.topics.registration()
        rows = page.of(table.topic_config_table, table.data_version)
        return Reply(count, replace(table, topic_config_table=rows).encode())

    def system_topics(self, request: PlainRequest) -> Reply:
        return Reply(body=TopicList(tuple(self._state.topics.system_topics())).encode())

    def stats(self, request: Request[ForTopic]) -> Reply:
        name = request.header.topic
        topic = self._state.topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic[{name}] not exist")
        broker_name = self._state.settings.now.broker_name
        queues = range(max(topic.read_queue_nums, topic.write_queue_nums))
        table = {MessageQueue(name, broker_name, queue_id): self._queue_stats(name, queue_id) for queue_id in queues}
        return Reply(body=TopicStatsTable(table, self._state.stats.put_tps(name)).encode())

    def _queue_stats(self, topic: str, queue_id: int) -> TopicOffset:
        end = self._state.store.max_offset(topic, queue_id)
        last_ms = self._state.store.store_ms(topic, queue_id, end - 1) if end else None
        return TopicOffset(self._state.store.min_offset(topic, queue_id), end, last_ms or 0)

    def consumers(self, request: Request[ForTopic]) -> Reply:
        """Groups that subscribe to the topic, or have an offset in it."""
        topic = request.header.topic
        groups = dict.fromkeys([*self._state.members.groups_of_topic(topic), *self._state.offsets.groups_of(topic)])
        return Reply(body=GroupList(tuple(groups)).encode())


def _config(header: CreateTopic) -> TopicConfig:
    try:
        filter_type = TopicFilterType(header.topic_filter_type)
    except ValueError:
        kinds = " and ".join(TopicFilterType)
        raise InvalidParameter(f"invalid topicFilterType {header.topic_filter_type!r}; expected {kinds}") from None
    return TopicConfig(
        header.topic,
        header.read_queue_nums,
        header.write_queue_nums,
        header.perm,
        filter_type,
        header.topic_sys_flag or 0,
        header.order,
        parse_changes(header.attributes),
    )
