"""A pop leases messages; an ack ends the lease, and without one they return."""

import asyncio

import pytest
from tests.broker.pop.pops import ack, ack_all, bodies, change, pop, popping
from tests.broker.running import in_virtual_time, running

from pocketmq.codes import RequestCode, ResponseCode


@in_virtual_time
async def test_a_pop_returns_messages_and_hides_them() -> None:
    async with running() as broker:
        broker.make_topic(queues=1)
        client = await broker.connect()
        for body in (b"a", b"b", b"c"):
            await client.sent(body)

        first = await pop(client, most=2)

        assert [one.body for one in first] == [b"a", b"b"]
        assert await bodies(client) == [b"c"]
        assert await bodies(client) == []


@in_virtual_time
async def test_the_answer_has_the_fields_of_rocketmq() -> None:
    async with running() as broker:
        broker.make_topic(queues=2)
        client = await broker.connect()
        for queue_id in (0, 0, 1):
            await client.sent(queue_id=queue_id)

        answer = await client.ask(RequestCode.POP_MESSAGE, popping(most=2, queue_id=0))
        rest = await client.ask(RequestCode.POP_MESSAGE, popping())

        assert answer.remark == "FOUND"
        assert answer.ext is not None
        assert answer.ext["startOffsetInfo"] == "0 0 0"
        assert answer.ext["msgOffsetInfo"] == "0 0 0,1"
        assert (answer.ext["restNum"], answer.ext["invisibleTime"]) == ("0", "60000")
        assert rest.ext is not None
        assert (rest.ext["startOffsetInfo"], rest.ext["msgOffsetInfo"]) == ("0 1 0", "0 1 0")


@in_virtual_time
async def test_messages_without_ack_return() -> None:
    async with running() as broker:
        broker.make_topic(queues=1)
        client = await broker.connect()
        for body in (b"a", b"b", b"c"):
            await client.sent(body)
        first = await pop(client, invisible_ms=10_000)
        await ack(client, first[1])

        await asyncio.sleep(9.9)
        assert await bodies(client) == []
        await asyncio.sleep(0.3)
        second = await pop(client)

        assert sorted(one.body for one in second) == [b"a", b"c"]
        assert [one.message.reconsume_times for one in second] == [1, 1]
        assert [one.topic for one in second] == ["%RETRY%G_T", "%RETRY%G_T"]
        assert second[0].message.properties["1ST_POP_TIME"] == str(first[0].handle.pop_ms)


@in_virtual_time
async def test_acknowledged_messages_never_return() -> None:
    async with running() as broker:
        broker.make_topic(queues=3)
        client = await broker.connect()
        for number in range(30):
            await client.sent(b"%d" % number, queue_id=number % 3)
        leases = await pop(client, invisible_ms=5_000)
        assert len(leases) == 30

        for one in leases[:10]:
            assert (await ack(client, one)).code == ResponseCode.SUCCESS
        assert (await ack_all(client, leases[10:])).code == ResponseCode.SUCCESS
        await asyncio.sleep(60)

        assert await bodies(client) == []
        assert len(broker.parts.state.leases) == 0
        assert not broker.parts.state.leases.in_flight
        # the timer dropped their records, and none is in the revive topic
        assert not broker.parts.state.leases._settled
        assert sum(broker.store.max_offset("rmq_sys_REVIVE_LOG_DefaultCluster", queue_id) for queue_id in range(8)) == 0
        assert broker.parts.state.offsets.stored("G", "T", 0) == 10


@in_virtual_time
async def test_a_changed_lease_lasts_from_the_change_on() -> None:
    async with running() as broker:
        broker.make_topic(queues=1)
        client = await broker.connect()
        for body in (b"a", b"b"):
            await client.sent(body)
        leases = await pop(client, invisible_ms=10_000)
        await asyncio.sleep(8)
        renewed = await change(client, leases[0], 10_000)

        await asyncio.sleep(5)
        assert await bodies(client) == [b"b"]
        await asyncio.sleep(4.5)
        assert await bodies(client) == []
        await asyncio.sleep(1)
        (again,) = await pop(client)

        assert (again.body, again.message.reconsume_times) == (b"a", 1)
        assert (await ack(client, renewed)).code == ResponseCode.SUCCESS
        assert (await ack(client, again)).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_a_lease_of_no_time_ends_at_once() -> None:
    async with running() as broker:
        broker.make_topic(queues=1)
        client = await broker.connect()
        await client.sent(b"a")
        (first,) = await pop(client)
        await change(client, first, 0)

        await asyncio.sleep(0.3)

        assert await bodies(client) == [b"a"]


@in_virtual_time
async def test_after_the_last_attempt_a_message_is_a_dead_letter() -> None:
    async with running() as broker:
        broker.make_topic(queues=1)
        client = await broker.connect()
        await client.sent(b"a", properties={"TAGS": "tag", "user": "x"})
        seen = []
        for _ in range(20):
            leases = await pop(client, invisible_ms=1_000)
            seen += [one.message.reconsume_times for one in leases]
            await asyncio.sleep(3)

        assert seen == list(range(17))
        (dead,) = broker.stored("%DLQ%G")
        assert (dead.body, dead.tags, dead.properties["user"], dead.reconsume_times) == (b"a", "tag", "x", 17)
        assert dead.properties["RETRY_TOPIC"] == "T"


@in_virtual_time
async def test_a_held_pop_gets_the_first_message() -> None:
    async with running() as broker:
        broker.make_topic(queues=4)
        client, producer = await broker.connect(), await broker.connect()
        waiting = asyncio.ensure_future(pop(client, poll_ms=15_000))
        await asyncio.sleep(3)
        assert len(broker.parts.state.waiting_pops) == 1

        await producer.sent(b"a", queue_id=2)

        assert [one.body for one in await waiting] == [b"a"]
        assert len(broker.parts.state.waiting_pops) == 0


@in_virtual_time
async def test_a_held_pop_is_answered_before_its_time_is_over() -> None:
    async with running() as broker:
        broker.make_topic()
        client = await broker.connect()
        loop = asyncio.get_running_loop()
        began = loop.time()

        answer = await client.ask(RequestCode.POP_MESSAGE, popping(poll_ms=15_000))

        assert answer.code == ResponseCode.POLLING_TIMEOUT
        numbers = {"popTime": "0", "invisibleTime": "60000", "reviveQid": "0", "restNum": "0"}
        assert answer.ext == {**numbers, "startOffsetInfo": "", "msgOffsetInfo": ""}
        assert loop.time() - began == pytest.approx(14.95, abs=0.02)


@in_virtual_time
async def test_one_message_wakes_one_pop() -> None:
    async with running() as broker:
        broker.make_topic(queues=1)
        client = await broker.connect()
        waiting = [asyncio.ensure_future(pop(client, poll_ms=20_000)) for _ in range(3)]
        await asyncio.sleep(1)

        await client.sent(b"a")
        await asyncio.sleep(1)

        assert [one.done() for one in waiting] == [True, False, False]
        await client.sent(b"b")
        await client.sent(b"c")
        assert [[one.body for one in await leases] for leases in waiting] == [[b"a"], [b"b"], [b"c"]]
