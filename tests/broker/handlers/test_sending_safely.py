"""When a send is answered: with a failing disk, slow syncs and lost connections."""

import asyncio
import errno
from random import Random
from typing import Any

import pytest
from tests.broker.running import (
    STALLING,
    Client,
    RunningBroker,
    in_virtual_time,
    running,
    sending,
    settled,
)

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.command import Command
from pocketmq.store.settings import FlushMode
from pocketmq.testing import FaultyFiles

pytestmark = pytest.mark.usefixtures("twin")
IN_EVERY_ANSWER = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def batch(*bodies: bytes, properties: str = "UNIQ_KEY\x01I\x02") -> bytes:
    return encode_batch((0, body, properties.encode()) for body in bodies)


def fields_of(answer: Command) -> dict[str, str]:
    return answer.ext or {}


V1, V2 = RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2


def nothing(_: RunningBroker) -> None:
    """The broker is as it is."""


GOOD = batch(b"first", b"second")


# a disk that does not take it


@in_virtual_time
async def test_a_failed_write_is_reported_to_all_sends_of_its_turn_and_later_ones_work() -> None:
    async with running() as broker:
        client, other = await broker.connect(), await broker.connect()
        await client.sent(b"0")
        fault = broker.disk.fail("write", errno.EIO, "*commitlog*")

        lost = await asyncio.gather(
            client.send(b"lost"),
            client.send(b"lost", binary=True),
            client.send(b"lost", queue_id=1),
            client.ask(RequestCode.SEND_BATCH_MESSAGE, sending(), GOOD),
        )
        await asyncio.sleep(0.1)
        answers = await asyncio.gather(client.sent(b"1"), other.sent(b"2"))

        assert fault.hits == 1
        assert [answer.code for answer in lost] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 4
        assert all(fields_of(answer) == IN_EVERY_ANSWER for answer in lost)
        assert broker.bodies() == [b"0", b"1", b"2"]
        assert broker.bodies("T", 1) == []
        assert [fields_of(answer)["queueOffset"] for answer in answers] == ["1", "2"]
        assert broker.parts.state.stats.failed_puts >= 3


@in_virtual_time
async def test_one_way_sends_of_a_turn_that_fails_are_not_answered() -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent(b"0")
        broker.disk.fail("write", errno.EIO, "*commitlog*")

        client.tell(V2, sending(), b"lost")
        await asyncio.sleep(0.1)
        await client.sent(b"1")

        assert broker.bodies() == [b"0", b"1"]
        assert client.peer.unmatched == 0


@in_virtual_time
async def test_a_full_disk_refuses_sends_until_it_has_space() -> None:
    disk = FaultyFiles()
    async with running(disk=disk) as broker:
        client = await broker.connect()
        await client.sent(b"0")
        fault = disk.fail("write", errno.ENOSPC, "*commitlog*", times=None)

        refused = await client.send(b"lost")
        fault.heal()
        await asyncio.sleep(1)
        await client.sent(b"1")

        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.bodies() == [b"0", b"1"]


@in_virtual_time
async def test_after_a_failed_sync_no_send_is_acknowledged() -> None:
    async with running(store={"flush": FlushMode.SYNC}) as broker:
        client = await broker.connect()
        broker.disk.fail("sync", errno.EIO, "*commitlog*", times=None)

        doubtful = await client.send(b"0")
        refused = await client.send(b"1")

        assert doubtful.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "restart" in (refused.remark or "")
        with pytest.raises(Exception, match="sync"):
            broker.store.close()


# safe before it is answered


def synced(**settings: Any) -> dict[str, Any]:
    return {"flush": FlushMode.SYNC, **settings}


