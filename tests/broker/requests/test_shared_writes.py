"""Sends of several connections in one round of the loop: one write to the log, an answer for each."""

import asyncio
import errno
import logging
from collections.abc import Callable

import pytest
from tests.broker.running import Client, RunningBroker, in_virtual_time, request, running, sending
from tests.broker.turns_kit import sent

from pocketmq.broker.requests.turns import MAX_DEFERRED_BYTES
from pocketmq.broker.settings import FlowSettings
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import ConnectionLost
from pocketmq.protocol.api.messages import GetMaxOffset
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.frames import Frame, split_frames
from pocketmq.store.settings import FlushMode

pytestmark = pytest.mark.usefixtures("twin")
DONE = ResponseCode.SUCCESS
SEND = RequestCode.SEND_MESSAGE_V2


async def clients_of(broker: RunningBroker, count: int) -> list[Client]:
    """Connections that have sent before, so that all their topics and hosts are known."""
    clients = [await broker.connect() for _ in range(count)]
    for client in clients:
        await client.sent(b"before")
    return clients


def log_writes(broker: RunningBroker) -> int:
    return sum(one.kind == "write" and "commitlog" in one.path for one in broker.disk.operations)


def read_from(broker: RunningBroker, client: Client, *frames: Frame) -> None:
    """What the broker does when it has read these frames from the client's connection."""
    broker.peer_of(client).connection._turn(list(frames))


def send_frame(body: bytes) -> Frame:
    (frame,) = split_frames(encode_command(request(SEND, sending(), body)))
    return frame


@in_virtual_time
async def test_sends_of_many_connections_in_one_loop_iteration_share_one_write() -> None:
    async with running() as broker:
        clients = await clients_of(broker, 16)
        writes = log_writes(broker)

        sends = [sent(client, b"%d" % number) for number, client in enumerate(clients)]
        answers = await asyncio.gather(*sends)

        assert log_writes(broker) == writes + 1
        assert {one.code for one in answers} == {DONE}
        assert sorted(broker.bodies()[16:]) == sorted(b"%d" % number for number in range(16))
        assert len({(one.answer.ext or {})["queueOffset"] for one in answers}) == 16


@in_virtual_time
async def test_a_lone_sender_is_served_at_once_and_another_at_the_next_loop_iteration() -> None:
    async with running() as broker:
        first, second = await clients_of(broker, 2)
        writes = log_writes(broker)

        read_from(broker, second, send_frame(b"again"))
        by_the_last_sender = log_writes(broker) - writes
        read_from(broker, first, send_frame(b"another"))
        by_another = log_writes(broker) - writes
        await asyncio.sleep(0)
        after_the_round = log_writes(broker) - writes

        assert (by_the_last_sender, by_another, after_the_round) == (1, 1, 2)


