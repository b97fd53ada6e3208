"""A SYNC_MASTER answers a send when slaves have it, and says so when they do not."""

import asyncio
from typing import Any

import pytest
from tests.broker.lives import make_topic
from tests.broker.replication.pairs import SLAVE, Pair, fill, linked, rows, with_pair
from tests.broker.running import sending

from pocketmq.broker.replication_settings import ReplicationSettings, Role
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.protocol.api.messages import SendMessageBack
from pocketmq.store.settings import FlushMode

SYNC: dict[str, Any] = {"role": Role.SYNC_MASTER}
FLUSHES = {"flush": FlushMode.SYNC}


@pytest.mark.parametrize("store", [{}, FLUSHES])
def test_an_answered_send_is_on_the_slave(store: dict[str, Any]) -> None:
    async def main(pair: Pair) -> None:
        async with pair.both(**SYNC) as (master, slave):
            make_topic(master)
            client = await pair.client()
            for number in range(30):
                await client.sent(f"{number}".encode())
                assert rows(slave)[-1][1] == f"{number}".encode()
            assert not master.parts.state.replicas._waits

    with_pair(main, store=store)


@pytest.mark.parametrize("store", [{}, FLUSHES])
def test_without_a_slave_a_send_is_stored_and_answered_so(store: dict[str, Any]) -> None:
    async def main(pair: Pair) -> None:
        async with pair.master.broker(**SYNC) as master:
            make_topic(master)
            answer = await (await pair.client()).send(b"x")
            assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert (answer.ext or {})["queueOffset"] == "0"
            assert rows(master) == [(0, b"x")]

    with_pair(main, store=store)


def test_a_slave_that_does_not_answer_is_waited_for_up_to_the_limit() -> None:
    async def main(pair: Pair) -> None:
        async with pair.both(**SYNC) as (master, _):
            make_topic(master)
            client = await pair.client()
            await client.sent()
            pair.network.half_open(SLAVE.host)
            began = asyncio.get_running_loop().time()
            answers = await asyncio.gather(*(client.send(b"x") for _ in range(5)))
            assert {answer.code for answer in answers} == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
            assert 3 <= asyncio.get_running_loop().time() - began < 3.2
            assert not master.parts.state.replicas._waits

    with_pair(main)


def test_a_send_that_waits_for_nothing_is_answered_at_once() -> None:
    async def main(pair: Pair) -> None:
        async with pair.master.broker(**SYNC) as master:
            make_topic(master)
            await (await pair.client()).sent(b"x", properties={"WAIT": "false"})

    with_pair(main)


def test_a_slave_far_behind_does_not_count() -> None:
    async def main(pair: Pair) -> None:
        near = ReplicationSettings(port=10912, max_gap_bytes=10_000)
        async with pair.both(**SYNC, replication=near) as (master, _):
            make_topic(master)
            client = await pair.client()
            await client.sent()
            pair.network.half_open(SLAVE.host)
            codes = [(await client.send(bytes(4_000))).code for _ in range(4)]
            assert codes[0] == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert codes[-1] == ResponseCode.SLAVE_NOT_AVAILABLE

    with_pair(main)


def test_three_replicas_need_two_slaves() -> None:
    async def main(pair: Pair) -> None:
        three = ReplicationSettings(port=10912, in_sync_replicas=3)
        async with pair.both(**SYNC, replication=three) as (master, _):
            make_topic(master)
            assert (await (await pair.client()).send()).code == ResponseCode.SLAVE_NOT_AVAILABLE

    with_pair(main)


def test_many_connections_share_the_reports() -> None:
    async def main(pair: Pair) -> None:
        async with pair.both(**SYNC) as (master, slave):
            make_topic(master)
            clients = [await pair.client() for _ in range(10)]
            await asyncio.gather(*(fill(client, 10, size=100) for client in clients))
            assert len(rows(slave)) == len(rows(master)) == 100

    with_pair(main)


def test_messages_of_the_broker_itself_are_waited_for() -> None:
    async def main(pair: Pair) -> None:
        async with pair.master.broker(**SYNC) as master:
            make_topic(master)
            client = await pair.client()
            await client.beat("G")
            await client.sent(b"x", properties={"WAIT": "false"})
            header = SendMessageBack(0, "G", 0, origin_msg_id="x", origin_topic="T")
            answer = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
            assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
            batch = await client.ask(RequestCode.SEND_MESSAGE_V2, sending(), b"y")
            assert batch.code == ResponseCode.SLAVE_NOT_AVAILABLE
            await linked(master, 0)

    with_pair(main)