async def answered_after(client: Client, **fields: Any) -> tuple[float, int]:
    """The duration of a send, in seconds, and its code."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await client.send(**fields)
    return round(loop.time() - began, 2), answer.code


@in_virtual_time
async def test_a_send_is_answered_after_its_sync_unless_it_does_not_wait() -> None:
    async with running(store=synced()) as broker:
        client = await broker.connect()
        await client.sent()
        stall = broker.stall_syncs()

        sends = asyncio.gather(
            answered_after(client),
            answered_after(client, properties={"WAIT": "true"}),
            answered_after(client, properties={"WAIT": "false"}),
            answered_after(client, properties={"AWAIT": "false"}),
            answered_after(client, properties={"note": "WAIT"}),
            answered_after(client, topic="New", properties={"AWAIT": "false"}),
            answered_after(client, topic="Newer", properties={"WAIT": "false"}),
        )
        await asyncio.sleep(1)
        assert len(broker.stored()) == 6
        stall.release()

        assert await sends == [(1, 0), (1, 0), (0, 0), (1, 0), (1, 0), (1, 0), (0, 0)]


@in_virtual_time
async def test_a_batch_waits_for_the_disk_as_its_header_says() -> None:
    async with running(store=synced()) as broker:
        client = await broker.connect()
        await client.sent()
        stall = broker.stall_syncs()

        waits = asyncio.ensure_future(client.ask(RequestCode.SEND_BATCH_MESSAGE, sending(), GOOD))
        header = sending(properties={"WAIT": "false"})
        quick = await client.ask(RequestCode.SEND_BATCH_MESSAGE, header, GOOD)

        assert quick.code == ResponseCode.SUCCESS
        assert not waits.done()
        stall.release()
        assert (await waits).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_a_send_without_a_timely_sync_gets_the_timeout_and_its_position() -> None:
    async with running(store=synced(sync_timeout_ms=5_000)) as broker:
        client = await broker.connect()
        await client.sent()
        stall = broker.stall_syncs()
        began = asyncio.get_running_loop().time()

        answer = await client.send(b"late", key="K7")
        took = asyncio.get_running_loop().time() - began
        stall.release()

        assert took == pytest.approx(5, abs=0.05)
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert fields_of(answer) == IN_EVERY_ANSWER | {
            "msgId": broker.stored()[1].offset_id,
            "queueId": "0",
            "queueOffset": "1",
            "transactionId": "K7",
        }
        assert (await client.sent(b"next")).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_one_sync_covers_all_turns_that_arrived_during_the_previous_one() -> None:
    async with running(store=synced()) as broker:
        clients = [await broker.connect() for _ in range(5)]
        await clients[0].sent()
        stall = broker.stall_syncs()

        first = asyncio.ensure_future(clients[0].sent())
        await asyncio.sleep(0.1)
        rest = asyncio.gather(*(client.sent() for client in clients for _ in range(20)))
        await asyncio.sleep(0.1)
        stall.release()
        others = broker.stall_syncs()
        await first
        others.wait_until_reached(1)
        others.release()
        await rest

        assert others.hits == 1
        assert len(broker.stored()) == 102


@in_virtual_time
async def test_a_message_acknowledged_after_its_sync_survives_a_power_loss() -> None:
    async with running(store=synced()) as broker:
        client = await broker.connect()
        for number in range(5):
            await client.sent(b"%d" % number)

        lost = broker.disk.crash(Random(1), survives="nothing")

    async with running(disk=lost) as again:
        assert again.bodies() == [b"0", b"1", b"2", b"3", b"4"]


# lines that are gone


@in_virtual_time
async def test_a_waiting_send_of_a_closed_connection_is_removed() -> None:
    async with running(store=STALLING) as broker:
        client, other = await broker.connect(), await broker.connect("10.2.0.2")
        await client.sent()
        with broker.stall_syncs():
            client.tell(V2, sending(), b"x" * 1_000)
            await asyncio.sleep(0.1)
            other.tell(V2, sending(), b"from one that is gone")
            await settled()
            other.peer.connection.abort()
            await settled()
            assert len(broker.stored()) == 2
        await asyncio.sleep(0.1)

        assert broker.bodies()[2:] == [b"from one that is gone"]
        assert str(broker.stored()[-1].born_host).startswith("10.2.0.2:")
        assert list(map(str, broker.parts.sending._hosts)) == [f"<Peer {client.peer.connection.own_address}>"]
