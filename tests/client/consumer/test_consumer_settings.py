"""The options of consumers: their defaults are RocketMQ's, and impossible values are refused."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

import pocketmq
from pocketmq.client import LitePullConsumer, OffsetStore, PullConsumer, PushConsumer
from pocketmq.client.cluster.identity import client_id
from pocketmq.client.consumer.allocation import AVERAGE, Circle
from pocketmq.client.consumer.flow_limits import worker_range
from pocketmq.client.consumer.settings import (
    GroupSettings,
    LitePullSettings,
    PullSettings,
    PushSettings,
    RebalanceSettings,
)
from pocketmq.client.settings import settings_of
from pocketmq.errors import InvalidName, InvalidSetting
from pocketmq.model import MessageQueue
from pocketmq.protocol.bodies.clients import ConsumeFromWhere, MessageModel

NOW_MS = 1_700_000_000_000


class Nowhere(OffsetStore):
    async def load(self, queue: MessageQueue) -> int | None:
        return None

    async def save(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        """Keeps nothing."""


def push(**options: Any) -> PushSettings:
    return settings_of(PushSettings, "127.0.0.1:9876", {"group": "G", **options})


def test_defaults_are_those_of_rocketmq() -> None:
    settings = push()

    assert (settings.workers, settings.pull_batch, settings.pull_batch_bytes) == (20, 32, 262_144)
    assert (settings.pull_wait_ms, settings.pull_timeout_ms, settings.consume_timeout_ms) == (15_000, 30_000, 900_000)
    assert (settings.max_queue_messages, settings.max_queue_bytes, settings.max_span) == (1000, 100 * 2**20, 2000)
    assert (settings.rebalance_ms, settings.persist_ms, settings.suspend_ms) == (20_000, 5_000, 1_000)
    assert (settings.model, settings.strategy) == (MessageModel.CLUSTERING, AVERAGE)
    lite = settings_of(LitePullSettings, None, {"group": "G"})
    assert (lite.pull_batch, lite.pull_wait_ms, lite.auto_commit_ms, lite.poll_timeout_ms) == (10, 20_000, 5_000, 5_000)
    assert lite.limits_of_queue(1).all_messages == 10_000
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
        ("EARLIEST", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, NOW_MS),
        ("3s", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, NOW_MS - 3000),
        ("2d", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, NOW_MS - 2 * 86_400_000),
        ("1970-01-01T00:00:07+00:00", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 7000),
    ],
)
def test_the_start_position_of_a_new_group_can_be_set(start_at: Any, where: ConsumeFromWhere, time_ms: int) -> None:
    settings = push(start_at=start_at)

    assert (settings.from_where, settings.start_time_ms(NOW_MS)) == (where, time_ms)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group": ""}, "needs group"),
        ({"start_at": "middle"}, "yyyyMMddHHmmss"),
        ({"start_at": "2024-13-01"}, "a time such as 2024-01-31T23:59, 2h"),
        ({"start_at": True}, "start_at"),
        ({"start_at": ["last"]}, "start_at"),
        ({"start_at": 10**30}, "start_at = 10+ must be 253402300799999 at most"),
        ({"start_at": -1}, "start_at = -1 must be 'first'"),
        (
            {"start_at": timedelta(hours=-2)},
            r"a time before it, for example start_at=datetime.timedelta\(seconds=7200\)",
        ),
        ({"broadcast": True, "max_reconsume_times": 3}, "broadcasting"),
        ({"local_offsets": 5}, "local_offsets = 5 must be the path of a folder"),
        ({"pull_batch": 1.5}, "pull_batch = 1.5 must be a whole number from 1 to 1024, for example pull_batch=32"),
        ({"consume_timeout_ms": 0}, "must be above 0, for example consume_timeout_ms=900000"),
        ({"allocation": "BY_LUCK"}, "BY_LUCK"),
        ({"rebalance_ms": 999}, "rebalance_ms"),
        ({"max_queue_messages": 0}, "max_queue_messages"),
        ({"max_topic_messages": 0}, "topic_messages"),
        ({"workers": "many"}, "a whole number"),
        ({"processes": 0}, "processes"),
        ({"worker": 3}, "did you mean 'workers'"),
        ({"retries": 3}, "did you mean 'max_reconsume_times'"),
        ({"consume_from_where": "first"}, "did you mean 'start_at'"),
        ({"batch_size": 8}, "did you mean 'pull_batch'"),
        ({"timer": 8}, "there is no option 'timer'; there are: allocation, "),
        ({"ordered": True, "broadcast": True, "max_reconsume_times": 3}, "broadcasting"),
        ({"pull_batch": 5000}, "pull_batch = 5000 must be a whole number from 1 to 1024, for example pull_batch=1024"),
        ({"pull_interval_ms": -5}, "pull_interval_ms = -5 must .* from 0 to 65535, for example pull_interval_ms=0"),
        ({"pull_interval_ms": 65_536}, "pull_interval_ms=65535"),
        ({"max_reconsume_times": "x"}, "max_reconsume_times = 'x' must be a whole number"),
        ({"max_reconsume_times": -2}, "for example max_reconsume_times=-1"),
        ({"allocation": 42}, "allocation = 42 must be a strategy, .* for example allocation='AVG_BY_CIRCLE'"),
        ({"pull_wait_ms": 31_000}, "pull_wait_ms = 31000 must not be above pull_timeout_ms = 30000"),
        ({"pull_timeout_ms": 10_000}, "for example pull_wait_ms=5000 or pull_timeout_ms=30000"),
        ({"group": "DEFAULT_CONSUMER"}, "group = 'DEFAULT_CONSUMER' .* for example group='billing'"),
        ({"max_queue_messages": 65_536}, "max_queue_messages=65535"),
        ({"max_queue_bytes": 2 << 30}, "max_queue_bytes=1073741824"),
        ({"max_topic_messages": 6_553_501}, "max_topic_messages=6553500"),
        ({"max_topic_bytes": 1 << 40}, "max_topic_bytes=107374182400"),
        ({"max_span": 70_000}, "max_span=65535"),
        ({"suspend_ms": 30_001}, "suspend_ms=30000"),
        ({"pull_batch_bytes": 1 << 31}, "pull_batch_bytes=2147483647"),
        ({"processes": "2"}, "processes = '2'"),
        ({"workers": 1001}, "workers = 1001 must .* from 1 to 1000"),
        ({"workers": (8, 4)}, r"workers = \(8, 4\).* for example workers=\(4, 8\)"),
        ({"workers": (0, 4)}, "workers"),
        ({"workers": (1, 2, 3)}, "workers"),
        ({"workers": True}, "workers"),
        ({"auto_commit": False}, "auto_commit = False requires ordered=True"),
        ({"local_offsets": "/tmp"}, "local_offsets has no effect with broadcast=False; .* set broadcast=True"),
        ({"broadcast": True, "allocation": "AVG"}, "allocation has no effect with broadcast=True"),
        ({"suspend_ms": 200}, "suspend_ms has no effect with ordered=False; .* set ordered=True"),
        ({"ordered": True, "max_span": 100}, "max_span has no effect with ordered=True"),
        ({"processes": 2, "workers": 8}, "workers has no effect with processes"),
        ({"broadcast": True, "offset_store": Nowhere(), "local_offsets": "/tmp"}, "no effect with an offset_store"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        push(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pull_wait_ms": 30_001}, "pull_wait_ms = 30001 must not be above block_timeout_ms = 30000"),
        ({"max_reconsume_times": 1.5}, "max_reconsume_times = 1.5 must be a whole number"),
        ({"group": "DEFAULT_CONSUMER"}, "DEFAULT_CONSUMER"),
    ],
)
def test_a_pull_consumer_refuses_impossible_settings(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        settings_of(PullSettings, None, {"group": "G", **options})


def test_a_lite_pull_consumer_refuses_impossible_settings() -> None:
    with pytest.raises(InvalidSetting, match="pull_batch=1024"):
        LitePullSettings(group="G", pull_batch=1025)
    with pytest.raises(InvalidSetting, match="auto_commit_ms has no effect with auto_commit=False"):
        LitePullSettings(group="G", auto_commit=False, auto_commit_ms=2_000)
    with pytest.raises(InvalidSetting, match="pull_wait_ms = 20000 must not be above pull_timeout_ms = 19999"):
        LitePullSettings(group="G", pull_timeout_ms=19_999)


@pytest.mark.parametrize("name", ["topic", "tags", "sql", "batch_size"])
def test_an_argument_of_subscribe_is_not_an_option(name: str) -> None:
    options: dict[str, Any] = {"group": "G", name: 1}

    with pytest.raises(InvalidSetting, match=rf"no option '{name}'; it is an argument of on\(\) and subscribe\(\)"):
        PushConsumer("127.0.0.1:9876", **options)
    with pytest.raises(InvalidSetting, match=rf"no option '{name}'; (it is an argument of subscribe|did you mean)"):
        LitePullConsumer("127.0.0.1:9876", **options)


def test_tag_is_not_an_option_but_tags_is_an_argument() -> None:
    options: dict[str, Any] = {"group": "G", "tag": "paid"}

    with pytest.raises(InvalidSetting, match=r"no option 'tag'; tags is an argument of on\(\) and subscribe\(\)"):
        PushConsumer("127.0.0.1:9876", **options)


def test_a_blocking_consumer_does_not_choose_its_thread() -> None:
    for kind in (PushConsumer, LitePullConsumer, PullConsumer):
        with pytest.raises(InvalidSetting, match="own_thread has no effect on a blocking consumer"):
            kind("127.0.0.1:9876", group="G", own_thread=True)


def test_a_strategy_with_arguments_is_made_by_its_name() -> None:
    with pytest.raises(InvalidSetting, match=r"by allocation=strategy_named\(name, …\) CONFIG \(with queues\)"):
        push(allocation="CONFIG")

    assert push(allocation=pocketmq.client.strategy_named("CONFIG", queues=[])).strategy.name == "CONFIG"


def test_values_at_a_limit_are_accepted() -> None:
    settings = push(pull_batch=1024, pull_interval_ms=0, max_reconsume_times=-1, pull_wait_ms=30_000, workers=(1, 1000))

    assert worker_range(settings.workers) == (1, 1000)
    assert worker_range(push(workers=7).workers) == (7, 7)


def test_a_group_name_follows_the_rules_of_brokers() -> None:
    with pytest.raises(InvalidName, match="' '"):
        push(group="a b")
    assert push(namespace="ns").wire_group == "ns%G"


def test_a_strategy_is_a_name_or_an_object() -> None:
    circle = Circle()

    assert push(allocation="AVG_BY_CIRCLE").strategy.name == "AVG_BY_CIRCLE"
    assert push(allocation=circle).strategy is circle


def test_a_broadcasting_consumer_has_the_same_client_id_after_every_start() -> None:
    alone = RebalanceSettings(group="G", broadcast=True, client_ip="10.0.0.1")
    shared = RebalanceSettings(group="G", client_ip="10.0.0.1")

    assert client_id(alone) == "10.0.0.1@DEFAULT"
    assert client_id(shared) == client_id(GroupSettings(group="H", client_ip="10.0.0.1")) != client_id(alone)
    assert PullSettings(group="G", broadcast=True).keeps_default_name


def test_the_interval_of_automatic_commits_has_a_minimum() -> None:
    with pytest.raises(InvalidSetting, match="auto_commit_ms"):
        LitePullSettings(group="G", auto_commit_ms=999)


def test_start_positions_of_the_command_line_and_of_spark_are_accepted() -> None:
    for words in (("first", "earliest"), ("last", "latest")):
        one, other = (PushSettings(group="G", start_at=word).from_where for word in words)
        assert one is other
    with pytest.raises(
        InvalidSetting, match="start_at = 'newest' is invalid; expected 'first' or 'earliest', 'last' or 'latest'"
    ):
        PushSettings(group="G", start_at="newest")
