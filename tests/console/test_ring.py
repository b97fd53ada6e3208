"""The last hour in memory."""

from pocketmq.console.snapshot import MAX_SAMPLES, SPAN_S, Ring, Sample


def test_samples_older_than_an_hour_are_removed() -> None:
    ring = Ring()

    for at in (0.0, 10.0, SPAN_S + 5):
        ring.append(Sample(at=at))

    assert [sample.at for sample in ring.samples()] == [10.0, SPAN_S + 5]


def test_the_number_of_samples_is_limited() -> None:
    ring = Ring()

    for number in range(MAX_SAMPLES + 10):
        ring.append(Sample(at=number / 100))

    assert len(ring) == MAX_SAMPLES
