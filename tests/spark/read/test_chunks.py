"""The size of the next pull: what fills a buffer, in complete answers."""

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.decode.decoding import Pulled
from pocketmq.spark.read.chunks import Chunk, messages_of_next

QUEUE = MessageQueue("orders", "broker-a", 0)


def chunk(messages: int, message_bytes: int, *, rest: int = 0) -> Chunk:
    wanted = QueueRange(QUEUE, 10, 10 + messages + rest)
    left = QueueRange(QUEUE, 10 + messages, wanted.end) if rest else None
    return Chunk(Pulled(wanted, bytes(messages * message_bytes)), left, [])


def test_the_size_of_a_pull_follows_the_average_message() -> None:
    assert messages_of_next(chunk(100, 20), 1000, 0) == 50
    assert messages_of_next(chunk(100, 20, rest=300), 1000, 0) == 50
    assert messages_of_next(chunk(3, 5000), 1000, 0) == 1


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        (836, 2 * (836 - 26)),  # two answers fill it: some less, so that the third is not needed
        (1000, 2 * (1000 - 31)),
        (1200, 1200 - 37),
        (32, 52 * 31),
        (3, 557 * 3),
        (1672, 1672),
        (2000, 1672),
    ],
)
def test_a_chunk_has_the_messages_of_complete_answers(largest: int, expected: int) -> None:
    assert messages_of_next(chunk(1672, 10), 16_720, largest) == expected
