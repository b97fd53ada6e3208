"""Check-backs of undecided transactions."""

import asyncio
import errno
import logging

import pytest
from tests.broker.transactions.kit import COMMIT, GROUP, ROLLBACK, Lab, Producer

from pocketmq.broker.settings import TransactionSettings
from pocketmq.broker.transactions.checks import Verdict, decide
from pocketmq.broker.transactions.half import renewed
from pocketmq.errors import ConnectionLost, StoreError
from pocketmq.model.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from pocketmq.model.properties import MAX_BYTES
from pocketmq.protocol.command import Command
from pocketmq.testing import FakeClock, run

HOUR_MS = 3600 * 1000


@pytest.mark.parametrize(
    ("age_ms", "properties", "expected"),
    [
        (5_999, {}, Verdict.LEAVE),
        (6_000, {}, Verdict.ASK),
        (9_999, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"}, Verdict.LEAVE),
        (10_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"}, Verdict.ASK),
        (6_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}, Verdict.ASK),
        (5_999, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}, Verdict.LEAVE),
        (6_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, Verdict.ASK),
        (HOUR_MS, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "99999999"}, Verdict.LEAVE),
        (HOUR_MS + 1, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "99999999"}, Verdict.GIVE_UP),
        (HOUR_MS, {}, Verdict.ASK),
        (HOUR_MS + 1, {}, Verdict.GIVE_UP),
    ],
)
def test_the_age_decides_about_an_open_half_message(age_ms: int, properties: dict[str, str], expected: Verdict) -> None:
    lab = Lab.new()
    half = lab.message(lab.send(b"body", **properties))

    assert decide(half, half.store_ms, half.store_ms + age_ms, TransactionSettings(), HOUR_MS) is expected


def test_the_immunity_time_applies_to_the_first_check_only() -> None:
    lab = Lab.new()
    lab.send(CHECK_IMMUNITY_TIME_IN_SECONDS="60")

    assert lab.check(59_999) == []
    assert len(lab.check(1)) == 1
    assert len(lab.check(6_000)) == 1


def test_a_producer_is_checked_with_a_copy_that_counts_the_checks() -> None:
    lab = Lab.new()
    place = lab.send(b"hello")
    lab.clock.advance_ms(6_000)

    run(lab.transactions.checks.run())

    ((header, message),) = lab.producer.take()
    copy = lab.store.message(header.commit_log_offset)
    assert copy is not None
    assert (copy.topic, copy.queue_offset) == (HALF_TOPIC, header.tran_state_table_offset)
    assert header.tran_state_table_offset == place.queue_offset + 1
    assert copy.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert (header.msg_id, header.transaction_id, header.offset_msg_id) == ("KEY-hello", "KEY-hello", copy.offset_id)
    assert (message.topic, message.queue_id, message.body) == ("T", 1, b"hello")
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"


def test_the_copy_and_the_op_message_are_one_write() -> None:
    lab = Lab.new()
    lab.send()
    lab.end(lab.send(b"decided"), ROLLBACK)

    lab.check()

    (op,) = lab.messages(OP_HALF_TOPIC, 0)
    assert op.body == b"1,0,"
    copy = lab.messages(HALF_TOPIC, 0)[-1]
    assert op.log_offset == copy.log_offset + copy.size


def test_a_half_message_is_not_checked_before_its_age() -> None:
    lab = Lab.new()
    lab.send()

    assert lab.check(5_999) == []
    assert len(lab.check(1)) == 1


def test_a_decided_transaction_is_not_checked() -> None:
    lab = Lab.new()
    lab.end(lab.send(b"yes"))
    lab.end(lab.send(b"no"), ROLLBACK)

    assert lab.check() == []


def test_the_answer_to_a_check_decides_the_transaction() -> None:
    lab = Lab.new()
    for body in (b"yes", b"no"):
        lab.send(body)

    yes, no = lab.check()
    lab.end(yes, COMMIT, check=True)
    lab.end(no, ROLLBACK, check=True)

    assert lab.delivered() == [b"yes"]
    assert lab.check() == []
    assert lab.transactions.checks.checks_sent == 2


