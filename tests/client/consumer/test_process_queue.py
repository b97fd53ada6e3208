"""Process queue: never commit past a message that is not done with."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.client.messages import Unobserved, process_queue, run_of, stored

from pocketmq.client.consumer.process_queue import LOCK_SECONDS, MAX_OVERDUE, PULL_IDLE_SECONDS, ProcessQueue
from pocketmq.client.consumer.pull_position import PullPosition
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.clients import ProcessQueueInfo

NOW = 1000.0


@pytest.fixture
def queue() -> ProcessQueue:
    return process_queue(NOW)


def offsets(messages: list[StoredMessage]) -> list[int]:
    return [message.queue_offset for message in messages]


def test_an_empty_queue_commits_nothing(queue: ProcessQueue) -> None:
    assert (queue.count, queue.body_bytes, queue.span, queue.commit_offset) == (0, 0, 0, None)
    assert queue.take(10, NOW) == []
    assert queue.finish([], NOW) is None


def test_take_returns_messages_in_order_and_in_batches(queue: ProcessQueue) -> None:
    assert queue.put(run_of(10, 13)) == 3
    assert queue.put(run_of(13, 15)) == 2

    assert offsets(queue.take(2, NOW)) == [10, 11]
    assert offsets(queue.take(2, NOW)) == [12, 13]
    assert offsets(queue.take(2, NOW)) == [14]
    assert offsets(queue.take(2, NOW)) == []
    assert (queue.count, queue.waiting, queue.consuming) == (5, 0, 5)


@pytest.mark.parametrize(
    ("order", "commits"),
    [
        ([10, 11, 12], [11, 12, 13]),
        ([12, 11, 10], [10, 10, 13]),
        ([11, 10, 12], [10, 12, 13]),
        ([11, 12, 10], [10, 10, 13]),
    ],
)
def test_the_smallest_offset_in_flight_is_committed(queue: ProcessQueue, order: list[int], commits: list[int]) -> None:
    queue.put(run_of(10, 13))
    queue.take(3, NOW)

    assert [queue.finish([stored(offset)], NOW) for offset in order] == commits


def test_gaps_of_a_filter_are_committed_with_the_messages_around_them(queue: ProcessQueue) -> None:
    queue.put([stored(10), stored(50), stored(51)])

    assert queue.span == 41
    assert queue.finish(queue.take(1, NOW), NOW) == 50
    assert queue.finish(queue.take(2, NOW), NOW) == 52


def test_a_batch_may_span_several_pulls(queue: ProcessQueue) -> None:
    for start in (10, 13, 16):
        queue.put(run_of(start, start + 3))

    batch = queue.take(7, NOW)

    assert offsets(batch) == [10, 11, 12, 13, 14, 15, 16]
    assert (queue.waiting, queue.consuming, queue.body_bytes) == (2, 7, 36)
    assert queue.finish(batch, NOW) == 17
    assert (queue.waiting, queue.consuming, queue.body_bytes) == (2, 0, 8)


def test_waiting_messages_delay_the_commit(queue: ProcessQueue) -> None:
    queue.put(run_of(10, 20))

    assert queue.finish(queue.take(4, NOW), NOW) == 14


def test_the_span_shrinks_from_both_ends(queue: ProcessQueue) -> None:
    queue.put(run_of(0, 100))
    queue.take(100, NOW)
    assert queue.span == 99

    queue.finish([stored(99), stored(98)], NOW)
    assert queue.span == 97

    queue.finish([stored(0), stored(1), stored(50)], NOW)
    assert queue.span == 95
    assert queue.count == 95


def test_bytes_are_those_of_the_bodies_in_flight(queue: ProcessQueue) -> None:
    queue.put([stored(0, b"1234"), stored(1, b""), stored(2, b"123456")])
    assert queue.body_bytes == 10

    queue.finish(queue.take(1, NOW), NOW)
    assert queue.body_bytes == 6

    queue.finish(queue.take(2, NOW), NOW)
    assert queue.body_bytes == 0


def test_a_message_pulled_twice_is_dropped(queue: ProcessQueue) -> None:
    queue.put(run_of(10, 13))
    queue.finish(queue.take(1, NOW), NOW)

    assert queue.put(run_of(10, 14)) == 1
    assert offsets(queue.take(9, NOW)) == [11, 12, 13]


def test_a_message_is_finished_once_and_only_while_it_is_consumed(queue: ProcessQueue) -> None:
    queue.put(run_of(10, 13))
    (first,) = queue.take(1, NOW)

    assert queue.finish([first, first, stored(11), stored(99)], NOW) == 11
    assert queue.finish([first], NOW) == 11
    assert (queue.count, queue.body_bytes) == (2, 8)


def test_requeued_messages_are_delivered_before_the_others(queue: ProcessQueue) -> None:
    queue.put(run_of(10, 16))
    batch = queue.take(3, NOW)

    queue.requeue([batch[2], batch[0]])

    assert not queue.is_consuming(batch[0])
    assert queue.is_consuming(batch[1])
    assert offsets(queue.take(3, NOW)) == [10, 12, 13]
    assert queue.commit_offset == 10


def test_an_orderly_batch_is_committed_completely(queue: ProcessQueue) -> None:
    queue.put(run_of(10, 16))
    queue.take(2, NOW)
    queue.take(1, NOW)

    assert queue.commit(NOW) == 13
    assert queue.commit(NOW) == 13
    assert (queue.count, queue.consuming) == (3, 0)


def test_a_rolled_back_orderly_batch_is_delivered_again_in_order(queue: ProcessQueue) -> None:
    queue.put(run_of(10, 16))
    queue.take(2, NOW)
    queue.take(2, NOW)

    queue.rollback()

    assert queue.consuming == 0
    assert offsets(queue.take(9, NOW)) == [10, 11, 12, 13, 14, 15]


def test_a_dropped_queue_accepts_returns_and_commits_nothing(queue: ProcessQueue) -> None:
    queue.put(run_of(10, 13))
    batch = queue.take(1, NOW)

    queue.drop()

    assert queue.is_dropped
    assert queue.put(run_of(13, 15)) == 0
    assert queue.take(1, NOW) == []
    assert queue.finish(batch, NOW) is None
    assert queue.count == 2


@pytest.mark.parametrize(("passed", "is_overdue"), [(899.999, False), (900.0, False), (900.001, True)])
def test_a_message_is_overdue_when_its_listener_takes_longer_than_the_timeout(
    queue: ProcessQueue, passed: float, is_overdue: bool
) -> None:
    queue.put(run_of(10, 12))
    queue.take(1, NOW)

    assert offsets(queue.overdue(NOW + passed, 900.0)) == ([10] if is_overdue else [])


def test_only_the_first_message_is_checked_for_the_timeout(queue: ProcessQueue) -> None:
    queue.put(run_of(10, 15))
    queue.take(1, NOW + 950)
    queue.take(2, NOW)
    assert queue.overdue(NOW + 1000, 900.0) == []

    queue.finish([stored(10)], NOW)
    assert offsets(queue.overdue(NOW + 1000, 900.0)) == [11, 12]


def test_completed_messages_do_not_hide_later_overdue_ones(queue: ProcessQueue) -> None:
    queue.put(run_of(10, 14))
    queue.take(4, NOW)
    queue.finish([stored(11), stored(12)], NOW)

    assert offsets(queue.overdue(NOW + 1000, 900.0)) == [10, 13]


def test_a_clean_up_handles_at_most_sixteen_messages(queue: ProcessQueue) -> None:
    queue.put(run_of(0, 40))
    queue.take(40, NOW)

    overdue = queue.overdue(NOW + 1000, 900.0)
    assert offsets(overdue) == list(range(MAX_OVERDUE))

    assert queue.finish(overdue, NOW) == MAX_OVERDUE
    assert not queue.is_consuming(overdue[0])


def test_a_requeued_message_has_the_full_consume_timeout_again(queue: ProcessQueue) -> None:
    queue.put(run_of(10, 11))
    queue.requeue(queue.take(1, NOW))
    queue.take(1, NOW + 500)

    assert queue.overdue(NOW + 1000, 900.0) == []


@pytest.mark.parametrize(("passed", "held"), [(-0.001, True), (0.0, True), (0.001, False)])
def test_a_lock_is_used_for_half_a_minute(queue: ProcessQueue, passed: float, held: bool) -> None:
    assert not queue.is_locked(NOW)

    queue.lock(NOW)

    assert queue.is_locked(NOW + LOCK_SECONDS + passed) is held


def test_a_lock_can_be_renewed_and_lost(queue: ProcessQueue) -> None:
    queue.lock(NOW)
    queue.lock(NOW + 20)
    assert queue.is_locked(NOW + 45)

    queue.unlock()
    assert not queue.is_locked(NOW + 45)


class RefusedMeanwhile(ProcessQueue):
    """The loop is notified of a refused lock while a thread checks the lock."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name == "was_locked_elsewhere":
            self.unlock()
        return found


