"""Queues and how Java sorts them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.model.queue import MessageQueue, QueueOffset, QueueRange, java_sorted

NAMES = st.text("abcXYZ019-_%", min_size=1, max_size=8)
QUEUES = st.builds(MessageQueue, NAMES, NAMES, st.integers(0, 2**31 - 1))


def utf16_units(text: str) -> list[int]:
    raw = text.encode("utf-16-be", "surrogatepass")
    return [raw[n] << 8 | raw[n + 1] for n in range(0, len(raw), 2)]


@given(st.lists(QUEUES))
def test_queues_sort_by_topic_then_broker_then_number(queues: list[MessageQueue]) -> None:
    by_parts = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))

    assert sorted(queues) == by_parts


def test_queue_10_comes_after_queue_9() -> None:
    queues = [MessageQueue("T", "b", number) for number in (10, 9, 1)]

    assert [queue.queue_id for queue in sorted(queues)] == [1, 9, 10]


@given(st.lists(st.text(st.characters(exclude_categories=()))))
def test_texts_sort_by_utf16_unit_as_in_java(texts: list[str]) -> None:
    assert [utf16_units(text) for text in java_sorted(texts)] == sorted(map(utf16_units, texts))


def test_outside_the_basic_plane_java_sorts_unlike_python() -> None:
    texts = ["\uffee", "😀"]

    assert sorted(texts) == ["\uffee", "😀"]
    assert java_sorted(texts) == ["😀", "\uffee"]


def test_a_queue_can_be_a_key_and_is_immutable() -> None:
    queue = MessageQueue("T", "broker-a", 3)

    assert {queue: 1}[MessageQueue("T", "broker-a", 3)] == 1
    with pytest.raises(AttributeError):
        queue.queue_id = 4  # type: ignore[misc]


def test_a_queue_has_a_readable_text_and_one_for_javas_hash() -> None:
    queue = MessageQueue("T", "b-a", 3)

    assert str(queue) == "T@b-a:3"
    assert queue.java_text() == "MessageQueue [topic=T, brokerName=b-a, queueId=3]"


@given(QUEUES)
def test_a_queue_survives_json_under_javas_names(queue: MessageQueue) -> None:
    text = msgspec.json.encode(queue)

    assert set(msgspec.json.decode(text)) == {"topic", "brokerName", "queueId"}
    assert msgspec.json.decode(text, type=MessageQueue) == queue


@pytest.mark.parametrize(("start", "end", "length"), [(0, 0, 0), (5, 8, 3), (8, 5, 0)])
def test_a_range_counts_its_messages(start: int, end: int, length: int) -> None:
    assert len(QueueRange(MessageQueue("T", "b", 0), start, end)) == length


@pytest.mark.parametrize(("at", "parts"), [(5, [(5, 5), (5, 8)]), (6, [(5, 6), (6, 8)]), (8, [(5, 8)]), (9, [(5, 8)])])
def test_a_range_is_split_at_an_offset(at: int, parts: list[tuple[int, int]]) -> None:
    split = QueueRange(MessageQueue("T", "b", 0), 5, 8).split(at)

    assert [(part.start, part.end) for part in split if part is not None] == parts


def test_positions_sort_by_queue_then_offset() -> None:
    first, second = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)

    assert sorted([QueueOffset(second, 1), QueueOffset(first, 9), QueueOffset(first, 2)]) == [
        QueueOffset(first, 2),
        QueueOffset(first, 9),
        QueueOffset(second, 1),
    ]
