"""Peers: calls, one-way requests and serving over one connection, in both directions."""

import asyncio

import pytest
from tests.net.talk import BRISK, SERVER, ask, echo

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import (
    CallTimedOut,
    ConnectionLost,
    InvalidMessage,
    InvalidSetting,
    PocketMQError,
    ProtocolError,
    StoreFull,
    TooManyCalls,
    WrongState,
)
from pocketmq.net.connection import CloseReason, ConnectionSettings
from pocketmq.net.peer import Peer, PeerSettings
from pocketmq.protocol.command import ONEWAY, Command, decode_command, encode_command
from pocketmq.protocol.frames import Frame, join_frame
from pocketmq.protocol.hot_headers import StoredAnswer
from pocketmq.testing import run
from pocketmq.testing.memory_net import MemoryNetwork, Weather

NARROW = Weather(delay_s=(0.001, 0.001), segment_bytes=(1 << 20, 1 << 20), window_bytes=1_000)
SMALL = ConnectionSettings(
    unsent_low_bytes=1_000, unsent_high_bytes=10_000, unsent_max_bytes=100_000, pause_reading=False
)


async def connected(client: Peer, server: Peer, weather: Weather = BRISK) -> MemoryNetwork:
    network = MemoryNetwork(weather=weather)
    await network.listen(lambda: server.connection, SERVER)
    await network.connect(lambda: client.connection, SERVER)
    return network


async def never(peer: Peer, request: Command) -> Command | None:
    await asyncio.Event().wait()
    return None


# calls


def test_a_call_gets_its_answer_with_any_code() -> None:
    def serve(peer: Peer, request: Command) -> Command:
        return request.reply(ResponseCode.PULL_NOT_FOUND, "nothing new", {"nextBeginOffset": "7"})

    async def main() -> None:
        client = Peer()
        await connected(client, Peer(serve=serve))

        response = await client.call(ask())

        assert (response.code, response.remark) == (ResponseCode.PULL_NOT_FOUND, "nothing new")
        assert response.ext == {"nextBeginOffset": "7"}
        assert client.in_flight == 0

    run(main())


def test_both_ends_may_send_requests_at_the_same_time() -> None:
    async def main() -> None:
        client, server = Peer(serve=echo), Peer(serve=echo)
        await connected(client, server)

        answers = await asyncio.gather(
            *(client.call(ask(b"from client %d" % number)) for number in range(20)),
            *(server.call(ask(b"from server %d" % number)) for number in range(20)),
        )

        assert [answer.body for answer in answers[:20]] == [b"from client %d" % number for number in range(20)]
        assert [answer.body for answer in answers[20:]] == [b"from server %d" % number for number in range(20)]

    run(main())


def test_answers_out_of_order_reach_their_callers() -> None:
    async def serve(peer: Peer, request: Command) -> Command:
        await asyncio.sleep(1 - int(request.body) / 10)
        return echo(peer, request)

    async def main() -> None:
        client = Peer()
        await connected(client, Peer(serve=serve))
        order: list[bytes] = []

        async def call(body: bytes) -> None:
            order.append((await client.call(ask(body))).body)

        await asyncio.gather(*(call(b"%d" % number) for number in range(5)))

        assert order == [b"4", b"3", b"2", b"1", b"0"]

    run(main())


def test_a_one_way_request_is_served_and_never_answered() -> None:
    async def main() -> None:
        seen: list[bytes] = []

        def serve(peer: Peer, request: Command) -> Command:
            seen.append(request.body)
            if request.body == b"fails":
                raise StoreFull("no space")
            return echo(peer, request)

        client = Peer()
        network = await connected(client, Peer(serve=serve))

        client.oneway(ask(b"works"))
        client.oneway(ask(b"fails"))
        await asyncio.sleep(1)

        assert seen == [b"works", b"fails"]
        assert client.unmatched == 0
        assert [line.source for line in network.log if line.what == "segment" and line.source == str(SERVER)] == []

    run(main())