def test_a_thread_may_read_the_lock_while_the_loop_loses_it() -> None:
    queue = RefusedMeanwhile(PullPosition(MessageQueue("T", "b", 0), 0), Unobserved(), NOW, is_orderly=True)
    queue.lock(NOW)

    assert queue.is_locked(NOW)  # as it was when it was asked for
    assert not queue.is_locked(NOW)


@pytest.mark.parametrize(("passed", "is_dead"), [(-0.001, False), (0.0, False), (0.001, True)])
def test_a_queue_that_was_not_pulled_for_two_minutes_is_dead(queue: ProcessQueue, passed: float, is_dead: bool) -> None:
    queue.record_pull(NOW + 10)

    assert queue.is_pull_dead(NOW + 10 + PULL_IDLE_SECONDS + passed) is is_dead


def test_an_administrator_sees_a_concurrent_queue() -> None:
    queue = process_queue(NOW)
    queue.put([stored(offset, bytes(300_000)) for offset in range(10, 20)])
    queue.take(4, NOW + 5)
    queue.finish([stored(10, bytes(300_000))], NOW + 6)
    queue.record_pull(NOW + 7)

    assert queue.info(10, NOW + 10, 1_700_000_010_000) == ProcessQueueInfo(
        commit_offset=10,
        cached_msg_min_offset=11,
        cached_msg_max_offset=19,
        cached_msg_count=9,
        cached_msg_size_in_mib=2,
        last_pull_timestamp=1_700_000_007_000,
        last_consume_timestamp=1_700_000_006_000,
    )


