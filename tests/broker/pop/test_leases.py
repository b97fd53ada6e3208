"""Leases beyond memory, steps of the clock, retry topics, and what ends with a topic or a group."""

import asyncio

import pytest
from tests.broker.lives import Lives, make_topic
from tests.broker.lives import in_virtual_time as lives_in_virtual_time
from tests.broker.pop.pops import ack, ack_all, bodies, change, pop, with_messages
from tests.broker.running import in_virtual_time, running

from pocketmq.broker.settings import PopSettings
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.protocol.api.administration import DeleteGroup, ForTopic

HOUR_MS = 3_600_000


@in_virtual_time
async def test_leases_beyond_the_limit_are_found_in_the_log() -> None:
    async with running(pop=PopSettings(max_leases=1)) as broker:
        client = await with_messages(broker, 6)
        leases = [one for _ in range(3) for one in await pop(client, most=2, invisible_ms=5_000)]
        assert len(broker.parts.state.leases) == 1
        assert broker.parts.state.leases.untracked == 2

        await ack(client, leases[2])
        renewed = await change(client, leases[3], 20_000)
        await ack_all(client, leases[4:])
        await asyncio.sleep(9)

        assert sorted(await bodies(client)) == [b"0", b"1"]
        await ack(client, renewed)
        await asyncio.sleep(100)
        assert sorted(await bodies(client)) == [b"0", b"1"]


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
@in_virtual_time
async def test_a_lease_lasts_its_time_whatever_the_wall_clock_does(step_ms: int) -> None:
    async with running() as broker:
        client = await with_messages(broker, 2)
        leases = await pop(client, invisible_ms=20_000)
        await asyncio.sleep(5)

        broker.clock.step_ms(step_ms)
        await asyncio.sleep(10)
        assert await bodies(client) == []
        await ack(client, leases[0])
        await asyncio.sleep(5.5)

        assert await bodies(client) == [b"1"]


@in_virtual_time
async def test_messages_return_in_the_newer_retry_topic_and_the_older_one_is_read_too() -> None:
    async with running() as broker:
        client = await with_messages(broker, 2)
        await pop(client, most=1, invisible_ms=1_000)
        await asyncio.sleep(1.2)
        broker.change(pop=PopSettings(retry_topic_v2=True, retry_percent=0))
        await pop(client, most=1, queue_id=0, invisible_ms=1_000)
        await asyncio.sleep(3)

        found: dict[bytes, str] = {}
        for _ in range(40):
            for one in await pop(client):
                found[one.body] = one.topic
                await ack(client, one)

        assert set(found) == {b"0", b"1"}
        assert broker.parts.state.topics.get("%RETRY%G+T") is not None
        assert set(found.values()) == {"%RETRY%G+T", "%RETRY%G_T"}


@in_virtual_time
async def test_so_many_pops_of_a_hundred_read_retries_first() -> None:
    async with running(pop=PopSettings(retry_percent=100)) as broker:
        client = await with_messages(broker, 2)
        await pop(client, most=1, invisible_ms=1_000)
        await asyncio.sleep(1.2)

        assert await bodies(client, most=1) == [b"0"]
        broker.change(pop=PopSettings(retry_percent=0))
        await pop(client, most=1, invisible_ms=1_000)
        await client.sent(b"new")
        await asyncio.sleep(1.2)
        assert await bodies(client, most=1) == [b"new"]


@in_virtual_time
async def test_a_queue_with_too_many_messages_in_flight_waits() -> None:
    async with running(pop=PopSettings(limits_in_flight=True, max_in_flight=2)) as broker:
        client = await with_messages(broker, 4)
        leases = await pop(client, most=2)

        assert await bodies(client) == []
        await ack(client, leases[0])
        assert await bodies(client) == [b"2", b"3"]


@in_virtual_time
async def test_a_deleted_topic_ends_its_leases_and_its_retries() -> None:
    async with running() as broker:
        client = await with_messages(broker, 3)
        await pop(client, most=2, invisible_ms=1_000)
        await asyncio.sleep(1.5)
        leases = await pop(client, invisible_ms=5_000)
        assert len(leases) == 3

        answer = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, ForTopic("T"))
        broker.make_topic(queues=1)
        await client.sent(b"new")

        assert answer.code == ResponseCode.SUCCESS
        assert "%RETRY%G_T" not in broker.parts.state.topics
        assert await bodies(client) == [b"new"]
        await asyncio.sleep(100)
        assert await bodies(client) == [b"new"]


