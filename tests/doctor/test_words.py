import pytest

from pocketmq.doctor.words import count, span


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (850, "850 ms"),
        (1_999, "1,999 ms"),
        (12_000, "12 s"),
        (119_999, "119 s"),
        (180_000, "3 min"),
        (52 * 3_600_000, "2 d"),
        (47 * 3_600_000, "47 h"),
    ],
)
def test_a_span_is_told_in_the_largest_unit_of_which_there_are_two(ms: int, text: str) -> None:
    assert span(ms) == text


def test_one_is_one_and_many_are_many() -> None:
    assert (count(1, "queue"), count(2_000, "queue")) == ("1 queue", "2,000 queues")