def test_an_administrator_sees_an_orderly_queue() -> None:
    queue = process_queue(NOW, is_orderly=True)
    queue.put(run_of(10, 20))
    queue.take(4, NOW)
    queue.lock(NOW + 1)
    queue.unlock_attempts += 1
    queue.drop()

    assert queue.info(7, NOW + 10, 20_000) == ProcessQueueInfo(
        commit_offset=7,
        cached_msg_min_offset=14,
        cached_msg_max_offset=19,
        cached_msg_count=6,
        transaction_msg_min_offset=10,
        transaction_msg_max_offset=13,
        transaction_msg_count=4,
        locked=True,
        try_unlock_times=1,
        last_lock_timestamp=11_000,
        dropped=True,
        last_pull_timestamp=10_000,
        last_consume_timestamp=10_000,
    )


def test_an_empty_queue_shows_zeros() -> None:
    assert process_queue(NOW).info(0, NOW, 5) == ProcessQueueInfo(last_pull_timestamp=5, last_consume_timestamp=5)


class ProcessQueueModel(RuleBasedStateMachine):
    """Against a dict: offset → None while it waits, else when its consumption began."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = process_queue(0.0)
        self.model: dict[int, float | None] = {}
        self.sizes: dict[int, int] = {}
        self.next_offset = 0
        self.largest = -1
        self.committed = 0
        self.now = 0.0
        self.batches: list[list[StoredMessage]] = []

    def message(self, offset: int) -> StoredMessage:
        return stored(offset, bytes(self.sizes[offset]))

    @rule(gaps=st.lists(st.integers(0, 3), max_size=8), size=st.integers(0, 5))
    def put(self, gaps: list[int], size: int) -> None:
        batch = []
        for gap in gaps:
            offset = self.next_offset + gap
            self.next_offset = offset + 1
            self.sizes[offset] = size
            self.model[offset] = None
            self.largest = offset
            batch.append(self.message(offset))
        assert self.queue.put(batch) == len(gaps)

    @rule(back=st.integers(1, 5))
    def put_again(self, back: int) -> None:
        old = [offset for offset in self.sizes if offset > self.largest - back]
        assert self.queue.put([self.message(offset) for offset in sorted(old)]) == 0

    @rule(limit=st.integers(1, 6), passed=st.integers(0, 10))
    def take(self, limit: int, passed: int) -> None:
        self.now += passed
        batch = self.queue.take(limit, self.now)
        self.batches.append(batch)
        taken = offsets(batch)
        waiting = {offset for offset, began in self.model.items() if began is None}
        assert set(taken) <= waiting
        assert len(taken) == len(set(taken)) == min(limit, len(waiting))
        self.model |= dict.fromkeys(taken, self.now)

    def consumed(self) -> list[int]:
        return [offset for offset, began in self.model.items() if began is not None]

    @precondition(lambda self: self.consumed())
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        done = data.draw(st.lists(st.sampled_from(self.consumed()), max_size=4))
        commit = self.queue.finish([self.message(offset) for offset in done], self.now)
        for offset in set(done):
            del self.model[offset]
        assert commit == min(self.model, default=self.largest + 1)
        assert commit >= self.committed
        self.committed = commit

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def finish_all_that_were_taken_together(self, data: st.DataObject) -> None:
        batch = self.batches.pop(data.draw(st.integers(0, len(self.batches) - 1)))
        as_it_was = list(batch)
        done = [offset for offset in offsets(batch) if self.model.get(offset) is not None]
        commit = self.queue.finish(list(batch), self.now)
        for offset in done:
            del self.model[offset]
        assert batch == as_it_was
        assert commit == (min(self.model, default=self.largest + 1) if self.sizes else None)

    @precondition(lambda self: self.consumed())
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        again = data.draw(st.lists(st.sampled_from(self.consumed()), unique=True, max_size=4))
        self.queue.requeue([self.message(offset) for offset in again])
        self.model |= dict.fromkeys(again)

    @rule(timeout=st.integers(0, 20))
    def look_for_overdue(self, timeout: int) -> None:
        expected = []
        for offset in sorted(self.model):
            began = self.model[offset]
            if began is None or self.now - began <= timeout:
                break
            expected.append(offset)
        assert offsets(self.queue.overdue(self.now, timeout)) == expected[:MAX_OVERDUE]

    @invariant()
    def agrees(self) -> None:
        span = max(self.model) - min(self.model) if self.model else 0
        assert self.queue.count == len(self.model)
        assert self.queue.consuming == len(self.consumed())
        assert self.queue.waiting == self.queue.count - self.queue.consuming
        assert self.queue.body_bytes == sum(self.sizes[offset] for offset in self.model)
        assert self.queue.span == span
        if self.sizes:
            assert self.queue.commit_offset == min(self.model, default=self.largest + 1)


class OrderlyModel(RuleBasedStateMachine):
    """An orderly listener never sees a message before one with a smaller offset is committed."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = process_queue(0.0, is_orderly=True)
        self.put_count = 0
        self.done = 0
        self.taken = 0

    @rule(count=st.integers(0, 6))
    def put(self, count: int) -> None:
        self.queue.put(run_of(self.put_count, self.put_count + count))
        self.put_count += count

    @rule(limit=st.integers(1, 4))
    def take(self, limit: int) -> None:
        start = self.done + self.taken
        expected = list(range(start, min(start + limit, self.put_count)))
        assert offsets(self.queue.take(limit, 0.0)) == expected
        self.taken += len(expected)

    @rule()
    def commit(self) -> None:
        self.done += self.taken
        self.taken = 0
        assert self.queue.commit(0.0) == (self.done if self.put_count else None)

    @rule()
    def rollback(self) -> None:
        self.queue.rollback()
        self.taken = 0


TestProcessQueueModel = ProcessQueueModel.TestCase
TestOrderlyModel = OrderlyModel.TestCase
TestProcessQueueModel.settings = TestOrderlyModel.settings = settings(max_examples=60, stateful_step_count=40)