@in_virtual_time
async def test_a_large_sender_is_served_at_once_and_deferred_senders_follow() -> None:
    async with running() as broker:
        first, second, third = await clients_of(broker, 3)
        writes = log_writes(broker)

        read_from(broker, first, send_frame(b"little"))
        put_off = log_writes(broker) - writes
        read_from(broker, second, *[send_frame(b"m" * 1024)] * (MAX_DEFERRED_BYTES // 1024), send_frame(b"more"))
        at_once = log_writes(broker) - writes
        read_from(broker, third, send_frame(b"small"))
        await asyncio.sleep(0)

        assert (put_off, at_once, log_writes(broker) - writes) == (0, 1, 2)
        stored = dict.fromkeys(body[:6] for body in broker.bodies()[3:])
        assert [*stored] == [b"mmmmmm", b"more", b"little", b"small"]


@in_virtual_time
async def test_later_input_of_a_deferred_connection_follows_its_turn() -> None:
    async with running() as broker:
        first, second = await clients_of(broker, 2)
        writes = log_writes(broker)

        read_from(broker, first, send_frame(b"one"))
        line = broker.peer_of(first).connection
        more = encode_command(request(SEND, sending(), b"two"))
        line.get_buffer(-1)[: len(more)] = more
        line.buffer_updated(len(more))
        read_from(broker, second, send_frame(b"three"))
        await asyncio.sleep(0)

        assert broker.bodies()[2:] == [b"one", b"two", b"three"]
        assert log_writes(broker) == writes + 1


@in_virtual_time
async def test_another_request_of_the_iteration_sees_the_sends_before_it() -> None:
    async with running() as broker:
        first, second = await clients_of(broker, 2)

        _, _, _, largest = await asyncio.gather(
            first.sent(b"1"),
            second.sent(b"2"),
            second.sent(b"3"),
            second.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffset("T", 0)),
        )

        assert (largest.ext or {})["offset"] == "5"


@in_virtual_time
async def test_a_peer_that_closes_its_input_after_its_sends_gets_their_answers() -> None:
    async with running() as broker:
        first, second = await clients_of(broker, 2)

        (answer,) = asked_and_ended(broker, first, request(SEND, sending(), b"last words"))
        other = sent(second, b"other")

        assert (await answer).code == DONE
        assert (await other).code == DONE
        assert sorted(broker.bodies()[2:]) == [b"last words", b"other"]


def asked_and_ended(broker: RunningBroker, client: Client, *commands: Command) -> "list[asyncio.Future[Command]]":
    """Requests that the broker reads, together with the end of the input."""
    frames: list[Frame] = []

    def taken(command: Command) -> Callable[[int], bytes]:
        def encode(number: int) -> bytes:
            command.opaque = number
            frames.extend(split_frames(encode_command(command)))
            return b""

        return encode

    answers = [client.peer.ask_encoded(one.code, taken(one), 3.0) for one in commands]
    line = broker.peer_of(client).connection
    line._turn(frames)
    line.eof_received()
    return answers


@in_virtual_time
async def test_invalid_bytes_after_sends_close_only_that_connection_after_its_answers() -> None:
    async with running() as broker:
        first, second = await clients_of(broker, 2)

        good, other = sent(first, b"good"), sent(second, b"other")
        await asyncio.sleep(0)
        first.peer.connection.write(b"\x00\x00\x00\x06\x00\x00\x00\x02{]")
        lost = sent(first, b"after")

        assert ((await good).code, (await other).code) == (DONE, DONE)
        with pytest.raises(ConnectionLost):
            await lost
        assert (await sent(second, b"more")).code == DONE


@in_virtual_time
async def test_if_a_shared_write_fails_every_sender_gets_an_error_and_nothing_is_stored() -> None:
    async with running() as broker:
        clients = await clients_of(broker, 3)
        broker.disk.fail("write", errno.EIO, "*commitlog*")

        answers = await asyncio.gather(*(sent(client, b"lost") for client in clients))

        assert all(one.code != DONE for one in answers)
        assert broker.bodies() == [b"before"] * 3
        assert {(await client.pull(0)).code for client in clients} == {DONE}


@in_virtual_time
async def test_the_first_sender_of_a_long_iteration_does_not_wait_for_the_last() -> None:
    async with running(flow=FlowSettings(turn_budget_ms=20)) as broker:
        clients = await clients_of(broker, 8)
        writes = log_writes(broker)
        broker.clock.skip_delay_s = 0.008

        answers = await asyncio.gather(*(sent(client, b"x") for client in clients))

        assert {one.code for one in answers} == {DONE}
        assert writes + 1 < log_writes(broker) <= writes + 8


@in_virtual_time
async def test_sends_of_a_shared_turn_with_an_internal_error_get_errors_and_later_ones_are_stored(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as broker:
        first, second, third = await clients_of(broker, 3)

        def fail(*later: object) -> bool:
            raise KeyError("oops")

        with caplog.at_level(logging.ERROR, "pocketmq.broker"), monkeypatch.context() as patch:
            patch.setattr(broker.store, "end_turn", fail)
            outcomes = await asyncio.gather(first.send(b"lost"), second.send(b"lost"))

        assert [outcome.code for outcome in outcomes] == [ResponseCode.SYSTEM_ERROR] * 2
        assert outcomes[0].remark == "the message is not stored: KeyError"
        assert "Commit log write failed: 'oops'" in caplog.text
        assert [(await client.send(b"kept")).code for client in (first, second, third)] == [DONE] * 3
        assert broker.bodies()[3:] == [b"kept"] * 3


@in_virtual_time
async def test_synced_sends_of_an_iteration_are_answered_after_one_sync() -> None:
    async with running(store={"flush": FlushMode.SYNC}) as broker:
        clients = await clients_of(broker, 8)
        stall = broker.stall_syncs()

        sends = [sent(client, b"x") for client in clients]
        await asyncio.sleep(0.1)
        answered_before = sum(one.done() for one in sends)
        stall.release()
        answers = await asyncio.gather(*sends)

        assert answered_before == 0
        assert {one.code for one in answers} == {DONE}


@in_virtual_time
async def test_a_stopping_broker_serves_the_requests_that_it_has_read() -> None:
    async with running() as broker:
        first, _ = await clients_of(broker, 2)

        read_from(broker, first, send_frame(b"read"))
        broker.turns.stop()

        assert broker.bodies()[-1] == b"read"
