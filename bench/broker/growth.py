"""Section: does a message cost more when there are many topics, groups, connections, or a long log?

Loads alternate between a broker that has grown and a new one. The growth itself is not measured.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from bench.broker.calls import Line
from bench.broker.contest import Outcome, Words
from bench.broker.generators import fill_topic
from bench.broker.loads import disturbance
from bench.broker.machine import cpu_s
from bench.broker.rows import MISSING
from bench.broker.sections import Bench, until_at_rest, until_quiet
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
MAKE = Shape("send", 1, 16, 100)
ROUNDS_BEFORE = 2
"""How often every topic is sent to before all of them are measured: the first message of a topic is looked at more closely."""
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
    """Idle topics, and topics that are all used. The cost of creating them is reported separately.

    A turn that brings each message to another topic costs more than one that brings all to one, with sixty topics as with ten
    thousand. So that, too, is a row of its own, and many topics are compared with a few that are used in the same way.
    """
    count = int(level)
    few = min(count, SEND.window)
    bench.budget.check(count / TOPICS_PER_S + bench.scale.topics_settle_s)
    made = _made(bench, grown, count)
    bench.generator.fill(new, MAKE, few, *_to_topics(few))
    one, some, all_ = _to_topics(1), _to_topics(few), _to_topics(count)
    unused = [(SEND, {new.name: one, grown.name: one}), (PULL, {})]
    for label, outcome in _measured(bench, new, grown, f"{count:,} topics, one used", unused):
        yield label, outcome._replace(notes=[*made, *outcome.notes])
        made = []
    for target, words in ((new, some), (grown, all_)):
        bench.generator.fill(target, SEND, ROUNDS_BEFORE * count, *words)
    spread = [(SEND, {new.name: one, grown.name: some})]
    yield from _measured(bench, new, grown, f"{few:,} of {count:,} topics used, beside one", spread)
    used = [(SEND, {new.name: some, grown.name: all_})]
    yield from _measured(bench, new, grown, f"{count:,} topics used, beside {few:,}", used)


def _made(bench: Bench, grown: Target, count: int) -> list[str]:
    """Make topics by sending to them, and wait until all their files are on the disk; what that cost, in words."""
    bench.say(f"making {count:,} topics")
    began, used = monotonic(), cpu_s(grown.pids)
    bench.generator.fill(grown, MAKE, count, *_to_topics(count))
    made_s, made_cpu_s = monotonic() - began, cpu_s(grown.pids) - used
    rests = until_at_rest(grown, bench.scale.topics_settle_s)
    files_cpu_s = cpu_s(grown.pids) - used - made_cpu_s
    fresh = count - max((int(level) for level in bench.scale.topics if level < count), default=0)
    note = (
        f"{fresh:,} topics were created by sends: {fresh / max(made_s, 1e-3):,.0f}/s at {1e6 * made_cpu_s / fresh:.0f} us "
        f"of CPU each, and {1e6 * files_cpu_s / fresh:.0f} us each for the files of their queues"
    )
    return [note] if rests else [f"{note}, which were still being made when the shots began, and are in them"]


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
