"""A disk with slow writes: the event loop runs, sends wait or are rejected, and each message is stored completely or not."""

import asyncio
import errno
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

import pytest
from tests.broker.running import Client, RunningBroker, damage, in_virtual_time, offsets_of, running, sending, settled
from tests.broker.turns_kit import Timed, asked, sent, timed

from pocketmq.broker.requests.flow import Cause, Kind
from pocketmq.codes import RequestCode, ResponseCode, SysFlag
from pocketmq.model.retries import retry_after_ms
from pocketmq.protocol.api.administration import ForTopic
from pocketmq.protocol.api.messages import EndTransaction, GetMaxOffset, SendMessageBack
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.bodies.clients import HeartbeatData, ProducerData
from pocketmq.store.log.flushing import LEAST_LONG_SYNC_S, LONG_SYNC_S
from pocketmq.store.log.log_writer import MOST_CALM_S
from pocketmq.store.settings import FlushMode
from pocketmq.testing import FaultyFiles

SLOW = {"slow_write_ms": 0}
"""A thread writes each turn, so that a test may stall it."""
Slow = Callable[[], AbstractAsyncContextManager[RunningBroker]]
DONE, BUSY, ERROR = ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.fixture(params=["a thread always", "a thread where the disk would block"])
def slow(request: pytest.FixtureRequest) -> Slow:
    """A broker whose loop does not wait for a stalled write, not even for the first."""
    if request.param == "a thread always":
        return partial(running, store=SLOW)
    return lambda: running(disk=FaultyFiles(nowait=True))


async def beat(client: Client) -> Timed:
    body = HeartbeatData("client", (ProducerData("PG"),)).encode()
    return await timed(client.ask(RequestCode.HEART_BEAT, body=body))


async def under_way(broker: RunningBroker, client: Client, body: bytes = b"under way") -> "asyncio.Task[Timed]":
    """A send that the stalled disk has."""
    send = sent(client, body)
    await settled()
    assert broker.store.busy_since is not None
    return send


def is_calm(broker: RunningBroker) -> bool:
    """Whether the event loop writes the log."""
    return broker.store._parts.writer.is_calm


def assert_sound(broker: RunningBroker) -> None:
    """The content of the files is complete, as a check of the stopped store would see it."""
    broker.store.tick()
    assert [queue.next_offset - queue.max_offset for queue in broker.store._parts.queues] == [0] * len(
        broker.store._parts.queues
    )


@in_virtual_time
async def test_during_a_stalled_write_everything_except_sends_continues(slow: Slow) -> None:
    async with slow() as broker:
        client, consumer = await broker.connect(), await broker.connect()
        await consumer.beat()
        await client.sent(b"before")
        stall = broker.stall_writes()
        first = await under_way(broker, client)

        waiting = [sent(client, b"late %d" % number) for number in range(3)]
        calm = await asyncio.gather(
            timed(consumer.pull(0)),
            timed(consumer.offset()),
            timed(consumer.commit(1)),
            timed(consumer.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffset("T", 0))),
            beat(consumer),
        )
        assert all(one.seconds < 0.1 and one.code == DONE for one in calm)
        assert offsets_of(calm[0].answer)[2] == 1
        assert (calm[3].answer.ext or {})["offset"] == "1"

        refused = [await one for one in waiting]
        assert [(one.code, one.words) for one in refused] == [(BUSY, "TIMEOUT_CLEAN_QUEUE")] * 3
        assert all(0.2 < one.seconds < 0.23 for one in refused)
        assert "the last write to the log is not finished" in (refused[0].answer.remark or "")
        assert not first.done()
        await asyncio.sleep(3.5)
        assert (await beat(consumer)).seconds < 0.01
        stall.release()

        assert (await first).code == DONE
        assert (await sent(client, b"after")).code == DONE
        assert broker.bodies() == [b"before", b"under way", b"after"]
        await settled()
        assert not broker.turns._has_waiting


