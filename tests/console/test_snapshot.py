"""The collector: one for all browsers, idle without browsers, and with errors if no broker answers. Virtual time."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from pocketmq.client.admin.cluster import BrokerState
from pocketmq.client.admin.lag import GroupLag, QueueLag
from pocketmq.client.admin.targets import BrokerAddress
from pocketmq.console.settings import ConsoleSettings
from pocketmq.console.snapshot import Collector, Snapshot
from pocketmq.errors import NetworkError
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.testing import FakeClock
from pocketmq.testing import run as run_virtual


class ToldAdmin:
    """Answers at once, after some time, or with an error; counts its queries. `changes` are the counts of its
    broker.
    """

    def __init__(self, **changes: int) -> None:
        self.asked: Counter[str] = Counter()
        self.takes_s: dict[str, float] = {}
        self.fails = False
        self.refused = 0
        self.changes = changes
        self.names = ["orders"]

    @property
    def cluster(self) -> "ToldAdmin":
        return self

    topics = groups = offsets = dead_letters = cluster

    async def _asked(self, what: str) -> None:
        self.asked[what] += 1
        await asyncio.sleep(self.takes_s.get(what, 0))
        if self.fails:
            raise NetworkError("no answer")

    async def describe(self) -> list[BrokerState]:
        await self._asked("brokers")
        place = BrokerAddress("broker-a", "c", 0, Address("127.0.0.1", 1))
        runtime = {"refusedNoRight": str(self.refused)}
        state = BrokerState(broker=place, put_per_s=5.0, disk_used=0.5, booted_ms=7, runtime=runtime)
        return [replace(state, changes=dict(self.changes))]

    async def brokers(self) -> list[BrokerAddress]:
        return []

    async def configs(self) -> dict[str, Any]:
        await self._asked("configs")
        return {name: {} for name in self.names}

    async def all_lags(self) -> list[GroupLag]:
        await self._asked("lags")
        queue = QueueLag(queue=MessageQueue("orders", "broker-a", 0), committed=1, messages=4)
        return [GroupLag(group="billing", at_ms=0, queues=(queue,))]

    async def lag(self, group: str) -> GroupLag:
        await self._asked("lag")
        return GroupLag(group=group, at_ms=0, queues=())

    async def counts(self) -> dict[str, int]:
        await self._asked("letters")
        return {"billing": 3}

    async def members_of_many(self, groups: list[str]) -> dict[str, list[Any]]:
        for group in groups:
            await self._asked(f"members of {group}")
        return {group: [] for group in groups}

    async def all_producers(self) -> dict[str, Any]:
        return {}


def collected(admin: ToldAdmin, seconds: float, *, watched: int = 0) -> Collector:
    """What a collector knows after this time."""

    async def story() -> Collector:
        clock = FakeClock(asyncio.get_running_loop())
        made: Any = admin
        async with Collector(made, clock, ConsoleSettings()) as collector:
            collector.watched = watched
            await asyncio.sleep(seconds)
        return collector

    return run_virtual(story())


def test_without_open_pages_queries_are_rare_and_charts_continue() -> None:
    admin = ToldAdmin()

    collector = collected(admin, 601)

    assert 35 <= admin.asked["brokers"] <= 45
    assert admin.asked["letters"] == 1
    assert len(collector.ring) == admin.asked["brokers"]


def test_with_open_pages_queries_are_frequent_for_any_number_of_browsers() -> None:
    one, ten = ToldAdmin(), ToldAdmin()

    collected(one, 600, watched=1)
    collected(ten, 600, watched=10)

    assert one.asked == ten.asked
    assert 290 <= one.asked["brokers"] <= 310


def test_a_loaded_page_without_live_updates_is_soon_refreshed() -> None:
    admin = ToldAdmin()

    async def story() -> None:
        made: Any = admin
        async with Collector(made, FakeClock(asyncio.get_running_loop()), ConsoleSettings()) as collector:
            await asyncio.sleep(300)
            assert admin.asked["letters"] == 1
            collector.page_loaded()
            await asyncio.sleep(0.1)
            assert admin.asked["letters"] == 2
            await asyncio.sleep(300)

    run_virtual(story())

    assert admin.asked["letters"] <= 4, "then no browser is open"


def test_another_browser_causes_no_additional_queries() -> None:
    """Browsers change the page: each change opens a new stream."""
    alone, many = ToldAdmin(), ToldAdmin()
    collected(alone, 99.5, watched=1)

    async def story() -> None:
        made: Any = many
        async with Collector(made, FakeClock(asyncio.get_running_loop()), ConsoleSettings()) as collector:
            collector.watched = 1
            for _ in range(199):
                collector.page_loaded()
                await asyncio.sleep(0.5)

    run_virtual(story())

    assert many.asked == alone.asked


def asked_after(admin: ToldAdmin, then: Callable[[], None]) -> Counter[str]:
    """The queries in a minute after a change, with an open browser and a complete snapshot before."""

    async def story() -> None:
        made: Any = admin
        async with Collector(made, FakeClock(asyncio.get_running_loop()), ConsoleSettings()) as collector:
            collector.watched = 1
            await asyncio.sleep(20)
            admin.asked.clear()
            then()
            await asyncio.sleep(60)
            assert set(collector.snapshot.members) == set(collector.snapshot.topics) == set(admin.names)

    run_virtual(story())
    return Counter({what: many for what, many in admin.asked.items() if what.startswith(("members of", "configs"))})


def test_tables_and_members_are_not_queried_again_while_brokers_count_no_change() -> None:
    admin = ToldAdmin(topic=1, group=2, member=3)

    assert asked_after(admin, lambda: None) == {}


def test_members_are_queried_once_after_a_counted_change() -> None:
    admin = ToldAdmin(topic=1, group=2, member=3)

    assert asked_after(admin, lambda: admin.changes.update(member=4)) == {"members of orders": 1}


def test_only_members_of_a_new_group_are_queried() -> None:
    admin = ToldAdmin(topic=1, group=2, member=3)

    def add() -> None:
        admin.names.append("new")
        admin.changes["group"] += 1

    assert asked_after(admin, add) == {"configs": 2, "members of new": 1}


def test_tables_and_members_are_queried_repeatedly_if_brokers_do_not_count_changes() -> None:
    asked = asked_after(ToldAdmin(), lambda: None)

    assert 5 <= asked["members of orders"] <= 7
    assert 10 <= asked["configs"] <= 14


def test_a_change_is_shown_to_its_author_before_brokers_count_it() -> None:
    admin = ToldAdmin(topic=1, group=2, member=3)

    async def story() -> None:
        made: Any = admin
        async with Collector(made, FakeClock(asyncio.get_running_loop()), ConsoleSettings()) as collector:
            await asyncio.sleep(1)
            admin.names.append("new")
            await collector.refresh_now("tables")
            assert "new" in collector.snapshot.topics

    run_virtual(story())


def test_a_slow_query_is_repeated_rarely() -> None:
    admin = ToldAdmin()
    admin.takes_s["letters"] = 2.0

    collected(admin, 600, watched=1)

    assert admin.asked["letters"] <= 600 / 80 + 1


def test_known_values_stay_during_an_outage_and_the_problem_is_shown() -> None:
    admin = ToldAdmin()

    async def story() -> Collector:
        made: Any = admin
        async with Collector(made, FakeClock(asyncio.get_running_loop()), ConsoleSettings()) as collector:
            await asyncio.sleep(20)
            admin.fails = True
            await asyncio.sleep(20)
        return collector

    collector = run_virtual(story())

    assert collector.snapshot.problem == "no answer. Check that name server and brokers are running."
    assert collector.snapshot.letters == {"billing": 3}
    assert collector.ring.samples()[-1].put_per_s is None, "a gap, and not 0"


def test_rejections_are_counted_by_cause_and_a_second() -> None:
    admin = ToldAdmin()

    async def story() -> Collector:
        made: Any = admin
        async with Collector(made, FakeClock(asyncio.get_running_loop()), ConsoleSettings()) as collector:
            collector.watched = 1
            await asyncio.sleep(1)
            admin.refused = 10
            await asyncio.sleep(2)
        return collector

    collector = run_virtual(story())

    assert collector.snapshot.rejections == {"NoRight": 10}
    assert collector.ring.samples()[-1].rejected_per_s == 5


def test_before_anything_is_known_lag_is_unknown() -> None:
    assert Snapshot().lag_messages is None
    assert collected(ToldAdmin(), 1).snapshot.lag_messages == 4


def test_a_cluster_without_brokers_does_not_answer() -> None:
    assert Snapshot().problem == "", "no request was made yet"
    assert Snapshot(updated_ms={"brokers": 1}).problem == "No broker is registered at the name servers."