@in_virtual_time
async def test_a_topic_that_is_created_again_has_no_leases_of_the_deleted_one() -> None:
    async with running() as broker:
        client = await with_messages(broker, 3)
        await pop(client, invisible_ms=5_000)

        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, ForTopic("T"))
        client = await with_messages(broker, 3)
        await ack_all(client, await pop(client))
        await asyncio.sleep(20)

        assert await bodies(client) == []
        assert "%RETRY%G_T" not in broker.parts.state.topics


def test_leases_of_a_deleted_topic_end_over_a_restart_too() -> None:
    """Their check points were stored before its new messages."""

    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker, queues=1)
            client = await lives.client()
            await client.sent(b"old")
            await pop(client, invisible_ms=9_000)
            await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, ForTopic("T"))
        async with lives.broker() as broker:
            await asyncio.sleep(2)
            make_topic(broker, queues=1)
            client = await lives.client()
            await client.sent(b"new")
            await ack_all(client, await pop(client))
            await asyncio.sleep(20)

            assert await bodies(client) == []

    lives_in_virtual_time(main)


@in_virtual_time
async def test_a_deleted_group_gets_nothing_back() -> None:
    async with running() as broker:
        client = await with_messages(broker, 2)
        await pop(client, invisible_ms=3_000)

        await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroup("G", clean_offset=True))
        await asyncio.sleep(10)

        assert len(broker.parts.state.leases) == 0
        assert "%RETRY%G_T" not in broker.parts.state.topics
        assert await bodies(client) == [b"0", b"1"]


@in_virtual_time
async def test_a_group_changes_from_pulls_to_pops_and_back() -> None:
    async with running() as broker:
        client = await with_messages(broker, 6)
        await client.pull(0, most=2)
        await client.commit(2)

        leases = await pop(client, most=2)
        await ack_all(client, leases)
        await asyncio.sleep(1)
        stored = await client.offset()

        assert [one.body for one in leases] == [b"2", b"3"]
        assert stored.ext == {"offset": "4"}
        await client.commit(5)
        assert await bodies(client) == [b"5"]


@in_virtual_time
async def test_a_message_with_the_longest_properties_returns() -> None:
    async with running(store={"max_message_bytes": 64 * 1024, "log_file_bytes": 1 << 20}) as broker:
        broker.make_topic(queues=1)
        client = await broker.connect()
        await client.sent(b"long", properties={"user": "x" * 32_600})
        await client.sent(b"short")
        await pop(client, invisible_ms=1_000)

        await asyncio.sleep(2)

        assert sorted(await bodies(client)) == [b"long", b"short"]


@in_virtual_time
async def test_a_lease_that_cannot_be_ended_does_not_block_others() -> None:
    async with running(max_retry_topics=1) as broker:
        client = await with_messages(broker, 1)
        await client.sent(b"x", topic="T")
        await pop(client, group="A", invisible_ms=1_000)
        await asyncio.sleep(2)
        assert sorted(await bodies(client, group="A")) == [b"0", b"x"]

        await pop(client, group="B", invisible_ms=1_000)
        await asyncio.sleep(1)
        await pop(client, group="A", invisible_ms=1_000)
        broker.parts.state.topics.apply(broker.broker.settings, 0)
        await asyncio.sleep(3)
        assert broker.parts.revival.postponed > 0
        broker.parts.state.topics._max_retry_topics = 10
        await asyncio.sleep(11)

        assert sorted(await bodies(client, group="B")) == [b"0", b"x"]


@in_virtual_time
async def test_the_timer_keeps_nothing_of_leases_that_are_acknowledged_at_once() -> None:
    """Neither for their time, nor when waiting records are stored again before they are deleted."""
    async with running(store={"retention_hours": 1}) as broker:
        client = await with_messages(broker, 3)
        done = await pop(client, invisible_ms=3 * HOUR_MS, most=2)
        (left,) = await pop(client, invisible_ms=3 * HOUR_MS)
        await ack_all(client, done)
        await asyncio.sleep(1)

        assert len(broker.parts.timers) == 1
        await asyncio.sleep(3_000)
        assert broker.parts.timers.rolled == 1
        assert len(broker.parts.timers) == 1
        client = await broker.connect()
        assert (await ack(client, left)).code == ResponseCode.SUCCESS
        await asyncio.sleep(8_000)
        assert len(broker.parts.timers) == 0
        assert await bodies(await broker.connect()) == []
