"""Section: does a message cost more when there are many topics, groups, connections, or a long log?

A broker that has grown is shot at in turn with one that is new. What it does while it grows is not measured.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

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

Row = tuple[str, Outcome]


def growth_sheets(bench: Bench) -> Iterator[Sheet]:
    headings = ["grown to", "load", "CPU us/msg", "in a new one", "times", "msg/s", "in a new one", f"≤ {FLAT:g} times"]
    rows: list[Row] = []
    notes = []
    scale = bench.scale
    for grow, levels in (
        (by_topics, scale.topics),
        (by_groups, scale.groups),
        (by_connections, scale.connections),
        (by_log, scale.log_gib),
    ):
        try:
            rows += grow(bench) if levels else []
        except NotMeasured as reason:
            notes.append(f"{grow.__name__.replace('_', ' ')}: {reason}")
    outcomes = [outcome for _, outcome in rows]
    notes += [note for outcome in outcomes for note in outcome.notes]
    yield Sheet(
        "growth", headings, [_cells(label, outcome) for label, outcome in rows], [disturbance(outcomes), *notes]
    )


def by_topics(bench: Bench) -> list[Row]:
    """Sends go to all topics in turn, pulls to one of them."""
    one = ("--topic", MANY, "--topics", "1", "--queues", "1", "--no-verify")
    rows: list[Row] = []
    with ExitStack() as stack:
        new, grown = _pair(bench, stack)
        _send_once(bench, new, 1)
        for count in bench.scale.topics:
            bench.say(f"creating {count:,} topics")
            bench.contest(new, grown).alone(grown, partial(_send_once, bench, grown, count))
            words = {new.name: one, grown.name: (*one[:3], str(count), *one[4:])}
            rows += _measured(bench, new, grown, f"{count:,} topics", [(SEND, words), (PULL, {})])
    return rows


def by_groups(bench: Bench) -> list[Row]:
    """Groups with a member each, subscribed to the topic that is sent to and pulled from."""
    rows: list[Row] = []
    with ExitStack() as stack:
        new, grown = _pair(bench, stack)
        for count in bench.scale.groups:
            bench.say(f"joining {count:,} groups")
            for first in range(0, count, GROUPS_PER_LINE):
                line = stack.enter_context(Line(grown.port))
                names = [f"group{number}" for number in range(first, min(count, first + GROUPS_PER_LINE))]
                line.heartbeat(f"127.0.0.1@member{first}", fill_topic(PULL.body_bytes), names)
            rows += _measured(bench, new, grown, f"{count:,} groups", [(SEND, {}), (PULL, {})])
    return rows


def by_connections(bench: Bench) -> list[Row]:
    """Connections that are open and registered; and one message under way on each of them."""
    rows: list[Row] = []
    with ExitStack() as stack:
        new, grown = _pair(bench, stack)
        for count in bench.scale.connections:
            bench.say(f"opening {count:,} connections")
            with ExitStack() as lines:
                for number in range(count):
                    lines.enter_context(Line(grown.port)).heartbeat(f"127.0.0.1@client{number}")
                rows += _measured(bench, new, grown, f"{count:,} connections", [(SEND, {}), (PULL, {})])
            all_send = {grown.name: ("--conns", str(count))}
            rows += _measured(bench, new, grown, f"{count:,} connections, all send", [(SEQUENTIAL, all_send)])
    return rows


def by_log(bench: Bench) -> list[Row]:
    """A log that real sends made long, with large bodies."""
    rows: list[Row] = []
    with ExitStack() as stack:
        new, grown = _pair(bench, stack)
        written_gib = 0.0
        for size_gib in bench.scale.log_gib:
            bench.say(f"writing a log of {size_gib:g} GiB")
            requests = int((size_gib - written_gib) * GIB / LARGE_BODY)
            shape = Shape("send", 1, 8, LARGE_BODY)
            fill = partial(bench.generator.fill, grown, shape, requests, "--topic", "large", "--queues", "1")
            bench.contest(new, grown).alone(grown, fill)
            written_gib = size_gib
            rows += _measured(bench, new, grown, f"log of {size_gib:g} GiB", [(SEND, {}), (PULL, {})])
    return rows


def _pair(bench: Bench, stack: ExitStack) -> tuple[Target, Target]:
    """Two brokers with something to pull."""
    folder = bench.folder / f"pair{len(list(bench.folder.iterdir()))}"
    apart = bench._replace(folder=folder)
    new, grown = apart.ours(stack, name="new"), apart.ours(stack, name="grown")
    for target in (new, grown):
        bench.fill(target, PULL.body_bytes)
    return new, grown


def _measured(
    bench: Bench,
    new: Target,
    grown: Target,
    label: str,
    loads: Sequence[tuple[Shape, Words]],
) -> list[Row]:
    until_quiet(grown)
    contest = bench.contest(new, grown)
    return [(label, contest.run(shape, words, f"{label}, {shape}")) for shape, words in loads]


def _send_once(bench: Bench, target: Target, topics: int) -> None:
    """A message to each topic creates it."""
    words = ("--topic", MANY, "--topics", str(topics), "--queues", "1", "--no-verify")
    bench.generator.fill(target, Shape("send", 1, 16, 100), topics, *words)


def _cells(label: str, outcome: Outcome) -> list[str]:
    new, grown = outcome.results.get("new"), outcome.results.get("grown")
    if new is None or grown is None or not new.server_us:
        return [label, str(outcome.shape), *[MISSING] * 6]
    times = grown.server_us / new.server_us
    costs = [f"{grown.server_us:.2f}", f"{new.server_us:.2f}", f"{times:.2f}"]
    return [label, str(outcome.shape), *costs, f"{grown.rate:,.0f}", f"{new.rate:,.0f}", verdict(times <= FLAT)]