@in_virtual_time
async def test_a_second_after_the_start_of_a_write_new_and_waiting_sends_are_rejected(slow: Slow) -> None:
    async with slow() as broker:
        client = await broker.connect()
        await client.sent(b"before")
        stall = broker.stall_writes()
        first = await under_way(broker, client)
        began = asyncio.get_running_loop().time()

        await asyncio.sleep(0.9)
        caught = await sent(client)
        late = [await sent(client) for _ in range(3)]

        assert (caught.code, caught.words) == (BUSY, "PCBUSY_CLEAN_QUEUE")
        assert asyncio.get_running_loop().time() - began < 1.02
        assert [(one.code, one.words, one.seconds < 0.005) for one in late] == [(BUSY, "REJECTREQUEST", True)] * 3
        assert retry_after_ms(late[0].answer.remark) == 500
        stall.release()

        assert (await first).code == DONE
        await settled()
        assert (await sent(client, b"again")).code == DONE
        assert broker.bodies() == [b"before", b"under way", b"again"]
        assert broker.turns.waiting.refused[Kind.SEND, Cause.REJECTED] == 3


@in_virtual_time
async def test_waiting_sends_are_stored_in_order_when_the_write_ends(slow: Slow) -> None:
    async with slow() as broker:
        client, other = await broker.connect(), await broker.connect()
        stall = broker.stall_writes()
        sends = [await under_way(broker, client, b"a0")]
        sends += [sent(client, b"a%d" % number) for number in range(1, 5)]
        sends += [sent(other, b"b%d" % number) for number in range(3)]
        await asyncio.sleep(0.01)
        batch = encode_batch([(0, b"a5", b""), (0, b"a6", b"")])
        sends.append(asked(client, RequestCode.SEND_BATCH_MESSAGE, sending(), batch))
        await asyncio.sleep(0)
        client.tell(RequestCode.SEND_MESSAGE_V2, sending(), b"a7")
        await asyncio.sleep(0.055)
        released = asyncio.get_running_loop().time()
        stall.release()

        assert [(await one).code for one in sends] == [DONE] * 9
        assert asyncio.get_running_loop().time() - released < 0.005
        await settled()
        bodies = broker.bodies()
        assert [body for body in bodies if body.startswith(b"a")] == [b"a%d" % number for number in range(8)]
        assert [body for body in bodies if body.startswith(b"b")] == [b"b%d" % number for number in range(3)]


@in_virtual_time
async def test_acknowledged_messages_are_stored_once_and_rejected_ones_not_at_all() -> None:
    async with running(store=SLOW | {"log_file_bytes": 16_384}) as broker:
        clients = [await broker.connect() for _ in range(4)]
        outcomes: list[tuple[bytes, Timed]] = []

        async def keep_sending(number: int, client: Client) -> None:
            for count in range(60):
                body = (b"%d-%d" % (number, count)).ljust(200, b".")
                outcomes.append((body, await sent(client, body)))
                await asyncio.sleep(0.02 + 0.003 * number)  # so that not all of them are in the turn that stalls

        async def stalling() -> None:
            for seconds in (0.15, 0.4, 1.6):
                with broker.stall_writes():
                    await asyncio.sleep(seconds)
                await asyncio.sleep(0.3)

        await asyncio.gather(stalling(), *(keep_sending(number, client) for number, client in enumerate(clients)))

        stored = broker.bodies()
        acknowledged = [body for body, outcome in outcomes if outcome.code == DONE]
        assert sorted(stored) == sorted(acknowledged)
        assert {one.words for _, one in outcomes if one.code == BUSY} >= {"TIMEOUT_CLEAN_QUEUE", "REJECTREQUEST"}
        for number in range(4):
            own = [body for body in stored if body.startswith(b"%d-" % number)]
            assert own == [body for body in acknowledged if body.startswith(b"%d-" % number)]
        assert_sound(broker)


@in_virtual_time
async def test_a_failed_write_of_the_thread_rolls_back_its_turn_with_an_error_for_each_send(slow: Slow) -> None:
    async with slow() as broker:
        client = await broker.connect()
        await client.sent(b"before")
        stall = broker.stall_writes()
        broker.disk.fail("write", errno.EIO, "*commitlog*")
        first = await under_way(broker, client, b"lost")
        waiting = sent(client, b"waits")
        await settled()
        stall.release()

        failed = await first
        assert (failed.code, "writing to the log" in (failed.answer.remark or "")) == (ERROR, True)
        assert (await waiting).code in (DONE, BUSY, ERROR)
        await asyncio.sleep(1)
        after = await sent(client, b"after")
        assert after.code == DONE
        assert b"lost" not in broker.bodies()
        assert broker.bodies()[0] == b"before"
        assert broker.bodies()[-1] == b"after"
        assert_sound(broker)


