"""The bounds of turns: requests, unread bytes, and slow, broken or too many clients."""

import asyncio

import pytest
from tests.broker.running import (
    STALLING,
    Client,
    RunningBroker,
    in_virtual_time,
    pulling,
    request,
    running,
    settled,
)
from tests.broker.turns_kit import sent, timed

from pocketmq.broker.requests.flow import Kind
from pocketmq.broker.settings import FlowSettings
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import ConnectionLost
from pocketmq.net.connection import CloseReason
from pocketmq.protocol.api.messages import QueryConsumerOffset
from pocketmq.protocol.command import Command

pytestmark = pytest.mark.usefixtures("twin")
BUSY, DONE = ResponseCode.SYSTEM_BUSY, ResponseCode.SUCCESS
PATIENT = FlowSettings(turn_budget_ms=20, send_wait_ms=60_000, pull_wait_ms=60_000)
"""No request is refused for its waiting time, whatever the clock of a test does."""


async def until_busy(broker: RunningBroker, client: Client) -> int:
    """Send until the log accepts no more; the sync that would help must be stalled. Returns the number of stored
    messages.
    """
    stored = 0
    while broker.turns.gate.is_open:
        stored += (await timed(client.send(b"x" * 600))).code == DONE
    return stored


# bounds


@in_virtual_time
async def test_a_send_above_the_limit_of_waiting_sends_is_refused_at_once() -> None:
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
async def test_a_request_above_the_limit_of_waiting_bytes_is_refused_at_once() -> None:
    async with running(store=STALLING, flow=FlowSettings(max_waiting_bytes=10_000)) as broker:
        client = await broker.connect()
        with broker.stall_syncs():
            await until_busy(broker, client)
            outcomes = await asyncio.gather(*(sent(client, b"x" * 4_000) for _ in range(4)))

        assert [one.words for one in outcomes] == ["TIMEOUT_CLEAN_QUEUE"] * 2 + ["OVERLOAD"] * 2


@in_virtual_time
async def test_deferred_requests_are_limited() -> None:
    async with running(flow=FlowSettings(max_waiting_pulls=10, pull_wait_ms=60_000)) as broker:
        client = await broker.connect()
        await client.sent()
        broker.clock.skip_delay_s = 0.011

        outcomes = await asyncio.gather(*(timed(client.pull(0)) for _ in range(80)))

        words = [one.words for one in outcomes if one.code == BUSY]
        assert set(words) == {"OVERLOAD"}
        assert 30 < len(words) < 60


# slow, broken and too many clients


async def full_queue(broker: RunningBroker) -> Client:
    """A client, and a queue that returns a quarter of a megabyte to each pull."""
    client = await broker.connect("10.3.0.3")
    for _ in range(32):
        await client.sent(b"x" * 8_000)
    return client


LARGE = {"log_file_bytes": 1 << 20}
MOST_UNSENT = 2 * 1024 * 1024
"""What may wait for a client that does not read: a megabyte, and the answer that went beyond it."""


def pull_much(broker: RunningBroker, client: Client) -> "list[asyncio.Future[Command]]":
    """Sixty pulls by a client that does not read, deferred after other requests."""
    pulls = [request(RequestCode.PULL_MESSAGE, pulling(0)) for _ in range(60)]
    client.peer.connection._transport.pause_reading()
    broker.clock.skip_delay_s = 0.011
    others = [request(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffset("G", "T", 0)) for _ in range(40)]
    answers = broker.serve_now(client, *others, *pulls)[40:]
    broker.clock.skip_delay_s = 0.0
    assert broker.turns.waiting.count(Kind.PULL) > 60
    return answers


