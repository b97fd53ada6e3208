"""Crashes of a broker with leases, at any operation of the disk: what is acknowledged, what returns, what is lost.

    life: send · pop · ack · change ── operation ── operation ── … every one of them may be the last
                                             └─ crash ─► recover ─► members acknowledge all that comes ─► check
    the next life begins with one of these disks

    flush, crash               acknowledged            not acknowledged
    sync, power loss or kill   never returns           always returns, if the send was answered
    async, kill                never returns           always returns, if the send was answered
    async, power loss          may return              always returns, if the message is still in the log

python -m tests.broker.pop.crashes --states 200      or `make crash`
python -m tests.broker.pop.crashes --seed 7          one seed again, with what the broker logs
"""

import asyncio
import logging
import os
from collections.abc import Coroutine, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random
from time import monotonic
from typing import Any, Final, NamedTuple

import click
from tests.broker.lives import Lives, bodies, in_virtual_time
from tests.broker.pop.pops import Leased, ack, ack_all, change, pop
from tests.broker.running import Client

from pocketmq.codes import ResponseCode
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.store.settings import FlushMode
from pocketmq.testing import FaultyFiles
from pocketmq.testing.disk.model import Survives

LIVES: Final = 2
MOMENTS: Final = 3
"""Of each life, how many are looked at."""
STATES_PER_SEED: Final = LIVES * MOMENTS
QUEUES: Final = 2
DRAIN_S: Final = 30
LIFE_MS: Final = 60_000
"""So much later the next broker starts; a life is shorter."""


class Kind(NamedTuple):
    """How the broker syncs, and how it ends. With `flush_ms`, the log is synced seldom, so that tables may be ahead of it."""

    flush: FlushMode
    survives: tuple[Survives, ...]
    flush_ms: int = 500

    @property
    def is_safe(self) -> bool:
        """Whether an ack that was answered survives."""
        return self.flush is FlushMode.SYNC or self.survives == ("everything",)


KINDS: Final = {
    "sync, power loss": Kind(FlushMode.SYNC, ("everything", "nothing", "any")),
    "async, kill": Kind(FlushMode.ASYNC, ("everything",)),
    "async, power loss": Kind(FlushMode.ASYNC, ("nothing", "any")),
    "seldom, power loss": Kind(FlushMode.ASYNC, ("nothing", "any"), flush_ms=4_000),
}


class Broken(AssertionError):
    """A state in which a rule is broken."""


class History:
    """What clients did, by the number of operations of the disk at that time. -1: before this life."""

    def __init__(self) -> None:
        self.sent: dict[bytes, int] = {}
        """Messages whose send was answered."""
        self.begun: dict[bytes, int] = {}
        """Messages whose ack was sent."""
        self.done: dict[bytes, int] = {}
        """Messages whose ack was answered in the time of their lease."""

    def until(self, position: int) -> "History":
        """What had happened by then; it is the past of the next life."""
        past = History()
        for table, own in ((past.sent, self.sent), (past.begun, self.begun), (past.done, self.done)):
            table.update((body, -1) for body, at in own.items() if at <= position)
        return past


class Life:
    """Members and a producer in one life of a broker."""

    def __init__(self, lives: Lives, history: History, chance: Random, number: int) -> None:
        self._disk = lives.disk
        self._history = history
        self._chance = chance
        self._number = number

    async def live(self, client: Client) -> None:
        chance = self._chance
        for at in range(chance.randrange(4, 16)):
            await self._send(client, b"%d-%d" % (self._number, at), at % QUEUES)
        await asyncio.sleep(chance.choice([0, 4.5]))  # then the messages are safe, whatever follows
        for _ in range(chance.randrange(2, 7)):
            leases = await pop(client, most=chance.randrange(1, 9), invisible_ms=chance.choice([500, 3_000, 9_000]))
            if chance.randrange(4) == 0:
                await self._acknowledge(leases, ack_all(client, leases))
            else:
                for one in leases:
                    await self._handle(client, one)
            await asyncio.sleep(chance.choice([0, 0.05, 0.7, 2.5]))

    async def _send(self, client: Client, body: bytes, queue_id: int) -> None:
        await client.sent(body, queue_id=queue_id)
        self._history.sent[body] = self._disk.position

    async def _handle(self, client: Client, one: Leased) -> None:
        match self._chance.randrange(6):
            case 0:
                await change(client, one, 0)
            case 1:
                longer = await change(client, one, 8_000)
                await self._acknowledge([longer], ack(client, longer))
            case 2:
                pass
            case _:
                await self._acknowledge([one], ack(client, one))

    async def _acknowledge(self, leases: list[Leased], request: Coroutine[Any, Any, Any]) -> None:
        """A late ack is a success too, but its message is on its way to somebody else."""
        if not leases:
            request.close()
            return
        loop, began = asyncio.get_running_loop(), self._disk.position
        shortest_s = min(one.handle.invisible_ms for one in leases) / 1000
        for one in leases:
            self._history.begun.setdefault(one.body, began)
        started = loop.time()
        answer = await request
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        if loop.time() - started < shortest_s / 2 and shortest_s > 1:
            for one in leases:
                self._history.done.setdefault(one.body, self._disk.position)


