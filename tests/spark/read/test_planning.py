"""Partitions: everything once, evenly, always the same, and with all that a task needs."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import InvalidSetting
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.options.read_options import ReadOptions, parse_read_options
from pocketmq.spark.read.planning import MAX_PARTITIONS, cut_evenly, partition_count, plan_partitions
from pocketmq.spark.read.pushdown import FilterPlan
from pocketmq.spark.schema import Name

Q = [MessageQueue("orders", "broker-a", number) for number in range(5)]
range_lists = st.dictionaries(
    st.sampled_from(Q), st.tuples(st.integers(0, 1000), st.integers(0, 5000)), min_size=1
).map(lambda found: [QueueRange(queue, start, start + size) for queue, (start, size) in found.items()])


def options(**given: str) -> ReadOptions:
    base = {"subscribe": "orders", "rocketmq.namesrv.addr": "a:1"}
    return parse_read_options({**base, **given}, streaming=False, environ={})


def offsets_of(groups: list[tuple[QueueRange, ...]]) -> list[tuple[MessageQueue, int]]:
    return [(part.queue, offset) for group in groups for part in group for offset in range(part.start, part.end)]


@given(range_lists, st.integers(1, 20))
def test_every_message_is_in_one_partition_in_the_order_of_its_queue(ranges: list[QueueRange], count: int) -> None:
    groups = cut_evenly(ranges, count, {})

    assert offsets_of(groups) == offsets_of([tuple(sorted(ranges))])
    assert len(groups) <= count
    assert all(len(part) for group in groups for part in group)


@given(range_lists, st.integers(1, 20))
def test_partitions_differ_by_one_message_at_most(ranges: list[QueueRange], count: int) -> None:
    total = sum(map(len, ranges))
    sizes = [sum(map(len, group)) for group in cut_evenly(ranges, min(count, total), {})]

    if total:
        assert len(sizes) == min(count, total)
        assert max(sizes) - min(sizes) <= 1


@given(range_lists, st.integers(1, 8), st.data())
def test_weights_of_partitions_differ_by_one_message_at_most(
    ranges: list[QueueRange], count: int, data: st.DataObject
) -> None:
    weights = {wanted.queue: data.draw(st.integers(1, 900)) for wanted in ranges}
    total = sum(len(wanted) * weights[wanted.queue] for wanted in ranges)

    groups = cut_evenly(ranges, count, weights)

    assert offsets_of(groups) == offsets_of([tuple(sorted(ranges))])
    for group in groups:
        assert sum(len(part) * weights[part.queue] for part in group) <= total / count + 2 * 900


def test_a_large_queue_is_split_and_small_ones_share_a_partition() -> None:
    ranges = [QueueRange(Q[0], 0, 90), QueueRange(Q[1], 0, 5), QueueRange(Q[2], 0, 5)]

    assert cut_evenly(ranges, 2, {}) == [
        (QueueRange(Q[0], 0, 50),),
        (QueueRange(Q[0], 50, 90), QueueRange(Q[1], 0, 5), QueueRange(Q[2], 0, 5)),
    ]


def test_queues_of_large_messages_are_split_into_more_partitions() -> None:
    ranges = [QueueRange(Q[0], 0, 100), QueueRange(Q[1], 0, 100)]

    small, large = cut_evenly(ranges, 2, {Q[0]: 100, Q[1]: 900})

    assert small == (QueueRange(Q[0], 0, 100), QueueRange(Q[1], 0, 45))
    assert large == (QueueRange(Q[1], 45, 100),)


def test_the_order_of_the_ranges_does_not_matter() -> None:
    ranges = [QueueRange(queue, 0, 7) for queue in Q]

    assert cut_evenly(ranges, 3, {}) == cut_evenly(ranges[::-1], 3, {})


@pytest.mark.parametrize(
    ("total", "given", "count"),
    [
        (1000, {}, 4),
        (3, {}, 3),
        (0, {}, 0),
        (1000, {"minPartitions": "9"}, 9),
        (1000, {"minPartitions": "2"}, 4),
        (5, {"minPartitions": "9"}, 5),
        (1000, {"maxPartitions": "2"}, 2),
        (1000, {"maxPartitions": "100"}, 100),
        (1000, {"maxRecordsPerPartition": "10"}, 100),
        (1000, {"maxRecordsPerPartition": "999"}, 4),
        (1000, {"maxRecordsPerPartition": "300", "maxPartitions": "2"}, 4),
    ],
)
def test_the_number_of_partitions_follows_the_options(total: int, given: dict[str, str], count: int) -> None:
    assert partition_count(total, options(**given), cores=4) == count


def test_an_excessive_number_of_partitions_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="would make 100001 partitions"):
        partition_count(MAX_PARTITIONS + 1, options(maxRecordsPerPartition="1"), cores=4)


@given(range_lists, st.integers(1, 700))
def test_no_partition_has_more_messages_than_it_may(ranges: list[QueueRange], most: int) -> None:
    given_options = options(maxRecordsPerPartition=str(most))
    heavy = dict.fromkeys(Q[:2], 1000)

    parts = plan_partitions(ranges, [Name.VALUE], given_options, cores=2, bytes_per_message=heavy)

    assert sum(map(len, parts)) == sum(map(len, ranges))
    assert all(len(part) <= most for part in parts)


def test_a_pickled_partition_has_everything_that_its_task_needs() -> None:
    given_options = options(filterTags="a || b", groupId="g", onDataLoss="skip", verifyChecksums="true")

    (part,) = plan_partitions([QueueRange(Q[0], 0, 9)], [Name.VALUE, Name.TAGS], given_options, cores=1)

    arrived = pickle.loads(pickle.dumps(part))
    assert arrived == part
    assert arrived.slices == (QueueRange(Q[0], 0, 9),)
    assert arrived.columns == (Name.VALUE, Name.TAGS)
    assert arrived.connection == given_options.connection
    assert (arrived.group, arrived.on_data_loss, arrived.check_crc) == ("g", "skip", True)
    assert arrived.subscription("orders").tags_set == ("a", "b")


def test_pushed_tags_are_the_filter_of_the_partition() -> None:
    plan = FilterPlan(tags="x || y")

    (part,) = plan_partitions([QueueRange(Q[0], 0, 9)], [Name.VALUE], options(), cores=1, plan=plan)

    assert part.subscription("orders").tags_set == ("x", "y")


def test_tags_are_checked_beside_sql92_and_without_a_broker_that_compares_them() -> None:
    plan = FilterPlan(tags="x || y", sql="a = 'b'", condition=options(filter="properties['a'] = 'b'").filter)

    (part,) = plan_partitions([QueueRange(Q[0], 0, 9)], [Name.VALUE], options(), cores=1, plan=plan)

    assert part.subscription("orders").sub_string == "a = 'b'"
    assert part.subscription_without_sql("orders").tags_set == ("x", "y")
    assert part.subscription_without_sql("SCHEDULE_TOPIC_XXXX").matches_all
    assert part.tags == ("x", "y")


def test_without_a_plan_a_task_applies_the_whole_filter() -> None:
    given = options(filter="tags = 'a' AND queueOffset > 3")

    (part,) = plan_partitions([QueueRange(Q[0], 0, 9)], [Name.VALUE], given, cores=1)

    assert (part.condition, part.filter_tags, part.filter_sql) == (given.filter, None, None)
    assert not part.needs_only_bodies
