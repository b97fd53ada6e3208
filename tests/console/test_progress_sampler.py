"""Offsets of pipelines are sampled often while their page is open."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.console.visitor import visitor

import pocketmq
from pocketmq.client.admin.lag import GroupLag
from pocketmq.console.group_progress import SAMPLED_GROUPS, ProgressSampler
from pocketmq.console.settings import ConsoleSettings
from pocketmq.errors import NetworkError
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import FakeClock, run

BATCH_S = 1.2
QUEUE = MessageQueue("paced", "broker-a", 0)


class ToldOffsets:
    """Counts the queried groups. `takes_s` is the duration of an answer."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.asked: Counter[str] = Counter()
        self.takes_s = takes_s

    @property
    def offsets(self) -> "ToldOffsets":
        return self

    async def lag(self, group: str) -> GroupLag:
        self.asked[group] += 1
        await asyncio.sleep(self.takes_s)
        if group == "silent":
            raise NetworkError("no answer")
        return GroupLag(group=group, at_ms=0, queues=())


def asked_in(seconds: float, *groups: str, takes_s: float = 0.0) -> tuple[Counter[str], list[str]]:
    """The number of queries for each group during this time after the page was opened, and the groups with a result."""

    async def main() -> tuple[Counter[str], list[str]]:
        admin: Any = ToldOffsets(takes_s)
        told: list[str] = []

        def tell(found: Mapping[str, GroupLag], _: float) -> None:
            told.extend(found)

        sampler = ProgressSampler(admin, FakeClock(asyncio.get_running_loop()), rest_factor=100)
        running = asyncio.create_task(sampler.run(tell))
        sampler.watch(groups)
        await asyncio.sleep(seconds)
        running.cancel()
        return admin.asked, told

    return run(main())


def test_viewed_groups_are_sampled_twice_a_second_for_ten_seconds() -> None:
    assert asked_in(4.9, "spark")[0] == {"spark": 10}
    assert asked_in(100, "spark")[0] == {"spark": 20}


def test_slow_samples_reduce_the_number_and_frequency_of_queries() -> None:
    many = [f"spark-{number}" for number in range(100)]

    assert len(asked_in(5, *many)[0]) == SAMPLED_GROUPS
    assert asked_in(9, "spark", takes_s=0.05)[0] == {"spark": 2}


def test_a_group_that_cannot_be_queried_does_not_affect_the_others() -> None:
    assert asked_in(0.4, "silent", "spark") == ({"silent": 1, "spark": 1}, ["spark"])


@contextmanager
def batches(name_server: str) -> Iterator[None]:
    """A query from outside: its group moves on by 30 messages of 1,000, batch after batch."""
    over = threading.Event()

    def move() -> None:
        place = 0
        with pocketmq.Admin(name_server) as admin:
            while not over.wait(BATCH_S):
                place = min(place + 30, 990)
                admin.offsets.reset("paced-query", "paced", {QUEUE: place})

    with pocketmq.Admin(name_server) as admin, pocketmq.Producer(name_server) as producer:
        admin.topics.create("paced", queues=1)
        admin.groups.create("paced-query")
        producer.send_many([pocketmq.Message("paced", b"x")] * 1000)
        admin.offsets.reset("paced-query", "paced", {QUEUE: 0})
    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_query_is_shown_with_its_rate_its_lag_and_the_time_of_a_batch() -> None:
    with (
        pocketmq.Server() as server,
        batches(server.name_server),
        visitor(ConsoleSettings(watched_s=0.4, unwatched_s=1.0), server.name_server) as console,
    ):
        console.wait_for("/pipelines", "paced-query")
        row = console.wait_for_row("/pipelines", r"paced-query running ([\d.]+) ([\d,]+) (\d+ \w+) ([\d.]+) s ")

    rate, behind, time_behind, between_s = row.groups()
    assert float(rate) > 0
    assert 0 < int(behind) < 1000
    assert time_behind[-1] == "s"
    assert float(between_s) > BATCH_S / 3, "how exactly is for the tests of group_progress, whose machine is never busy"
