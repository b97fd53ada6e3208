"""A stalled disk: which requests wait, which are answered with "broker busy", and what happens afterwards."""

import asyncio

import pytest
from tests.broker.running import (
    STALLING,
    Client,
    RunningBroker,
    in_virtual_time,
    offsets_of,
    running,
    sending,
    settled,
)
from tests.broker.turns_kit import Timed, asked, sent, timed

from pocketmq.broker.requests.flow import Cause, Kind
from pocketmq.codes import RequestCode, ResponseCode, SysFlag
from pocketmq.model.retries import retry_after_ms
from pocketmq.protocol.api.messages import EndTransaction, GetMaxOffset, SendMessageBack
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.bodies.clients import HeartbeatData, ProducerData

pytestmark = pytest.mark.usefixtures("twin")
BUSY, DONE = ResponseCode.SYSTEM_BUSY, ResponseCode.SUCCESS
SEND = RequestCode.SEND_MESSAGE_V2
HALF_FIELDS = {"TRAN_MSG": "true", "PGROUP": "PG"}


async def until_busy(broker: RunningBroker, client: Client) -> int:
    """Send until the log accepts no more; the sync that would help must be stalled. Returns the number of stored
    messages.
    """
    stored = 0
    while broker.turns.gate.is_open:
        stored += (await timed(client.send(b"x" * 600))).code == DONE
    return stored


@in_virtual_time
async def test_a_stalled_disk_stops_sends_but_neither_heartbeats_nor_pulls() -> None:
    async with running(store=STALLING) as broker:
        client, consumer = await broker.connect(), await broker.connect()
        await consumer.beat()
        stall = broker.stall_syncs()
        acknowledged = await until_busy(broker, client)
        assert acknowledged

        waiting = [sent(client, b"late %d" % number) for number in range(3)]
        calm = await asyncio.gather(
            timed(consumer.pull(0)),
            timed(consumer.offset()),
            timed(consumer.commit(1)),
            timed(consumer.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffset("T", 0))),
        )
        await timed_beats(consumer)
        assert all(one.seconds < 0.1 and one.code == DONE for one in calm)
        assert offsets_of(calm[0].answer)[2] == acknowledged

        refused = [await one for one in waiting]
        assert [one.code for one in refused] == [BUSY] * 3
        assert all(0.2 < one.seconds < 0.23 for one in refused)
        stall.release()
        await asyncio.sleep(0.05)
        after = [await sent(client, b"after %d" % number) for number in range(3)]

        assert [one.code for one in after] == [DONE] * 3
        assert broker.bodies()[acknowledged:] == [b"after 0", b"after 1", b"after 2"]
        assert not broker.turns._has_waiting


async def timed_beats(client: Client) -> None:
    beat = HeartbeatData("client", (ProducerData("PG"),)).encode()
    for binary in (False, True):
        answer = await timed(client.ask(RequestCode.HEART_BEAT, body=beat, binary=binary))
        assert (answer.code, answer.seconds < 0.1) == (DONE, True)


@in_virtual_time
async def test_a_refusal_has_the_cause_the_waiting_time_and_the_retry_time() -> None:
    async with running(store=STALLING) as broker:
        client = await broker.connect()
        with broker.stall_syncs():
            await until_busy(broker, client)
            first, second = await asyncio.gather(sent(client), sent(client, binary=True))

        for one, size in ((first, 2), (second, 1)):
            remark = one.answer.remark or ""
            assert remark.startswith(
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 2"
            )
            assert f"ms, size of queue: {size}, cause: " in remark
            assert "bytes are not synced to disk yet; the limit is max_unsynced_bytes" in remark
            assert retry_after_ms(remark) == 100
            assert one.answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert broker.turns.waiting.refused[Kind.SEND, Cause.TIMEOUT] >= 2


@in_virtual_time
async def test_after_a_second_new_and_waiting_sends_are_refused() -> None:
    async with running(store=STALLING) as broker:
        client = await broker.connect()
        stall = broker.stall_syncs()
        acknowledged = await until_busy(broker, client)
        busy_since = (
            asyncio.get_running_loop().time() - broker.turns.gate.busy_ms(asyncio.get_running_loop().time()) / 1000
        )

        await asyncio.sleep(busy_since + 0.9 - asyncio.get_running_loop().time())
        caught = await sent(client)
        late = [await sent(client) for _ in range(3)]

        assert (caught.code, caught.words) == (BUSY, "PCBUSY_CLEAN_QUEUE")
        assert 0.08 < caught.seconds < 0.13
        assert [(one.code, one.words) for one in late] == [(BUSY, "REJECTREQUEST")] * 3
        assert all(one.seconds < 0.005 for one in late)
        assert retry_after_ms(caught.answer.remark) == retry_after_ms(late[0].answer.remark) == 500
        assert "max_unsynced_bytes for 10" in (late[0].answer.remark or "")

        stall.release()
        await asyncio.sleep(0.05)
        assert (await sent(client, b"again")).code == DONE
        assert len(broker.stored()) == acknowledged + 1


