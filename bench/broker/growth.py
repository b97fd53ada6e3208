"""Section: does a message cost more when there are many topics, groups, connections, or a long log?

A broker that has grown is shot at in turn with one that is new. What it does while it grows is not measured.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

from bench.broker.calls import Line
from bench.broker.contest import Outcome, Words
from bench.broker.generators import fill_topic
from bench.broker.loads import disturbance
from bench.broker.rows import MISSING
from bench.broker.sections import Bench, until_quiet
from bench.broker.servers import Target
from bench.broker.sheets import Sheet, verdict
from bench.broker.shots import NotMeasured, Shape

FLAT = 1.2
"""Up to this many times the cost in a new broker counts as flat; chosen, not derived."""
SEND = Shape("send", 16, 64, 100)
SEQUENTIAL = Shape("send", 16, 1, 100)
PULL = Shape("pull", 1, 8, 100, 32)
LARGE_BODY = 64_000
GIB = 1024 * 1024 * 1024
GROUPS_PER_LINE = 50
MANY = "many"
LARGE = "large"
TOPICS_PER_S = 1000
LOG_BYTES_PER_S = 400_000_000
"""About; to know whether there is time for it."""

Row = tuple[str, Outcome]


def growth_sheets(bench: Bench) -> Iterator[Sheet]:
    headings = ["grown to", "load", "CPU us/msg", "in a new one", "times", "msg/s", "in a new one", f"≤ {FLAT:g} times"]
    rows: list[Row] = []
    notes = []
    scale = bench.scale
    for name, grow, levels in (
        ("topics", by_topics, scale.topics),
        ("groups", by_groups, scale.groups),
        ("connections", by_connections, scale.connections),
        ("log", by_log, scale.log_gib),
    ):
        try:
            with ExitStack() as stack:
                new, grown = _pair(bench, stack)
                for level in levels:
                    rows.extend(grow(bench, stack, new, grown, level))
        except NotMeasured as reason:
            notes.append(f"{name}: {reason}")
    outcomes = [outcome for _, outcome in rows]
    notes += [note for outcome in outcomes for note in outcome.notes]
    yield Sheet(
        "growth", headings, [_cells(label, outcome) for label, outcome in rows], [disturbance(outcomes), *notes]
    )


def by_topics(bench: Bench, stack: ExitStack, new: Target, grown: Target, level: float) -> Iterator[Row]:
    """Sends go to one topic, then to all of them in turn; pulls to one. The files of new queues are still being made."""
    count = int(level)
    bench.say(f"creating {count:,} topics")
    bench.budget.check(count / TOPICS_PER_S + bench.scale.topics_settle_s)
    for target, topics in ((new, 1), (grown, count)):
        bench.generator.fill(target, Shape("send", 1, 16, 100), topics, *_to_topics(topics))
    sleep(bench.scale.topics_settle_s)
    to_one = {new.name: _to_topics(1), grown.name: _to_topics(1)}
    to_all = {new.name: _to_topics(1), grown.name: _to_topics(count)}
    yield from _measured(bench, new, grown, f"{count:,} topics, one used", [(SEND, to_one), (PULL, {})])
    yield from _measured(bench, new, grown, f"{count:,} topics, all used", [(SEND, to_all)])


def by_groups(bench: Bench, stack: ExitStack, new: Target, grown: Target, level: float) -> Iterator[Row]:
    """Groups with a member each, subscribed to the topic that is pulled from."""
    count = int(level)
    bench.say(f"joining {count:,} groups")
    for first in range(0, count, GROUPS_PER_LINE):
        line = stack.enter_context(Line(grown.port))
        names = [f"group{number}" for number in range(first, min(count, first + GROUPS_PER_LINE))]
        line.heartbeat(f"127.0.0.1@member{first}", fill_topic(PULL.body_bytes), names)
    yield from _measured(bench, new, grown, f"{count:,} groups", [(SEND, {}), (PULL, {})])


def by_connections(bench: Bench, stack: ExitStack, new: Target, grown: Target, level: float) -> Iterator[Row]:
    """Connections that are open and registered; and one message under way on each of them."""
    count = int(level)
    bench.say(f"opening {count:,} connections")
    with ExitStack() as lines:
        for number in range(count):
            lines.enter_context(Line(grown.port)).heartbeat(f"127.0.0.1@client{number}")
        yield from _measured(bench, new, grown, f"{count:,} connections", [(SEND, {}), (PULL, {})])
    all_send = {grown.name: ("--conns", str(count))}
    yield from _measured(bench, new, grown, f"{count:,} connections, all send", [(SEQUENTIAL, all_send)])


def by_log(bench: Bench, stack: ExitStack, new: Target, grown: Target, level: float) -> Iterator[Row]:
    """A log that real sends made long, with large bodies."""
    bench.say(f"writing a log of {level:g} GiB")
    with Line(grown.port) as line:
        line.create_topic(LARGE, 1)
        missing = int(level * GIB / LARGE_BODY) - line.stored(LARGE, 1)
    bench.budget.check(missing * LARGE_BODY / LOG_BYTES_PER_S)
    bench.generator.fill(grown, Shape("send", 1, 8, LARGE_BODY), missing, "--topic", LARGE, "--queues", "1")
    yield from _measured(bench, new, grown, f"log of {level:g} GiB", [(SEND, {}), (PULL, {})])


def _to_topics(count: int) -> tuple[str, ...]:
    return "--topic", MANY, "--topics", str(count), "--queues", "1", "--no-verify"


def _pair(bench: Bench, stack: ExitStack) -> tuple[Target, Target]:
    """Two brokers with something to pull."""
    folder = Path(stack.enter_context(TemporaryDirectory(dir=bench.folder)))
    apart = bench._replace(folder=folder)
    new, grown = apart.ours(stack, name="new"), apart.ours(stack, name="grown")
    for target in (new, grown):
        bench.fill(target, PULL.body_bytes)
    return new, grown


def _measured(
    bench: Bench, new: Target, grown: Target, label: str, loads: Sequence[tuple[Shape, Words]]
) -> Iterator[Row]:
    contest = bench.contest(new, grown, pace=bench.scale.growth_pace)
    for shape, words in loads:
        for target in (new, grown):
            until_quiet(target)
        yield label, contest.run(shape, words, f"{label}, {shape}")


def _cells(label: str, outcome: Outcome) -> list[str]:
    new, grown = outcome.results.get("new"), outcome.results.get("grown")
    if new is None or grown is None or not new.server_us:
        return [label, str(outcome.shape), *[MISSING] * 6]
    times = grown.server_us / new.server_us
    costs = [f"{grown.server_us:.2f}", f"{new.server_us:.2f}", f"{times:.2f}"]
    return [label, str(outcome.shape), *costs, f"{grown.rate:,.0f}", f"{new.rate:,.0f}", verdict(times <= FLAT)]
