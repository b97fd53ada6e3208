"""Where messages of one cluster are on another."""

import msgspec
import pytest

from pocketmq.errors import WrongState
from pocketmq.model.queue import MessageQueue, QueueOffset
from pocketmq.pipelines.mirror.offset_map import MAX_RUNS, MirroredRun, OffsetMap, read_map

HERE, OTHER = MessageQueue("orders", "a", 0), MessageQueue("orders", "a", 1)
THERE, SECOND = MessageQueue("orders", "b", 0), MessageQueue("orders", "b", 1)


def run(source: int, target: int, count: int, queue: MessageQueue = HERE) -> MirroredRun:
    return MirroredRun(queue, source, THERE, target, count)


def at(offset: int) -> QueueOffset:
    return QueueOffset(THERE, offset)


def test_adjacent_ranges_become_one_and_known_ones_are_skipped() -> None:
    offsets = OffsetMap()

    offsets.add([run(500, 0, 4), run(504, 4, 2)])
    offsets.add([run(500, 0, 4), run(506, 9, 1)])

    assert offsets.runs[str(HERE)] == [run(500, 0, 6), run(506, 9, 1)]
    assert offsets.next_offsets() == {HERE: 507}


def test_a_group_continues_at_the_next_existing_message() -> None:
    offsets = OffsetMap()
    offsets.add([run(500, 0, 4), run(510, 9, 2)])

    cases = {0: 0, 500: 0, 503: 3, 504: 9, 509: 9, 511: 10, 512: 11, 900: 11}

    assert {offset: offsets.translate(HERE, offset) for offset in cases} == {
        offset: at(place) for offset, place in cases.items()
    }
    assert offsets.translate(OTHER, 5) is None


def test_queues_keep_their_targets_and_new_ones_get_free_targets() -> None:
    offsets = OffsetMap()

    first = offsets.pair([OTHER], [THERE, SECOND])
    both = offsets.pair([HERE, OTHER], [THERE, SECOND])
    many = offsets.pair([HERE, OTHER, MessageQueue("orders", "a", 2)], [THERE, SECOND])

    assert first == {OTHER: THERE}
    assert both == {OTHER: THERE, HERE: SECOND}
    assert many[MessageQueue("orders", "a", 2)] == THERE
    assert OffsetMap().pair([HERE, OTHER], [THERE, SECOND]) == {HERE: THERE, OTHER: SECOND}


def test_a_recreated_topic_starts_again() -> None:
    offsets = OffsetMap()
    offsets.add([run(500, 0, 4)])

    offsets.forget([HERE, OTHER])

    assert offsets.next_offsets() == {}


def test_the_size_of_the_map_is_limited() -> None:
    offsets = OffsetMap()

    offsets.add([run(2 * number, 3 * number, 1) for number in range(MAX_RUNS + 5)])

    assert len(offsets.runs[str(HERE)]) == MAX_RUNS
    assert offsets.runs[str(HERE)][0] == run(10, 15, 1)


def test_the_map_is_saved_and_loaded() -> None:
    offsets = OffsetMap(batch=3, ends=[at(7)])
    offsets.add([run(500, 0, 4)])
    offsets.pair([HERE], [THERE])

    assert read_map(msgspec.json.encode(offsets).decode()) == offsets
    assert read_map(None) == OffsetMap()
    with pytest.raises(WrongState, match="damaged"):
        read_map("{")
    with pytest.raises(WrongState, match="version 9"):
        read_map('{"version":9}')
