"""The record of a table: which offsets it holds, what a batch adds to it, and what is missing."""

from collections.abc import Iterable

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import StoreDamaged, WrongState
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.pipelines.archive.contents import (
    ABSENT,
    LEFT_OUT,
    NOT_READ,
    Record,
    explained,
    flat,
    is_record,
    joined,
    nested,
    parse_record,
    without,
)
from pocketmq.spark.read.offsets import Cause, Lost

QUEUE = MessageQueue("orders", "broker-a", 0)
RANGES = st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(0, 30), st.integers(0, 8)), max_size=8)


def part(start: int, end: int, queue_id: int = 0) -> QueueRange:
    return QueueRange(MessageQueue("orders", "broker-a", queue_id), start, end)


def offsets(ranges: Iterable[QueueRange]) -> set[tuple[MessageQueue, int]]:
    return {(one.queue, offset) for one in ranges for offset in range(one.start, one.end)}


@given(RANGES, RANGES)
def test_ranges_are_sets_of_offsets(ones: list[tuple[int, int, int]], others: list[tuple[int, int, int]]) -> None:
    wanted, held = ([part(start, start + size, queue) for queue, start, size in told] for told in (ones, others))

    assert offsets(joined(wanted)) == offsets(wanted)
    assert offsets(without(wanted, held)) == offsets(wanted) - offsets(held)
    assert flat(nested(joined(wanted))) == joined(wanted)
    assert sum(map(len, without(wanted, held))) == len(offsets(wanted) - offsets(held)), "no offset twice"


def test_a_record_adds_up_what_the_table_holds() -> None:
    first = Record().next("a", "query", 0, [part(0, 4), part(7, 9, 1)], [], is_filtered=False)
    second = first.next("b", "query", 1, [part(4, 8)], [Lost(part(8, 10), Cause.RETENTION)], is_filtered=True)

    assert (second.number, second.batches, second.is_filtered) == (2, {"query": 1}, True)
    assert flat(second.added) == [part(4, 8)]
    assert second.ranges == [part(0, 8), part(7, 9, 1)]
    assert second.starts() == {QUEUE: 8, part(0, 0, 1).queue: 9}
    assert second.missing([part(6, 12), part(0, 9, 1)], []) == [part(8, 12), part(0, 7, 1)]
    assert parse_record(second.to_json(), "t") == second


def test_losses_of_a_batch_that_runs_again_are_known() -> None:
    lost = (Lost(part(0, 4), Cause.RETENTION),)
    record = Record().next("a", "query", 3, [part(4, 6)], lost, is_filtered=False)

    assert record.new_losses("query", 3, lost) == ()
    assert record.new_losses("query", 4, lost) == lost
    assert record.new_losses("other", 0, lost) == lost


def test_a_queue_that_was_created_again_begins_empty() -> None:
    record = Record().next("a", "query", 0, [part(0, 10), part(0, 10, 1)], [], is_filtered=False)
    lost = (Lost(part(10, 10), Cause.RECREATION),)

    assert record.missing([part(0, 3), part(5, 12, 1)], lost) == [part(0, 3), part(10, 12, 1)]
    again = record.next("b", "query", 1, [part(0, 3)], lost, is_filtered=False)
    assert again.ranges == [part(0, 3), part(0, 10, 1)]


def test_offsets_that_are_used_again_after_a_lost_end_are_added_again() -> None:
    record = Record().next("a", "query", 0, [part(0, 10)], [], is_filtered=False)
    lost = (Lost(part(6, 10), Cause.TRUNCATION),)

    assert record.missing([part(6, 8)], lost) == [part(6, 8)]
    again = record.next("b", "query", 1, [part(6, 8)], lost, is_filtered=False)
    assert again.ranges == [part(0, 8)]
    assert again.missing([part(8, 12)], ()) == [part(8, 12)], "later batches have new messages, too"


@pytest.mark.parametrize(("is_filtered", "why"), [(False, ABSENT), (True, LEFT_OUT)])
def test_what_is_missing_has_a_reason(is_filtered: bool, why: str) -> None:
    found = explained(
        [part(0, 30)],
        present=[part(5, 10), part(12, 20)],
        held=[part(0, 22)],
        lost=[Lost(part(0, 5), Cause.RETENTION)],
        is_filtered=is_filtered,
    )

    assert [(one.range.start, one.range.end, one.why) for one in found] == [
        (0, 5, "lost: retention"),
        (10, 12, why),
        (20, 22, why),
        (22, 30, NOT_READ),
    ]


def test_only_our_metadata_are_records() -> None:
    assert is_record(Record().to_json())
    assert not any(map(is_record, (None, "", "a comment", '{"orders":{}}')))
    with pytest.raises(StoreDamaged, match="the record of offsets in t is damaged"):
        parse_record('{"number":"x"}', "t")
    with pytest.raises(WrongState, match="version 2, and this PocketMQ reads version 1"):
        parse_record(Record(version=2).to_json(), "t")
