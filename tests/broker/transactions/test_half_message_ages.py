"""The ages of half messages, and their check-backs, after the wall clock was set back."""

from tests.broker.transactions.kit import COMMIT, Lab

from pocketmq.broker.transactions.checks import MAX_MARKS, HalfMessageAges

HOUR_MS = 3600 * 1000
YEAR_MS = 365 * 24 * HOUR_MS


def test_a_half_message_is_as_old_as_the_first_time_mark_after_it() -> None:
    ages = HalfMessageAges()
    ages.record(3, 10.0)
    ages.record(3, 11.0)
    ages.record(5, 20.0)

    assert [ages.age_ms(offset, 30.0) for offset in (0, 2, 3, 4, 5)] == [20_000, 20_000, 10_000, 10_000, 0]
    assert [ages.older_than(age_ms, 30.0) for age_ms in (0, 10_000, 10_001, 20_000, 20_001)] == [5, 5, 3, 3, 0]


def test_without_time_marks_nothing_is_old() -> None:
    ages = HalfMessageAges()
    ages.record(3, 10.0)
    ages.clear()

    assert (ages.age_ms(0, 99.0), ages.older_than(0, 99.0)) == (0, 0)


def test_time_marks_are_limited_and_never_overstate_an_age() -> None:
    ages = HalfMessageAges()
    for second in range(10 * MAX_MARKS):
        ages.record(second + 1, float(second))

    now = 10.0 * MAX_MARKS
    known = [ages.age_ms(offset, now) for offset in range(10 * MAX_MARKS)]
    assert len(ages._marks) <= MAX_MARKS
    assert all(age_ms <= (now - offset) * 1000 for offset, age_ms in enumerate(known))
    assert known == sorted(known, reverse=True)


def test_checks_continue_after_the_clock_was_set_back() -> None:
    lab = Lab.new()
    lab.send(b"before")
    lab.clock.step_ms(-HOUR_MS)
    lab.send(b"behind")

    assert lab.check(0) == []
    assert lab.check(5_999) == []
    asked = lab.check(1)

    assert [lab.message(place).body for place in asked] == [b"before", b"behind"]
    for place in asked:
        lab.end(place, COMMIT, check=True)
    assert lab.delivered() == [b"before", b"behind"]
    assert lab.check() == []


def test_a_past_forward_clock_error_does_not_keep_transactions_open() -> None:
    lab = Lab.new()
    lab.clock.step_ms(YEAR_MS)
    lab.send(b"early")
    lab.clock.step_ms(-YEAR_MS)
    again = lab.restart()
    again.send(b"later")

    questions = sum(len(again.check(30_000)) for _ in range(20))

    assert questions == 2 * again.in_use.now.transaction.max_checks
    assert again.transactions.checks.given_up == 2
    assert again.transactions.ledger.open_count == 0


def test_the_immunity_time_uses_the_monotonic_clock() -> None:
    lab = Lab.new()
    lab.clock.step_ms(HOUR_MS)
    lab.send(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    lab.clock.step_ms(-HOUR_MS)

    assert [len(lab.check(20_000)) for _ in range(5)] == [0, 0, 0, 1, 1]


def test_after_a_clock_error_ages_use_the_wall_clock_again() -> None:
    lab = Lab.new()
    lab.send(b"before")
    lab.clock.step_ms(-60_000)
    assert lab.check(0) == []
    lab.clock.step_ms(60_000)

    assert len(lab.check(6_000)) == 1
    assert lab.transactions.checks._ages.older_than(0, lab.clock.monotonic()) == 0