@in_virtual_time
async def test_a_client_that_does_not_read_its_answers_is_paused_until_it_does() -> None:
    async with running(store=LARGE, flow=PATIENT) as broker:
        client, other = await full_queue(broker), await broker.connect()
        peer = broker.peer_of(client)

        pulls = pull_much(broker, client)
        await asyncio.sleep(2)

        assert peer.connection.unsent_bytes < MOST_UNSENT
        assert broker.parts.state.stats.pulled("G", "T").calls < 15
        assert all([(await timed(other.pull(0))).seconds < 0.005 for _ in range(5)])
        client.peer.connection._transport.resume_reading()
        answers = await asyncio.gather(*pulls)
        assert {(answer.code, len(answer.body)) for answer in answers} == {(DONE, len(answers[0].body))}
        await asyncio.sleep(0.05)
        assert not broker.turns._has_waiting


@in_virtual_time
async def test_a_client_that_pulls_without_reading_is_served_again_when_it_reads() -> None:
    async with running(store=LARGE) as broker:
        client, other = await full_queue(broker), await broker.connect()
        peer = broker.peer_of(client)
        client.peer.connection._transport.pause_reading()

        pulls = [asyncio.ensure_future(client.pull(0)) for _ in range(60)]
        await asyncio.sleep(20)

        assert peer.connection.unsent_bytes < MOST_UNSENT
        assert (await timed(other.pull(0))).seconds < 0.005
        client.peer.connection._transport.resume_reading()
        assert {answer.code for answer in await asyncio.gather(*pulls)} == {DONE}


@in_virtual_time
async def test_a_client_that_never_reads_is_disconnected_and_removed_completely() -> None:
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
        client.peer.connection.abort()
        await asyncio.gather(*pulls, held, return_exceptions=True)

        assert peer.connection.ending is CloseReason.SLOW
        assert broker.broker.counters.slow == 1
        assert peer.connection.unsent_bytes == 0
        assert not len(broker.parts.state.arrivals)
        assert not broker.turns._has_waiting


@in_virtual_time
async def test_a_too_large_frame_closes_its_connection_and_uses_no_memory() -> None:
    async with running() as broker:
        client, other = await broker.connect(), await broker.connect()

        first = sent(client, b"before")
        await asyncio.sleep(0)
        client.peer.connection.write((64 * 1024 * 1024).to_bytes(4, "big") + bytes(4))

        assert (await first).code == DONE
        await client.peer.wait_lost()
        assert broker.broker.counters.protocol_errors == 1
        assert (await sent(other)).code == DONE


@in_virtual_time
async def test_a_connection_above_the_limit_is_closed_and_the_others_are_served() -> None:
    async with running(max_connections=3) as broker:
        clients = [await broker.connect() for _ in range(3)]

        for _ in range(5):
            refused = await broker.connect()
            with pytest.raises(ConnectionLost):
                await refused.send()

        assert [(await sent(client)).code for client in clients] == [DONE] * 3
        assert (broker.broker.counters.open, broker.broker.counters.refused) == (3, 5)


@in_virtual_time
async def test_connections_per_host_are_limited() -> None:
    async with running(max_connections_per_host=2) as broker:
        clients = [await broker.connect("10.4.0.4") for _ in range(2)]

        refused = await broker.connect("10.4.0.4")
        with pytest.raises(ConnectionLost):
            await refused.send()

        assert (await sent(await broker.connect("10.5.0.5"))).code == DONE
        assert [(await sent(client)).code for client in clients] == [DONE] * 2


@in_virtual_time
async def test_a_client_that_vanished_is_removed_with_all_its_state() -> None:
    async with running() as broker:
        client, other = await broker.connect("10.6.0.6"), await broker.connect()
        await client.beat()
        await client.sent()
        pull = asyncio.ensure_future(client.pull(1, wait_ms=15_000))
        await settled()
        broker.network.half_open("10.6.0.6")

        await asyncio.sleep(400)
        pull.cancel()

        assert not len(broker.parts.state.arrivals)
        assert broker.parts.state.members.group("G") is None
        assert not [peer for peer in broker.broker._started_server.peers if peer.address.host == "10.6.0.6"]
        assert not other.peer.is_open  # as it said nothing either
        assert not broker.parts.sending._hosts
