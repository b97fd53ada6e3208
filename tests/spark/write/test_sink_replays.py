"""A replay writes what is missing, whatever was written before and in whatever order it comes."""

import pickle
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import WrongState
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.write.sink_batches import ROW_ID
from pocketmq.spark.write.sink_offsets import ranges_to_search
from pocketmq.spark.write.sink_replays import Replay, RowIds, row_head

pytestmark = pytest.mark.usefixtures("twin")
QUERY = "0b2c3f3e-7a64-4f0a-9f0e-3f9b1f4b8a11"
Q, R = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
bodies = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=12)


def ids(batch: int = 7, partition: int = 2, query: str = QUERY) -> RowIds:
    return RowIds(query, batch, partition)


def message(body: bytes = b"x", **properties: str) -> Message:
    return Message("orders", body, properties=properties)


def id_of(row_ids: RowIds, row: Message) -> str:
    return row_ids.next(row_head(row.topic, row.properties), row.body)


def test_an_id_says_whose_it_is() -> None:
    made = id_of(ids(), message())

    query, batch, partition, digest, number = made.split("-")
    assert (len(query), batch, partition, len(digest), number) == (12, "7", "2", 20, "0")


def test_the_same_row_has_the_same_id_in_every_process() -> None:
    assert id_of(ids(), message(b"x", a="1")) == "e5891328d97e-7-2-24c1f6ea764c601a5aba-0"


@pytest.mark.parametrize(
    "other",
    [
        lambda: id_of(ids(batch=8), message()),
        lambda: id_of(ids(partition=3), message()),
        lambda: id_of(ids(query="another"), message()),
        lambda: id_of(ids(), message(b"y")),
        lambda: id_of(ids(), message(b"x", a="1")),
        lambda: id_of(ids(), Message("others", b"x")),
        lambda: id_of(ids(), Message("orders", b"x", tags="t")),
        lambda: id_of(ids(), Message("orders", b"x", delay_level=1)),
    ],
)
def test_anything_else_has_another_id(other: Any) -> None:
    assert other() != id_of(ids(), message())


def test_parts_that_join_to_the_same_bytes_have_different_ids() -> None:
    assert id_of(ids(), message(b"x", ab="c")) != id_of(ids(), message(b"x", a="bc"))


def test_equal_rows_are_told_apart_and_the_order_of_properties_does_not_matter() -> None:
    row_ids = ids()

    first, second = id_of(row_ids, message(b"x", a="1", b="2")), id_of(row_ids, message(b"x", b="2", a="1"))

    assert first.removesuffix("-0") == second.removesuffix("-1")


@given(st.lists(bodies, max_size=4))
def test_ids_of_many_rows_are_those_that_each_would_have_by_itself(parts: list[list[bytes]]) -> None:
    one_by_one, many = ids(), ids()
    head = row_head("orders", {})

    made = [many.next_of(head, part) for part in parts]

    assert made == [[one_by_one.next(head, body) for body in part] for part in parts]


def test_each_of_many_rows_may_have_a_head_of_its_own() -> None:
    rows = [message(b"x", a="1"), message(b"x"), message(b"x", a="1")]

    made = ids().next_of([row_head(row.topic, row.properties) for row in rows], [row.body for row in rows])

    row_ids = ids()
    assert made == [id_of(row_ids, row) for row in rows]


@given(bodies, st.lists(st.tuples(st.randoms(use_true_random=False), st.integers(0, 12)), max_size=4))
def test_rows_that_share_batches_are_there_once_too(rows: list[bytes], deaths: list[tuple[Any, int]]) -> None:
    topic: list[str] = []
    head = row_head("orders", {})

    for dice, written in [*deaths, (None, len(rows))]:
        if dice is not None:
            dice.shuffle(rows)
        replay = Replay(ids(), topic)
        topic += [new for new in replay.new_ids(head, rows[:written]) if new is not None]
    replay.check_complete()

    row_ids = ids()
    assert Counter(topic) == Counter(row_ids.next(head, body) for body in rows)


def attempt(rows: list[bytes], topic: list[Message], stop_after: int | None = None) -> None:
    """Write the rows of a partition to `topic`, as a task would; killed after some."""
    replay = Replay(ids(), [there.properties.get(ROW_ID) for there in topic])
    for body in rows[:stop_after]:
        row = message(body)
        if replay.admit(row):
            topic.append(row)
    if stop_after is None:
        replay.check_complete()


@given(bodies, st.lists(st.tuples(st.randoms(use_true_random=False), st.integers(0, 12)), max_size=4))
def test_whatever_was_written_before_each_row_is_there_once(rows: list[bytes], deaths: list[tuple[Any, int]]) -> None:
    topic = [message(b"somebody else's"), message(b"a")]

    for dice, written in deaths:
        dice.shuffle(rows)
        attempt(rows, topic, stop_after=written)
    attempt(rows, topic)

    assert Counter(there.body for there in topic[2:]) == Counter(rows)


@given(bodies)
def test_a_batch_that_was_written_wholly_is_not_written_again(rows: list[bytes]) -> None:
    topic: list[Message] = []
    attempt(rows, topic)

    attempt(rows[::-1], topic)

    assert len(topic) == len(rows)


def test_rows_of_others_do_not_count() -> None:
    other = message(b"a")
    other.properties[ROW_ID] = id_of(ids(partition=20), other)

    replay = Replay(ids(), [None, "nonsense", other.properties[ROW_ID]])

    assert replay.admit(message(b"a"))
    replay.check_complete()


def test_rows_that_are_not_those_of_before_are_refused() -> None:
    topic: list[Message] = []
    attempt([b"a", b"b"], topic, stop_after=2)

    with pytest.raises(WrongState, match="wrote 1 rows that this batch and partition now lack"):
        attempt([b"a", b"c"], topic)


def test_an_admitted_row_carries_its_id() -> None:
    row = message(b"a")

    assert Replay(ids(), []).admit(row)
    assert row.properties[ROW_ID] == id_of(ids(), message(b"a"))


def test_the_search_begins_where_the_last_committed_batch_ended() -> None:
    bounds = {Q: Bounds(5, 50), R: Bounds(0, 9)}

    assert ranges_to_search({Q: 40, R: 9}, bounds, 3) == [QueueRange(Q, 40, 50)]
    assert ranges_to_search({Q: 1, R: 9}, bounds, 3) == [QueueRange(Q, 5, 50)]


def test_a_first_batch_has_nothing_to_search_and_a_lost_place_is_searched_wholly() -> None:
    bounds = {Q: Bounds(5, 50)}

    assert ranges_to_search({}, bounds, 0) == []
    assert ranges_to_search({}, bounds, 1) == [QueueRange(Q, 5, 50)]


def test_a_queue_that_ends_before_its_place_is_searched_wholly() -> None:
    assert ranges_to_search({Q: 51}, {Q: Bounds(5, 50)}, 3) == [QueueRange(Q, 5, 50)]


def test_ids_travel_to_tasks() -> None:
    assert id_of(pickle.loads(pickle.dumps(ids())), message()) == id_of(ids(), message())