def test_after_the_maximum_of_checks_a_transaction_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab.new(transaction=TransactionSettings(max_checks=3))
    lab.send(b"undecided", DELAY="2")

    asked = [len(lab.check()) for _ in range(3)]
    with caplog.at_level(logging.WARNING):
        assert lab.check() == []

    assert asked == [1, 1, 1]
    (message,) = lab.messages(CHECK_MAX_TIME_TOPIC, 0)
    assert (message.body, message.properties["TRANSACTION_CHECK_TIMES"]) == (b"undecided", "3")
    assert message.properties["REAL_TOPIC"] == "T"
    assert CHECK_MAX_TIME_TOPIC in lab.topics
    assert (lab.announced, lab.transactions.checks.given_up) == (1, 1)
    assert "Gave up 1 undecided transactions" in caplog.text
    assert lab.transactions.undecided(10) == []
    assert lab.check() == []


def test_the_copy_before_the_last_can_still_be_decided() -> None:
    lab = Lab.new(transaction=TransactionSettings(max_checks=1))
    lab.send()
    (copy,) = lab.check()

    lab.end(copy, check=True)

    assert lab.check() == []
    assert lab.delivered() == [b"body"]
    assert lab.messages(CHECK_MAX_TIME_TOPIC, 0) == []


def test_a_transaction_is_not_kept_longer_than_the_log() -> None:
    lab = Lab.new(retention_hours=1)
    lab.send()
    lab.connected.clear()

    lab.check(HOUR_MS)
    assert lab.messages(CHECK_MAX_TIME_TOPIC, 0) == []
    lab.check(1)

    assert len(lab.messages(CHECK_MAX_TIME_TOPIC, 0)) == 1


def test_without_a_connected_producer_checks_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab.new(transaction=TransactionSettings(max_checks=1))
    place = lab.send()
    lab.connected.clear()

    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            assert lab.check() == []
    unreachable = lab.transactions.checks.unreachable
    lab.connected.add(GROUP)
    (copy,) = lab.check()

    assert unreachable == 1
    assert caplog.text.count("1 transactions wait: no producer of 1 groups is connected, such as PG") == 1
    assert lab.store.max_offset(HALF_TOPIC, 0) == 2
    assert lab.message(copy).properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert lab.transactions.checks.unreachable == 0
    assert place.queue_offset == 0


