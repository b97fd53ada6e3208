"""Payments and reminders of a day."""

from pocketmq.demo.shop import FIRST_REMINDER_MS, LAST_REMINDER_MS, Day, Fate, payments, reminders

DAY = Day(seed=1, begin_ms=0, orders=20_000)


def test_the_same_seed_has_the_same_payments_and_reminders() -> None:
    assert payments(DAY) == payments(DAY)
    assert reminders(DAY) == reminders(DAY)
    assert payments(DAY) != payments(DAY._replace(seed=2))


def test_payments_have_all_outcomes_and_their_own_keys() -> None:
    made = payments(DAY)

    assert {payment.fate for payment in made} == set(Fate)
    assert len({payment.key for payment in made}) == DAY.payments


def test_reminders_are_delivered_within_seconds() -> None:
    assert all(FIRST_REMINDER_MS <= reminder.delay_ms < LAST_REMINDER_MS for reminder in reminders(DAY))
