"""Statistics of durations."""

import pytest

from pocketmq.model.durations import Durations

NOTHING = (
    "[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 "
    "[4~5s]:0 [5~10s]:0 [10s~]:0 "
)


@pytest.fixture
def durations() -> Durations:
    return Durations()


def test_durations_without_samples_are_zero(durations: Durations) -> None:
    assert durations.shown() == NOTHING
    assert durations.percentile_ms(0.99) == 0.0


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0.3, "[<=0ms]"),
        (1.5, "[0~10ms]"),
        (9.9, "[0~10ms]"),
        (10.0, "[10~50ms]"),
        (99.0, "[50~100ms]"),
        (700.0, "[500ms~1s]"),
        (4_500.0, "[4~5s]"),
        (9_999.0, "[5~10s]"),
        (10_001.0, "[10s~]"),
        (1e9, "[10s~]"),
    ],
)
def test_each_duration_is_shown_in_its_class(durations: Durations, ms: float, shown: str) -> None:
    durations.record(ms / 1000)

    assert durations.shown() == NOTHING.replace(f"{shown}:0", f"{shown}:1")


def test_the_maximum_is_kept_and_the_counts_cover_two_minutes(durations: Durations) -> None:
    durations.record(0.025)
    durations.turn_over()
    durations.record(0.002)
    assert "[0~10ms]:1 [10~50ms]:1 " in durations.shown()

    durations.turn_over()
    assert "[0~10ms]:1 [10~50ms]:0 " in durations.shown()
    durations.turn_over()

    assert durations.shown() == NOTHING
    assert durations.longest_ms == 25.0


def test_percentiles_are_the_end_of_a_class(durations: Durations) -> None:
    for _ in range(990):
        durations.record(0.00015)
    for _ in range(10):
        durations.record(0.03)

    assert durations.percentile_ms(0.5) == 0.2
    assert durations.percentile_ms(0.99) == 0.2
    assert durations.percentile_ms(0.999) == 30.0


def test_totals_since_the_start_are_kept(durations: Durations) -> None:
    for ms in (0.3, 7, 20_000):
        durations.record(ms / 1000)
        durations.turn_over()

    bounds, counts, total = durations.all_time()

    assert len(counts) == len(bounds) + 1
    assert [bounds[i] if i < len(bounds) else None for i, count in enumerate(counts) if count] == [0.5, 10, None]
    assert sum(counts) == 3
    assert total == pytest.approx(20_007.3)


def test_a_percentile_beyond_all_bounds_is_the_longest(durations: Durations) -> None:
    durations.record(3600)

    assert durations.percentile_ms(0.5) == 3_600_000
