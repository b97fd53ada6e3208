"""Which half messages are open, while the broker runs and after it was started again."""

import errno
import logging

import pytest
from tests.broker.transactions.kit import ROLLBACK, Lab

from pocketmq.broker.settings import BrokerSettings, TransactionSettings
from pocketmq.broker.transactions.ledger import Ledger
from pocketmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_GROUP
from pocketmq.model.transactions import undecided


def ledger_of(lab: Lab, settings: BrokerSettings | None = None) -> Ledger:
    if settings:
        lab.in_use.now = settings
    ledger = Ledger(lab.state)
    ledger.load()
    return ledger


def ops(lab: Lab) -> list[bytes]:
    return [op.body for op in lab.messages(OP_HALF_TOPIC, 0)]


def open_ones(ledger: Ledger) -> list[int]:
    return [offset for offset in range(ledger.end) if ledger.is_open(offset)]


def filled(halves: int) -> tuple[Lab, Ledger]:
    lab = Lab.new()
    for number in range(halves):
        lab.send(str(number).encode())
    return lab, ledger_of(lab)


def test_a_half_message_is_open_until_it_is_closed() -> None:
    _, ledger = filled(3)

    ledger.close([1])

    assert open_ones(ledger) == [0, 2]
    assert [ledger.next_open(at, 3) for at in range(4)] == [0, 2, 2, 3]
    assert not ledger.is_open(3)
    assert not ledger.is_open(-1)


def test_a_broker_without_transactions_has_no_open_half_message() -> None:
    lab = Lab.new()
    ledger = ledger_of(lab)

    ledger.advance()
    lab.opened.run_workers()

    assert (ledger.start, ledger.end, ledger.next_open(0, 0)) == (0, 0, 0)
    assert lab.offsets.topics_of(TRANSACTION_CHECK_GROUP) == []


def test_decisions_are_recorded_together() -> None:
    lab, ledger = filled(3)

    ledger.close([0, 2])
    assert ops(lab) == []
    ledger.write_ops()
    ledger.write_ops()

    (op,) = lab.messages(OP_HALF_TOPIC, 0)
    assert (op.body, op.properties) == (b"0,2,", {"TAGS": "d", "WAIT": "true"})
    assert op.packed_born_host == lab.store.store_host


def test_a_repeated_decision_is_recorded_once() -> None:
    lab, ledger = filled(1)

    ledger.close([0])
    ledger.close([0])
    ledger.write_ops()

    assert ops(lab) == [b"0,"]


def test_many_decisions_are_recorded_at_once() -> None:
    lab, _ = filled(4)
    ledger = ledger_of(lab, BrokerSettings(transaction=TransactionSettings(op_batch_bytes=6)))

    ledger.close([0, 1])
    assert ops(lab) == []
    ledger.close([2])

    assert ops(lab) == [b"0,1,2,"]


def test_op_messages_have_a_size_limit() -> None:
    lab, _ = filled(30)
    ledger = ledger_of(lab, BrokerSettings(transaction=TransactionSettings(op_batch_bytes=20)))

    ledger.close_with([], list(range(30)))

    assert max(map(len, ops(lab))) <= 20
    assert b"".join(ops(lab)) == "".join(f"{number}," for number in range(30)).encode()


def test_a_decision_is_valid_although_it_cannot_be_recorded_yet(caplog: pytest.LogCaptureFixture) -> None:
    lab, _ = filled(1)
    ledger = ledger_of(lab, BrokerSettings(transaction=TransactionSettings(op_batch_bytes=1)))
    lab.opened.disk.fail("write", errno.ENOSPC, "*/commitlog/*")

    with caplog.at_level(logging.WARNING):
        ledger.close([0])
    assert "Cannot write op messages" in caplog.text
    lab.opened.tick(1000)
    ledger.write_ops()

    assert open_ones(ledger) == []
    assert ops(lab) == [b"0,"]


def test_op_messages_are_found_after_a_restart() -> None:
    lab, ledger = filled(5)
    ledger.close([1, 3])
    ledger.write_ops()

    assert open_ones(ledger_of(lab.crash())) == [0, 2, 4]


def test_the_start_is_the_first_open_half_message_and_is_saved_after_a_sync() -> None:
    lab, ledger = filled(5)
    ledger.close([0, 1, 3])
    ledger.write_ops()

    ledger.advance()
    before = lab.offsets.stored(TRANSACTION_CHECK_GROUP, HALF_TOPIC, 0)
    lab.opened.run_workers()

    assert ledger.start == 2
    assert open_ones(ledger) == [2, 4]
    assert before is None
    assert lab.offsets.stored(TRANSACTION_CHECK_GROUP, HALF_TOPIC, 0) == 2
    assert lab.offsets.stored(TRANSACTION_CHECK_GROUP, OP_HALF_TOPIC, 0) == 0


def test_op_messages_about_earlier_half_messages_are_not_read_again() -> None:
    lab, ledger = filled(4)
    for offset in (0, 2, 1):
        ledger.close([offset])
        ledger.write_ops()

    ledger.advance()
    lab.opened.run_workers()

    assert lab.offsets.stored(TRANSACTION_CHECK_GROUP, OP_HALF_TOPIC, 0) == 3
    lab.save_offsets()
    again = ledger_of(lab.crash())
    assert (again.start, open_ones(again)) == (3, [3])


def test_offsets_ahead_of_a_truncated_log_are_corrected() -> None:
    lab, _ = filled(2)
    lab.offsets.commit(TRANSACTION_CHECK_GROUP, HALF_TOPIC, 0, 100)
    lab.offsets.commit(TRANSACTION_CHECK_GROUP, OP_HALF_TOPIC, 0, 100)

    ledger = ledger_of(lab)
    ledger.advance()
    lab.opened.run_workers()
    lab.send(b"new")

    assert open_ones(ledger) == [2]
    assert lab.offsets.stored(TRANSACTION_CHECK_GROUP, HALF_TOPIC, 0) == 2


def test_an_op_message_about_a_missing_half_message_needs_no_memory() -> None:
    lab, _ = filled(1)
    op = lab.draft(b"1000000000000000,", OP_HALF_TOPIC, 0, TAGS="d")
    op.sys_flag = 0
    lab.appender.append(op)

    assert open_ones(ledger_of(lab)) == [0]


def test_a_million_half_messages_take_a_megabyte() -> None:
    _, ledger = filled(1)

    ledger._mark(range(1, 1_000_000))

    assert ledger._closed.__sizeof__() < 2_000_000
    assert ledger.next_open(1, 2_000_000) == 1_000_000


def test_every_reader_of_both_topics_gets_the_same_result() -> None:
    lab = Lab.new()
    places = [lab.send(str(number).encode()) for number in range(6)]
    lab.end(places[0])
    lab.end(places[3], ROLLBACK)
    lab.check()
    lab.end(places[5])
    lab.transactions.ledger.write_ops()

    remote = undecided(lab.messages(HALF_TOPIC, 0), lab.messages(OP_HALF_TOPIC, 0))

    assert remote == lab.transactions.undecided(100)
    assert [one.transaction_id for one in remote] == ["KEY-1", "KEY-2", "KEY-4"]
