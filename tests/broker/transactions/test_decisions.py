"""What becomes of a transaction when its producer decides."""

import errno

import pytest
from tests.broker.transactions.kit import COMMIT, GROUP, ROLLBACK, UNKNOWN, Lab

from pocketmq.broker.messages import StoredPosition
from pocketmq.broker.transactions.decisions import immunity_ms
from pocketmq.broker.transactions.half import renewed
from pocketmq.errors import (
    IllegalOperation,
    ImpossibleRequest,
    InvalidMessage,
    InvalidParameter,
    StoreError,
    TopicNotFound,
)
from pocketmq.model.names import HALF_TOPIC, SCHEDULE_TOPIC


def test_a_committed_message_reaches_its_queue() -> None:
    lab = Lab.new()
    place = lab.send(b"yes")

    lab.end(place)

    (message,) = lab.messages()
    assert (message.body, message.sys_flag, message.prepared_offset) == (b"yes", 8, place.log_offset)
    assert lab.transactions.undecided(10) == []
    assert lab.transactions.decisions.committed == 1


def test_a_rolled_back_message_is_never_delivered() -> None:
    lab = Lab.new()

    lab.end(lab.send(), ROLLBACK)

    assert lab.delivered() == []
    assert lab.transactions.undecided(10) == []
    assert lab.transactions.decisions.rolled_back == 1


def test_a_producer_that_does_not_know_leaves_the_transaction_open() -> None:
    lab = Lab.new()

    lab.end(lab.send(), UNKNOWN)

    assert lab.delivered() == []
    assert len(lab.transactions.undecided(10)) == 1


@pytest.mark.parametrize("state", [1, 4, -1, 9])
def test_an_invalid_decision_is_refused(state: int) -> None:
    lab = Lab.new()

    with pytest.raises(InvalidParameter, match="is not a decision"):
        lab.end(lab.send(), state)


def test_another_group_may_not_decide_a_transaction() -> None:
    lab = Lab.new()
    place = lab.send()

    with pytest.raises(ImpossibleRequest, match="does not belong to producer group Other"):
        lab.end(place, group="Other")

    assert lab.delivered() == []
    assert len(lab.transactions.undecided(10)) == 1


def test_both_offsets_must_match_the_half_message() -> None:
    lab = Lab.new()
    place = lab.send()

    with pytest.raises(ImpossibleRequest, match="queue offset 0, not 1"):
        lab.end(place, queue_offset=1)
    for log_offset in (place.log_offset + 1, 10**9, -1):
        with pytest.raises(ImpossibleRequest, match="no half message"):
            lab.end(StoredPosition(0, 0, log_offset))


def test_a_decision_that_names_another_transaction_is_refused() -> None:
    lab = Lab.new()
    place = lab.send(b"mine")

    with pytest.raises(ImpossibleRequest, match="is KEY-mine, not KEY-lost"):
        lab.end(place, key="KEY-lost")
    assert lab.delivered() == []
    lab.end(place, key=lab.message(place).offset_id)

    assert lab.delivered() == [b"mine"]


def test_a_plain_message_cannot_be_committed() -> None:
    lab = Lab.new()
    draft = lab.draft()
    draft.sys_flag = 0
    place = lab.appender.append(draft)

    with pytest.raises(ImpossibleRequest, match="no half message"):
        lab.end(place)

    assert len(lab.delivered()) == 1


def test_a_damaged_half_message_cannot_be_committed() -> None:
    lab = Lab.new()
    place = lab.send()
    lab.damage(place)

    with pytest.raises(ImpossibleRequest, match="no half message"):
        lab.end(place)

    assert lab.delivered() == []


def test_a_body_that_looks_like_a_half_message_is_not_one() -> None:
    lab = Lab.new()
    record = lab.store.record(lab.send().log_offset)
    assert record is not None
    around = lab.send(b"x" + record, UNIQ_KEY="K")
    inside = lab.store.record(around.log_offset)
    assert inside is not None

    with pytest.raises(ImpossibleRequest, match="no half message"):
        lab.end(StoredPosition(0, 0, around.log_offset + inside.index(record)))


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
def test_a_repeated_decision_counts_once(state: int) -> None:
    lab = Lab.new()
    place = lab.send()

    lab.end(place, state)
    lab.end(place, state)

    assert len(lab.delivered()) == (state == COMMIT)
    assert lab.transactions.decisions.repeated == 1


def test_the_opposite_decision_is_refused() -> None:
    lab = Lab.new()
    yes, no = lab.send(b"yes"), lab.send(b"no")
    lab.end(yes)
    lab.end(no, ROLLBACK)

    with pytest.raises(IllegalOperation, match="KEY-yes was committed before"):
        lab.end(yes, ROLLBACK)
    with pytest.raises(IllegalOperation, match="KEY-no was rolled back"):
        lab.end(no, COMMIT)

    assert lab.delivered() == [b"yes"]


def test_without_an_index_the_opposite_decision_has_no_effect() -> None:
    lab = Lab.new(index_enabled=False)
    place = lab.send()
    lab.end(place, ROLLBACK)

    lab.end(place, COMMIT)

    assert lab.delivered() == []


def test_the_decision_of_the_producer_may_arrive_after_a_check() -> None:
    lab = Lab.new()
    place = lab.send()
    (copy,) = lab.check()

    lab.end(place)
    lab.end(copy, check=True)

    (message,) = lab.messages()
    assert message.prepared_offset == place.log_offset
    assert lab.transactions.undecided(10) == []
    assert lab.check() == []


