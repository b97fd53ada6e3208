"""Families of metrics: a name, what it means, and its values by label. Histograms are counts by size, as they were noted."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from pocketmq.model.durations import Sizes

Labels = tuple[tuple[str, str], ...]
"""Names and values, in their order."""


class Kind(Enum):
    """What a number means; the words are those of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Sample(NamedTuple):
    """One line: what is put behind the family's name, the labels, and the value."""

    suffix: str
    labels: Labels
    value: float


class Family(msgspec.Struct, frozen=True):
    """All values of one metric."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]


def labels_of(**labels: str) -> Labels:
    return tuple(labels.items())


def counter(name: str, help: str, values: Mapping[Labels, float] | float) -> Family:  # noqa: A002 as Prometheus calls it
    """`_total` is put behind the name, as the text form wants it."""
    return Family(f"{name}_total", Kind.COUNTER, help, _samples(values))


def gauge(name: str, help: str, values: Mapping[Labels, float] | float) -> Family:  # noqa: A002
    return Family(name, Kind.GAUGE, help, _samples(values))


def histogram(name: str, help: str, values: Mapping[Labels, Sizes] | Sizes) -> Family:  # noqa: A002
    by_labels = {(): values} if isinstance(values, Sizes) else values
    samples = [sample for labels, sizes in by_labels.items() for sample in _buckets(labels, sizes)]
    return Family(name, Kind.HISTOGRAM, help, samples)


def with_labels(families: Iterable[Family], labels: Labels) -> list[Family]:
    """The same families with further labels at each value: of which cluster and broker they are."""
    return [
        msgspec.structs.replace(family, samples=[s._replace(labels=labels + s.labels) for s in family.samples])
        for family in families
    ]


def _samples(values: Mapping[Labels, float] | float) -> list[Sample]:
    if isinstance(values, Mapping):
        return [Sample("", labels, value) for labels, value in values.items()]
    return [Sample("", (), values)]


def _buckets(labels: Labels, sizes: Sizes) -> Iterable[Sample]:
    """Each bucket counts all that are not above its bound, so the last one counts everything."""
    total = 0
    for bound, count in zip((*sizes.bounds, float("inf")), sizes.counts, strict=True):
        total += count
        yield Sample("_bucket", (*labels, ("le", "+Inf" if bound == float("inf") else f"{bound:g}")), total)
    yield Sample("_sum", labels, sizes.sum)
    yield Sample("_count", labels, total)
