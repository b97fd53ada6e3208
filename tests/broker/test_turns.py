"""Turns and flow control: what one read asks for, and what happens when there is more to do than can be done.

The whole broker is there, in virtual time: clients over a network in memory, and a disk that stalls when it is told to.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, NamedTuple

import pytest
from tests.broker.running import (
    STALLING,
    Client,
    RunningBroker,
    in_virtual_time,
    offsets_of,
    pulling,
    request,
    running,
    sending,
    settled,
)

from pocketmq.broker.flow import Cause, Kind
from pocketmq.broker.settings import FlowSettings
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import ConnectionLost
from pocketmq.model.flags import SysFlag
from pocketmq.model.retry_after import retry_after_ms
from pocketmq.model.subscription import Subscription
from pocketmq.net.line import Ending
from pocketmq.protocol.api.offsets import GetMaxOffset, QueryConsumerOffset
from pocketmq.protocol.api.sending import SendMessageBack
from pocketmq.protocol.api.transactions import EndTransaction
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.bodies.heartbeat import HeartbeatData, ProducerData
from pocketmq.protocol.command import RESPONSE, Command, encode_command
from pocketmq.protocol.heads import QueryOffsetHead
from pocketmq.protocol.java_json import write_body

pytestmark = pytest.mark.usefixtures("twin")

BUSY, DONE = ResponseCode.SYSTEM_BUSY, ResponseCode.SUCCESS
SEND = RequestCode.SEND_MESSAGE_V2
PATIENT = FlowSettings(turn_budget_ms=20, send_wait_ms=60_000, pull_wait_ms=60_000)
"""Nobody is refused for having waited, whatever the clock of a test does."""
HALF_FIELDS = {"TRAN_MSG": "true", "PGROUP": "PG"}


class Timed(NamedTuple):
    """An answer and when it came, in seconds after it was asked for."""

    seconds: float
    answer: Command

    @property
    def code(self) -> int:
        return self.answer.code

    @property
    def words(self) -> str:
        """The word in brackets by which clients know a refusal."""
        return (self.answer.remark or "").partition("]")[0].lstrip("[")


async def timed(asked: Awaitable[Command]) -> Timed:
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await asked
    return Timed(round(loop.time() - began, 3), answer)


def asked(client: Client, *args: Any, **fields: Any) -> "asyncio.Task[Timed]":
    """A request under way."""
    return asyncio.ensure_future(timed(client.ask(*args, **fields)))


def sent(client: Client, body: bytes = b"body", **fields: Any) -> "asyncio.Task[Timed]":
    """A send under way."""
    return asyncio.ensure_future(timed(client.send(body, **fields)))


def log_writes(broker: RunningBroker) -> int:
    return sum(one.kind == "write" and "commitlog" in one.path for one in broker.disk.operations)


async def until_busy(broker: RunningBroker, client: Client) -> int:
    """Send until the log takes no more; the sync that would help must be stalled. How many were stored."""
    stored = 0
    while broker.turns.gate.is_open:
        stored += (await timed(client.send(b"x" * 600))).code == DONE
    return stored


# one turn


@in_virtual_time
async def test_all_sends_of_one_read_are_written_at_once_and_answered_in_one_piece() -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent()
        writes, pieces = log_writes(broker), len(broker.network.log)

        answers = await asyncio.gather(*(client.sent(b"%d" % number, queue_id=number % 4) for number in range(50)))

        assert log_writes(broker) == writes + 1
        assert len(broker.network.log) <= pieces + 4
        assert len({(answer.ext or {})["msgId"] for answer in answers}) == 50
        assert sum(len(broker.bodies("T", queue_id)) for queue_id in range(4)) == 51


@in_virtual_time
async def test_a_request_that_is_not_a_send_finds_what_was_sent_before_it_in_the_same_turn() -> None:
    async with running() as broker:
        client = await broker.connect()

        *_, largest, _ = await asyncio.gather(
            client.sent(b"1"),
            client.sent(b"2"),
            client.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffset("T", 0)),
            client.sent(b"3"),
        )

        assert (largest.ext or {})["offset"] == "2"
        assert broker.bodies() == [b"1", b"2", b"3"]


@in_virtual_time
async def test_requests_of_all_kinds_are_answered_each_by_its_own_number() -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.beat("G", Subscription("T"), Subscription("%RETRY%G"))
        await client.sent(b"0")
        beat = write_body(HeartbeatData("client", (ProducerData("PG"),)))
        code = RequestCode

        answers = await asyncio.gather(
            client.send(b"1"),
            client.pull(0),
            client.ask(code.HEART_BEAT, body=beat),
            client.ask(code.HEART_BEAT, body=beat, binary=True),
            client.ask(9999),
            client.offset(),
            client.ask(code.SEND_BATCH_MESSAGE, sending(), encode_batch([(0, b"2", b"")])),
            client.commit(1),
            client.send(topic="bad*topic"),
            client.ask(code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="G"),
        )

        assert [answer.code for answer in answers] == [0, 0, 0, 0, 3, 0, 0, 0, 29, 0]
        assert broker.bodies() == [b"0", b"1", b"2"]
        assert client.peer.unmatched == 0


@in_virtual_time
async def test_a_response_that_looks_like_a_send_is_none() -> None:
    async with running() as broker:
        client = await broker.connect()
        command = request(SEND, sending(), b"body")
        command.flag = RESPONSE

        client.peer.line.write(encode_command(command))
        await client.sent(b"real")

        assert broker.bodies() == [b"real"]


@pytest.mark.parametrize("rubbish", [b"\x00\x00\x00\x06\x00\x00\x00\x02{]", b"\x00\x00\x00\x05\x07\x00\x00\x01x"])
@in_virtual_time
async def test_rubbish_ends_the_line_but_what_came_before_it_is_stored_and_answered(rubbish: bytes) -> None:
    async with running() as broker:
        client, other = await broker.connect(), await broker.connect()

        first = sent(client, b"before")
        await asyncio.sleep(0)
        client.peer.line.write(rubbish)
        lost = sent(client, b"after")

        assert (await first).code == DONE
        with pytest.raises(ConnectionLost):
            await lost
        assert broker.bodies() == [b"before"]
        assert broker.broker.counters.protocol_errors == 1
        assert (await sent(other, b"other")).code == DONE


def fail_inside(*_: object) -> bytes:
    raise KeyError("oops")


@in_virtual_time
async def test_what_goes_wrong_inside_is_answered_and_logged_and_hurts_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent(b"0")
        broker.turns._serve[QueryOffsetHead] = fail_inside

        with caplog.at_level(logging.ERROR, "pocketmq.broker"):
            one, wrong, two = await asyncio.gather(client.send(b"1"), client.offset(), client.send(b"2"))

        assert (one.code, wrong.code, two.code) == (DONE, ResponseCode.SYSTEM_ERROR, DONE)
        assert "KeyError" in (wrong.remark or "")
        assert "request 14 failed" in caplog.text
        assert broker.bodies() == [b"0", b"1", b"2"]


@in_virtual_time
async def test_a_send_that_was_refused_does_not_stop_the_clock_of_those_after_it() -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent()

        assert (await client.send(properties="UNIQ_KEY\x01K\x02a\x01" + "\0" * 2_000)).code in (DONE, 13)
        assert (await client.send(born_ms=2**63 - 1, reconsume_times=-(2**31))).code == DONE
        broken = await client.send(b"x" * 9_000)
        await asyncio.sleep(60)
        await client.sent(b"last")

        assert broken.code == ResponseCode.MESSAGE_ILLEGAL
        assert broker.stored()[-1].store_ms >= broker.stored()[0].store_ms + 60_000


# a turn over its budget


@in_virtual_time
async def test_a_turn_that_takes_too_long_lets_others_in_between_and_keeps_the_order() -> None:
    async with running(flow=PATIENT) as broker:
        greedy, other = await broker.connect(), await broker.connect()
        await greedy.sent(b"first")
        await other.beat()
        finished: list[str] = []

        async def noted(who: str, asked_for: Awaitable[Command]) -> Command:
            answer = await asked_for
            finished.append(who)
            return answer

        broker.clock.look_s = 0.005
        sends = asyncio.gather(*(noted(f"send {number}", greedy.send(b"%d" % number)) for number in range(300)))
        beat = write_body(HeartbeatData("client", (ProducerData("PG"),)))
        others = asyncio.gather(
            noted("pull", other.pull(0)),
            noted("heartbeat", other.ask(RequestCode.HEART_BEAT, body=beat)),
            noted("offset", other.offset()),
        )
        answers = [*await others, *await sends]

        assert {answer.code for answer in answers} == {DONE}
        assert max(finished.index(who) for who in ("pull", "heartbeat", "offset")) < finished.index("send 299")
        assert broker.bodies() == [b"first", *(b"%d" % number for number in range(300))]
        assert [one for one in finished if one.startswith("send")] == [f"send {number}" for number in range(300)]


@in_virtual_time
async def test_sends_do_not_starve_pulls_that_wait() -> None:
    async with running(flow=PATIENT) as broker:
        greedy, other = await broker.connect(), await broker.connect()
        await greedy.sent(b"first")
        broker.clock.look_s = 0.004
        order: list[str] = []

        async def noted(who: str, asked_for: Awaitable[Command]) -> None:
            assert (await asked_for).code == DONE
            order.append(who)

        mixed = [noted("send", greedy.send()) for _ in range(350)]
        mixed += [noted("pull", greedy.pull(0, most=1)) for _ in range(20)]
        await asyncio.gather(*mixed, *(noted("pull", other.pull(0, most=1)) for _ in range(20)))

        assert order.count("pull") == 40
        assert len(order) - 1 - order[::-1].index("send") > len(order) - 1 - order[::-1].index("pull")


@in_virtual_time
async def test_once_the_crowd_is_gone_nothing_waits_and_nobody_looks() -> None:
    async with running(flow=PATIENT) as broker:
        client = await broker.connect()
        broker.clock.look_s = 0.005

        await asyncio.gather(*(client.sent() for _ in range(200)))
        broker.clock.look_s = 0.0
        await asyncio.sleep(0.05)

        assert not len(broker.turns.waiting)
        assert not broker.turns._crowded
        assert broker.turns._sweeping is None


@in_virtual_time
async def test_rubbish_behind_requests_that_were_put_off_does_not_forget_those() -> None:
    async with running(flow=PATIENT) as broker:
        client = await broker.connect()
        await client.sent(b"first")
        broker.clock.look_s = 0.011

        for number in range(80):
            client.tell(SEND, sending(), b"%d" % number)
        client.peer.line.write(b"\x00\x00\x00\x06\x00\x00\x00\x02{]")
        await asyncio.sleep(0.2)

        assert broker.bodies() == [b"first", *(b"%d" % number for number in range(80))]
        assert not len(broker.turns.waiting)


@in_virtual_time
async def test_pulls_of_a_line_that_is_lost_while_they_wait_are_forgotten_and_its_sends_are_not() -> None:
    async with running(flow=PATIENT) as broker:
        client, other = await broker.connect(), await broker.connect()
        await client.sent(b"first")
        broker.clock.look_s = 0.011

        mixed = [request(SEND, sending(), b"%d" % number) for number in range(40)]
        mixed += [request(RequestCode.PULL_MESSAGE, pulling(0)) for _ in range(40)]
        answers = broker.serve_now(client, *mixed)
        assert broker.turns.waiting.count(Kind.PULL) == 40
        broker.peer_of(client).line.abort()
        await asyncio.gather(*answers, return_exceptions=True)
        await asyncio.sleep(0.1)

        assert not len(broker.turns.waiting)
        assert broker.parts.stats.pulled("G", "T").calls <= 16
        assert broker.bodies() == [b"first", *(b"%d" % number for number in range(40))]
        broker.clock.look_s = 0
        assert (await other.pull(0)).code == DONE


# a disk that stalls


@in_virtual_time
async def test_a_stalled_disk_stops_sends_but_neither_heartbeats_nor_pulls_and_all_flows_again_afterwards() -> None:
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
        assert not broker.turns._crowded


async def timed_beats(client: Client) -> None:
    beat = write_body(HeartbeatData("client", (ProducerData("PG"),)))
    for binary in (False, True):
        answer = await timed(client.ask(RequestCode.HEART_BEAT, body=beat, binary=binary))
        assert (answer.code, answer.seconds < 0.1) == (DONE, True)


@in_virtual_time
async def test_a_refused_send_is_told_the_cause_how_long_it_waited_and_when_to_come_again() -> None:
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
            assert "bytes wait for a sync of the disk; the limit is max_unsynced_bytes" in remark
            assert retry_after_ms(remark) == 100
            assert one.answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert broker.turns.waiting.refused[Kind.SEND, Cause.TIMEOUT] >= 2


@in_virtual_time
async def test_beyond_a_second_new_sends_are_refused_at_once_and_waiting_ones_with_them() -> None:
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
async def test_what_is_acknowledged_is_stored_once_and_what_is_refused_is_not_stored() -> None:
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
async def test_pipelined_sends_that_waited_are_stored_in_their_order() -> None:
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
async def test_the_log_is_looked_at_though_nobody_sends() -> None:
    async with running(store=STALLING) as broker:
        client = await broker.connect()
        stall = broker.stall_syncs()
        await until_busy(broker, client)
        await asyncio.sleep(5)
        assert broker.turns.gate.busy_ms(asyncio.get_running_loop().time()) > 4_900
        stall.release()
        await asyncio.sleep(0.05)

        assert broker.turns.gate.is_open
        assert not broker.turns._crowded
        assert (await sent(client)).seconds < 0.01


@in_virtual_time
async def test_a_decision_about_a_transaction_waits_for_the_log_longer_than_a_send() -> None:
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
async def test_the_first_to_notice_that_the_log_is_busy_waits_as_well_though_it_is_no_send() -> None:
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
        assert "still being made" in (refused[0].answer.remark or "")
        assert len(broker.stored()) == 1 + len(outcomes) - len(refused) + 1


@in_virtual_time
async def test_an_empty_pool_refuses_at_once_and_what_was_acknowledged_is_kept() -> None:
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
async def test_stopping_refuses_what_still_waits() -> None:
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
        assert "the broker is stopping" in (refused.answer.remark or "")
        assert len(broker.stored()) == acknowledged


# bounds


@in_virtual_time
async def test_beyond_so_many_waiting_sends_one_more_is_refused_at_once() -> None:
    async with running(store=STALLING, flow=FlowSettings(max_waiting_sends=3)) as broker:
        client = await broker.connect()
        with broker.stall_syncs():
            await until_busy(broker, client)
            outcomes = await asyncio.gather(*(sent(client) for _ in range(5)))

        assert [one.words for one in outcomes] == ["TIMEOUT_CLEAN_QUEUE"] * 3 + ["OVERLOAD"] * 2
        assert all(one.seconds < 0.005 for one in outcomes[3:])
        assert "3 requests and" in (outcomes[3].answer.remark or "")
        assert "max_unsynced_bytes" in (outcomes[3].answer.remark or "")


@in_virtual_time
async def test_beyond_so_many_waiting_bytes_one_more_request_is_refused_at_once() -> None:
    async with running(store=STALLING, flow=FlowSettings(max_waiting_bytes=10_000)) as broker:
        client = await broker.connect()
        with broker.stall_syncs():
            await until_busy(broker, client)
            outcomes = await asyncio.gather(*(sent(client, b"x" * 4_000) for _ in range(4)))

        assert [one.words for one in outcomes] == ["TIMEOUT_CLEAN_QUEUE"] * 2 + ["OVERLOAD"] * 2


@in_virtual_time
async def test_put_off_requests_are_bounded_as_well() -> None:
    async with running(flow=FlowSettings(max_waiting_pulls=10, pull_wait_ms=60_000)) as broker:
        client = await broker.connect()
        await client.sent()
        broker.clock.look_s = 0.011

        outcomes = await asyncio.gather(*(timed(client.pull(0)) for _ in range(80)))

        words = [one.words for one in outcomes if one.code == BUSY]
        assert set(words) == {"OVERLOAD"}
        assert 30 < len(words) < 60


# slow, broken and too many clients


async def full_queue(broker: RunningBroker) -> Client:
    """A client; a queue that gives a quarter of a megabyte to each pull."""
    client = await broker.connect("10.3.0.3")
    for _ in range(32):
        await client.sent(b"x" * 8_000)
    return client


LARGE = {"log_file_bytes": 1 << 20}
MOST_UNSENT = 2 * 1024 * 1024
"""What may wait for a client that does not read: a megabyte, and the answer that went beyond it."""


def pull_much(broker: RunningBroker, client: Client) -> "list[asyncio.Future[Command]]":
    """Sixty pulls by a client that does not read, put off behind other requests."""
    pulls = [request(RequestCode.PULL_MESSAGE, pulling(0)) for _ in range(60)]
    client.peer.line._transport.pause_reading()
    broker.clock.look_s = 0.011
    others = [request(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffset("G", "T", 0)) for _ in range(40)]
    answers = broker.serve_now(client, *others, *pulls)[40:]
    broker.clock.look_s = 0.0
    assert broker.turns.waiting.count(Kind.PULL) > 60
    return answers


@in_virtual_time
async def test_a_client_that_does_not_read_its_answers_is_not_served_on_until_it_does() -> None:
    async with running(store=LARGE, flow=PATIENT) as broker:
        client, other = await full_queue(broker), await broker.connect()
        peer = broker.peer_of(client)

        pulls = pull_much(broker, client)
        await asyncio.sleep(2)

        assert peer.line.unsent_bytes < MOST_UNSENT
        assert broker.parts.stats.pulled("G", "T").calls < 15
        assert all([(await timed(other.pull(0))).seconds < 0.005 for _ in range(5)])
        client.peer.line._transport.resume_reading()
        answers = await asyncio.gather(*pulls)
        assert {(answer.code, len(answer.body)) for answer in answers} == {(DONE, len(answers[0].body))}
        await asyncio.sleep(0.05)
        assert not broker.turns._crowded


@in_virtual_time
async def test_a_client_that_pulls_on_without_reading_is_served_on_when_it_reads() -> None:
    async with running(store=LARGE) as broker:
        client, other = await full_queue(broker), await broker.connect()
        peer = broker.peer_of(client)
        client.peer.line._transport.pause_reading()

        pulls = [asyncio.ensure_future(client.pull(0)) for _ in range(60)]
        await asyncio.sleep(20)

        assert peer.line.unsent_bytes < MOST_UNSENT
        assert (await timed(other.pull(0))).seconds < 0.005
        client.peer.line._transport.resume_reading()
        assert {answer.code for answer in await asyncio.gather(*pulls)} == {DONE}


@in_virtual_time
async def test_a_client_that_never_reads_is_cut_off_and_nothing_of_it_is_left() -> None:
    async with running(store=LARGE) as broker:
        client = await full_queue(broker)
        peer = broker.peer_of(client)

        pulls = pull_much(broker, client)
        held = asyncio.ensure_future(client.pull(32, wait_ms=15_000))
        await asyncio.sleep(4)
        assert broker.turns.waiting.count(Kind.PULL) > 30
        await asyncio.sleep(2)
        assert not len(broker.turns.waiting)
        await asyncio.sleep(30)
        client.peer.line.abort()
        await asyncio.gather(*pulls, held, return_exceptions=True)

        assert peer.line.ending is Ending.SLOW
        assert broker.broker.counters.slow == 1
        assert peer.line.unsent_bytes == 0
        assert not len(broker.parts.arrivals)
        assert not broker.turns._crowded


@in_virtual_time
async def test_a_frame_that_is_too_large_ends_its_line_and_costs_nothing() -> None:
    async with running() as broker:
        client, other = await broker.connect(), await broker.connect()

        first = sent(client, b"before")
        await asyncio.sleep(0)
        client.peer.line.write((64 * 1024 * 1024).to_bytes(4, "big") + bytes(4))

        assert (await first).code == DONE
        await client.peer.wait_lost()
        assert broker.broker.counters.protocol_errors == 1
        assert (await sent(other)).code == DONE


@in_virtual_time
async def test_beyond_so_many_connections_one_more_is_closed_and_the_others_are_served() -> None:
    async with running(max_connections=3) as broker:
        clients = [await broker.connect() for _ in range(3)]

        for _ in range(5):
            refused = await broker.connect()
            with pytest.raises(ConnectionLost):
                await refused.send()

        assert [(await sent(client)).code for client in clients] == [DONE] * 3
        assert (broker.broker.counters.open, broker.broker.counters.refused) == (3, 5)


@in_virtual_time
async def test_a_host_gets_so_many_connections_and_no_more() -> None:
    async with running(max_connections_per_host=2) as broker:
        clients = [await broker.connect("10.4.0.4") for _ in range(2)]

        refused = await broker.connect("10.4.0.4")
        with pytest.raises(ConnectionLost):
            await refused.send()

        assert (await sent(await broker.connect("10.5.0.5"))).code == DONE
        assert [(await sent(client)).code for client in clients] == [DONE] * 2


@in_virtual_time
async def test_a_client_that_vanished_without_a_word_is_forgotten_with_all_that_it_left() -> None:
    async with running() as broker:
        client, other = await broker.connect("10.6.0.6"), await broker.connect()
        await client.beat()
        await client.sent()
        pull = asyncio.ensure_future(client.pull(1, wait_ms=15_000))
        await settled()
        broker.network.half_open("10.6.0.6")

        await asyncio.sleep(400)
        pull.cancel()

        assert not len(broker.parts.arrivals)
        assert broker.parts.members.group("G") is None
        assert not [peer for peer in broker.broker._started_server.peers if peer.address.host == "10.6.0.6"]
        assert not other.peer.is_open  # as it said nothing either
        assert not broker.parts.sending._hosts
