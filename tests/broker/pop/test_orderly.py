"""Orderly pops: one batch of a queue at a time, in the order of the queue."""

import asyncio

import pytest
from tests.broker.lives import Lives
from tests.broker.lives import in_virtual_time as with_lives
from tests.broker.pop.pops import ack, bodies, change, pop, popping, with_messages
from tests.broker.running import in_virtual_time, running

from pocketmq.broker.groups.orders import OrderInfo, Orders, OrderTable
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.protocol.api.messages import ResetOffset
from pocketmq.protocol.bodies.topics import TopicConfig

QUEUE = "G", "T", 3
NOW = 1_700_000_000_000


@in_virtual_time
async def test_a_batch_blocks_its_queue_until_it_is_acknowledged() -> None:
    async with running() as broker:
        client = await with_messages(broker)
        first = await pop(client, most=2, order=True)
        assert [one.body for one in first] == [b"0", b"1"]
        assert first[0].handle.revive_queue == 999

        assert await bodies(client, order=True) == []
        await ack(client, first[0])
        assert await bodies(client, order=True) == []
        await ack(client, first[1])

        assert await bodies(client, order=True) == [b"2", b"3"]


@in_virtual_time
async def test_an_unacknowledged_batch_comes_again_in_order_with_its_counts() -> None:
    async with running() as broker:
        client = await with_messages(broker, 3)
        first = await pop(client, most=2, order=True, invisible_ms=5_000)
        await ack(client, first[0])

        await asyncio.sleep(5.1)
        answer = await client.ask(RequestCode.POP_MESSAGE, popping(order=True))

        assert answer.ext is not None
        assert answer.ext["msgOffsetInfo"] == "0 0 1,2"
        assert answer.ext["orderCountInfo"] == "0 qo0%1 1;0 0 0"


@in_virtual_time
async def test_the_same_attempt_gets_the_same_messages_without_a_count() -> None:
    async with running() as broker:
        client = await with_messages(broker, 2)
        first = await client.ask(RequestCode.POP_MESSAGE, popping(order=True, attempt_id="one"))
        other = await bodies(client, order=True, attempt_id="two")
        again = await client.ask(RequestCode.POP_MESSAGE, popping(order=True, attempt_id="one"))

        assert other == []
        assert first.body == again.body
        assert again.ext is not None
        assert again.ext["orderCountInfo"] == "0 0 0"


@in_virtual_time
async def test_a_held_pop_gets_the_queue_when_its_batch_is_acknowledged() -> None:
    async with running() as broker:
        client = await with_messages(broker, 2)
        (first,) = await pop(client, most=1, order=True)
        waiting = asyncio.ensure_future(bodies(client, order=True, poll_ms=20_000))
        await asyncio.sleep(1)
        assert not waiting.done()

        await ack(client, first)

        assert await waiting == [b"1"]


@in_virtual_time
async def test_a_held_pop_gets_the_queue_when_the_time_of_its_batch_is_over() -> None:
    async with running() as broker:
        client = await with_messages(broker, 1)
        await pop(client, order=True, invisible_ms=3_000)
        began = asyncio.get_running_loop().time()

        assert await bodies(client, order=True, poll_ms=20_000) == [b"0"]
        assert 2.9 < asyncio.get_running_loop().time() - began < 3.2


@in_virtual_time
async def test_a_changed_time_keeps_the_handle() -> None:
    async with running() as broker:
        client = await with_messages(broker, 1)
        (first,) = await pop(client, order=True, invisible_ms=3_000)
        await asyncio.sleep(2)
        renewed = await change(client, first, 10_000)

        assert renewed.handle.pop_ms == first.handle.pop_ms
        assert 11_990 < renewed.handle.invisible_ms < 12_100
        await asyncio.sleep(5)
        assert await bodies(client, order=True) == []
        await ack(client, renewed)
        assert broker.parts.state.offsets.stored("G", "T", 0) == 1


@in_virtual_time
async def test_acks_of_an_older_batch_change_nothing_and_unknown_offsets_are_refused() -> None:
    async with running() as broker:
        client = await with_messages(broker, 2)
        (old,) = await pop(client, most=1, order=True, invisible_ms=1_000)
        await asyncio.sleep(1.5)
        (new,) = await pop(client, most=1, order=True)

        assert (await ack(client, old)).code == ResponseCode.SUCCESS
        assert broker.parts.state.offsets.stored("G", "T", 0) == 0
        assert (await ack(client, new, offset=1)).code == ResponseCode.MESSAGE_ILLEGAL


@in_virtual_time
async def test_a_reset_ends_the_block() -> None:
    async with running() as broker:
        client = await with_messages(broker, 3)
        first = await pop(client, order=True)
        for one in first[:2]:
            await ack(client, one)

        header = ResetOffset("G", "T", -1, is_force=True, queue_id=0, offset=0)
        answer = await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

        assert answer.code == ResponseCode.SUCCESS
        assert await bodies(client, order=True) == [b"0", b"1", b"2"]


def test_the_last_batch_survives_a_stop() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            broker.parts.state.topics.put([TopicConfig("T", 1, 1)], 0)
            client = await lives.client()
            for body in (b"a", b"b"):
                await client.sent(body)
            first = await pop(client, order=True, invisible_ms=20_000)
            await ack(client, first[0])
        async with lives.broker():
            client = await lives.client()
            assert await bodies(client, order=True) == []
            await ack(client, first[1])
            await client.sent(b"c")
            assert await bodies(client, order=True) == [b"c"]

    with_lives(main)


def test_the_table_of_rocketmq() -> None:
    orders = Orders()
    counts = orders.begin(QUEUE, [100, 101, 103], NOW, 60_000, "att1")

    assert counts == {}
    saved = OrderTable.decode(orders.snapshot_json(NOW))
    assert saved.table == {"T@G": {3: OrderInfo(NOW, 60_000, (100, 1, 3), used_ms=NOW, attempt_id="att1")}}
    assert [orders.acknowledge(QUEUE, offset, NOW, NOW) for offset in (101, 100, 103)] == [100, 103, 104]
    assert orders.acknowledge(QUEUE, 100, NOW - 1, NOW) == -2
    assert orders.acknowledge(QUEUE, 102, NOW, NOW) == -1
    assert orders.begin(QUEUE, [103, 104], NOW + 1, 60_000, "att3") == {103: 1}
    again = Orders()
    again.load(OrderTable.decode(orders.snapshot_json(NOW)))
    assert again.find(QUEUE) == orders.find(QUEUE)
    assert orders.find(QUEUE) == OrderInfo(NOW + 1, 60_000, (103, 1), None, {103: 1}, NOW + 1, 0, "att3")


@pytest.mark.parametrize(("at_ms", "blocked"), [(0, True), (59_999, True), (60_000, False)])
def test_a_block_ends_with_its_time(at_ms: int, blocked: bool) -> None:
    orders = Orders()
    orders.begin(QUEUE, [1], NOW, 60_000, None)

    assert orders.is_blocked(QUEUE, None, NOW + at_ms) is blocked


def test_unused_batches_are_forgotten() -> None:
    orders = Orders()
    orders.begin(QUEUE, [1], NOW, 60_000, None)

    orders.expire(NOW + 24 * 3600 * 1000)
    assert len(orders) == 1
    orders.expire(NOW + 25 * 3600 * 1000)
    assert len(orders) == 0
