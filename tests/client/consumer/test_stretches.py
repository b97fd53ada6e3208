"""Stretches: parted and let go, they stay in the order of their offsets."""

import pytest
from tests.client.messages import run_of, stored

from pocketmq.client.consumer.process_queue import Stretch, Stretches


@pytest.fixture
def stretches() -> Stretches:
    """10 to 13, 20 to 22 and 30."""
    made = Stretches()
    for start, end in ((10, 14), (20, 23), (30, 31)):
        made.add(Stretch(run_of(start, end)))
    return made


def shown(stretches: Stretches) -> list[list[int]]:
    forth = list(stretches)
    assert [(one.first, one.last) for one in forth] == [
        (one.messages[0].queue_offset, one.messages[-1].queue_offset) for one in forth
    ]
    assert [one.before for one in forth[1:]] == forth[:-1]
    return [[message.queue_offset for message in one.messages] for one in forth]


def test_what_is_added_comes_last(stretches: Stretches) -> None:
    assert shown(stretches) == [[10, 11, 12, 13], [20, 21, 22], [30]]
    assert (stretches.first.first, stretches.last.last) == (10, 30)
    assert list(Stretches()) == []


def test_bytes_are_those_of_the_bodies() -> None:
    assert Stretch([stored(0, b"123"), stored(1, b""), stored(2, b"4")]).body_bytes == 4


@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_is_removed(stretches: Stretches, at: int) -> None:
    left = shown(stretches)
    del left[at]

    stretches.remove(list(stretches)[at])

    assert shown(stretches) == left


def test_some_messages_are_kept(stretches: Stretches) -> None:
    first, *_ = stretches

    first.hold([first.messages[0], first.messages[2]])

    assert shown(stretches) == [[10, 12], [20, 21, 22], [30]]
    assert first.body_bytes == 8


def test_the_rest_of_one_that_is_split_follows_it(stretches: Stretches) -> None:
    _, second, _ = stretches
    second.began = 7.0
    before = second.messages

    rest = stretches.split(second, 1)

    assert shown(stretches) == [[10, 11, 12, 13], [20], [21, 22], [30]]
    assert (second.body_bytes, rest.body_bytes, rest.began) == (4, 8, 7.0)
    assert len(before) == 3


def test_others_part_a_stretch_wherever_they_begin_and_end(stretches: Stretches) -> None:
    first, *_ = stretches
    first.began = 7.0

    parts = list(stretches.part(first, lambda message: message.queue_offset in (10, 12, 13)))

    assert [(others, part.first, part.last, part.began) for others, part in parts] == [
        (True, 10, 10, 7.0),
        (False, 11, 11, 7.0),
        (True, 12, 13, 7.0),
    ]
    assert shown(stretches) == [[10], [11], [12, 13], [20, 21, 22], [30]]