def test_a_waiting_transaction_does_not_delay_the_others() -> None:
    lab = Lab.new()
    lab.send(b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
    lab.send(b"elsewhere", PGROUP="Other")
    lab.send(b"here")

    (copy,) = lab.check()

    assert lab.message(copy).body == b"here"
    assert lab.transactions.checks.unreachable == 1


def test_a_connection_lost_at_the_last_moment_affects_no_other_check(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Producer):
        def oneway(self, command: Command) -> None:
            raise ConnectionLost("gone")

    lab = Lab.new()
    lab.send()
    lab.producer = Broken()

    assert lab.check() == []
    lab.producer = Producer()

    assert "Check-back of transaction" in caplog.text
    assert len(lab.check()) == 1
    assert lab.transactions.checks.checks_sent == 1


def test_many_transactions_are_checked_in_batches() -> None:
    lab = Lab.new()
    for number in range(100):
        lab.send(str(number).encode())

    asked = lab.check()

    assert len(asked) == 100
    assert len(lab.messages(OP_HALF_TOPIC, 0)) == 4
    assert [one.checks for one in lab.transactions.undecided(1000)] == [1] * 100


class SlowClock(FakeClock):
    """Each reading of the time takes some time."""

    looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return super().monotonic() + self.looks * 0.03


def test_a_long_run_pauses_and_respects_decisions_made_in_between() -> None:
    lab = Lab.new()
    places = [lab.send(str(number).encode()) for number in range(200)]
    lab.clock.advance_ms(6_000)
    lab.state.clock = SlowClock(start_ms=lab.clock.now_ms())

    async def main() -> None:
        checking = asyncio.create_task(lab.transactions.checks.run())
        await asyncio.sleep(0.01)
        assert 0 < len(lab.producer.questions) < 200
        lab.end(places[-1])
        await checking

    run(main())

    asked = [header.msg_id for header, _ in lab.producer.take()]
    assert len(asked) == 199
    assert "KEY-199" not in asked


def test_an_old_half_message_is_stored_again_when_many_follow() -> None:
    lab = Lab.new()
    lab.transactions.checks._max_span = 10
    lab.connected.clear()
    lab.send(b"first")
    for number in range(12):
        lab.end(lab.send(str(number).encode()), ROLLBACK)

    lab.check()

    (waiting,) = lab.transactions.undecided(10)
    assert (waiting.transaction_id, waiting.checks, waiting.half_offset) == ("KEY-first", 0, 13)
    assert lab.transactions.ledger.start == 13


def test_a_copy_is_as_old_as_its_transaction() -> None:
    lab = Lab.new(retention_hours=1)
    lab.transactions.checks._max_span = 0
    lab.connected.clear()
    lab.send(b"first", CHECK_IMMUNITY_TIME_IN_SECONDS="1800")
    lab.check(HOUR_MS // 4)
    lab.connected.add(GROUP)

    assert lab.check(HOUR_MS // 4 - 1) == []
    assert len(lab.check(6_000)) == 1


def test_a_half_message_that_cannot_be_copied_does_not_block_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = Lab.new()
    large = lab.draft(b"large", HALF_TOPIC, 0, REAL_TOPIC="T", REAL_QID="1", filler="x")
    large.properties["filler"] += "x" * (MAX_BYTES - len(large.packed_properties()))
    large.sys_flag = 0
    lab.appender.append(large)
    lab.send(b"small")

    copies = lab.check()

    assert [lab.message(copy).body for copy in copies] == [b"small"]
    assert "Cannot store half message 0 again" in caplog.text
    assert [one.transaction_id for one in lab.transactions.undecided(10)] == ["KEY-large", "KEY-small"]


def test_a_disk_error_sends_no_checks_and_the_next_run_sends_them() -> None:
    lab = Lab.new()
    lab.send()
    lab.opened.disk.fail("write", errno.ENOSPC, "*/commitlog/*")

    with pytest.raises(StoreError):
        lab.check()
    assert lab.producer.questions == []
    lab.opened.tick(1000)

    (copy,) = lab.check()
    assert lab.message(copy).properties["TRANSACTION_CHECK_TIMES"] == "1"


def test_a_damaged_half_message_is_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab.new()
    place = lab.send(b"damaged")
    lab.send(b"sound")
    lab.damage(place)

    copies = lab.check()

    assert [lab.message(copy).body for copy in copies] == [b"sound"]
    assert "its transaction is lost" in caplog.text
    assert [one.transaction_id for one in lab.transactions.undecided(10)] == ["KEY-sound"]


# after a start


def test_checks_continue_after_a_restart() -> None:
    lab = Lab.new()
    lab.send(b"one")
    lab.check()
    lab.send(b"two")

    again = lab.restart()
    copies = again.check()

    assert [
        (again.message(copy).body, again.message(copy).properties["TRANSACTION_CHECK_TIMES"]) for copy in copies
    ] == [
        (b"one", "2"),
        (b"two", "1"),
    ]


def test_after_a_crash_a_transaction_is_checked_once_although_the_offsets_are_old() -> None:
    lab = Lab.new()
    lab.send()
    lab.check()
    lab.check()

    again = lab.crash()

    assert len(again.transactions.undecided(10)) == 1
    assert len(again.check()) == 1


def test_a_commit_with_a_lost_op_message_is_not_checked() -> None:
    lab = Lab.new()
    lab.end(lab.send())

    again = lab.crash()

    assert again.check() == []
    assert again.transactions.undecided(10) == []
    assert len(again.delivered()) == 1


def test_of_two_open_copies_after_a_crash_only_the_newest_is_checked() -> None:
    lab = Lab.new()
    lab.send()
    (copy,) = lab.check()
    lab.appender.append(renewed(lab.message(copy), is_check=True))

    again = lab.crash()
    (asked,) = again.check()

    assert again.message(asked).properties["TRANSACTION_CHECK_TIMES"] == "3"
    assert len(again.transactions.undecided(10)) == 1


def test_transactions_from_before_the_start_are_not_checked_until_the_index_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab.new()
    lab.send()
    again = lab.crash()

    with monkeypatch.context() as patch:
        patch.setattr(type(again.store.facts), "indexed_to", 0)
        assert again.check() == []

    assert len(again.check()) == 1
