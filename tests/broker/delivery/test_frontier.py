"""The frontier: a few numbers record which timed messages are done."""

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.delivery.timer_progress import MAX_STEPS, Frontier, Step


def test_all_messages_before_the_last_delivered_one_are_done() -> None:
    frontier = Frontier()

    frontier.advance(7000, 50)

    assert frontier.is_done(6000, 90)
    assert frontier.is_done(7000, 50)
    assert not frontier.is_done(7000, 51)
    assert not frontier.is_done(8000, 10)


def test_a_message_that_arrives_late_is_not_done() -> None:
    frontier = Frontier()
    frontier.advance(7000, 50)

    frontier.admit(3000, 60)

    assert frontier.is_done(3000, 40)
    assert not frontier.is_done(3000, 60)
    assert frontier.steps == (Step(0, 7000, 51), Step(60))


def test_steps_are_merged_when_the_later_one_catches_up() -> None:
    frontier = Frontier()
    frontier.advance(7000, 50)
    frontier.admit(3000, 60)
    frontier.advance(3000, 60)
    assert frontier.steps[1:] == (Step(60, 3000, 61),)

    frontier.advance(7000, 51)

    assert frontier.steps == (Step(0, 7000, 52),)


def test_a_message_in_order_adds_no_step() -> None:
    frontier = Frontier()
    frontier.advance(7000, 50)

    frontier.admit(7000, 60)
    frontier.admit(9000, 70)

    assert len(frontier.steps) == 1


def test_everything_before_a_forgotten_step_is_done() -> None:
    frontier = Frontier((Step(0, 7000, 51), Step(60, 3000, 61), Step(80)))

    frontier.forget_before(70)

    assert frontier.steps == (Step(70, 3000, 61), Step(80))
    assert frontier.is_done(9_000_000, 69)
    assert not frontier.is_done(4000, 70)


def test_the_number_of_steps_is_limited_and_then_fewer_messages_are_done() -> None:
    frontier = Frontier()
    for number in range(MAX_STEPS + 10):
        frontier.advance(1_000_000 - number * 1000, 100 * number)
        frontier.begin(100 * number + 50)

    assert len(frontier.steps) <= MAX_STEPS
    assert not frontier.is_done(0, 10_000)


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=40))
def test_the_frontier_knows_exactly_what_was_delivered(messages: list[tuple[int, bool]]) -> None:
    frontier = Frontier()
    waiting: list[tuple[int, int]] = []
    done: list[tuple[int, int]] = []
    for log_offset, (out_ms, deliver) in enumerate(messages):
        frontier.admit(out_ms, log_offset)
        waiting.append((out_ms, log_offset))
        if deliver:
            waiting.sort()
            earliest = waiting.pop(0)
            frontier.advance(*earliest)
            done.append(earliest)

        assert all(frontier.is_done(*message) for message in done)
        assert not any(frontier.is_done(*message) for message in waiting)