def test_a_call_times_out_at_its_deadline_and_its_late_answer_is_ignored() -> None:
    async def serve(peer: Peer, request: Command) -> Command:
        await asyncio.sleep(5)
        return echo(peer, request)

    async def main() -> None:
        client = Peer()
        await connected(client, Peer(serve=serve))
        loop = asyncio.get_running_loop()
        asked_at = loop.time()

        with pytest.raises(CallTimedOut, match=r"10\.0\.0\.1:10911: no response to request 14 within 3\.0 s"):
            await client.call(ask())
        assert loop.time() - asked_at == pytest.approx(3.0)
        await asyncio.sleep(5)

        assert client.unmatched == 1
        assert (await client.call(ask(b"patient"), timeout=6)).body == b"patient"

    run(main())


def test_one_timer_serves_calls_of_all_deadlines() -> None:
    async def main() -> None:
        client = Peer()
        await connected(client, Peer(serve=never))
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        ended: list[float] = []

        async def call(timeout_s: float) -> None:
            with pytest.raises(CallTimedOut):
                await client.call(ask(), timeout=timeout_s)
            assert loop.time() - started_at == pytest.approx(timeout_s)
            ended.append(timeout_s)

        await asyncio.gather(*(call(timeout_s) for timeout_s in (4.0, 1.0, 3.0, 2.0, 2.0)))

        assert ended == [1.0, 2.0, 2.0, 3.0, 4.0]

    run(main())


def test_a_silent_peer_is_disconnected_when_a_call_times_out() -> None:
    async def main() -> None:
        client, server = Peer(), Peer(serve=echo)
        network = await connected(client, server)
        await asyncio.sleep(60)
        network.half_open(SERVER)
        loop = asyncio.get_running_loop()
        asked_at = loop.time()

        calls = 0
        while client.is_open:
            with pytest.raises(CallTimedOut):
                await client.call(ask(), timeout=3)
            calls += 1
        await client.wait_lost()

        assert loop.time() - asked_at == pytest.approx(12.0)
        assert calls == 4
        assert "nothing received" in str(client.connection.reason)

    run(main())


def test_a_peer_that_answers_other_calls_is_not_disconnected_for_a_slow_one() -> None:
    async def main() -> None:
        def serve(peer: Peer, request: Command) -> object:
            return echo(peer, request) if request.body else never(peer, request)

        client = Peer()
        await connected(client, Peer(serve=serve))  # type: ignore[arg-type]
        slow = asyncio.create_task(client.call(ask(), timeout=30))
        for _ in range(29):
            await client.call(ask(b"x"))
            await asyncio.sleep(1)

        with pytest.raises(CallTimedOut):
            await slow
        assert client.is_open

    run(main())


def test_a_call_above_the_limit_is_refused_at_once() -> None:
    async def main() -> None:
        client = Peer(settings=PeerSettings(max_in_flight=2))
        await connected(client, Peer(serve=never))
        open_calls = [asyncio.create_task(client.call(ask())) for _ in range(2)]
        await asyncio.sleep(0.1)

        with pytest.raises(TooManyCalls):
            await client.call(ask())

        assert client.in_flight == 2
        await asyncio.wait(open_calls)
        assert all(isinstance(call.exception(), CallTimedOut) for call in open_calls)

    run(main())


def test_a_cancelled_call_is_removed() -> None:
    async def main() -> None:
        client = Peer()
        await connected(client, Peer(serve=never))
        call = asyncio.create_task(client.call(ask()))
        await asyncio.sleep(1)

        call.cancel()
        await asyncio.wait([call])

        assert call.cancelled()
        assert client.in_flight == 0

    run(main())


def test_every_open_call_fails_when_the_connection_is_cut() -> None:
    async def main() -> None:
        client = Peer()
        network = await connected(client, Peer(serve=never))
        calls = [asyncio.create_task(client.call(ask(), timeout=60)) for _ in range(10)]
        await asyncio.sleep(1)

        network.cut(SERVER)
        await asyncio.wait(calls)

        assert {type(call.exception()) for call in calls} == {ConnectionLost}
        assert "10.0.0.1:10911: connection lost: connection reset" in str(calls[0].exception())
        with pytest.raises(ConnectionLost):
            await client.call(ask())
        with pytest.raises(ConnectionLost):
            client.oneway(ask())

    run(main())


