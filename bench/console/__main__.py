"""Page times and the cost of ten browsers, on a large cluster; `make bench-console`.

    pages     each asked for several times while ten browsers watch: the slowest answer, and CPU time for one
    idle      CPU time that the broker spends on the console while nobody sends: with ten browsers, and without
    sends     the same while messages come at a steady rate, in turns: what the console takes of the broker's one core is
              what sends lose when the core is full

CPU time is what a busy machine leaves alone. What the console's own process takes is told beside it.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Final

from bench.console.large_cluster import GROUP, TOPIC, Size, fill
from bench.console.watchers import watchers
from pocketmq.client.producer import AsyncProducer

PAGES: Final = (
    "/",
    "/topics",
    "/topics?page=77",
    "/topics?q=049",
    f"/topics/{TOPIC.format(3)}",
    f"/topics/{TOPIC.format(3)}/messages",
    "/groups",
    "/groups?sort=name&page=9",
    f"/groups/{GROUP.format(7)}",
    f"/groups/{GROUP.format(7)}/reset?topic={TOPIC.format(7)}&to=earliest",
    "/letters",
    f"/letters/{GROUP.format(0)}",
    f"/letters/{GROUP.format(0)}?page=1500",
    f"/letters/{GROUP.format(0)}/broker-a:0:50000",
    "/delayed",
    "/transactions",
    "/pipelines",
    "/clients",
    "/brokers",
    "/brokers/broker-a",
)
WATCHED: Final = (
    "/", "/", "/", "/topics", "/topics?page=50", "/groups", "/groups?page=3", f"/groups/{GROUP.format(1)}",
    f"/letters/{GROUP.format(0)}", "/clients",
)  # fmt: skip
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
AT_ONCE: Final = 20
SENDS_PER_S: Final = 2_000


def cpu_s(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


async def page_times(url: str, ids: tuple[int, int], times: int) -> dict[str, tuple[list[float], float]]:
    """Milliseconds of each answer, and of CPU time of broker and console together for one: that a busy machine leaves alone."""

    def ask(page: str) -> float:
        began = time.perf_counter()
        with urllib.request.urlopen(url.rstrip("/") + page, timeout=30) as answer:
            answer.read()
        return (time.perf_counter() - began) * 1000

    found = {}
    for page in PAGES:
        before = sum(map(cpu_s, ids))
        took = [await asyncio.to_thread(ask, page) for _ in range(times)]
        found[page] = took, (sum(map(cpu_s, ids)) - before) * 1000 / times
    return found


async def send_steadily(name_server: str, over: asyncio.Event) -> None:
    async with AsyncProducer(name_server) as producer:
        while not over.is_set():
            await asyncio.gather(*(producer.send(TOPIC.format(0), b"x" * 100) for _ in range(AT_ONCE)))
            await asyncio.sleep(AT_ONCE / SENDS_PER_S)


async def shares(broker: int, console: int, seconds: float) -> tuple[float, float]:
    """The part of a core that broker and console take."""
    before, before_console, began = cpu_s(broker), cpu_s(console), time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    return (cpu_s(broker) - before) / took, (cpu_s(console) - before_console) / took


async def start(*words: str) -> tuple[Process, dict[str, object]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *words, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    assert process.stdout is not None
    return process, json.loads(await process.stdout.readline())


async def measure(size: Size, seconds: float, rounds: int, folder: Path) -> bool:
    broker, ready = await start(
        *("pocketmq", "serve", "--json", "--namesrv-port", "0", "--broker-port", "0", "--data", str(folder))
    )
    name_server = str(ready["name_server"])
    began = time.perf_counter()
    await fill(name_server, size)
    print(
        f"{size.topics:,} topics, {size.groups:,} groups, {size.letters:,} dead letters: {time.perf_counter() - began:.0f} s"
    )
    console, console_ready = await start("pocketmq.console", "--json", "--port", "0", "--namesrv", name_server)
    url = str(console_ready["url"])
    try:
        return await _measure(url, name_server, (broker.pid, console.pid), seconds, rounds)
    finally:
        for process in (console, broker):
            process.terminate()
            await process.wait()


async def _measure(url: str, name_server: str, ids: tuple[int, int], seconds: float, rounds: int) -> bool:
    async with watchers(url, WATCHED):
        await asyncio.sleep(15)
        times = await page_times(url, ids, 10)
    for page, (took, of_cpu) in times.items():
        middle = statistics.median(took)
        print(f"  {max(took):6.0f} ms at most, {middle:4.0f} ms in the middle, {of_cpu:4.0f} ms of CPU   {page}")
    slowest = max(max(took) for took, _ in times.values())
    alone, _ = await shares(*ids, seconds)
    async with watchers(url, WATCHED) as watched:
        await asyncio.sleep(15)
        beside, own = await shares(*ids, seconds * 3)
    print(
        f"broker, nobody sends: {alone:.2%} of a core alone, {beside:.2%} with ten browsers; the console itself {own:.2%}"
    )
    print(f"ten browsers got {watched.events:,} updates, {watched.bytes / 1e6:.1f} MB")
    taken = await _while_sending(url, name_server, ids, seconds, rounds)
    told = ", ".join(f"{one:+.2%}" for one in taken)
    print(f"broker, steady sends: ten browsers take {statistics.median(taken):+.2%} of its core ({told})")
    is_well = slowest < 300 and max(beside - alone, statistics.median(taken)) < 0.03
    print("well" if is_well else "NOT well: pages must answer within 300 ms, and the broker give less than 3 %")
    return is_well


async def _while_sending(url: str, name_server: str, ids: tuple[int, int], seconds: float, rounds: int) -> list[float]:
    """What ten browsers take of the broker's core, round by round."""
    taken, over = [], asyncio.Event()
    sending = asyncio.create_task(send_steadily(name_server, over))
    try:
        for _ in range(rounds):
            alone, _ = await shares(*ids, seconds)
            async with watchers(url, WATCHED):
                await asyncio.sleep(3)
                beside, _ = await shares(*ids, seconds)
            taken.append(beside - alone)
    finally:
        over.set()
        await sending
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs=3, default=list(Size()), metavar=("TOPICS", "GROUPS", "LETTERS"))
    parser.add_argument("--seconds", type=float, default=8, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        is_well = asyncio.run(measure(Size(*given.size), given.seconds, given.rounds, Path(folder)))
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
