"""POP: rate and CPU of members that pop and acknowledge, beside the Apache broker where Java is; latency; the cost beside pulls.

python -m bench.broker.pops                  all of it: three minutes with Apache, a minute without
python -m bench.broker.pops --without-apache
python -m bench.broker.pops --write-docs     and write the tables to docs/generated/pop.md

CPU is that of the broker's process, so it includes the system calls. While one broker is measured, the other is stopped.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from rich.console import Console

from bench.broker import machine, page
from bench.broker.calls import Line
from bench.broker.machine import cpu_s, fine_cpu_s
from bench.broker.pop_members import Load, Members, Rate
from bench.broker.servers import OURS, Target, Wishes, apache, frozen, pocketmq, reason_without_apache
from bench.broker.sheets import Sheet, as_table, verdict
from bench.broker.shots import NotMeasured
from bench.method import machine as cores
from pocketmq import compiled
from pocketmq.codes import Language, PullFlag, RequestCode
from pocketmq.protocol.api.messages import AckMessage, PopMessage, PullMessage, SendMessageV2, UpdateConsumerOffset
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.frames import FrameSplitter
from pocketmq.protocol.pop import BatchAck, BatchAckEntry, Handle, encode_bits

TOPIC: Final = "bench_pops"
QUEUES: Final = 8
COUNT: Final = 32
BODY_BYTES: Final = 100
INVISIBLE_MS: Final = 600_000
LOADS: Final = ((1, 1), (8, 1), (64, 1), (1, 32), (8, 32), (64, 32))
"""Members and messages of each pop."""
MESSAGES: Final = 320_000
SECONDS: Final = 5.0
WARM_S: Final = 1.0
JAVA_WARM_S: Final = 20.0
SHOTS: Final = 2
"""Of each load; the one in which other programs used least of the machine counts."""
WARM_ROUNDS: Final = 200
SLICE: Final = 50
FIRST_MESSAGES: Final = 500
HELD_S: Final = 0.003
"""A pop surely waits at the broker after this time."""
MOST_P99_MS: Final = 5.0
MOST_RATIO: Final = 3.0


class Member:
    """A member of a group, and of another one that pulls; one request at a time, of one queue."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.broker = broker_name(line)

    def pull_and_commit(self, number: int) -> None:
        at = number * COUNT
        header = PullMessage("pulls", TOPIC, 0, at, COUNT, PullFlag.SUBSCRIPTION, 0, 0, 0, "*", "TAG")
        self._line.call(RequestCode.PULL_MESSAGE, header.encode())
        commit = UpdateConsumerOffset("pulls", TOPIC, 0, at + COUNT)
        self._line.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit.encode())

    def pop_and_batch_ack(self, number: int) -> None:
        handle, offsets = self._pop("batches")
        entry = BatchAckEntry(
            "batches",
            TOPIC,
            str(handle.flag),
            handle.start,
            0,
            handle.revive_queue,
            handle.pop_ms,
            handle.invisible_ms,
            encode_bits(handle.start, offsets),
        )
        self._line.call(RequestCode.BATCH_ACK_MESSAGE, None, BatchAck(self.broker, (entry,)).encode())

    def pop_and_acks(self, number: int) -> None:
        handle, offsets = self._pop("singles")
        frames: list[bytes] = []
        for offset in offsets:
            header = AckMessage("singles", TOPIC, 0, handle._replace(offset=offset).text(), offset)
            command = Command(RequestCode.ACK_MESSAGE, header.encode(), opaque=offset, language=Language.JAVA)
            frames.append(encode_command(command))
        self._line.socket.sendall(b"".join(frames))
        splitter, left = FrameSplitter(), len(frames)
        while left:
            left -= len(splitter.feed(self._line.socket.recv(1 << 16)))

    def _pop(self, group: str) -> tuple[Handle, list[int]]:
        header = PopMessage(group, TOPIC, 0, COUNT, INVISIBLE_MS, 0, 0, int(time.time() * 1000), "TAG", "*")
        ext = self._line.call(RequestCode.POP_MESSAGE, header.encode()).ext or {}
        flag, _, start = ext["startOffsetInfo"].split(" ")
        times = int(ext["popTime"]), int(ext["invisibleTime"]), int(ext["reviveQid"])
        handle = Handle(int(start), *times, int(flag), self.broker, 0, int(start))
        return handle, [int(offset) for offset in ext["msgOffsetInfo"].split(" ")[2].split(",")]