def test_a_closing_connection_refuses_requests_with_the_reason() -> None:
    async def main() -> None:
        client = Peer()
        await connected(client, Peer(serve=never))
        begun = asyncio.create_task(client.call(ask()))
        await asyncio.sleep(1)

        client.close()

        with pytest.raises(ConnectionLost, match="closed here"):
            await client.call(ask())
        with pytest.raises(ConnectionLost, match="closed here"):
            client.oneway(ask())
        with pytest.raises(ConnectionLost, match="closed here"):
            await begun
        assert client.in_flight == 0

    run(main())


def test_an_unconnected_peer_cannot_be_called() -> None:
    async def main() -> None:
        client = Peer()

        with pytest.raises(WrongState, match="not connected yet"):
            await client.call(ask())
        with pytest.raises(WrongState, match="not connected yet"):
            client.oneway(ask())
        assert client.in_flight == 0

    run(main())


# full lines


def test_a_call_waits_for_buffer_space() -> None:
    async def main() -> None:
        client = Peer(settings=PeerSettings(connection=SMALL))
        network = await connected(client, Peer(serve=echo), NARROW)
        (connection,) = network.connections.values()
        connection.ends[1].pause_reading()
        full = asyncio.create_task(client.call(ask(bytes(50_000)), timeout=60))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(client.call(ask(b"patient"), timeout=60))
        await asyncio.sleep(5)
        assert client.in_flight == 1

        connection.ends[1].resume_reading()

        assert (await waiting).body == b"patient"
        assert len((await full).body) == 50_000

    run(main())


def test_a_call_that_waits_for_buffer_space_keeps_its_deadline() -> None:
    async def main() -> None:
        client = Peer(settings=PeerSettings(connection=SMALL))
        network = await connected(client, Peer(serve=echo), NARROW)
        (connection,) = network.connections.values()
        connection.ends[1].pause_reading()
        client.oneway(ask(bytes(50_000)))
        await asyncio.sleep(0)
        asked_at = asyncio.get_running_loop().time()

        with pytest.raises(CallTimedOut):
            await client.call(ask(), timeout=2)

        assert asyncio.get_running_loop().time() - asked_at == pytest.approx(2.0)
        assert client.in_flight == 0

    run(main())


def test_a_call_that_cannot_wait_is_refused_while_the_buffer_is_full() -> None:
    async def main() -> None:
        client = Peer(settings=PeerSettings(connection=SMALL))
        network = await connected(client, Peer(serve=echo), NARROW)
        (connection,) = network.connections.values()
        connection.ends[1].pause_reading()
        client.oneway(ask(bytes(50_000)))
        await asyncio.sleep(0)

        with pytest.raises(TooManyCalls, match="unsent bytes"):
            client.oneway(ask())
        with pytest.raises(TooManyCalls, match="unsent bytes"):
            client.ask(ask())

        assert client.in_flight == 0

    run(main())


# calls without a coroutine


def test_futures_of_many_calls_are_awaited_together() -> None:
    async def main() -> None:
        client = Peer()
        await connected(client, Peer(serve=echo))

        futures = [client.ask(ask(b"%d" % number)) for number in range(100)]

        assert [(await future).body for future in futures] == [b"%d" % number for number in range(100)]

    run(main())


class Told:
    """Records its calls."""

    code = 310
    timeout_s = 1.0

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.errors: list[PocketMQError] = []

    def answered(self, response: Command) -> None:
        self.bodies.append(response.body)

    def stored(self, answer: StoredAnswer) -> bool:
        return False

    def failed(self, error: PocketMQError) -> None:
        self.errors.append(error)


def frame(body: bytes, number: int) -> bytes:
    command = ask(body)
    command.opaque = number
    return encode_command(command)


def test_a_waiting_caller_gets_the_answer_in_the_turn_that_reads_it() -> None:
    async def main() -> None:
        client, told = Peer(), [Told() for _ in range(3)]
        await connected(client, Peer(serve=echo))
        deadline = asyncio.get_running_loop().time() + 1.0

        for number, each in enumerate(told):
            client.ask_for(each, deadline, frame, b"%d" % number)
        awaited = client.ask_encoded(310, frame, 1.0, b"last")

        assert (await awaited).body == b"last"
        assert [each.bodies for each in told] == [[b"0"], [b"1"], [b"2"]]
        assert not any(each.errors for each in told)
        assert client.in_flight == 0

    run(main())