class Exploration:
    """All states of one seed and one kind of crash."""

    def __init__(self, seed: int, kind: str) -> None:
        self._kind = KINDS[kind]
        self._name = kind
        self._chance = Random(f"{kind} {seed}")
        self._seed = seed
        self._disk: FaultyFiles | None = None
        self._history = History()
        self._where = ""
        self.states = 0

    def explore(self) -> int:
        try:
            for number in range(LIVES):
                self._live(number)
        except Exception as error:
            raise Broken(
                f"{error or type(error).__name__}\n  {self._name}, {self._where}"
                f"\n  again: python -m tests.broker.pop.crashes --seed {self._seed}"
            ) from error
        return self.states

    def _live(self, number: int) -> None:
        self._where = f"life {number}"
        disk, first = self._run(self._life_on(self._disk, number), number)
        for _ in range(MOMENTS):
            position = self._chance.randint(first, disk.position)
            survives = self._chance.choice(self._kind.survives)
            left = disk.state_at(position).crash(Random(self._chance.random()), survives=survives)
            self._where = f"life {number}, {survives} survives operation {position} of {disk.position}"
            found = self._run(self._drained(left.crash(Random(0), survives="everything")), number + 1)
            self._check(found, self._history.until(position))
            self.states += 1
        self._disk, self._history = left, self._history.until(position)

    def _run(self, main: Any, number: int) -> Any:
        """Each run has its own virtual loop; its clock goes on."""

        async def with_clock(lives: Lives) -> Any:
            lives.clock.step_ms(LIFE_MS * number)
            return await main(lives)

        return in_virtual_time(
            with_clock,
            save_interval_ms=700,
            store={"flush": self._kind.flush, "flush_interval_ms": self._kind.flush_ms},
        )

    def _life_on(self, disk: FaultyFiles | None, number: int) -> Any:
        async def main(lives: Lives) -> tuple[FaultyFiles, int]:
            lives.disk = lives.disk if disk is None else disk
            async with lives.broker() as broker:
                broker.parts.state.topics.put([TopicConfig("T", QUEUES, QUEUES)], 0)
                await broker.parts.state.snapshots.save_topics()
                life = Life(lives, self._history, self._chance, number)
                first = lives.disk.position
                await life.live(await lives.client())
            return lives.disk, first

        return main

    def _drained(self, disk: FaultyFiles) -> Any:
        """All messages that the log has after the crash, and all that members get."""

        async def main(lives: Lives) -> tuple[set[bytes], set[bytes]]:
            lives.disk = disk
            got: set[bytes] = set()
            async with lives.broker() as broker:
                stored = {body for queue_id in range(QUEUES) for body in bodies(broker, "T", queue_id)}
                client = await lives.client()
                for _ in range(DRAIN_S):
                    leases = await pop(client, invisible_ms=3_000)
                    got |= {one.body for one in leases}
                    if leases:
                        await ack_all(client, leases)
                    else:
                        await asyncio.sleep(1)
            return stored, got

        return main

    def _check(self, found: tuple[set[bytes], set[bytes]], past: History) -> None:
        stored, got = found
        wrong = got & past.done.keys() if self._kind.is_safe else set()
        if wrong:
            raise Broken(f"returned after the ack: {sorted(wrong)}")
        expected = past.sent.keys() if self._kind.is_safe else stored
        lost = expected - got - past.begun.keys()
        if lost:
            raise Broken(f"lost: {sorted(lost)}; {len(stored)} messages are in the log")


def explore(seed: int) -> int:
    """The number of states. `Broken` names the fault, its moment, and the way to reproduce it."""
    return sum(Exploration(seed, kind).explore() for kind in KINDS)


def explore_quietly(seed: int) -> int:
    logging.getLogger("pocketmq").setLevel(logging.CRITICAL + 1)
    return explore(seed)


def explore_all(seeds: Sequence[int]) -> int:
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return sum(pool.map(explore_quietly, seeds))


@click.command()
@click.option("--states", default=200, show_default=True, help="How many states to look at.")
@click.option("--from", "first", default=0, show_default=True, help="The first seed.")
@click.option("--seed", type=int, help="Explore one seed alone, with what the broker logs.")
def main(states: int, first: int, seed: int | None) -> None:
    """Crash brokers with leases in every way, and check that acks and leases survive as promised."""
    if seed is not None:
        click.echo(f"seed {seed}: {explore(seed)} states, all sound")
        return
    seeds = range(first, first - (-states // (STATES_PER_SEED * len(KINDS))))
    began = monotonic()
    seen = explore_all(seeds)
    click.echo(f"{seen} states of leases of the seeds {first} to {seeds[-1]} in {monotonic() - began:.0f} s, all sound")


if __name__ == "__main__":
    main()