def broker_name(line: Line) -> str:
    settings = line.call(RequestCode.GET_BROKER_CONFIG).body.decode()
    return next(row[11:] for row in settings.splitlines() if row.startswith("brokerName="))


def fill(line: Line, messages: int = MESSAGES) -> None:
    """The same number of messages in each queue. Each load reads them again, as a new group."""
    line.create_topic(TOPIC, QUEUES)
    batch = encode_batch([(0, b"x" * BODY_BYTES, b"")] * COUNT)
    for number in range(messages // COUNT):
        queue_id = number % QUEUES
        header = SendMessageV2("bench", TOPIC, "TBW102", 8, queue_id, 0, int(time.time() * 1000), 0, "", batch=True)
        line.call(RequestCode.SEND_BATCH_MESSAGE, header.encode(), batch)


class Contest(NamedTuple):
    """Brokers with the same messages; while one is measured, the others are stopped."""

    targets: Sequence[Target]
    say: Callable[[str], None]
    disturbed: list[float]
    """The share of the machine that other programs had in each shot that counts."""

    def each(self) -> Iterator[tuple[Target, Line]]:
        for target in self.targets:
            with frozen([one for one in self.targets if one is not target]), Line(target.port) as line:
                yield target, line

    def prepare(self) -> None:
        for target, line in self.each():
            fill(line)
            seconds = WARM_S if target.name == OURS else JAVA_WARM_S
            self.say(f"{target.name}: {seconds:.0f} s of load to warm it up")
            for number, batch in enumerate((COUNT, 1)):
                _rate(target, Load(TOPIC, f"warm{number}", broker_name(line), 8, batch), seconds / 2)

    # sheets

    def rates(self) -> Sheet:
        rows: list[list[str]] = []
        for members, batch in LOADS:
            shots: dict[str, list[tuple[float, Rate]]] = {target.name: [] for target in self.targets}
            for number in range(SHOTS):
                for target, line in self.each():
                    load = Load(TOPIC, f"g{members}x{batch}_{number}", broker_name(line), members, batch)
                    shots[target.name].append(_disturbed_rate(target, load))
            found = [min(some, key=lambda shot: shot[0]) for some in shots.values()]
            self.disturbed.extend(share for share, _ in found)
            rows.append(_row(f"{members} member{'s' * (members > 1)}, pops of {batch}", [rate for _, rate in found]))
            self.say(" | ".join(rows[-1]))
        headings = ("load", "msg/s", "Apache", "times", "CPU us/msg", "Apache", "share", "goals")
        notes = (
            f"bodies of {BODY_BYTES} bytes in {QUEUES} queues; one ack for each message, sent with the next pop",
            "all members are in one process on one core, which limits the rates of pops of 32 of ours",
        )
        return Sheet("pop and acknowledge", headings, rows, notes)

    def ratios(self) -> Sheet:
        rows: list[list[str]] = []
        for target, line in self.each():
            member, base_us = Member(line), 0.0
            for round_of in (member.pull_and_commit, member.pop_and_batch_ack, member.pop_and_acks):
                used_us = _used_us(target, round_of)
                base_us = base_us or used_us
                ratio, goal = used_us / base_us, ""
                if target.name == OURS and used_us is not base_us:
                    goal = f"≤ {MOST_RATIO:.0f} times: {verdict(ratio <= MOST_RATIO)}"
                name = round_of.__name__.replace("_", " ").replace("pull ", f"pull of {COUNT} ")
                rows.append(
                    [
                        f"{target.name}: {name.replace('pop ', f'pop of {COUNT} ')}",
                        f"{used_us:.0f}",
                        f"{ratio:.2f}",
                        goal,
                    ]
                )
                self.say(" | ".join(rows[-1]))
        notes = ("one client that asks and waits; acks are single requests that are sent together",)
        return Sheet("CPU of a pop beside a pull", ("round", "CPU us", "times", "goals"), rows, notes)

    def first_messages(self) -> Sheet:
        rows: list[list[str]] = []
        for target, line in self.each():
            taken_ms = sorted(_latencies_ms(target, line))
            p50, p99 = (taken_ms[int(len(taken_ms) * share)] for share in (0.5, 0.99))
            goal = f"p99 ≤ {MOST_P99_MS:.0f} ms: {verdict(p99 <= MOST_P99_MS)}" if target.name == OURS else ""
            rows.append([target.name, f"{p50:.2f}", f"{p99:.2f}", f"{taken_ms[-1]:.2f}", goal])
            self.say(" | ".join(rows[-1]))
        notes = (f"from the send to the answer of a pop that waits, {FIRST_MESSAGES} times",)
        return Sheet("first message in an empty queue", ("broker", "p50 ms", "p99 ms", "max ms", "goals"), rows, notes)


def _rate(target: Target, load: Load, seconds: float) -> Rate:
    with Members(target, load) as members:
        return members.run(MESSAGES, seconds)


def _disturbed_rate(target: Target, load: Load) -> tuple[float, Rate]:
    """A rate, and the share of the machine that others had meanwhile."""
    before, used_s = machine.moment(), cpu_s(target.pids) + time.process_time()
    rate = _rate(target, load, SECONDS)
    own_s = cpu_s(target.pids) + time.process_time() - used_s
    return machine.disturbed(before, machine.moment(), own_s), rate


def _row(name: str, rates: Sequence[Rate]) -> list[str]:
    ours, *others = rates
    row = [name, f"{ours.per_s:,.0f}", "", "", f"{ours.cpu_us:.2f}", "", "", ""]
    for other in others:
        times, share = ours.per_s / other.per_s, ours.cpu_us / other.cpu_us
        goals = f"≥ 3 times: {verdict(times >= 3)}, CPU ≤ 1/3: {verdict(share <= 1 / 3)}"
        row[2:4], row[5:] = [f"{other.per_s:,.0f}", f"{times:.2f}"], [f"{other.cpu_us:.2f}", f"{share:.2f}", goals]
    return row


def _used_us(target: Target, round_of: Callable[[int], None]) -> float:
    """Microseconds of the server's CPU for each round, the median of slices; a round has messages of its own in queue 0."""
    for number in range(WARM_ROUNDS):
        round_of(number)
    found: list[float] = []
    for first in range(WARM_ROUNDS, MESSAGES // QUEUES // COUNT - SLICE, SLICE):
        before = fine_cpu_s(target.pids)
        for number in range(first, first + SLICE):
            round_of(number)
        found.append((fine_cpu_s(target.pids) - before) / SLICE * 1e6)
    return median(found)


def _latencies_ms(target: Target, sender: Line) -> Iterator[float]:
    """How long after a send a pop that waits is answered."""
    topic = "bench_first"
    sender.create_topic(topic, 1)
    send = SendMessageV2("bench", topic, "TBW102", 1, 0, 0, 1, 0, "UNIQ_KEY\x01k\x02").encode()
    with Line(target.port) as line:
        for number in range(FIRST_MESSAGES + 1):
            header = PopMessage("first", topic, 0, 1, INVISIBLE_MS, 10_000, 0, int(time.time() * 1000), "TAG", "*")
            command = Command(RequestCode.POP_MESSAGE, header.encode(), opaque=number, language=Language.JAVA)
            line.socket.sendall(encode_command(command))
            time.sleep(HELD_S)
            began = time.perf_counter()
            sender.call(RequestCode.SEND_MESSAGE_V2, send, b"x")
            splitter = FrameSplitter()
            while not splitter.feed(line.socket.recv(1 << 16)):
                pass
            if number:  # the first one creates the group
                yield (time.perf_counter() - began) * 1000


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.broker.pops")
    parser.add_argument("--without-apache", action="store_true", help="only ours, though Java is there")
    parser.add_argument("--write-docs", action="store_true", help="write the tables to docs/generated/pop.md")
    options = parser.parse_args(arguments)
    console = Console(width=150)
    why_alone = "--without-apache" if options.without_apache else reason_without_apache()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        targets = [stack.enter_context(pocketmq(Path(folder) / "ours", Wishes()))]
        if not why_alone:
            try:
                targets.append(stack.enter_context(apache(Path(folder) / "apache", Wishes())))
            except NotMeasured as reason:
                why_alone = str(reason)
        contest = Contest(targets, console.print, [])
        load_before = machine.load()
        contest.prepare()
        sheets = [contest.rates(), contest.ratios(), contest.first_messages()]
    turn = "compiled" if compiled.twin() else "in Python"
    facts = [
        str(date.today()),
        f"{cores()}, {machine.description()}",
        f"turn {turn}",
        f"load {load_before:.1f} before, {machine.load():.1f} after",
        f"other programs had {min(contest.disturbed):.0%} to {max(contest.disturbed):.0%} of the machine",
        *([f"no Apache broker: {why_alone}"] if why_alone else []),
    ]
    console.print(" · ".join(facts))
    for sheet in sheets:
        console.print(as_table(sheet))
    if options.write_docs:
        page.write(facts, sheets, page.POP)


if __name__ == "__main__":
    main()
