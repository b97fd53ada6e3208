"""Members of a simple consumer group that come, stall and die at random, in virtual time. A book of all leases and acks
shows whether a message was lost, leased to two members at once, or delivered again after its ack.
"""

import asyncio
import random
from collections import Counter, defaultdict
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import pytest
from tests.client.real_cluster import RealCluster, real_cluster

from pocketmq.client import AsyncSimpleConsumer
from pocketmq.errors import LeaseLost, PocketMQError
from pocketmq.model import Message, StoredMessage
from pocketmq.testing import Weather, run

MESSAGES = 400
INVISIBLE_S = 8.0
ROUGH = Weather(delay_s=(0.0005, 0.3), segment_bytes=(200, 1 << 16), window_bytes=1 << 20)


class Held(NamedTuple):
    member: int
    since: float
    until: float


class Book:
    """What the members did with each message, by body."""

    def __init__(self) -> None:
        self.leases: dict[bytes, list[Held]] = defaultdict(list)
        self.acked: Counter[bytes] = Counter()
        self.doubtful: set[bytes] = set()
        """Their ack failed; the broker may have it."""

    def ended(self, body: bytes, member: int, at: float) -> None:
        """An ack ended the last lease of this member, which may have been extended several times."""
        leases = self.leases[body]
        last = max(place for place, held in enumerate(leases) if held.member == member)
        leases[last] = leases[last]._replace(until=at)

    def check(self, bodies: set[bytes]) -> None:
        assert self.leases.keys() == bodies
        assert self.acked.keys() | self.doubtful == bodies
        assert max(self.acked.values()) == 1
        for body, leases in self.leases.items():
            for one, following in pairwise(leases):
                assert following.since >= one.until, (body, leases)


class Member:
    """One member: receives, works for a while, and acknowledges what it can."""

    def __init__(self, cluster: RealCluster, book: Book, number: int, dice: random.Random) -> None:
        self._cluster = cluster
        self._book = book
        self._number = number
        self._dice = dice
        self._host = f"10.0.2.{number + 1}"
        self._renews = dice.random() < 0.5

    async def live(self) -> None:
        """Until it is cancelled: it is killed then, without a word to the broker."""
        consumer = self._cluster.simple_consumer(
            start_at="first", host=self._host, invisible_ms=int(INVISIBLE_S * 1000), auto_renew=self._renews
        )
        await consumer.start()
        try:
            await consumer.subscribe("T")
            while True:
                await self._work(consumer)
        finally:
            self._cluster.network.cut(self._host)
            await consumer.stop()

    async def _work(self, consumer: AsyncSimpleConsumer) -> None:
        loop = self._cluster.loop
        began = loop.time()
        messages: list[StoredMessage] = []
        with suppress(PocketMQError):
            messages = await consumer.receive(self._dice.randint(1, 32), wait_s=0)
        for message in messages:
            self._book.leases[message.body].append(Held(self._number, loop.time(), began + INVISIBLE_S))
        await asyncio.sleep(self._dice.choice([0.01, 1, 5, 2 * INVISIBLE_S if self._dice.random() < 0.2 else 0.1]))
        while messages:
            some = [messages.pop() for _ in range(min(len(messages), self._dice.randint(1, 8)))]
            await self._acknowledge(consumer, some)

    async def _acknowledge(self, consumer: AsyncSimpleConsumer, messages: list[StoredMessage]) -> None:
        lost: tuple[str, ...] = ()
        try:
            await consumer.ack(messages)
        except LeaseLost as error:
            lost = error.message_ids
        except (PocketMQError, asyncio.CancelledError):
            self._book.doubtful.update(message.body for message in messages)
            raise
        for message in messages:
            if message.message_id in lost:
                self._book.doubtful.add(message.body)
            else:
                self._book.acked[message.body] += 1
                self._book.ended(message.body, self._number, self._cluster.loop.time())


async def storm(seed: int) -> None:
    dice = random.Random(seed)
    book = Book()
    async with real_cluster("broker-a", "broker-b", seed=seed, weather=ROUGH) as c:
        async with c.producer() as producer:
            bodies = {b"%04d" % number for number in range(MESSAGES)}
            await asyncio.gather(*(producer.send(Message("T", body)) for body in bodies))
        living = [asyncio.create_task(Member(c, book, number, dice).live()) for number in range(6)]
        for number in range(6, 16):
            await asyncio.sleep(dice.uniform(0, 6))
            victim = living.pop(dice.randrange(len(living)))
            victim.cancel()
            await asyncio.gather(victim, return_exceptions=True)
            living.append(asyncio.create_task(Member(c, book, number, dice).live()))
        await asyncio.sleep(300)
        for task in living:
            task.cancel()
        await asyncio.gather(*living, return_exceptions=True)

    book.check(bodies)
    assert max(map(len, book.leases.values())) > 1, "no lease ended without an ack"


@pytest.mark.parametrize("seed", range(4))
def test_every_message_is_acknowledged_once_and_leased_to_one_member_at_a_time(seed: int) -> None:
    run(storm(seed), seed=seed)
