"""A replay writes the missing rows, after any earlier attempt and in any order."""

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


def test_an_id_contains_its_query_batch_and_partition() -> None:
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
def test_every_difference_gives_another_id(other: Any) -> None:
    assert other() != id_of(ids(), message())


def test_parts_with_equal_concatenations_have_different_ids() -> None:
    assert id_of(ids(), message(b"x", ab="c")) != id_of(ids(), message(b"x", a="bc"))


def test_equal_rows_are_distinguished_and_the_order_of_properties_is_ignored() -> None:
    row_ids = ids()

    first, second = id_of(row_ids, message(b"x", a="1", b="2")), id_of(row_ids, message(b"x", b="2", a="1"))

    assert first.removesuffix("-0") == second.removesuffix("-1")


@given(st.lists(bodies, max_size=4))
def test_ids_of_many_rows_equal_those_computed_one_by_one(parts: list[list[bytes]]) -> None:
    one_by_one, many = ids(), ids()
    head = row_head("orders", {})

    made = [many.next_of(head, part) for part in parts]

    assert made == [[one_by_one.next(head, body) for body in part] for part in parts]


def test_each_of_many_rows_may_have_its_own_prefix() -> None:
    rows = [message(b"x", a="1"), message(b"x"), message(b"x", a="1")]

    made = ids().next_of([row_head(row.topic, row.properties) for row in rows], [row.body for row in rows])

    row_ids = ids()
    assert made == [id_of(row_ids, row) for row in rows]


@given(bodies, st.lists(st.tuples(st.randoms(use_true_random=False), st.integers(0, 12)), max_size=4))
def test_rows_in_shared_batches_exist_once(rows: list[bytes], deaths: list[tuple[Any, int]]) -> None:
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
    """Write the rows of a partition to `topic`, as a task would; killed after some of them."""
    replay = Replay(ids(), [there.properties.get(ROW_ID) for there in topic])
    for body in rows[:stop_after]:
        row = message(body)
        if replay.admit(row):
            topic.append(row)
    if stop_after is None:
        replay.check_complete()


@given(bodies, st.lists(st.tuples(st.randoms(use_true_random=False), st.integers(0, 12)), max_size=4))
def test_after_any_earlier_attempt_each_row_exists_once(rows: list[bytes], deaths: list[tuple[Any, int]]) -> None:
    topic = [message(b"somebody else's"), message(b"a")]

    for dice, written in deaths:
        dice.shuffle(rows)
        attempt(rows, topic, stop_after=written)
    attempt(rows, topic)

    assert Counter(there.body for there in topic[2:]) == Counter(rows)


@given(bodies)
def test_a_completely_written_batch_is_not_written_again(rows: list[bytes]) -> None:
    topic: list[Message] = []
    attempt(rows, topic)

    attempt(rows[::-1], topic)

    assert len(topic) == len(rows)


def test_rows_of_other_queries_are_ignored() -> None:
    other = message(b"a")
    other.properties[ROW_ID] = id_of(ids(partition=20), other)

    replay = Replay(ids(), [None, "nonsense", other.properties[ROW_ID]])

    assert replay.admit(message(b"a"))
    replay.check_complete()


def test_changed_rows_of_a_replay_are_refused() -> None:
    topic: list[Message] = []
    attempt([b"a", b"b"], topic, stop_after=2)

    with pytest.raises(WrongState, match="wrote 1 rows that this batch and partition now lack"):
        attempt([b"a", b"c"], topic)


def test_a_written_row_contains_its_id() -> None:
    row = message(b"a")

    assert Replay(ids(), []).admit(row)
    assert row.properties[ROW_ID] == id_of(ids(), message(b"a"))


def test_the_search_starts_at_the_end_of_the_last_committed_batch() -> None:
    bounds = {Q: Bounds(5, 50), R: Bounds(0, 9)}

    assert ranges_to_search({Q: 40, R: 9}, bounds, 3) == [QueueRange(Q, 40, 50)]
    assert ranges_to_search({Q: 1, R: 9}, bounds, 3) == [QueueRange(Q, 5, 50)]


def test_a_first_batch_needs_no_search_and_a_lost_offset_a_complete_one() -> None:
    bounds = {Q: Bounds(5, 50)}

    assert ranges_to_search({}, bounds, 0) == []
    assert ranges_to_search({}, bounds, 1) == [QueueRange(Q, 5, 50)]


def test_a_queue_that_ends_before_its_offset_is_searched_completely() -> None:
    assert ranges_to_search({Q: 51}, {Q: Bounds(5, 50)}, 3) == [QueueRange(Q, 5, 50)]


def test_the_search_state_can_be_pickled() -> None:
    assert id_of(pickle.loads(pickle.dumps(ids())), message()) == id_of(ids(), message())
