"""Leases over a crash: what is acknowledged never returns, and what is not always does."""

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest
from tests.broker.lives import Lives, in_virtual_time
from tests.broker.pop.crashes import KINDS, STATES_PER_SEED, Broken, Exploration, History
from tests.broker.pop.pops import Leased, ack, ack_all, change, pop
from tests.broker.running import Client

from pocketmq.codes import ResponseCode
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.pop import REVIVE_GROUP, revive_topic
from pocketmq.store.settings import FlushMode
from pocketmq.testing.disk.model import Survives

SYNC = {"store": {"flush": FlushMode.SYNC}}
POWER_LOSSES: tuple[Survives, ...] = ("everything", "nothing", "any")
KILLS: tuple[Survives, ...] = ("everything",)


class Members:
    """What members did: each message that they acknowledged, and all that were sent."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.wrong: list[bytes] = []
        """Messages that returned although they were acknowledged."""

    def got(self, leases: list[Leased]) -> list[Leased]:
        self.wrong += [one.body for one in leases if one.body in self.acknowledged]
        return leases

    async def acknowledge(self, client: Client, one: Leased, ends_at: float) -> None:
        """A late ack is a success too, but its message is on its way to somebody else."""
        answer = await ack(client, one)
        if answer.code == ResponseCode.SUCCESS and asyncio.get_running_loop().time() < ends_at:
            self.acknowledged.add(one.body)

    async def drain(self, client: Client, seconds: float) -> None:
        """Acknowledge everything that comes for a while."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            leases = self.got(await pop(client, invisible_ms=3_000))
            if leases:
                await ack_all(client, leases)
                self.acknowledged |= {one.body for one in leases}
            await asyncio.sleep(0.5)


async def life(
    lives: Lives, members: Members, chance: Random, number: int, survives: tuple[Survives, ...] = POWER_LOSSES
) -> None:
    """Send, pop, acknowledge some, change some, and crash at any moment."""
    async with lives.broker() as broker:
        broker.parts.state.topics.put([TopicConfig("T", 2, 2)], 0)
        await broker.parts.state.snapshots.save_topics()
        client = await lives.client()
        for at in range(chance.randrange(4, 12)):
            body = b"%d-%d" % (number, at)
            await client.sent(body, queue_id=at % 2)
            members.sent.add(body)
        for _ in range(chance.randrange(1, 6)):
            invisible_ms = chance.choice([500, 3_000, 9_000])
            ends_at = asyncio.get_running_loop().time() + invisible_ms / 1000
            leases = members.got(await pop(client, most=chance.randrange(1, 8), invisible_ms=invisible_ms))
            for one in leases:
                match chance.randrange(5):
                    case 0:
                        await change(client, one, 0)
                    case 1:
                        await members.acknowledge(client, await change(client, one, 8_000), ends_at)
                    case 2:
                        pass
                    case _:
                        await members.acknowledge(client, one, ends_at)
            await asyncio.sleep(chance.choice([0, 0.05, 0.7, 2.5]))
        lives.crash(chance.choice(survives), seed=chance.randrange(1_000))


@pytest.mark.parametrize("seed", range(6))
def test_with_sync_flush_an_ack_is_final_and_a_lease_returns(seed: int) -> None:
    async def main(lives: Lives) -> None:
        chance, members = Random(seed), Members()
        for number in range(4):
            await life(lives, members, chance, number)
        async with lives.broker():
            await members.drain(await lives.client(), 40)

        assert members.wrong == []
        assert members.sent - members.acknowledged == set()

    in_virtual_time(main, **SYNC)


@pytest.mark.parametrize("seed", range(2))
def test_with_async_flush_a_killed_broker_loses_nothing(seed: int) -> None:
    async def main(lives: Lives) -> None:
        chance, members = Random(seed), Members()
        for number in range(3):
            await life(lives, members, chance, number, KILLS)
        async with lives.broker():
            await members.drain(await lives.client(), 40)

        assert members.wrong == []
        assert members.sent - members.acknowledged == set()

    in_virtual_time(main)


@pytest.mark.parametrize("kind", KINDS)
def test_leases_and_acks_survive_a_crash_at_any_operation(kind: str, twin: str) -> None:
    """`make crash` looks at hundreds of states."""
    assert sum(Exploration(seed, kind).explore() for seed in range(2)) == 2 * STATES_PER_SEED


def test_the_exploration_finds_a_lost_message_and_an_ack_that_did_not_survive() -> None:
    exploration, past = Exploration(0, "sync, power loss"), History()
    past.sent |= {b"a": 5, b"b": 9, b"c": 9}
    past.begun |= {b"a": 6, b"b": 10}
    past.done |= {b"a": 7, b"b": 20}
    exploration._check(({b"a", b"b", b"c"}, {b"b", b"c"}), past.until(9))

    with pytest.raises(Broken, match=r"lost: \[b'b', b'c'\]"):
        exploration._check(({b"a", b"b", b"c"}, set()), past.until(9))
    with pytest.raises(Broken, match=r"returned after the ack: \[b'a'\]"):
        exploration._check((set(), {b"a", b"b", b"c"}), past.until(9))


def test_leases_continue_after_a_stop() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            broker.parts.state.topics.put([TopicConfig("T", 1, 1)], 0)
            client = await lives.client()
            for body in (b"a", b"b", b"c"):
                await client.sent(body)
            first = await pop(client, invisible_ms=20_000)
            await ack(client, first[0])
        async with lives.broker():
            client = await lives.client()
            await ack(client, first[1])
            assert await pop(client) == []
            await asyncio.sleep(18)
            assert await pop(client) == []
            await asyncio.sleep(6)
            (again,) = await pop(client)

        assert (again.body, again.message.reconsume_times) == (b"c", 1)

    in_virtual_time(main)


def test_a_position_that_was_not_saved_is_in_the_check_points() -> None:
    async def main(lives: Lives) -> Counter[bytes]:
        seen: Counter[bytes] = Counter()
        async with lives.broker() as broker:
            broker.parts.state.topics.put([TopicConfig("T", 1, 1)], 0)
            await broker.parts.state.snapshots.save_topics()
            client = await lives.client()
            for number in range(20):
                await client.sent(b"%d" % number)
            for _ in range(5):
                leases = await pop(client, most=4)
                seen.update(one.body for one in leases)
                await ack_all(client, leases)
            lives.crash("nothing")
        async with lives.broker():
            client = await lives.client()
            await asyncio.sleep(100)
            seen.update(one.body for one in await pop(client))
        return seen

    settings: dict[str, Any] = SYNC
    assert set(in_virtual_time(main, **settings).values()) == {1}


def test_check_points_that_another_broker_has_done_are_not_done_again() -> None:
    """Apache's broker writes no ack when it has done a check point: only its offset says so."""

    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            broker.parts.state.topics.put([TopicConfig("T", 1, 1)], 0)
            client = await lives.client()
            await client.sent(b"a")
            (first,) = await pop(client, invisible_ms=500)
            queue = REVIVE_GROUP, revive_topic("DefaultCluster"), first.handle.revive_queue
            assert broker.parts.state.store.max_offset(*queue[1:]) == 1
            broker.parts.state.offsets.commit(*queue, 0)
        async with lives.broker() as broker:
            await asyncio.sleep(10)
            assert await pop(await lives.client()) == []
            assert broker.parts.revival.revived == 0

    in_virtual_time(main)
