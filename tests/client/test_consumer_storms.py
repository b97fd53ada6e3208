"""Random failures: members join, leave and disconnect, brokers restart, connections break, while messages are sent.
Seeded.

Whatever happens, every message that was stored is handled, and in ordered queues in its order, by one listener at a time.
"""

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest
from tests.client.real_cluster import RealCluster, real_cluster, until

from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
from pocketmq.errors import PocketMQError
from pocketmq.model.message import Message, StoredMessage
from pocketmq.testing import Weather, run

MESSAGES = 300
BROKERS = ("broker-a", "broker-b")
ROUGH = Weather(delay_s=(0.0002, 0.05), segment_bytes=(200, 1 << 14), window_bytes=1 << 18)


class Storm:
    """The sent and the handled messages, and the random failures of both."""

    def __init__(self, c: RealCluster, seed: int, *, ordered: bool) -> None:
        self.c = c
        self.dice = random.Random(seed)
        self.ordered = ordered
        self.sent: set[bytes] = set()
        self.handled: dict[tuple[bytes, int], list[int]] = defaultdict(list)
        self.seen: set[bytes] = set()
        self.busy: set[tuple[bytes, int]] = set()
        self.crowded = False
        self.members: dict[str, AsyncPushConsumer] = {}
        self._hosts = iter(range(1, 100))

    async def handle(self, message: StoredMessage) -> None:
        place = (message.store_host.ip, message.queue_id)
        self.crowded = self.crowded or place in self.busy
        self.busy.add(place)
        try:
            await asyncio.sleep(self.dice.uniform(0, 0.1))
        finally:
            self.busy.discard(place)
        self.handled[place].append(message.queue_offset)
        self.seen.add(message.body)

    async def send(self) -> None:
        """Messages that a broker acknowledges are sent; failed ones may be stored or not."""
        async with self.c.producer(send_timeout_ms=2_000) as producer:
            for number in range(MESSAGES):
                try:
                    await producer.send(Message("T", b"%d" % number))
                except PocketMQError:
                    continue
                finally:
                    await asyncio.sleep(self.dice.uniform(0, 0.4))
                self.sent.add(b"%d" % number)

    async def rage(self) -> None:
        actions = [self.join, self.join, self.leave, self.cut_off, self.cut, self.restart]
        await self.join()
        for _ in range(14):
            await asyncio.sleep(self.dice.uniform(0, 10))
            await self.dice.choice(actions)()

    async def join(self) -> None:
        if len(self.members) < 4:
            host = f"10.0.2.{next(self._hosts)}"
            member = self.c.push_consumer(start_at="first", host=host, ordered=self.ordered, max_queue_messages=20)
            member.on("T")(self.handle)
            await member.start()
            self.members[host] = member

    async def leave(self) -> None:
        if len(self.members) > 1:
            _, member = self.members.popitem()
            await member.stop()

    async def cut_off(self) -> None:
        """Longer than the lease of a lock, or than brokers wait for a client."""
        host = self.dice.choice([*self.members])
        for broker in BROKERS:
            self.c.network.partition(host, self.c.place(broker))
        await asyncio.sleep(self.dice.choice([5, 40, 150]))
        self.c.network.heal()

    async def cut(self) -> None:
        self.c.network.cut(self.c.place(self.dice.choice(BROKERS)))

    async def restart(self) -> None:
        name = self.dice.choice(BROKERS)
        await self.c.brokers[name].stop()
        await asyncio.sleep(self.dice.uniform(0, 20))
        await self.c.start_broker(name)

    async def end(self) -> None:
        for member in self.members.values():
            await member.stop()


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
@pytest.mark.parametrize("seed", range(3))
def test_random_failures_of_consumers_lose_no_message(seed: int, ordered: bool) -> None:
    async def main() -> None:
        async with real_cluster(*BROKERS, queues=3, seed=seed, weather=ROUGH) as c:
            storm = Storm(c, seed, ordered=ordered)
            sending = asyncio.create_task(storm.send())
            await storm.rage()
            await sending
            await until(lambda: storm.sent <= storm.seen, timeout_s=600)
            await storm.end()

            assert len(storm.sent) > MESSAGES / 2
            if ordered:
                assert not storm.crowded, "two listeners worked on one queue"
                for offsets in storm.handled.values():
                    first_time: list[Any] = list(dict.fromkeys(offsets))
                    assert first_time == sorted(first_time)

    run(main(), seed=seed)