@in_virtual_time
async def test_acknowledged_messages_are_stored_once_and_refused_ones_not_at_all() -> None:
    async with running(store=STALLING) as broker:
        clients = [await broker.connect() for _ in range(4)]
        outcomes: list[tuple[bytes, Timed]] = []

        async def keep_sending(number: int, client: Client) -> None:
            for count in range(60):
                body = b"%d-%d" % (number, count)
                outcomes.append((body.ljust(200, b"."), await sent(client, body.ljust(200, b"."))))
                await asyncio.sleep(0.02)

        async def stalling() -> None:
            for seconds in (0.15, 0.4, 1.6):
                with broker.stall_syncs():
                    await asyncio.sleep(seconds)
                await asyncio.sleep(0.3)

        await asyncio.gather(stalling(), *(keep_sending(number, client) for number, client in enumerate(clients)))

        stored = broker.bodies()
        acknowledged = [body for body, outcome in outcomes if outcome.code == DONE]
        assert sorted(stored) == sorted(acknowledged)
        assert len(set(stored)) == len(stored)
        assert {outcome.words for _, outcome in outcomes if outcome.code == BUSY} >= {
            "TIMEOUT_CLEAN_QUEUE",
            "REJECTREQUEST",
        }
        for number in range(4):
            own = [body for body in stored if body.startswith(b"%d-" % number)]
            assert own == [body for body in acknowledged if body.startswith(b"%d-" % number)]


@in_virtual_time
async def test_waiting_pipelined_sends_are_stored_in_order() -> None:
    async with running(store=STALLING) as broker:
        client, other = await broker.connect(), await broker.connect()
        stall = broker.stall_syncs()
        before = await until_busy(broker, client)

        sends = [sent(client, b"a%d" % number) for number in range(5)]
        await asyncio.sleep(0.01)
        sends += [sent(other, b"b%d" % number) for number in range(3)]
        await asyncio.sleep(0.01)
        batch = asked(
            client, RequestCode.SEND_BATCH_MESSAGE, sending(), encode_batch([(0, b"a5", b""), (0, b"a6", b"")])
        )
        await asyncio.sleep(0)
        client.tell(SEND, sending(), b"a7")
        await asyncio.sleep(0.05)
        stall.release()

        assert [(await one).code for one in [*sends, batch]] == [DONE] * 9
        await settled()
        bodies = broker.bodies()[before:]
        assert [body for body in bodies if body.startswith(b"a")] == [b"a%d" % number for number in range(8)]
        assert [body for body in bodies if body.startswith(b"b")] == [b"b%d" % number for number in range(3)]


@in_virtual_time
async def test_the_log_is_checked_without_any_send() -> None:
    async with running(store=STALLING) as broker:
        client = await broker.connect()
        stall = broker.stall_syncs()
        await until_busy(broker, client)
        await asyncio.sleep(5)
        assert broker.turns.gate.busy_ms(asyncio.get_running_loop().time()) > 4_900
        stall.release()
        await asyncio.sleep(0.05)

        assert broker.turns.gate.is_open
        assert not broker.turns._has_waiting
        assert (await sent(client)).seconds < 0.01


@in_virtual_time
async def test_a_decision_about_a_transaction_may_wait_longer_than_a_send() -> None:
    async with running(store=STALLING) as broker:
        client = await broker.connect()
        half = await client.sent(b"half", properties=HALF_FIELDS, sys_flag=SysFlag.TRANSACTION_PREPARED)
        message = broker.stored("RMQ_SYS_TRANS_HALF_TOPIC")[0]
        stall = broker.stall_syncs()
        await until_busy(broker, client)

        decision = EndTransaction(
            producer_group="PG",
            tran_state_table_offset=message.queue_offset,
            commit_log_offset=message.log_offset,
            commit_or_rollback=8,
            msg_id=(half.ext or {})["msgId"],
        )
        answer = asked(client, RequestCode.END_TRANSACTION, decision)
        await asyncio.sleep(1.5)
        assert not answer.done()
        stall.release()

        assert (await answer).code == DONE
        assert broker.bodies()[-1] == b"half"


