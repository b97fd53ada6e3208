"""The benchmark of the console: the evaluation of its windows, and that its browsers load pages as browsers do."""

import asyncio

from bench.broker.shots import Shot
from bench.console.send_rates import SendRates
from bench.console.watchers import watchers
from tests.console.running_console import running_console

import pocketmq


def window(rate: float, server_us: float) -> Shot:
    return Shot(
        rate=rate,
        p50_us=0,
        p99_us=0,
        p999_us=0,
        server_us=server_us,
        errors=0,
        lost=0,
        acked=0,
        stored=-1,
        generator_cpu=0,
    )


def test_the_middle_windows_show_the_loss_of_sends() -> None:
    alone = [window(100_000, 5.0), window(102_000, 5.0), window(20_000, 5.0)]
    beside = [window(99_000, 5.1), window(98_000, 5.1), window(10_000, 5.1)]

    rates = SendRates("ours", alone, beside)

    assert round(rates.fall, 3) == 0.02
    assert round(rates.cpu_rise, 3) == 0.02
    assert "the rate drops by +2.00%, CPU time rises by +2.00%" in rates.lines()[3]


def test_windows_with_a_large_spread_are_noise() -> None:
    steady = SendRates("ours", [window(rate, 1) for rate in (100, 101, 100, 99)], [window(90, 1)])
    restless = SendRates("ours", [window(rate, 1) for rate in (100, 50, 100, 60)], [window(90, 1)])

    assert steady.noise < 0.02 < restless.noise


def test_browsers_of_the_benchmark_load_pages_and_keep_streams_open() -> None:
    async def watch(url: str) -> tuple[int, int]:
        async with watchers(url, ["/", "/topics"]) as watched, asyncio.timeout(30):
            while not (watched.pages >= 2 and watched.events >= 2):  # noqa: ASYNC110 there is no event for it
                await asyncio.sleep(0.05)
        return watched.pages, watched.events

    with pocketmq.Server() as server, running_console(server.name_server) as url:
        pages, events = asyncio.run(watch(url))

    assert pages >= 2
    assert events >= 2