def test_an_answer_about_an_older_copy_is_accepted() -> None:
    lab = Lab.new()
    place = lab.send()
    (first,) = lab.check()
    (second,) = lab.check()

    lab.end(first, check=True)
    lab.end(second, check=True)
    lab.end(place)

    assert len(lab.delivered()) == 1
    assert lab.transactions.decisions.repeated == 2


def test_two_sends_with_the_same_key_are_two_transactions() -> None:
    lab = Lab.new()
    first, second = lab.send(b"one", UNIQ_KEY="K"), lab.send(b"two", UNIQ_KEY="K")

    lab.end(second)
    assert lab.delivered() == [b"two"]
    lab.end(first)

    assert lab.delivered() == [b"two", b"one"]


def test_a_producer_with_an_immunity_time_decides_within_that_time() -> None:
    lab = Lab.new()
    in_time = lab.send(b"in time", CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    late = lab.send(b"late", CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    lab.clock.advance_ms(10_000)
    lab.end(in_time)
    lab.clock.advance_ms(1)

    for state in (COMMIT, ROLLBACK):
        with pytest.raises(IllegalOperation, match="10001 ms old"):
            lab.end(late, state)
    assert lab.delivered() == [b"in time"]
    lab.end(late, check=True)

    assert lab.delivered() == [b"in time", b"late"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10", 10_000), ("0", 0), ("-1", None), ("soon", None), ("9" * 12, None), ("999999999", 31_536_000_000)],
)
def test_only_a_number_of_seconds_is_an_immunity_time(text: str, expected: int | None) -> None:
    lab = Lab.new()

    assert immunity_ms(lab.message(lab.send(CHECK_IMMUNITY_TIME_IN_SECONDS=text))) == expected


def test_the_delay_of_a_message_starts_with_its_commit() -> None:
    lab = Lab.new()
    place = lab.send(DELAY="3")
    assert lab.message(place).topic == HALF_TOPIC

    lab.end(place)
    lab.end(place)

    assert lab.delivered() == []
    (waiting,) = lab.messages(SCHEDULE_TOPIC, 2)
    assert (waiting.sys_flag, waiting.properties["REAL_TOPIC"]) == (8, "T")


def test_a_transaction_of_a_deleted_topic_stays_open() -> None:
    lab = Lab.new()
    place = lab.send()
    lab.topics.delete("T", 0)

    with pytest.raises(TopicNotFound):
        lab.end(place)

    assert len(lab.transactions.undecided(10)) == 1


def test_a_disk_error_leaves_the_transaction_open() -> None:
    lab = Lab.new()
    place = lab.send()
    lab.opened.disk.fail("write", errno.ENOSPC, "*/commitlog/*")

    with pytest.raises(StoreError):
        lab.end(place)
    assert len(lab.transactions.undecided(10)) == 1
    lab.opened.tick(1000)
    lab.end(place)

    assert lab.delivered() == [b"body"]


# after a start


def test_a_recorded_decision_is_not_committed_again_after_a_crash() -> None:
    lab = Lab.new()
    place = lab.send()
    lab.end(place)
    lab.transactions.ledger.write_ops()

    again = lab.crash()
    again.end(place)

    assert len(again.delivered()) == 1
    assert again.transactions.undecided(10) == []


def test_a_commit_with_a_lost_op_message_is_found_by_its_key() -> None:
    lab = Lab.new()
    place = lab.send()
    lab.end(place)

    again = lab.crash()
    assert len(again.transactions.undecided(10)) == 1
    again.end(place)

    assert len(again.delivered()) == 1
    assert again.transactions.undecided(10) == []


def test_a_delayed_commit_with_a_lost_op_message_is_found() -> None:
    lab = Lab.new()
    place = lab.send(DELAY="3")
    lab.end(place)

    again = lab.crash()
    again.end(place)

    assert len(again.messages(SCHEDULE_TOPIC, 2)) == 1


def test_without_an_index_a_commit_may_be_repeated_after_a_crash_but_not_lost() -> None:
    lab = Lab.new(index_enabled=False)
    place = lab.send()
    lab.end(place)

    again = lab.crash()
    again.end(place)

    assert again.delivered() == [b"body", b"body"]


def test_a_transaction_from_before_a_restart_can_be_decided() -> None:
    lab = Lab.new()
    first, second = lab.send(b"first"), lab.send(b"second")

    again = lab.restart()
    again.end(first)
    again.end(second, ROLLBACK)

    assert again.delivered() == [b"first"]
    assert again.transactions.undecided(10) == []


def test_one_decision_closes_two_open_copies_after_a_crash() -> None:
    lab = Lab.new()
    lab.send()
    (copy,) = lab.check()
    twin = lab.appender.append(renewed(lab.message(copy), is_check=True))

    again = lab.crash()
    assert len(again.transactions.undecided(10)) == 2
    again.end(copy, check=True)
    again.end(twin, check=True)

    assert len(again.delivered()) == 1
    assert again.transactions.undecided(10) == []


def test_a_message_that_cannot_be_stored_leaves_the_transaction_open() -> None:
    lab = Lab.new()
    place = lab.send(TIMER_DELAY_SEC="never")

    with pytest.raises(InvalidMessage):
        lab.end(place)

    assert [one.producer_group for one in lab.transactions.undecided(10)] == [GROUP]


def test_a_half_message_is_committed_although_the_limit_was_lowered() -> None:
    lab = Lab.new(max_message_bytes=8_000)
    place = lab.send(b"x" * 6_000)
    lab.opened.run_workers()

    lower = Lab(lab.opened.reopen(max_message_bytes=4_000), lab.in_use.now, lab.saved)
    lower.end(place)

    assert lower.delivered() == [b"x" * 6_000]