@in_virtual_time
async def test_a_decision_that_waits_too_long_is_refused() -> None:
    async with running(store=STALLING) as broker:
        client = await broker.connect()
        with broker.stall_syncs():
            await until_busy(broker, client)
            answer = await asked(client, RequestCode.END_TRANSACTION, EndTransaction("PG", 0, 0, 8, msg_id="x"))

        assert (answer.code, answer.words) == (BUSY, "TIMEOUT_CLEAN_QUEUE")
        assert 3.0 < answer.seconds < 3.05


@in_virtual_time
async def test_a_message_that_is_sent_back_waits_for_the_log_like_a_send() -> None:
    async with running(store=STALLING) as broker:
        client = await broker.connect()
        await client.sent(b"failed")
        stall = broker.stall_syncs()
        await until_busy(broker, client)
        back = SendMessageBack(0, "G", 0, origin_topic="T")

        refused = await asked(client, RequestCode.CONSUMER_SEND_MSG_BACK, back)
        in_time = asked(client, RequestCode.CONSUMER_SEND_MSG_BACK, back)
        await asyncio.sleep(0.05)
        stall.release()

        assert (refused.code, refused.words) == (BUSY, "TIMEOUT_CLEAN_QUEUE")
        assert (await in_time).code == DONE


@in_virtual_time
async def test_any_request_that_first_finds_the_log_busy_waits() -> None:
    async with running(store=STALLING) as broker:
        client = await broker.connect()
        await client.sent(b"failed")
        stall = broker.stall_syncs()
        client.tell(SEND, sending(), b"x" * 1_200)
        await asyncio.sleep(0.05)
        assert broker.turns.gate.is_open

        back = asked(client, RequestCode.CONSUMER_SEND_MSG_BACK, SendMessageBack(0, "G", 0, origin_topic="T"))
        await asyncio.sleep(0.05)
        assert not back.done()
        stall.release()

        assert (await back).code == DONE


@in_virtual_time
async def test_without_a_prepared_file_sends_wait_until_there_is_one() -> None:
    async with running(store={"log_file_bytes": 16_384, "prepared_files": 1}) as broker:
        client = await broker.connect()
        await client.sent()
        with broker.disk.stall("create", "*commitlog*"):
            outcomes = [await sent(client, b"x" * 7_000) for _ in range(5)]
            waiting = sent(client, b"y" * 7_000)
            await asyncio.sleep(0.1)
            assert not waiting.done()
        assert (await waiting).code == DONE

        refused = [one for one in outcomes if one.code == BUSY]
        assert refused
        assert "still being created" in (refused[0].answer.remark or "")
        assert len(broker.stored()) == 1 + len(outcomes) - len(refused) + 1


@in_virtual_time
async def test_an_empty_pool_refuses_at_once_and_acknowledged_messages_are_kept() -> None:
    pool = {"transient_pool": True, "pool_buffers": 4, "pool_buffer_bytes": 4_096}
    async with running(store=pool) as broker:
        client, consumer = await broker.connect(), await broker.connect()
        await client.sent(b"0")
        await settled()
        stall = broker.disk.stall("write", "*commitlog*")

        outcomes = [(number, await sent(client, b"%d" % number + b"." * 2_000)) for number in range(1, 15)]
        read = await timed(consumer.pull(0))
        small = await sent(client, b"small")

        refused = [one for _, one in outcomes if one.code == BUSY]
        assert 4 < len(refused) < 10
        assert {one.words for one in refused} == {"REJECTREQUEST"}
        assert all(one.seconds < 0.005 for _, one in outcomes)
        assert "the transient pool has" in (refused[0].answer.remark or "")
        assert retry_after_ms(refused[0].answer.remark) == 500
        assert (read.code, read.seconds < 0.1) == (DONE, True)
        assert small.code == DONE

        stall.release()
        await asyncio.sleep(0.05)
        assert (await sent(client, b"again")).code == DONE
        await settled()
        acknowledged = [b"%d" % number + b"." * 2_000 for number, one in outcomes if one.code == DONE]
        assert broker.bodies() == [b"0", *acknowledged, b"small", b"again"]


@in_virtual_time
async def test_stopping_refuses_waiting_requests() -> None:
    async with running(store=STALLING | {"close_timeout_ms": 60_000}) as broker:
        client = await broker.connect()
        stall = broker.stall_syncs()
        acknowledged = await until_busy(broker, client)
        waiting = sent(client)
        await settled()

        stall.release()
        broker.turns.stop()

        refused = await waiting
        assert (refused.code, refused.words) == (BUSY, "REJECTREQUEST")
        assert "the broker is shutting down" in (refused.answer.remark or "")
        assert len(broker.stored()) == acknowledged
