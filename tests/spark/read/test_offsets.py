"""Offsets of a query: one text for one content, exact ranges, nothing guessed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import WrongState
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.read.offsets import (
    UNRESOLVED,
    Cause,
    Lost,
    QueryOffset,
    backlog,
    next_offset,
    parse_offset,
    queue_changes,
    ranges_between,
)

A0, A2, A10 = (MessageQueue("orders", "broker-a", number) for number in (0, 2, 10))
B0 = MessageQueue("orders", "broker-b", 0)

queues = st.builds(MessageQueue, st.sampled_from(["a", "b", "ü"]), st.sampled_from(["x", "y"]), st.integers(0, 20))
places = st.dictionaries(queues, st.integers(0, 2**63 - 1), max_size=8)
losses = st.builds(
    Lost,
    st.builds(QueueRange, queues, st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from(Cause),
)
offsets = st.builds(QueryOffset, places, places, st.integers(0, 2**50), st.lists(losses, max_size=3).map(tuple))


@given(offsets)
def test_an_offset_is_loaded_unchanged_from_the_checkpoint(offset: QueryOffset) -> None:
    assert parse_offset(json.loads(json.dumps(offset.to_json()))) == offset


@given(places, st.randoms(use_true_random=False))
def test_equal_offsets_have_equal_texts(content: dict[MessageQueue, int], dice: Any) -> None:
    pairs = list(content.items())
    dice.shuffle(pairs)

    assert json.dumps(QueryOffset(dict(pairs)).to_json()) == json.dumps(QueryOffset(content).to_json())


def test_the_text_of_an_offset_is_as_documented() -> None:
    lost = Lost(QueueRange(A0, 7, 9), Cause.RETENTION)
    offset = QueryOffset({A10: 3, A2: 5, B0: 1}, {B0: 0}, 1_767_225_600_000, (lost,))

    assert json.dumps(offset.to_json()) == (
        '{"version": 1, "queues": {"orders": {"broker-a": {"2": 5, "10": 3}, "broker-b": {"0": 1}}}, '
        '"first": {"orders": {"broker-b": {"0": 0}}}, "seenMs": 1767225600000, '
        '"lost": [{"topic": "orders", "brokerName": "broker-a", "queueId": 0, "start": 7, "end": 9, "cause": "retention"}]}'
    )


def test_the_offset_before_the_first_batch_is_constant() -> None:
    assert json.dumps(UNRESOLVED) == '{"version": 1, "start": "unresolved"}'
    assert parse_offset(UNRESOLVED) is None


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({}, "another source: its offset is {}"),
        (17, "another source: its offset is 17"),
        (
            {"orders": {"0": 5}},
            'another source: its offset is {"orders":{"0":5}}. This query reads RocketMQ topics',
        ),
        ({"version": 2, "queues": {}}, "version 2"),
        ({"version": 1}, "damaged offset: KeyError 'queues'"),
        ({"version": 1, "queues": {"t": {"b": {"x": 1}}}, "seenMs": 0}, "damaged offset: ValueError"),
        ({"version": 1, "queues": {"t": {"b": {"0": -1}}}, "seenMs": 0}, "-1 is not an offset"),
        ({"version": 1, "queues": {"t": {"b": {"0": 1.5}}}, "seenMs": 0}, "1.5 is not an offset"),
        ({"version": 1, "queues": {"t": 5}, "seenMs": 0}, "damaged offset: AttributeError"),
        ({"version": 1, "queues": {}, "seenMs": None}, "damaged offset: TypeError"),
        ({"version": 1, "queues": {}, "seenMs": 0, "lost": [{"topic": "t"}]}, "damaged offset: KeyError"),
    ],
)
def test_an_offset_of_another_source_is_refused(told: dict[str, Any], what: str) -> None:
    with pytest.raises(WrongState) as caught:
        parse_offset(told)

    assert what in str(caught.value)


def test_the_first_batch_starts_at_the_recorded_first_offsets() -> None:
    end = QueryOffset({A0: 120, A2: 98}, {A0: 100, A2: 98})

    assert ranges_between(None, end) == [QueueRange(A0, 100, 120)]


def test_later_batches_start_at_the_end_of_the_previous_one() -> None:
    start = QueryOffset({A0: 120, A2: 98}, {A0: 100, A2: 98})
    end = QueryOffset({A0: 130, A2: 98, B0: 7}, {B0: 5})

    assert ranges_between(start, end) == [QueueRange(A0, 120, 130), QueueRange(B0, 5, 7)]


def test_a_restarted_queue_starts_at_the_recorded_offset() -> None:
    start = QueryOffset({A0: 120})
    end = QueryOffset({A0: 10}, {A0: 3}, lost=(Lost(QueueRange(A0, 120, 120), Cause.RECREATION),))

    assert ranges_between(start, end) == [QueueRange(A0, 3, 10)]


def test_a_range_that_goes_backwards_is_refused_and_not_treated_as_empty() -> None:
    with pytest.raises(WrongState, match="backwards"):
        ranges_between(QueryOffset({A0: 49039}), QueryOffset({A0: 48966}))


def test_a_queue_without_a_start_is_refused() -> None:
    with pytest.raises(WrongState, match="has no start for orders@broker-a:0"):
        ranges_between(None, QueryOffset({A0: 5}))


def test_without_new_messages_the_offset_is_identical() -> None:
    before = QueryOffset({A0: 5, A2: 7}, {A0: 5, A2: 7}, seen_ms=1)

    assert next_offset(before, {A0: 5}, first={}, seen_ms=99) is before
    assert next_offset(before, {}, first={}, seen_ms=99) is before


def test_the_first_offset_is_new_although_nothing_is_read() -> None:
    made = next_offset(None, {}, first={A0: 5}, seen_ms=9)

    assert made == QueryOffset({A0: 5}, {A0: 5}, 9)
    assert ranges_between(None, made) == []


def test_an_added_queue_is_recorded_before_it_has_messages() -> None:
    before = QueryOffset({A0: 5}, seen_ms=1)

    assert next_offset(before, {}, first={B0: 0}, seen_ms=2) == QueryOffset({A0: 5, B0: 0}, {B0: 0}, 2)


def test_missing_queues_keep_their_offsets() -> None:
    before = QueryOffset({A0: 5, B0: 7}, {A0: 1}, 1)

    assert next_offset(before, {A0: 6}, first={}, seen_ms=2) == QueryOffset({A0: 6, B0: 7}, {}, 2)


def test_a_loss_makes_a_new_offset_although_no_queue_advanced() -> None:
    before = QueryOffset({A0: 5})
    lost = Lost(QueueRange(A0, 5, 5), Cause.RECREATION)

    assert next_offset(before, {}, first={A0: 5}, seen_ms=2, lost=[lost]).lost == (lost,)


@given(places, places, places)
def test_the_range_between_two_offsets_equals_the_admitted_one(
    held: dict[MessageQueue, int], more: dict[MessageQueue, int], fresh: dict[MessageQueue, int]
) -> None:
    first = {queue: place for queue, place in fresh.items() if queue not in held}
    before = QueryOffset(held)
    starts = {**held, **first}
    ends = {queue: place for queue, place in more.items() if starts.get(queue, place + 1) < place}

    after = next_offset(before, ends, first=first, seen_ms=1)

    assert ranges_between(before, after) == [QueueRange(queue, starts[queue], ends[queue]) for queue in sorted(ends)]


def test_added_and_removed_queues_are_reported() -> None:
    changes = queue_changes(QueryOffset({A0: 1, A2: 1}), [A2, B0, A10])

    assert changes == ([A10, B0], [A0])


def test_the_backlog_counts_the_messages_of_known_queues() -> None:
    assert backlog({A0: 5, A2: 9, B0: 1}, {A0: 8, A2: 7, A10: 99}) == 3