def test_a_waiting_caller_gets_the_timeout() -> None:
    async def main() -> None:
        client, told = Peer(), Told()
        await connected(client, Peer(serve=never))

        client.ask_for(told, asyncio.get_running_loop().time() + 1.0, frame, b"")
        await asyncio.sleep(1.1)

        (error,) = told.errors
        assert isinstance(error, CallTimedOut)
        assert "no response to request 310 within 1.0 s" in str(error)
        assert (told.bodies, client.in_flight) == ([], 0)

    run(main())


def test_a_waiting_caller_gets_the_loss_of_the_connection() -> None:
    async def main() -> None:
        client, told = Peer(), Told()
        network = await connected(client, Peer(serve=never))
        client.ask_for(told, asyncio.get_running_loop().time() + 1.0, frame, b"")

        network.cut(SERVER)
        await client.wait_lost()

        (error,) = told.errors
        assert isinstance(error, ConnectionLost)
        with pytest.raises(ConnectionLost):
            client.ask_for(told, asyncio.get_running_loop().time() + 1.0, frame, b"")
        assert len(told.errors) == 1

    run(main())


def test_a_frame_that_cannot_be_encoded_leaves_no_open_call() -> None:
    def broken(number: int) -> bytes:
        raise InvalidMessage("no such text")

    async def main() -> None:
        client, told = Peer(), Told()
        await connected(client, Peer(serve=echo))

        with pytest.raises(InvalidMessage):
            client.ask_for(told, asyncio.get_running_loop().time() + 1.0, broken)

        assert (told.bodies, told.errors, client.in_flight) == ([], [], 0)

    run(main())


# turns and frames


def test_a_custom_turn_gets_all_frames_and_returns_those_it_does_not_handle() -> None:
    async def main() -> None:
        turns: list[int] = []

        def on_turn(peer: Peer, frames: list[Frame]) -> None:
            turns.append(len(frames))
            for frame in frames:
                command = decode_command(frame)
                if command.code == RequestCode.SEND_MESSAGE_V2 and not command.is_response:
                    peer.connection.write(encode_command(command.reply(body=b"hot path")))
                else:
                    peer.handle(command)

        client, server = Peer(serve=echo), Peer(serve=echo, on_turn=on_turn)
        await connected(client, server)

        sends = [client.ask(ask(code=RequestCode.SEND_MESSAGE_V2)) for _ in range(8)]
        other = client.ask(ask(b"slow path"))
        back = await server.call(ask(b"asked of the client"))

        assert [(await send).body for send in sends] == [b"hot path"] * 8
        assert (await other).body == b"slow path"
        assert back.body == b"asked of the client"
        assert turns == [9, 1]

    run(main())


def test_an_invalid_header_closes_the_connection_after_the_requests_before_it() -> None:
    async def main() -> None:
        client, server = Peer(), Peer(serve=echo)
        await connected(client, server)

        call = client.ask(ask(b"good"))
        client.connection.write(join_frame(0, b"this is not a header"))

        assert (await call).body == b"good"
        await server.wait_lost()
        assert server.connection.ending is CloseReason.PROTOCOL
        assert isinstance(server.connection.reason, ProtocolError)

    run(main())


def test_the_flag_of_a_one_way_request_is_on_the_wire() -> None:
    async def main() -> None:
        seen: list[int] = []
        server = Peer(on_turn=lambda _, frames: seen.extend(decode_command(frame).flag for frame in frames))
        client = Peer()
        await connected(client, server)

        client.oneway(ask())
        await asyncio.sleep(1)

        assert seen == [ONEWAY]

    run(main())


# settings


def test_limits_of_a_peer_must_be_above_zero() -> None:
    for settings in ({"call_s": 0}, {"silence_s": 0}, {"max_in_flight": 0}, {"max_serving": -1}):
        with pytest.raises(InvalidSetting, match="must be above 0"):
            PeerSettings(**settings)  # type: ignore[arg-type]


def test_a_peer_is_shown_with_its_address() -> None:
    async def main() -> None:
        client = Peer()
        await connected(client, Peer())

        assert repr(client) == "<Peer 10.0.0.1:10911>"

    run(main())
