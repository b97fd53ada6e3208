"""Rates of the whole broker, and its totals at midnight."""

from datetime import datetime

from pocketmq.broker.stats.broker_stats import Counts, DailyTotals, MidnightTotals, Rates

DAY_MS = 86_400_000
NOON_MS = int(datetime(2026, 3, 10, 12).timestamp() * 1000)


def test_rates_are_zero_before_the_first_sample() -> None:
    assert Rates(5.0).per_second() == (Counts(0.0, 0.0, 0.0, 0.0),) * 3


def test_rates_are_reported_over_ten_seconds_a_minute_and_ten_minutes() -> None:
    rates = Rates(0.0)
    for sample in range(1, 101):
        rates.record(sample * 10.0, Counts(stored=sample * 100 if sample < 100 else 10_900, missed=sample))

    last, minute, ten_minutes = rates.per_second()

    assert last == Counts(100.0, 0.0, 0.0, 0.1)
    assert minute == Counts((10_900 - 9_400) / 60, 0.0, 0.0, 0.1)
    assert ten_minutes == Counts((10_900 - 4_000) / 600, 0.0, 0.0, 0.1)


def test_a_young_broker_reports_rates_over_its_uptime() -> None:
    rates = Rates(0.0)

    rates.record(10.0, Counts(stored=50))
    rates.record(20.0, Counts(stored=60))

    assert [rate.stored for rate in rates.per_second()] == [1.0, 3.0, 3.0]


def test_totals_are_saved_at_every_local_midnight() -> None:
    days = DailyTotals(NOON_MS)

    days.update(NOON_MS + DAY_MS // 2 - 1, put=10, got=1)
    assert (days.put, days.got) == (MidnightTotals(), MidnightTotals())
    days.update(NOON_MS + DAY_MS // 2, put=15, got=2)
    assert (days.put, days.got) == (MidnightTotals(0, 15), MidnightTotals(0, 2))
    days.update(NOON_MS + 3 * DAY_MS // 2, put=40, got=3)

    assert (days.put, days.got) == (MidnightTotals(15, 40), MidnightTotals(2, 3))


def test_several_midnights_at_once_save_the_same_totals() -> None:
    days = DailyTotals(NOON_MS)

    days.update(NOON_MS + 3 * DAY_MS, put=7, got=5)

    assert (days.put, days.got) == (MidnightTotals(7, 7), MidnightTotals(5, 5))


def test_a_clock_that_is_set_back_saves_no_totals() -> None:
    days = DailyTotals(NOON_MS)
    days.update(NOON_MS + DAY_MS, put=7, got=5)

    days.update(NOON_MS - DAY_MS, put=8, got=6)
    days.update(NOON_MS + DAY_MS + 1, put=9, got=7)

    assert days.put == MidnightTotals(0, 7)
