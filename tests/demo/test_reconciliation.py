"""The sent messages, compared with the stored ones."""

import msgspec
import pytest
from rich.console import Console

from pocketmq.demo.reconciliation import (
    Check,
    Lake,
    Readers,
    as_rows,
    order_checks,
    payment_checks,
    reader_checks,
    reminder_checks,
    table,
)
from pocketmq.demo.shop import Fate, Payment, Reminder, Tally
from pocketmq.demo.staff import DUE
from pocketmq.model.message import StoredMessage
from pocketmq.model.properties import format_properties
from pocketmq.protocol.record import decode_record, encode_record

TALLY = Tally(
    events=100,
    late=5,
    again=8,
    broken=2,
    amount_cents=900,
    numbers=70,
    punctual_cents=800,
    express_broken=1,
    express_flaky=3,
)
LAKE = Lake(
    orders=90,
    distinct=90,
    late=5,
    amount_cents=900,
    numbers=70,
    dead=2,
    duplicates=8,
    window_orders=85,
    window_cents=800,
)
READERS = Readers(shipping_behind=0, mail_behind=0, overtaken=0, retries=5, dead_letters=1)


def message(key: str, store_ms: int = 0, **properties: str) -> StoredMessage:
    raw = format_properties({"KEYS": key, **properties}).encode()
    return decode_record(encode_record(b"t", 0, 0, 0, b"1", raw, 0, 0, 0, bytes(8), store_ms, bytes(8)))


def wrong(checks: list[Check]) -> list[str]:
    return [check.what.strip() for check in checks if not check.holds]


def test_a_day_without_losses_passes() -> None:
    assert wrong(order_checks(TALLY, 100, LAKE)) == []
    assert wrong(reader_checks(TALLY, READERS)) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"orders": 89, "distinct": 89}, "valid, in the lake"),
        ({"dead": 1}, "dead, with the reason"),
        ({"duplicates": 9}, "duplicates, dropped"),
        ({"distinct": 89}, "repeated orders in the lake"),
        ({"numbers": 71}, "sum of their numbers"),
        ({"amount_cents": 901}, "sum of their amounts, in cents"),
        ({"late": 4}, "late rows, not in any hour"),
        ({"window_orders": 84}, "orders in the hours of all cities"),
        ({"window_cents": 801}, "revenue of all hours, in cents"),
    ],
)
def test_one_message_too_few_or_too_many_is_found(change: dict[str, int], named: str) -> None:
    assert named in wrong(order_checks(TALLY, 100, LAKE._replace(**change)))


def test_two_errors_that_cancel_out_in_the_sum_are_found() -> None:
    lake = LAKE._replace(orders=89, distinct=89, duplicates=9)

    assert wrong(order_checks(TALLY, 100, lake)) == ["valid, in the lake", "duplicates, dropped"]


@pytest.mark.parametrize(
    "readers",
    [
        READERS._replace(shipping_behind=1),
        READERS._replace(shipping_behind=None),
        READERS._replace(mail_behind=2),
        READERS._replace(overtaken=1),
        READERS._replace(retries=4),
        READERS._replace(dead_letters=0),
    ],
)
def test_a_reader_with_a_lag_or_a_loss_is_found(readers: Readers) -> None:
    assert len(wrong(reader_checks(TALLY, readers))) == 1


def test_more_retries_than_expected_are_fine_because_a_crash_repeats_some() -> None:
    assert wrong(reader_checks(TALLY, READERS._replace(retries=50))) == []


def test_exactly_the_paid_payments_must_exist() -> None:
    payments = [Payment("a", Fate.PAID), Payment("b", Fate.FORGOTTEN_PAID), Payment("c", Fate.REFUSED)]

    assert wrong(payment_checks(payments, [message("a"), message("b")])) == []
    assert wrong(payment_checks(payments, [message("a"), message("a"), message("b")])) == []
    assert "of them after a transaction check" in wrong(payment_checks(payments, [message("a")]))
    assert wrong(payment_checks(payments, [message("a"), message("b"), message("c")])) == [
        "payments committed",
        "payments rolled back, but delivered",
    ]


def test_reminders_must_arrive_and_not_too_early() -> None:
    reminders = [Reminder("a", 100), Reminder("b", 100)]
    punctual, early = message("a", 200, **{DUE: "200"}), message("b", 199, **{DUE: "200"})

    assert wrong(reminder_checks(reminders, [punctual, early])) == ["reminders delivered too early"]
    assert wrong(reminder_checks(reminders, [punctual])) == ["reminders delivered"]


def test_the_table_marks_wrong_lines() -> None:
    console = Console(width=100, record=True, file=None, quiet=False)
    with console.capture() as shown:
        console.print(table([Check("fine", 1_000, 1_000), Check("bad", 2, None), Check("least", 1, 3, is_least=True)]))

    lines = [line.split() for line in shown.get().splitlines()]
    assert lines == [
        ["reconciliation", "expected", "found"],
        ["fine", "1,000", "1,000", "ok"],
        ["bad", "2", "unknown", "WRONG"],
        ["least", "≥", "1", "3", "ok"],
    ]


def test_as_json_each_check_is_a_row() -> None:
    assert msgspec.to_builtins(as_rows([Check("  a", 1, 2)])) == [
        {"what": "a", "expected": 1, "found": 2, "holds": False}
    ]
