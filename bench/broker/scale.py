"""How much is measured: a coffee break, or a glance."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.broker.budget import GIB
from bench.broker.generators import Pace
from bench.broker.rows import all_shapes, few_shapes, sync_shapes
from bench.broker.shots import Shape


class Scale(NamedTuple):
    """Sizes of one run."""

    name: str
    seconds: Mapping[str, float]
    """For each section; after that nothing new is begun in it."""
    spare_s: float
    """Of that, for shots that are taken again because others disturbed them."""
    disk_bytes: int
    """Each section removes its files, so the largest one says what the disk must have."""
    pace: Pace
    growth_pace: Pace
    shots: int
    java_warm_s: float
    shapes: Sequence[Shape]
    later_shapes: Sequence[Shape]
    """Loads after which the work is looked at that is still left."""
    sync_shapes: Sequence[Shape]
    is_sync_beside_apache: bool
    """A second start and warm-up of Java."""
    fill_messages: int
    """In the queues that are pulled from."""
    topics: Sequence[int]
    groups: Sequence[int]
    connections: Sequence[int]
    log_gib: Sequence[float]
    topics_settle_s: float
    """Queues get their files behind the messages. At most so long is waited for them before anything is measured."""
    starts: int
    idle_s: float
    heaps: Sequence[str]
    """Of the Java brokers that are started, beside ours."""


DEFAULT = Scale(
    name="default",
    seconds={"start": 55, "async": 245, "sync": 107, "growth": 300, "null": 15},
    spare_s=20,
    disk_bytes=14 * GIB,
    pace=Pace(1.0, 0.3),
    growth_pace=Pace(0.6, 0.2),
    shots=3,
    java_warm_s=30,
    shapes=all_shapes(),
    later_shapes=[Shape("send", 16, 64, 100), Shape("batch", 1, 8, 100, 32)],
    sync_shapes=sync_shapes(),
    is_sync_beside_apache=True,
    fill_messages=200_000,
    topics=(1_000, 10_000),
    groups=(1_000,),
    connections=(1_000,),
    log_gib=(2, 8),
    topics_settle_s=100,
    starts=3,
    idle_s=3,
    heaps=("4g", "512m"),
)

QUICK = Scale(
    name="quick",
    seconds={"start": 14, "async": 30, "sync": 5, "growth": 60, "null": 6},
    spare_s=3,
    disk_bytes=4 * GIB,
    pace=Pace(0.7, 0.2),
    growth_pace=Pace(0.5, 0.1),
    shots=1,
    java_warm_s=10,
    shapes=few_shapes(),
    later_shapes=[],
    sync_shapes=[shape for shape in few_shapes() if shape.mode == "send"],
    is_sync_beside_apache=False,
    fill_messages=50_000,
    topics=(1_000,),
    groups=(100,),
    connections=(100,),
    log_gib=(1,),
    topics_settle_s=30,
    starts=1,
    idle_s=1,
    heaps=("4g",),
)
