"""The last hour in memory."""

from pocketmq.console.snapshot import MAX_SAMPLES, SPAN_S, Ring, Sample


def test_what_is_older_than_an_hour_is_forgotten() -> None:
    ring = Ring()

    for at in (0.0, 10.0, SPAN_S + 5):
        ring.append(Sample(at=at))

    assert [sample.at for sample in ring.samples()] == [10.0, SPAN_S + 5]


def test_it_never_keeps_more_than_it_may() -> None:
    ring = Ring()

    for number in range(MAX_SAMPLES + 10):
        ring.append(Sample(at=number / 100))

    assert len(ring) == MAX_SAMPLES
