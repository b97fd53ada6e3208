"""The size of a micro-batch: at most the limit, never empty while messages wait, and fair to all queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.model.queue import MessageQueue
from pocketmq.spark.read.stream_driver import Limits, admitted, allocated, capped, is_due

Q = [MessageQueue("orders", "broker-a", number) for number in range(6)]

waiting_queues = st.dictionaries(st.sampled_from(Q), st.integers(1, 10**6), min_size=1)


@pytest.mark.parametrize(
    ("waiting", "waited_ms", "limits", "due"),
    [
        (0, 10**9, Limits(), False),
        (1, 0, Limits(), True),
        (9, 0, Limits(min_offsets=10), False),
        (10, 0, Limits(min_offsets=10), True),
        (1, 899_999, Limits(min_offsets=10), False),
        (1, 900_000, Limits(min_offsets=10), True),
        (0, 900_000, Limits(min_offsets=10), False),
        (1, 50, Limits(min_offsets=10, max_delay_ms=50), True),
        (1, 0, Limits(min_offsets=10).without_minimum(), True),
    ],
)
def test_a_batch_is_due_after_enough_messages_or_time(waiting: int, waited_ms: int, limits: Limits, due: bool) -> None:
    assert is_due(waiting, waited_ms, limits) is due


def test_without_limits_the_whole_backlog_is_admitted() -> None:
    assert admitted({Q[0]: 5, Q[1]: 7, Q[2]: 9}, {Q[0]: 8, Q[1]: 7}, Limits()) == {Q[0]: 8}


def test_a_limit_is_divided_in_proportion_to_the_backlog() -> None:
    places, latest = dict.fromkeys(Q[:3], 100), {Q[0]: 1100, Q[1]: 2100, Q[2]: 3100}

    assert admitted(places, latest, Limits(max_offsets=600)) == {Q[0]: 200, Q[1]: 300, Q[2]: 400}


@given(waiting_queues, st.integers(1, 2 * 10**6), st.integers(0, 100))
def test_parts_add_up_to_the_limit_exactly(waiting: dict[MessageQueue, int], limit: int, rotation: int) -> None:
    shares = allocated(waiting, limit, rotation)

    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 < count <= waiting[queue] for queue, count in shares.items())
    if limit >= len(waiting):
        assert shares.keys() == waiting.keys()


@given(waiting_queues, st.integers(1, 6))
def test_queues_take_turns_if_the_limit_is_below_their_number(waiting: dict[MessageQueue, int], limit: int) -> None:
    served = {queue for rotation in range(len(waiting)) for queue in allocated(waiting, limit, rotation)}

    assert served == waiting.keys()


@given(waiting_queues, st.integers(1, 10**7), st.data())
def test_a_byte_limit_is_observed_and_the_query_progresses(
    waiting: dict[MessageQueue, int], max_bytes: int, data: st.DataObject
) -> None:
    sizes = {queue: data.draw(st.integers(1, 5000)) for queue in waiting}

    ends = admitted(
        dict.fromkeys(waiting, 0),
        waiting,
        Limits(max_bytes=max_bytes),
        bytes_per_message=sizes,
        rotation=data.draw(st.integers(0, 9)),
    )

    total = sum(count * sizes[queue] for queue, count in ends.items())
    assert ends
    assert total <= max_bytes or sum(ends.values()) == 1
    assert all(count <= waiting[queue] for queue, count in ends.items())


@given(waiting_queues, st.integers(1, 100), st.integers(1, 10**5))
def test_both_limits_apply_at_once(waiting: dict[MessageQueue, int], max_offsets: int, max_bytes: int) -> None:
    sizes = dict.fromkeys(waiting, 100)

    ends = admitted(
        dict.fromkeys(waiting, 0),
        waiting,
        Limits(max_offsets=max_offsets, max_bytes=max_bytes),
        bytes_per_message=sizes,
    )

    assert 1 <= sum(ends.values()) <= max_offsets
    assert sum(ends.values()) * 100 <= max(max_bytes, 100)


def test_large_messages_count_more() -> None:
    places, latest = dict.fromkeys(Q[:2], 0), dict.fromkeys(Q[:2], 1000)

    ends = admitted(places, latest, Limits(max_bytes=55_000), bytes_per_message={Q[0]: 100, Q[1]: 1000})

    assert ends == {Q[0]: 50, Q[1]: 50}


def test_a_run_with_available_now_ends_at_the_initial_end() -> None:
    assert capped({Q[0]: 10, Q[1]: 3, Q[2]: 9}, {Q[0]: 7, Q[1]: 5}) == {Q[0]: 7, Q[1]: 3}


@given(waiting_queues, st.integers(1, 10**5))
def test_several_limited_batches_read_everything_once(target: dict[MessageQueue, int], limit: int) -> None:
    limit = max(limit, -(-sum(target.values()) // 20))  # so that 20 batches are enough
    places = dict.fromkeys(target, 0)
    later = {queue: end + 50 for queue, end in target.items()}

    for rotation in range(30):
        ends = admitted(places, capped(later, target), Limits(max_offsets=limit), rotation=rotation)
        if not ends:
            break
        places |= ends

    assert places == target
