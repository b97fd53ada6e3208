"""Turns and flow control: all requests of one read, and the limits of a turn.

A complete broker in virtual time, with clients over a network in memory, and a disk that stalls on request.
"""

import asyncio
import logging
from collections.abc import Awaitable

import pytest
from tests.broker.running import RunningBroker, in_virtual_time, pulling, request, running, sending
from tests.broker.turns_kit import sent

from pocketmq.broker.requests.flow import Kind
from pocketmq.broker.settings import FlowSettings
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import ConnectionLost
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.api.messages import GetMaxOffset
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.bodies.clients import HeartbeatData, ProducerData
from pocketmq.protocol.command import RESPONSE, Command, encode_command
from pocketmq.protocol.hot_headers import QueryOffsetHead

pytestmark = pytest.mark.usefixtures("twin")
BUSY, DONE = ResponseCode.SYSTEM_BUSY, ResponseCode.SUCCESS
SEND = RequestCode.SEND_MESSAGE_V2
PATIENT = FlowSettings(turn_budget_ms=20, send_wait_ms=60_000, pull_wait_ms=60_000)
"""No request is refused for its waiting time, whatever the clock of a test does."""


def log_writes(broker: RunningBroker) -> int:
    return sum(one.kind == "write" and "commitlog" in one.path for one in broker.disk.operations)


# one turn


@in_virtual_time
async def test_all_sends_of_one_read_are_one_write_and_one_answer() -> None:
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
async def test_another_request_of_the_turn_sees_the_sends_before_it() -> None:
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
async def test_requests_of_all_kinds_are_answered_by_their_own_number() -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.beat("G", Subscription("T"), Subscription("%RETRY%G"))
        await client.sent(b"0")
        beat = HeartbeatData("client", (ProducerData("PG"),)).encode()
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
async def test_a_response_that_looks_like_a_send_is_ignored() -> None:
    async with running() as broker:
        client = await broker.connect()
        command = request(SEND, sending(), b"body")
        command.flag = RESPONSE

        client.peer.connection.write(encode_command(command))
        await client.sent(b"real")

        assert broker.bodies() == [b"real"]


@pytest.mark.parametrize("rubbish", [b"\x00\x00\x00\x06\x00\x00\x00\x02{]", b"\x00\x00\x00\x05\x07\x00\x00\x01x"])
@in_virtual_time
async def test_invalid_bytes_close_the_connection_after_the_requests_before_them(rubbish: bytes) -> None:
    async with running() as broker:
        client, other = await broker.connect(), await broker.connect()

        first = sent(client, b"before")
        await asyncio.sleep(0)
        client.peer.connection.write(rubbish)
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
async def test_an_internal_error_is_answered_logged_and_does_not_affect_others(
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
        assert "Unexpected error in request 14 of" in caplog.text
        assert broker.bodies() == [b"0", b"1", b"2"]


@in_virtual_time
async def test_a_refused_send_does_not_reset_the_busy_time_of_later_sends() -> None:
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
async def test_a_long_turn_is_interrupted_for_others_and_keeps_the_order() -> None:
    async with running(flow=PATIENT) as broker:
        greedy, other = await broker.connect(), await broker.connect()
        await greedy.sent(b"first")
        await other.beat()
        finished: list[str] = []

        async def noted(who: str, asked_for: Awaitable[Command]) -> Command:
            answer = await asked_for
            finished.append(who)
            return answer

        broker.clock.skip_delay_s = 0.005
        sends = asyncio.gather(*(noted(f"send {number}", greedy.send(b"%d" % number)) for number in range(300)))
        beat = HeartbeatData("client", (ProducerData("PG"),)).encode()
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
async def test_sends_do_not_starve_waiting_pulls() -> None:
    async with running(flow=PATIENT) as broker:
        greedy, other = await broker.connect(), await broker.connect()
        await greedy.sent(b"first")
        broker.clock.skip_delay_s = 0.004
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
async def test_after_the_load_nothing_waits_and_no_timer_runs() -> None:
    async with running(flow=PATIENT) as broker:
        client = await broker.connect()
        broker.clock.skip_delay_s = 0.005

        await asyncio.gather(*(client.sent() for _ in range(200)))
        broker.clock.skip_delay_s = 0.0
        await asyncio.sleep(0.05)

        assert not len(broker.turns.waiting)
        assert not broker.turns._has_waiting
        assert broker.turns._sweeping is None


@in_virtual_time
async def test_invalid_bytes_after_deferred_requests_do_not_drop_them() -> None:
    async with running(flow=PATIENT) as broker:
        client = await broker.connect()
        await client.sent(b"first")
        broker.clock.skip_delay_s = 0.011

        for number in range(80):
            client.tell(SEND, sending(), b"%d" % number)
        client.peer.connection.write(b"\x00\x00\x00\x06\x00\x00\x00\x02{]")
        await asyncio.sleep(0.2)

        assert broker.bodies() == [b"first", *(b"%d" % number for number in range(80))]
        assert not len(broker.turns.waiting)


@in_virtual_time
async def test_waiting_pulls_of_a_lost_connection_are_removed_and_its_sends_are_not() -> None:
    async with running(flow=PATIENT) as broker:
        client, other = await broker.connect(), await broker.connect()
        await client.sent(b"first")
        broker.clock.skip_delay_s = 0.011

        mixed = [request(SEND, sending(), b"%d" % number) for number in range(40)]
        mixed += [request(RequestCode.PULL_MESSAGE, pulling(0)) for _ in range(40)]
        answers = broker.serve_now(client, *mixed)
        assert broker.turns.waiting.count(Kind.PULL) == 40
        broker.peer_of(client).connection.abort()
        await asyncio.gather(*answers, return_exceptions=True)
        await asyncio.sleep(0.1)

        assert not len(broker.turns.waiting)
        assert broker.parts.state.stats.pulled("G", "T").calls <= 16
        assert broker.bodies() == [b"first", *(b"%d" % number for number in range(40))]
        broker.clock.skip_delay_s = 0
        assert (await other.pull(0)).code == DONE
