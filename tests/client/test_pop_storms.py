"""Push consumers that pop, and come, fail, stall and die at random, in virtual time. No listener is called with a message
whose lease is over, or of which another member holds a valid lease; no message is lost.
"""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from tests.client.real_cluster import RealCluster, real_cluster, until

from pocketmq.client import AsyncPushConsumer
from pocketmq.model import Message, StoredMessage
from pocketmq.testing import Weather, run

MESSAGES = 300
MEMBERS = 5
MAX_TIMES = 4
ROUGH = Weather(delay_s=(0.0005, 0.3), segment_bytes=(200, 1 << 16), window_bytes=1 << 20)


class Book:
    """Which member runs which message, and how the calls ended."""

    def __init__(self) -> None:
        self.running: dict[bytes, dict[int, tuple[Any, StoredMessage]]] = {}
        self.overlaps: list[tuple[bytes, int, int]] = []
        self.handled: Counter[bytes] = Counter()
        self.failed: Counter[bytes] = Counter()

    def begins(self, member: int, leases: Any, message: StoredMessage) -> None:
        if not leases.holds(message):
            self.overlaps.append((message.body, member, member))
        others = self.running.setdefault(message.body, {})
        for other, (held, theirs) in others.items():
            if other != member and held.holds(theirs):
                self.overlaps.append((message.body, other, member))
        others[member] = leases, message

    def ends(self, member: int, message: StoredMessage, *, well: bool) -> None:
        self.running[message.body].pop(member, None)
        (self.handled if well else self.failed)[message.body] += 1


async def live(c: RealCluster, book: Book, number: int, dice: random.Random, *, ordered: bool) -> None:
    """Until it is cancelled: the member dies then, without a word to the broker; its running calls end with it."""
    host = f"10.0.2.{number + 1}"
    special: dict[str, Any] = {"suspend_ms": 500} if ordered else {"max_reconsume_times": MAX_TIMES}
    consumer = c.push_consumer(
        mode="pop",
        ordered=ordered,
        start_at="first",
        host=host,
        pop_invisible_ms=5_000,
        workers=4,
        stop_timeout_ms=100,
        **special,
    )

    async def listen(message: StoredMessage) -> bool:
        leases = consumer._member._parts.leases
        book.begins(number, leases, message)
        await asyncio.sleep(dice.choice([0.0, 0.1, 1.0, 12.0 if dice.random() < 0.1 else 0.3]))
        well = dice.random() < 0.85
        book.ends(number, message, well=well)
        return well

    consumer.on("T")(listen)
    try:
        await consumer.start()
        while True:
            await asyncio.sleep(dice.uniform(5, 30))
            if dice.random() < 0.3:
                c.network.half_open(host)  # the member stalls: its leases end while its listeners run
            else:
                c.network.cut(host)
    finally:
        await die(c, book, number, consumer, host)


async def die(c: RealCluster, book: Book, number: int, consumer: AsyncPushConsumer, host: str) -> None:
    for running in book.running.values():
        running.pop(number, None)
    c.network.cut(host)
    c.network.refuse(host)
    for broker in c.brokers:
        c.network.partition(host, c.place(broker))
    await consumer.stop()


async def storm(seed: int, *, ordered: bool) -> None:
    dice = random.Random(seed)
    book = Book()
    async with real_cluster("broker-a", "broker-b", queues=3, seed=seed, weather=ROUGH) as c:
        bodies = {b"%04d" % number for number in range(MESSAGES)}
        async with c.producer() as producer:
            await asyncio.gather(*(producer.send(Message("T", body)) for body in bodies))
        living = [asyncio.create_task(live(c, book, number, dice, ordered=ordered)) for number in range(MEMBERS)]
        for number in range(MEMBERS, 2 * MEMBERS):
            await asyncio.sleep(dice.uniform(0, 15))
            victim = living.pop(dice.randrange(len(living)))
            victim.cancel()
            await asyncio.gather(victim, return_exceptions=True)
            living.append(asyncio.create_task(live(c, book, number, dice, ordered=ordered)))

        def is_done() -> bool:
            dead = {letter.body for name in c.brokers for letter in c.stored("%DLQ%G", broker=name)}
            assert not any(task.done() for task in living)
            return book.handled.keys() | dead == bodies

        await until(is_done, 3600)
        dead = {letter.body for name in c.brokers for letter in c.stored("%DLQ%G", broker=name)}
        for task in living:
            task.cancel()
        await asyncio.gather(*living, return_exceptions=True)

    assert book.overlaps == []
    assert book.handled.keys() | dead == bodies


@pytest.mark.parametrize("ordered", [False, True], ids=["any order", "ordered"])
@pytest.mark.parametrize("seed", range(3))
def test_no_message_is_lost_or_runs_while_another_member_holds_its_lease(seed: int, ordered: bool) -> None:
    run(storm(seed, ordered=ordered), seed=seed)
