"""Metric families: a name, a help text, and values by label; and their text format 0.0.4 for Prometheus.

# HELP rocketmq_topic_number Topics of the broker
# TYPE rocketmq_topic_number gauge
rocketmq_topic_number{cluster="DefaultCluster",node_id="broker-a"} 12

Also the families that every server has: of its process and of its connections.
"""

import mmap
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pocketmq import system
from pocketmq.files import Files
from pocketmq.model.durations import Sizes
from pocketmq.net import ServerCounters

Labels = tuple[tuple[str, str], ...]
"""Names and values, in their order."""


class Kind(Enum):
    """Types of metrics, in the words of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Sample(NamedTuple):
    """One line: the suffix of the family's name, the labels, and the value."""

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
    """A counter. `_total` is appended to the name, as the text format requires."""
    return Family(f"{name}_total", Kind.COUNTER, help, _samples(values))


def gauge(name: str, help: str, values: Mapping[Labels, float] | float) -> Family:  # noqa: A002
    return Family(name, Kind.GAUGE, help, _samples(values))


def histogram(name: str, help: str, values: Mapping[Labels, Sizes] | Sizes) -> Family:  # noqa: A002
    by_labels = {(): values} if isinstance(values, Sizes) else values
    samples = [sample for labels, sizes in by_labels.items() for sample in _buckets(labels, sizes)]
    return Family(name, Kind.HISTOGRAM, help, samples)


def with_labels(families: Iterable[Family], labels: Labels) -> list[Family]:
    """The same families with further labels at each value: cluster and broker."""
    return [
        msgspec.structs.replace(family, samples=[s._replace(labels=labels + s.labels) for s in family.samples])
        for family in families
    ]


def _samples(values: Mapping[Labels, float] | float) -> list[Sample]:
    if isinstance(values, Mapping):
        return [Sample("", labels, value) for labels, value in values.items()]
    return [Sample("", (), values)]


def _buckets(labels: Labels, sizes: Sizes) -> Iterable[Sample]:
    """Each bucket counts all values up to its bound, so the last one counts everything."""
    total = 0
    for bound, count in zip((*sizes.bounds, float("inf")), sizes.counts, strict=True):
        total += count
        yield Sample("_bucket", (*labels, ("le", "+Inf" if bound == float("inf") else f"{bound:g}")), total)
    yield Sample("_sum", labels, sizes.sum)
    yield Sample("_count", labels, total)


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_IN_LABELS: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def metrics_text(families: Iterable[Family]) -> str:
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.help.translate(_IN_HELP)}")
        lines.append(f"# TYPE {family.name} {family.kind.value}")
        lines += [f"{family.name}{suffix}{_labels(labels)} {value:.17g}" for suffix, labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_IN_LABELS)}"' for name, value in labels) + "}"


_MEMORY: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = Path("/proc/self/fd")


def process_families(files: Files) -> list[Family]:
    """Memory and descriptors are left out if the system has no /proc."""
    families = [counter("process_cpu_seconds", "Seconds of a processor used", system.processor_s())]
    try:
        pages = int(files.read(_MEMORY).split()[1])
        open_files = len(files.list(_DESCRIPTORS))
    except OSError:
        return families
    return [
        *families,
        gauge("process_resident_memory_bytes", "Memory in use", pages * mmap.PAGESIZE),
        gauge("process_open_fds", "Open files and connections", open_files),
    ]


_CAUSES: Final = ("refused", "turned_away", "idle", "slow", "protocol_errors", "unfinished")


def connection_families(counters: ServerCounters, prefix: str) -> list[Family]:
    closed = {labels_of(cause=cause): getattr(counters, cause) for cause in _CAUSES}
    return [
        gauge(f"{prefix}_connections", "Connections that are open", counters.open),
        counter(f"{prefix}_accepted_connections", "Connections that were accepted", counters.accepted),
        counter(f"{prefix}_closed_connections", "Connections that the server closed, by cause", closed),
    ]
