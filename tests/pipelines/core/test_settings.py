"""Durations, sizes and times: how they are written, and which texts are invalid."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from py4j.protocol import get_command_part  # type: ignore[import-untyped]

from pocketmq.pipelines.core.settings import KINDS, Duration, Size, Time, reading

NOW_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (Duration, "500ms", 500),
        (Duration, "30 s", 30_000),
        (Duration, "10m", 600_000),
        (Duration, "2h", 7_200_000),
        (Duration, "7d", 604_800_000),
        (Duration, 250, 250),
        (Size, "500KB", 500_000),
        (Size, "128MiB", 128 * 2**20),
        (Size, "1gb", 10**9),
        (Size, "77", 77),
        (Time, "2h", NOW_MS - 7_200_000),
        (Time, "2026-01-01T00:00:00Z", NOW_MS),
        (Time, datetime(2026, 1, 1, tzinfo=UTC), NOW_MS),
        (Time, NOW_MS, NOW_MS),
    ],
)
def test_a_value_is_parsed(kind: type, written: object, value: int) -> None:
    assert reading(NOW_MS)(kind, written) == value


@pytest.mark.parametrize(
    ("kind", "written", "told"),
    [
        (Duration, "soon", "'soon' is not a duration such as"),
        (Duration, True, "is not a duration"),
        (Duration, -1, "is not a duration"),
        (Size, "3 bananas", "is not a size such as"),
        (Time, "yesterday", "is not a time such as"),
        (Time, "99999d", "is before 1970"),
        (Time, datetime(1969, 1, 1, tzinfo=UTC), "is before 1970"),
    ],
)
def test_invalid_values_are_reported(kind: type, written: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        reading(NOW_MS)(kind, written)


@pytest.mark.parametrize("text", ["500ms", "30s", "10m", "2h", "7d"])
def test_a_time_span_is_shown_as_it_was_written(text: str) -> None:
    assert Duration.read(text, 0).text == text


@pytest.mark.parametrize("text", ["500KB", "128MiB", "1GB", "77B"])
def test_a_size_is_shown_as_it_was_written(text: str) -> None:
    assert Size.read(text, 0).text == text


def test_a_time_is_shown_with_its_zone() -> None:
    assert datetime.fromisoformat(Time(NOW_MS).text).timestamp() * 1000 == NOW_MS


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_is_a_number_for_java_too(kind: type[int]) -> None:
    """py4j hands an int to Java as `str` writes it: a unit or a date there is no number."""
    assert get_command_part(kind(NOW_MS), {}) == get_command_part(NOW_MS, {})
    assert f"{kind(NOW_MS)}" == f"{NOW_MS}"
