"""The options of consumers: their defaults are RocketMQ's, and what can never work is refused."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from pocketmq.client.allocation import AVERAGE, Circle
from pocketmq.client.consumer_settings import (
    GroupSettings,
    LitePullSettings,
    PullSettings,
    PushSettings,
    SharingSettings,
)
from pocketmq.client.identity import client_id
from pocketmq.client.settings import settings_of
from pocketmq.errors import InvalidName, InvalidSetting
from pocketmq.protocol.bodies.heartbeat import ConsumeFromWhere, MessageModel

NOW_MS = 1_700_000_000_000


def push(**options: Any) -> PushSettings:
    return settings_of(PushSettings, "127.0.0.1:9876", {"group": "G", **options})


def test_defaults_are_rocketmqs() -> None:
    settings = push()

    assert (settings.workers, settings.pull_batch, settings.pull_batch_bytes) == (20, 32, 262_144)
    assert (settings.pull_wait_ms, settings.pull_timeout_ms, settings.consume_timeout_ms) == (15_000, 30_000, 900_000)
    assert (settings.max_queue_messages, settings.max_queue_bytes, settings.max_span) == (1000, 100 * 2**20, 2000)
    assert (settings.rebalance_ms, settings.persist_ms, settings.suspend_ms) == (20_000, 5_000, 1_000)
    assert (settings.model, settings.strategy) == (MessageModel.CLUSTERING, AVERAGE)
    lite = settings_of(LitePullSettings, None, {"group": "G"})
    assert (lite.pull_batch, lite.pull_wait_ms, lite.auto_commit_ms, lite.poll_timeout_ms) == (10, 20_000, 5_000, 5_000)
    assert lite.limits.all_messages == 10_000
    pull = settings_of(PullSettings, None, {"group": "G"})
    assert (pull.pull_wait_ms, pull.pull_timeout_ms, pull.block_timeout_ms) == (20_000, 10_000, 30_000)


@pytest.mark.parametrize(
    ("start_at", "where", "time_ms"),
    [
        (None, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, NOW_MS),
        ("last", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, NOW_MS),
        ("first", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, NOW_MS),
        (5, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 5),
        (timedelta(seconds=3), ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, NOW_MS - 3000),
        (datetime.fromtimestamp(7), ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 7000),
    ],
)
def test_where_a_new_group_begins(start_at: Any, where: ConsumeFromWhere, time_ms: int) -> None:
    settings = push(start_at=start_at)

    assert (settings.from_where, settings.start_time_ms(NOW_MS)) == (where, time_ms)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group": ""}, "needs group"),
        ({"start_at": "middle"}, "yyyyMMddHHmmss"),
        ({"start_at": True}, "start_at"),
        ({"start_at": ["last"]}, "start_at"),
        ({"allocation": "BY_LUCK"}, "BY_LUCK"),
        ({"rebalance_ms": 999}, "rebalance_ms"),
        ({"max_queue_messages": 0}, "max_queue_messages"),
        ({"max_topic_messages": 0}, "topic_messages"),
        ({"workers": "many"}, "a whole number"),
        ({"processes": 0}, "processes"),
        ({"worker": 3}, "did you mean 'workers'"),
        ({"ordered": True, "broadcast": True, "max_reconsume_times": 3}, "broadcasting"),
    ],
)
def test_what_can_never_work_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        push(**options)


def test_a_group_has_a_name_that_brokers_take() -> None:
    with pytest.raises(InvalidName, match="' '"):
        push(group="a b")
    assert push(namespace="ns").wire_group == "ns%G"


def test_strategies_are_given_by_name_or_as_they_are() -> None:
    circle = Circle()

    assert push(allocation="AVG_BY_CIRCLE").strategy.name == "AVG_BY_CIRCLE"
    assert push(allocation=circle).strategy is circle


def test_a_broadcasting_consumer_has_the_same_name_after_every_start() -> None:
    alone = SharingSettings(group="G", broadcast=True, client_ip="10.0.0.1")
    shared = SharingSettings(group="G", client_ip="10.0.0.1")

    assert client_id(alone) == "10.0.0.1@DEFAULT"
    assert client_id(shared) == client_id(GroupSettings(group="H", client_ip="10.0.0.1")) != client_id(alone)
    assert PullSettings(group="G", broadcast=True).keeps_default_name


def test_an_auto_commit_is_not_made_too_often() -> None:
    with pytest.raises(InvalidSetting, match="auto_commit_ms"):
        LitePullSettings(group="G", auto_commit_ms=999)
