"""OffsetRanges: parted and let go, they stay in the order of their offsets."""

import pytest
from tests.client.messages import run_of, stored

from pocketmq.client.consumer.process_queue import OffsetRange, OffsetRanges


@pytest.fixture
def ranges() -> OffsetRanges:
    """10 to 13, 20 to 22 and 30."""
    made = OffsetRanges()
    for start, end in ((10, 14), (20, 23), (30, 31)):
        made.add(OffsetRange(run_of(start, end)))
    return made


def shown(ranges: OffsetRanges) -> list[list[int]]:
    forth = list(ranges)
    assert [(one.first, one.last) for one in forth] == [
        (one.messages[0].queue_offset, one.messages[-1].queue_offset) for one in forth
    ]
    assert [one.before for one in forth[1:]] == forth[:-1]
    return [[message.queue_offset for message in one.messages] for one in forth]


def test_what_is_added_comes_last(ranges: OffsetRanges) -> None:
    assert shown(ranges) == [[10, 11, 12, 13], [20, 21, 22], [30]]
    assert (ranges.first.first, ranges.last.last) == (10, 30)
    assert list(OffsetRanges()) == []


def test_bytes_are_those_of_the_bodies() -> None:
    assert OffsetRange([stored(0, b"123"), stored(1, b""), stored(2, b"4")]).body_bytes == 4


@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_is_removed(ranges: OffsetRanges, at: int) -> None:
    left = shown(ranges)
    del left[at]

    ranges.remove(list(ranges)[at])

    assert shown(ranges) == left


def test_some_messages_are_kept(ranges: OffsetRanges) -> None:
    first, *_ = ranges

    first.hold([first.messages[0], first.messages[2]])

    assert shown(ranges) == [[10, 12], [20, 21, 22], [30]]
    assert first.body_bytes == 8


def test_the_rest_of_one_that_is_split_follows_it(ranges: OffsetRanges) -> None:
    _, second, _ = ranges
    second.began = 7.0
    before = second.messages

    rest = ranges.split(second, 1)

    assert shown(ranges) == [[10, 11, 12, 13], [20], [21, 22], [30]]
    assert (second.body_bytes, rest.body_bytes, rest.began) == (4, 8, 7.0)
    assert len(before) == 3


def test_others_part_a_stretch_wherever_they_begin_and_end(ranges: OffsetRanges) -> None:
    first, *_ = ranges
    first.began = 7.0

    parts = list(ranges.part(first, lambda message: message.queue_offset in (10, 12, 13)))

    assert [(others, part.first, part.last, part.began) for others, part in parts] == [
        (True, 10, 10, 7.0),
        (False, 11, 11, 7.0),
        (True, 12, 13, 7.0),
    ]
    assert shown(ranges) == [[10], [11], [12, 13], [20, 21, 22], [30]]
