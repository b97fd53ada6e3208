"""A turn of the store in which an allocation fails: nothing of it is stored, and the next turn is.

Each sweep lets the first, the second, … allocation fail, until a turn needs no more than that.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.store.crash.checks import check_every_byte
from tests.store.kit import HOST
from tests.store.open_store import OpenStore

from pocketmq.model.names import TopicName
from pocketmq.store.queues.consume_queue import ENTRY

_testcapi = pytest.importorskip("_testcapi")

MOST_ALLOCATIONS = 3_000
PROPERTIES = b"UNIQ_KEY\x01K\x02TAGS\x01a\x02"


@contextmanager
def failing_allocation(number: int) -> Iterator[None]:
    """Inside, the allocation of this number raises MemoryError, and no other."""
    _testcapi.set_nomemory(number, number + 1)
    try:
        yield
    finally:
        _testcapi.remove_mem_hooks()


def one_by_one(opened: OpenStore, body: bytes) -> None:
    for queue_id in (0, 1, 0):
        queue = opened.store.queue(TopicName("T"), queue_id)
        opened.store.stage(queue, body, PROPERTIES, 0, 0, 1, HOST)


def batch(opened: OpenStore, body: bytes) -> None:
    queue = opened.store.queue(TopicName("T"), 0)
    opened.store.stage_batch(queue, [(0, body, PROPERTIES)] * 3, 0, 1, HOST)


Stage = Callable[[OpenStore, bytes], None]


def turn(opened: OpenStore, stage: Stage, body: bytes, number: int) -> bool:
    """Whether a turn was stored although this allocation failed."""
    try:
        with failing_allocation(number):
            stage(opened, body)
            opened.store.end_turn()
    except Exception:
        opened.store.abandon_turn()
        return False
    return True


def stored(opened: OpenStore) -> list[bytes]:
    store = opened.store
    found = []
    for queue in store._parts.queues:
        assert queue.next_offset == queue.max_offset
        for offset, (log_offset, size, _) in enumerate(ENTRY.iter_unpack(queue.read(0, queue.max_offset))):
            message = store.message(log_offset)
            assert message is not None
            assert (message.queue_offset, message.queue_id, message.size) == (offset, queue.queue_id, size)
            found.append(message.body)
    return found


@pytest.mark.parametrize("stage", [one_by_one, batch])
@pytest.mark.parametrize(
    "settings", [{}, {"transient_pool": True}, {"slow_write_ms": 0}], ids=["usual", "pool", "thread"]
)
def test_a_turn_with_any_failing_allocation_has_no_effect(
    stage: Stage, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    opened = OpenStore.small(**settings)
    stage(opened, b"first")
    opened.store.end_turn()
    opened.run_workers()
    expected, failed, number, in_a_row = 3, 0, 0, 0
    while in_a_row < 50:
        assert number < MOST_ALLOCATIONS, "a turn that always fails"
        is_stored = turn(opened, stage, b"%d" % number, number)
        opened.run_workers()
        opened.tick(600)
        opened.tick(600)
        bodies = stored(opened)
        expected += 3 * is_stored
        assert len(bodies) == expected, f"allocation {number}"
        assert bodies.count(b"%d" % number) == 3 * is_stored
        failed += not is_stored
        in_a_row = in_a_row + 1 if is_stored else 0
        number += 1
    assert failed > 10
    opened.store.close()
    check_every_byte(opened.disk, opened.settings)
