"""Locks: one member owns a queue for a minute after its last request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import captured, needs_golden

from pocketmq.broker.groups.queue_locks import LEASE_SECONDS, SWEEP_SECONDS, QueueLockTable
from pocketmq.codes import RequestCode
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.clients import LockedQueues, QueueLocks

QUEUES = tuple(MessageQueue("T", "broker-a", number) for number in range(4))
Q0, Q1, Q2, Q3 = QUEUES
NOW = 1000.0


@pytest.fixture
def locks() -> QueueLockTable:
    return QueueLockTable()


def test_the_first_client_locks_its_queues_and_the_next_gets_the_rest(locks: QueueLockTable) -> None:
    assert locks.lock("g", "first", [Q0, Q1], NOW) == (Q0, Q1)
    assert locks.lock("g", "second", [Q0, Q1, Q2], NOW) == (Q2,)

    assert [locks.owner("g", queue, NOW) for queue in QUEUES] == ["first", "first", "second", None]


def test_groups_lock_independently(locks: QueueLockTable) -> None:
    locks.lock("g", "first", [Q0], NOW)

    assert locks.lock("h", "second", [Q0], NOW) == (Q0,)


def test_locks_are_separate_for_each_topic_broker_and_queue(locks: QueueLockTable) -> None:
    others = [MessageQueue("U", "broker-a", 0), MessageQueue("T", "broker-b", 0), MessageQueue("T", "broker-a", 1)]
    locks.lock("g", "first", [Q0], NOW)

    assert locks.lock("g", "second", others, NOW) == tuple(others)


@pytest.mark.parametrize(("passed", "still_held"), [(59.999, True), (60.0, True), (60.001, False)])
def test_a_lock_lasts_a_minute(locks: QueueLockTable, passed: float, still_held: bool) -> None:
    locks.lock("g", "first", [Q0], NOW)
    later = NOW + passed

    assert locks.has_locks("g", later) is still_held
    assert locks.owner("g", Q0, later) == ("first" if still_held else None)
    assert locks.lock("g", "second", [Q0], later) == (() if still_held else (Q0,))


def test_a_renewed_lock_lasts_another_minute(locks: QueueLockTable) -> None:
    locks.lock("g", "first", [Q0], NOW)
    locks.lock("g", "first", [Q0], NOW + 59)

    assert locks.lock("g", "second", [Q0], NOW + 61) == ()
    assert locks.lock("g", "first", [Q0], NOW + 200) == (Q0,)
    assert locks.lock("g", "second", [Q0], NOW + 201) == ()
    assert len(locks) == 1


def test_a_queue_that_is_named_twice_is_locked_once(locks: QueueLockTable) -> None:
    assert locks.lock("g", "first", [Q0, Q0], NOW) == (Q0,)
    assert len(locks) == 1

    locks.unlock("g", "first", [Q0, Q0])
    assert len(locks) == 0


def test_only_the_owner_can_unlock(locks: QueueLockTable) -> None:
    locks.lock("g", "first", [Q0, Q1], NOW)

    locks.unlock("g", "second", [Q0])
    locks.unlock("h", "first", [Q0])
    locks.unlock("g", "first", [Q1, Q2])

    assert locks.owner("g", Q0, NOW) == "first"
    assert locks.owner("g", Q1, NOW) is None
    assert len(locks) == 1


def test_a_group_has_locks_until_the_last_one_expires(locks: QueueLockTable) -> None:
    assert not locks.has_locks("g", NOW)

    locks.lock("g", "first", [Q0], NOW)
    locks.lock("g", "first", [Q1], NOW + 30)
    assert locks.has_locks("g", NOW + 61)

    locks.unlock("g", "first", [Q1])
    assert not locks.has_locks("g", NOW + 61)
    assert not locks.has_locks("h", NOW)


def test_a_leaving_client_releases_all_its_locks(locks: QueueLockTable) -> None:
    locks.lock("g", "first", [Q0, Q1], NOW)
    locks.lock("h", "first", [Q0], NOW)
    locks.lock("g", "second", [Q2], NOW)

    locks.release("first", "g")
    assert not locks.owner("g", Q0, NOW)
    assert locks.owner("h", Q0, NOW) == "first"

    locks.lock("g", "first", [Q0], NOW)
    locks.release("first")
    assert not locks.has_locks("h", NOW)
    assert locks.owner("g", Q2, NOW) == "second"
    assert len(locks) == 1

    locks.release("nobody", "nowhere")


def test_a_full_table_removes_expired_locks_and_refuses_otherwise() -> None:
    locks = QueueLockTable(max_locks=2)

    assert locks.lock("g", "first", [Q0, Q1, Q2], NOW) == (Q0, Q1)
    assert locks.refused == 1
    assert locks.lock("g", "first", [Q0], NOW + 30) == (Q0,)

    later = NOW + LEASE_SECONDS + 0.001
    assert locks.lock("h", "other", [Q0, Q1], later) == (Q0,)
    assert len(locks) == 2
    assert locks.owner("g", Q0, later) == "first"
    assert locks.refused == 2


def test_a_full_table_is_not_scanned_for_every_request() -> None:
    locks = QueueLockTable(max_locks=1)
    locks.lock("g", "first", [Q0], NOW)
    asked = NOW + LEASE_SECONDS
    assert locks.lock("g", "first", [Q1], asked) == ()

    assert locks.lock("g", "first", [Q1], asked + SWEEP_SECONDS / 2) == ()
    assert locks.lock("g", "first", [Q1], asked + SWEEP_SECONDS) == (Q1,)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["lock", "unlock", "release", "sweep"]),
        st.sampled_from(["g", "h"]),
        st.sampled_from(["first", "second", "third"]),
        st.lists(st.sampled_from(QUEUES), max_size=4),
        st.floats(0, 100),
    ),
    max_size=40,
)


@given(STEPS)
def test_random_operations_give_a_queue_to_one_client_until_its_lock_expires(
    steps: list[tuple[str, str, str, list[MessageQueue], float]],
) -> None:
    locks = QueueLockTable()
    held: dict[tuple[str, MessageQueue], tuple[str, float]] = {}
    now = 0.0
    for step, group, client, queues, passed in steps:
        now += passed
        held = {key: (owner, until) for key, (owner, until) in held.items() if until >= now}
        if step == "lock":
            free = [queue for queue in queues if held.get((group, queue), (client, 0))[0] == client]
            assert locks.lock(group, client, queues, now) == tuple(dict.fromkeys(free))
            held |= {(group, queue): (client, now + LEASE_SECONDS) for queue in free}
        elif step == "unlock":
            locks.unlock(group, client, queues)
            held = {
                key: one for key, one in held.items() if key[0] != group or key[1] not in queues or one[0] != client
            }
        elif step == "release":
            locks.release(client, group)
            held = {key: one for key, one in held.items() if key[0] != group or one[0] != client}
        else:
            locks.sweep(now)
            assert len(locks) == len(held)
        for name in ("g", "h"):
            assert locks.has_locks(name, now) is any(key[0] == name for key in held)
            for queue in QUEUES:
                assert locks.owner(name, queue, now) == held.get((name, queue), (None,))[0]


@needs_golden
@pytest.mark.parametrize(
    "name",
    [
        "5.3.3/json/orderly",
        "5.3.3/binary/orderly",
        "5.3.3/json/orderlyDeadLetter",
        "5.3.3/json/raw",
        "4.9.7/json/orderly",
        "4.9.7/json/orderlyDeadLetter",
        "4.9.7/json/raw",
    ],
)
def test_locks_match_the_captured_broker(locks: QueueLockTable, name: str) -> None:
    given_by_us: dict[tuple[str, int], frozenset[MessageQueue]] = {}
    compared = 0
    for frame in captured(f"wire/{name}.jsonl"):
        command = frame.command
        key = frame.conn, command.opaque
        if frame.answers == RequestCode.LOCK_BATCH_MQ:
            assert frozenset(LockedQueues.decode(command.body).locked) == given_by_us.pop(key)
            compared += 1
        elif frame.answers is None and command.code == RequestCode.LOCK_BATCH_MQ and frame.forward:
            asked = QueueLocks.decode(command.body)
            given_by_us[key] = frozenset(locks.lock(asked.consumer_group, asked.client_id, asked.mq_set, NOW))
        elif frame.answers is None and command.code == RequestCode.UNLOCK_BATCH_MQ:
            asked = QueueLocks.decode(command.body)
            assert asked.mq_set
            locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)

    assert compared
    assert not given_by_us
    assert len(locks) == 0
