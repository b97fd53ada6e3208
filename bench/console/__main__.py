"""Page times and the cost of ten browsers, with a large cluster; `make bench-console`.

    pages     each requested several times with ten open browsers: the slowest response, and CPU time per response
    idle      CPU time of the broker without producers, with ten browsers and without
    sends     sends per second with ten browsers and without, alternating (`send_rates`)

CPU time does not depend on other load of the machine. The output also has the CPU time of the console.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.broker.machine import cpu_s
from bench.broker.servers import Target
from bench.console.large_cluster import GROUP, TOPIC, Size, fill
from bench.console.send_rates import SendRates, send_rates
from bench.console.watchers import watchers
from pocketmq.console.snapshot import PAGE_WATCHED_S

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
    f"/letters/{GROUP.format(0)}/broker-a:0:{{middle}}",
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
IDLE_S: Final = 8.0
MOST_MS: Final = 300
MOST_FALL: Final = 0.03


class Running(NamedTuple):
    """A broker and a console beside it."""

    url: str
    broker: Target
    console_pid: int
    letters: int


async def page_times(running: Running, times: int) -> dict[str, tuple[list[float], float]]:
    """Milliseconds of each answer, and of CPU time of broker and console together for one: that a busy machine leaves alone."""

    def ask(page: str) -> float:
        began = time.perf_counter()
        path = page.format(middle=running.letters // 2)
        with urllib.request.urlopen(running.url.rstrip("/") + path, timeout=30) as answer:
            answer.read()
        return (time.perf_counter() - began) * 1000

    found = {}
    ids = (*running.broker.pids, running.console_pid)
    for page in PAGES:
        before = cpu_s(ids)
        took = [await asyncio.to_thread(ask, page) for _ in range(times)]
        found[page] = took, (cpu_s(ids) - before) * 1000 / times
    return found


async def shares(running: Running, seconds: float) -> tuple[float, float]:
    """The part of a core that broker and console take."""
    broker, console = running.broker.pids, (running.console_pid,)
    before, before_console, began = cpu_s(broker), cpu_s(console), time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    return (cpu_s(broker) - before) / took, (cpu_s(console) - before_console) / took


async def start(*words: str) -> tuple[Process, dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *words, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    assert process.stdout is not None
    return process, json.loads(await process.stdout.readline())


async def measure(size: Size, seconds: float, windows: int, folder: Path) -> bool:
    broker, ready = await start(
        *("pocketmq", "serve", "--json", "--namesrv-port", "0", "--broker-port", "0", "--data", str(folder / "data"))
    )
    name_server = str(ready["name_server"])
    port = int(ready["brokers"][0]["address"].rpartition(":")[2])
    began = time.perf_counter()
    await fill(name_server, size)
    print(
        f"{size.topics:,} topics, {size.groups:,} groups, {size.letters:,} dead letters: {time.perf_counter() - began:.0f} s"
    )
    console, console_ready = await start("pocketmq.console", "--json", "--port", "0", "--namesrv", name_server)
    target = Target("PocketMQ", port, (broker.pid,), (broker.pid,))
    running = Running(str(console_ready["url"]), target, console.pid, size.letters)
    try:
        slowest = await _pages_and_idle(running)
        sends = await send_rates(running.url, target, TOPIC.format(0), WATCHED, windows, seconds, folder)
        print("\n".join(sends.lines()))
        return _verdict(slowest, sends)
    finally:
        for process in (console, broker):
            process.terminate()
            await process.wait()


async def _pages_and_idle(running: Running) -> float:
    """The slowest response in milliseconds; prints the broker's CPU share without producers."""
    async with watchers(running.url, WATCHED):
        await asyncio.sleep(10)
        times = await page_times(running, 10)
    for page, (took, of_cpu) in times.items():
        middle = statistics.median(took)
        print(f"  {max(took):6.0f} ms at most, {middle:4.0f} ms median, {of_cpu:4.0f} ms of CPU   {page}")
    await asyncio.sleep(PAGE_WATCHED_S)  # until then the page counts as open
    alone, alone_own = await shares(running, IDLE_S * 2)
    async with watchers(running.url, WATCHED) as watched:
        await asyncio.sleep(5)
        beside, own = await shares(running, IDLE_S * 3)
    print(
        f"without producers, the broker uses {alone:.2%} of a core without browsers, {beside:.2%} with ten; "
        f"the console uses {alone_own:.2%} and {own:.2%}"
    )
    print(
        f"ten browsers loaded {watched.pages:,} pages and got {watched.events:,} updates, {watched.bytes / 1e6:.1f} MB"
    )
    return max(max(took) for took, _ in times.values())


def _verdict(slowest_ms: float, sends: SendRates) -> bool:
    if sends.noise >= MOST_FALL:
        print(f"no result: equal windows differ by more than {MOST_FALL:.0%}; run it on an idle machine")
        return False
    is_ok = slowest_ms < MOST_MS and sends.fall < MOST_FALL
    limits = f"pages must answer within {MOST_MS} ms, and sends must drop by less than {MOST_FALL:.0%}"
    print("ok" if is_ok else f"FAILED: {limits}")
    return is_ok


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs=3, default=list(Size()), metavar=("TOPICS", "GROUPS", "LETTERS"))
    parser.add_argument("--seconds", type=float, default=3, help="of one window of sends")
    parser.add_argument("--windows", type=int, default=12, help="of each kind; an even number")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        is_ok = asyncio.run(measure(Size(*args.size), args.seconds, args.windows, Path(folder)))
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
