"""Queue selectors choose the same queue for the same key, as in Java."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.producer.queue_choice import by_hash, java_hash_of
from pocketmq.errors import UsageError
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue

SEVEN = [MessageQueue("T", "b", number) for number in range(7)]
MESSAGE = Message("T", b"x")

JAVA_CHOSE: list[tuple[str | int, int]] = [
    ("", 0),
    ("a", 6),
    ("order-1", 6),
    ("order-2", 5),
    ("polygenelubricants", 2),
    ("中文", 0),
    ("\U0001f680", 4),
    ("TagB", 2),
    (5, 5),
    (-3, 3),
    (7, 0),
    (-5_000_000_000, 3),
    (-2_147_483_648, 2),
]
"""Key, and the one of seven queues that Java's SelectMessageQueueByHash chose."""


@pytest.mark.parametrize(("key", "queue_id"), JAVA_CHOSE)
def test_a_key_chooses_the_queue_that_java_chooses(key: str | int, queue_id: int) -> None:
    assert by_hash(SEVEN, MESSAGE, key).queue_id == queue_id


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (2**31 - 1, 2**31 - 1),
        (2**31, -(2**31)),
        (2**32, 1),
        (-(2**31), -(2**31)),
        (-(2**31) - 1, -(2**31)),
        (2**63 - 1, -(2**31)),
        (-(2**63), -(2**31)),
    ],
)
def test_numbers_hash_as_an_integer_or_a_long(key: int, expected: int) -> None:
    assert java_hash_of(key) == expected


def test_without_a_key_the_sharding_key_of_the_message_is_used() -> None:
    message = Message("T", b"x", sharding_key="order-2")

    assert by_hash(SEVEN, message).queue_id == 5
    assert by_hash(SEVEN, message, "order-1").queue_id == 6


@pytest.mark.parametrize("key", [None, 1.5, True, b"bytes", ("a",), 2**63, -(2**63) - 1])
def test_a_key_with_another_hash_in_java_is_refused(key: object) -> None:
    with pytest.raises(UsageError, match="invalid selector key"):
        by_hash(SEVEN, MESSAGE, key)


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(2**63), 2**63 - 1), st.integers(1, 50))
def test_a_key_always_selects_the_same_queue(key: str | int, count: int) -> None:
    queues = [MessageQueue("T", "b", number) for number in range(count)]

    assert by_hash(queues, MESSAGE, key) == by_hash(queues, Message("T", b"y"), key)