@in_virtual_time
async def test_a_full_disk_after_a_stall_refuses_sends_until_it_has_space(slow: Slow) -> None:
    async with slow() as broker:
        client = await broker.connect()
        await client.sent(b"before")
        stall = broker.stall_writes()
        fault = broker.disk.fail("write", errno.ENOSPC, "*commitlog*", times=None)
        first = await under_way(broker, client, b"lost")
        stall.release()
        assert (await first).code == ERROR
        fault.heal()
        await asyncio.sleep(1)

        assert (await sent(client, b"after")).code == DONE
        assert broker.bodies() == [b"before", b"after"]


@in_virtual_time
async def test_a_slow_write_moves_to_a_thread_and_returns_when_the_disk_is_calm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(store={"slow_write_ms": 20}) as broker:
        client = await broker.connect()
        await client.sent(b"quick")
        assert is_calm(broker)
        with caplog.at_level(logging.INFO, "pocketmq.store"):
            broker.clock.skip_delay_s = 0.03
            await client.sent(b"slow")
            broker.clock.skip_delay_s = 0
            assert not is_calm(broker)

            stall = broker.stall_writes()
            first = await under_way(broker, client)
            assert (await beat(client)).seconds < 0.01
            await asyncio.sleep(1.5)
            stall.release()
            assert (await first).code == DONE
            assert not is_calm(broker)
            await asyncio.sleep(MOST_CALM_S)
            await client.sent(b"the first quick one")

        assert is_calm(broker)
        assert "a thread writes the log until the disk has been fast for 0." in caplog.text
        assert "commit log write has taken" in caplog.text
        assert "disk accepts writes again after" in caplog.text
        assert "disk is fast again; the event loop writes the log" in caplog.text


@in_virtual_time
async def test_an_unusually_long_sync_moves_the_next_write_to_a_thread() -> None:
    async with running(store={"slow_write_ms": 20, "flush_interval_ms": 10, "flush_least_pages": 0}) as broker:
        client = await broker.connect()
        with broker.stall_syncs():
            await client.sent(b"first")
            await asyncio.sleep(LEAST_LONG_SYNC_S - 0.1)
            assert is_calm(broker)
            await asyncio.sleep(0.2)
            assert not is_calm(broker)
            with broker.stall_writes():
                first = await under_way(broker, client)
                assert (await beat(client)).seconds < 0.01
        assert (await first).code == DONE


@in_virtual_time
async def test_a_disk_with_long_syncs_is_calm_until_one_takes_a_second() -> None:
    async with running(store={"slow_write_ms": 20, "flush_interval_ms": 10, "flush_least_pages": 0}) as broker:
        client = await broker.connect()
        for number in range(5):
            with broker.stall_syncs():
                await client.sent(b"%d" % number)
                await asyncio.sleep(0.5)
                assert is_calm(broker) is (number > 0)
            await asyncio.sleep(1)
            await client.sent(b"quick")
            await asyncio.sleep(1)
        with broker.stall_syncs():
            await client.sent(b"last")
            await asyncio.sleep(LONG_SYNC_S + 0.1)
            assert not is_calm(broker)


@in_virtual_time
async def test_during_a_stalled_write_to_consume_queues_everything_continues() -> None:
    async with running(store={"slow_write_ms": 20, "queue_least_pages": 0}) as broker:
        client = await broker.connect()
        await client.beat()
        await client.sent(b"before")
        with broker.disk.stall("write", "*consumequeue*", times=None) as stall:
            await asyncio.sleep(0.2)
            stall.wait_until_reached()
            for number in range(30):
                assert all(
                    one.seconds < 0.01 and one.code == DONE
                    for one in await asyncio.gather(
                        sent(client, b"%d" % number), timed(client.pull(0)), timed(client.offset()), beat(client)
                    )
                )
                await asyncio.sleep(0.1)
            assert broker.bodies() == [b"before", *(b"%d" % number for number in range(30))]
            assert not is_calm(broker), "the log may stall next"
        await asyncio.sleep(12)
        await sent(client, b"after")
        assert is_calm(broker)
        assert broker.store.facts.unsaved_queues == 1
        await asyncio.sleep(12)
        assert broker.store.facts.unsaved_queues == 0
        assert_sound(broker)


@in_virtual_time
async def test_synced_sends_are_answered_after_the_write_and_the_sync() -> None:
    async with running(store=SLOW | {"flush": FlushMode.SYNC}) as broker:
        client = await broker.connect()
        await client.sent(b"before")
        stall, syncs = broker.stall_writes(), broker.stall_syncs()
        first = await under_way(broker, client)
        stall.release()
        await asyncio.sleep(0.1)
        assert not first.done()
        assert broker.bodies() == [b"before", b"under way"]
        syncs.release()
        assert (await first).code == DONE


