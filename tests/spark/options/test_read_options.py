"""Options of reading: defaults, rules between them, and pickling."""

import pickle

import pytest

from pocketmq.errors import InvalidExpression, InvalidSetting
from pocketmq.model.queue import MessageQueue
from pocketmq.spark.options.options import Use
from pocketmq.spark.options.read_options import READ_OPTIONS, ReadOptions, parse_read_options, subscription_of

BASE = {"subscribe": "orders", "rocketmq.namesrv.addr": "a:9876"}
ORDERS_0 = MessageQueue("orders", "broker-a", 0)


def batch(**given: str) -> ReadOptions:
    return parse_read_options({**BASE, **given}, streaming=False, environ={})


def stream(**given: str) -> ReadOptions:
    return parse_read_options({**BASE, **given}, streaming=True, environ={})


def test_defaults_are_those_of_the_kafka_connector() -> None:
    assert (batch().starting_offsets, batch().ending_offsets) == ("earliest", "latest")
    assert stream().starting_offsets == "latest"
    assert stream().on_data_loss == "fail"
    assert stream().max_delay_ms == 900_000
    assert (stream().max_offsets, stream().min_offsets, stream().min_partitions) == (None, None, None)


def test_options_are_read_as_spark_passes_them() -> None:
    options = parse_read_options(
        {
            "assign": '{"orders":{"broker-a":[0]}}',
            "nameserver": "a:9876",
            "startingoffsets": '{"orders":{"broker-a":{"0":5}}}',
            "maxtriggerdelay": "30s",
            "minoffsetspertrigger": "10",
            "maxoffsetspertrigger": "100",
            "partition.metadata.cache.ttl.ms": "0",
        },
        streaming=True,
        environ={},
    )

    assert options.queues == (ORDERS_0,)
    assert options.starting_offsets == {ORDERS_0: 5}
    assert (options.max_delay_ms, options.min_offsets, options.max_offsets) == (30_000, 10, 100)


def test_every_option_has_its_field() -> None:
    fields = set(ReadOptions.__struct_fields__)
    connection = {"name_servers", "namespace", "client_ip", "instance_name", "call_timeout_ms", "connect_timeout_ms"}

    own = {o.field for o in READ_OPTIONS.options if not o.name.startswith("rocketmq.")} - {"fail_on_data_loss"}

    assert own - fields == set()
    assert fields - own == {"connection"}
    assert connection <= {o.field for o in READ_OPTIONS.options}


def test_examples_of_the_documentation_are_valid() -> None:
    for option in READ_OPTIONS.options:
        if Use.READ & option.use:
            option.kind.read(option.example)


def test_options_can_be_pickled() -> None:
    options = stream(filterTags="a || b", groupId="spark-orders")

    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({}, "fail"),
        ({"failOnDataLoss": "true"}, "fail"),
        ({"failOnDataLoss": "false"}, "skip"),
        ({"onDataLoss": "earliest"}, "earliest"),
        ({"failOnDataLoss": "false", "onDataLoss": "earliest"}, "earliest"),
        ({"failOnDataLoss": "true", "onDataLoss": "fail"}, "fail"),
    ],
)
def test_both_options_for_data_loss_select_a_policy(given: dict[str, str], policy: str) -> None:
    assert stream(**given).on_data_loss == policy


def test_pulls_use_the_group_of_the_user_or_a_constant_one() -> None:
    assert stream(groupId="mine").pull_group == "mine"
    assert stream().pull_group == batch(startingOffsets="earliest").pull_group
    assert stream().pull_group.startswith("spark-rocketmq-source-")
    assert stream(groupIdPrefix="etl").pull_group.startswith("etl-")
    assert stream().pull_group != parse_read_options({**BASE, "subscribe": "b"}, streaming=True, environ={}).pull_group


def test_filters_become_subscriptions() -> None:
    assert subscription_of("t", None, None).matches_all
    assert subscription_of("t", "a || b", None).tags_set == ("a", "b")
    assert subscription_of("t", None, "x > 1").expression_type == "SQL92"


@pytest.mark.parametrize(
    ("option", "text", "why"),
    [
        ("filterSql", "nonsense nonsense", "filterSql = 'nonsense nonsense' is wrong: .* column 10"),
        ("filterTags", "||", "contains no tag"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_an_invalid_filter_is_refused_before_anything_is_read(
    option: str, text: str, why: str, streaming: bool
) -> None:
    given = {**BASE, option: text}

    with pytest.raises(InvalidExpression, match=why):
        parse_read_options(given, streaming=streaming, environ={})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"subscribePattern": "a.*"}, "subscribe and subscribePattern exclude one another"),
        ({"filterTags": "a", "filterSql": "x > 1"}, "filterTags and filterSql exclude one another"),
        ({"startingOffsets": "committed"}, "needs the option groupId"),
        ({"endingOffsets": "latest"}, "is for a batch read, not for a streaming read"),
        ({"endingTimestamp": "5"}, "is for a batch read, not for a streaming read"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is above maxOffsetsPerTrigger = 4"),
        ({"maxTriggerDelay": "5s"}, "has no effect without minOffsetsPerTrigger"),
        ({"minPartitions": "5", "maxPartitions": "4"}, "is above maxPartitions = 4"),
        ({"failOnDataLoss": "true", "onDataLoss": "skip"}, "contradicts onDataLoss = skip"),
        ({"failOnDataLoss": "false", "onDataLoss": "fail"}, "contradicts onDataLoss = fail"),
        ({"pushFilters": "true"}, "is for a batch read"),
        ({"topic": "orders"}, "name the topics by the option subscribe"),
        ({"consumerGroup": "g"}, "set groupId"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger?"),
        ({"kafka.bootstrap.servers": "a"}, "there is no option 'kafka.bootstrap.servers'"),
    ],
)
def test_impossible_combinations_are_refused_in_a_stream(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        stream(**given)

    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOffsets": "latest"}, "cannot be latest in a batch"),
        ({"startingOffsets": '{"orders":{"b":{"0":-1}}}'}, "cannot be latest in a batch"),
        ({"endingOffsets": '{"orders":{"b":{"0":-2}}}'}, "endingOffsets cannot be -2"),
        ({"endingOffsets": "earliest"}, "is not latest or JSON"),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "is before startingTimestamp = 5"),
        (
            {"startingOffsets": '{"orders":{"b":{"0":7}}}', "endingOffsets": '{"orders":{"b":{"0":6}}}'},
            "endingOffsets ends orders@b:0 at 6, before startingOffsets starts it at 7",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"orders":{"b":{"0":7}}}',
                "endingOffsetsByTimestamp": '{"orders":{"b":{"0":6}}}',
            },
            "endingOffsetsByTimestamp ends orders@b:0 at 6",
        ),
        ({"maxOffsetsPerTrigger": "5"}, "is for a streaming read, not for a batch read"),
    ],
)
def test_impossible_combinations_are_refused_in_a_batch(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        batch(**given)

    assert told in str(caught.value)


def test_a_filter_that_names_no_tag_is_refused_before_anything_is_read() -> None:
    with pytest.raises(InvalidExpression, match="contains no tag"):
        stream(filterTags=" || ")
