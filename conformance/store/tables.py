"""The tables of a store in RocketMQ's JSON: what Apache must know of a store that it did not write, and what it changed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from conformance.broker_line import GROUP, BrokerLine
from pocketmq.clock import SystemClock
from pocketmq.codes import RequestCode
from pocketmq.files import DiskFiles
from pocketmq.model.delay import DELAY_LEVELS
from pocketmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from pocketmq.protocol.bodies.clients import GroupTable, SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import ConsumerOffsets, DelayOffsets, TopicConfig, TopicTable
from pocketmq.protocol.java_json import write_pretty_json
from pocketmq.store.tables import Tables

TOPICS, GROUPS, OFFSETS, DELAYS = "topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"
OFFSET_OF_GROUP: Final = 17
"""What the tables say that the group has consumed of Orders, queue 0."""
RETRIES_OF_GROUP: Final = 5


def open_tables(store_folder: Path) -> Tables:
    return Tables(DiskFiles(), store_folder / "config")


def write_tables(store_folder: Path, topics: Mapping[str, int]) -> None:
    """The tables of a fresh store."""
    tables = open_tables(store_folder)
    group = SubscriptionGroupConfig(GROUP, retry_max_times=RETRIES_OF_GROUP)
    tables.save(GROUPS, write_pretty_json(GroupTable(subscription_group_table={GROUP: group})))
    offsets = ConsumerOffsets(offset_table={f"Orders@{GROUP}": {0: OFFSET_OF_GROUP}})
    tables.save(OFFSETS, write_pretty_json(offsets))
    tables.save(DELAYS, write_pretty_json(DelayOffsets(offset_table={1: 0, 2: 0, 18: 0})))
    # Brokers enter these three when they first need them. 4.9 takes its own part in transactions for granted.
    add_topics(store_folder, {SCHEDULE_TOPIC: len(DELAY_LEVELS), HALF_TOPIC: 1, OP_HALF_TOPIC: 1, **topics})


def add_topics(store_folder: Path, topics: Mapping[str, int]) -> None:
    """Enter topics, each with its number of queues, beside those that are in the table."""
    tables = open_tables(store_folder)
    table = read_topics(store_folder)
    added = {name: TopicConfig(name, queues, queues) for name, queues in topics.items()}
    changed = msgspec.structs.replace(
        table,
        topic_config_table={**table.topic_config_table, **added},
        data_version=table.data_version.next_version(SystemClock().now_ms()),
    )
    tables.save(TOPICS, write_pretty_json(changed))


def read_topics(store_folder: Path) -> TopicTable:
    return open_tables(store_folder).load(TOPICS, lambda data: TopicTable.decode(data)) or TopicTable()


def read_offsets(store_folder: Path) -> ConsumerOffsets:
    found = open_tables(store_folder).load(OFFSETS, lambda data: ConsumerOffsets.decode(data))
    return found or ConsumerOffsets()


def unknown_to_apache(line: BrokerLine, topics: Mapping[str, int]) -> Iterator[str]:
    """What a broker that started on our tables did not take from them."""
    known = TopicTable.decode(line.call(RequestCode.GET_ALL_TOPIC_CONFIG).body).topic_config_table
    for name, queues in topics.items():
        topic = known.get(name)
        if topic is None or (topic.read_queue_nums, topic.write_queue_nums) != (queues, queues):
            yield f"topic {name} is {topic}, it should have {queues} queues"
    groups = GroupTable.decode(line.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    group = groups.subscription_group_table.get(GROUP)
    if group is None or group.retry_max_times != RETRIES_OF_GROUP:
        yield f"group {GROUP} is {group}, it should have {RETRIES_OF_GROUP} retries"
    committed = line.committed("Orders", 0)
    if committed != OFFSET_OF_GROUP:
        yield f"group {GROUP} stands at {committed} in Orders:0 instead of {OFFSET_OF_GROUP}"