@in_virtual_time
async def test_delayed_messages_and_retries_wait_for_a_slow_disk_without_loss(slow: Slow) -> None:
    async with slow() as broker:
        client = await broker.connect()
        await client.sent(b"failed")
        await client.sent(b"delayed", properties={"DELAY": "1"})
        message = broker.stored()[0]
        back = SendMessageBack(message.log_offset, "G", 1, origin_topic="T")
        await asyncio.sleep(0.9)
        stall = broker.stall_writes()
        sent_back = asked(client, RequestCode.CONSUMER_SEND_MSG_BACK, back)
        await asyncio.sleep(2)
        assert (await beat(client)).seconds < 0.01
        assert not sent_back.done()
        assert broker.bodies() == [b"failed"]
        stall.release()

        assert (await sent_back).code == DONE
        await asyncio.sleep(2.5)
        assert broker.bodies() == [b"failed", b"delayed"]
        assert broker.bodies("%RETRY%G") == [b"failed"]
        assert broker.parts.delays.undeliverable == 0


@in_virtual_time
async def test_a_failed_write_of_the_broker_itself_is_repeated_until_it_succeeds(slow: Slow) -> None:
    async with slow() as broker:
        client = await broker.connect()
        await client.sent(b"delayed", properties={"DELAY": "1"})
        with broker.disk.fail("write", errno.ENOSPC, "*commitlog*", times=None):
            await asyncio.sleep(2)
            assert (await sent(client, b"refused")).code == ERROR
            assert broker.bodies() == []
        await asyncio.sleep(1)

        assert broker.bodies() == [b"delayed"]
        assert (await sent(client, b"after")).code == DONE
        assert broker.bodies() == [b"delayed", b"after"]
        assert_sound(broker)


@in_virtual_time
async def test_a_transaction_is_committed_once_on_a_slow_disk(slow: Slow) -> None:
    async with slow() as broker:
        client = await broker.connect()
        half = await client.sent(
            b"half", properties={"TRAN_MSG": "true", "PGROUP": "PG"}, sys_flag=SysFlag.TRANSACTION_PREPARED
        )
        message = broker.stored("RMQ_SYS_TRANS_HALF_TOPIC")[0]
        decision = EndTransaction("PG", message.queue_offset, message.log_offset, 8, msg_id=(half.ext or {})["msgId"])
        stall = broker.stall_writes()
        decisions = [asked(client, RequestCode.END_TRANSACTION, decision) for _ in range(2)]
        await asyncio.sleep(1.5)
        assert not any(one.done() for one in decisions)
        stall.release()

        assert [(await one).code for one in decisions] == [DONE, DONE]
        assert broker.bodies() == [b"half"]
        assert broker.parts.transactions.decisions.repeated == 1


@in_virtual_time
async def test_a_topic_deleted_during_a_stalled_write_loses_the_messages_of_the_write(slow: Slow) -> None:
    async with slow() as broker:
        client = await broker.connect()
        await client.sent(b"before")
        stall = broker.stall_writes()
        first = await under_way(broker, client)
        deleted = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, ForTopic("T"))
        assert deleted.code == DONE
        stall.release()
        assert (await first).code == DONE
        assert broker.bodies() == []
        await client.sent(b"new")
        assert broker.bodies() == [b"new"]


@in_virtual_time
async def test_stopping_waits_for_the_write_and_answers_its_sends(slow: Slow) -> None:
    async with slow() as broker:
        client = await broker.connect()
        await client.sent(b"before")
        stall = broker.stall_writes()
        first = await under_way(broker, client)
        waiting = sent(client, b"waits")
        await settled()
        stopping = asyncio.ensure_future(broker.broker.stop())
        await asyncio.sleep(broker.broker.settings.drain_s / 2)
        assert (await waiting).code == BUSY
        assert not stopping.done()
        stall.release()
        await stopping

        assert (await first).code == DONE
        assert damage(broker.disk) == []


@in_virtual_time
async def test_the_transient_pool_uses_only_its_own_thread() -> None:
    async with running(store=SLOW | {"transient_pool": True}) as broker:
        client = await broker.connect()
        stall = broker.stall_writes()
        assert (await sent(client, b"acknowledged from memory")).code == DONE
        assert broker.store.busy_since is None
        assert broker.bodies() == []
        stall.release()
        await settled()
        assert broker.bodies() == [b"acknowledged from memory"]
