"""Connections: turns with one write each, back-pressure, idle timeouts, and one notification of the end."""

import asyncio
import logging

import pytest
from tests.net.talk import NewLoop, Recorder, every_loop, frame_of, joined, run_on, until

from pocketmq.errors import InvalidSetting, ProtocolError, WrongState
from pocketmq.net.address import Address
from pocketmq.net.connection import JOINED_BYTES, RECEIVE_BYTES, CloseReason, Connection, ConnectionSettings
from pocketmq.protocol.frames import Frame, FrameLimits
from pocketmq.testing import run
from pocketmq.testing.memory_net import Weather

NARROW = Weather(delay_s=(0.001, 0.001), segment_bytes=(1 << 20, 1 << 20), window_bytes=1_000)


class WrittenTransport(asyncio.Transport):
    """Remembers each write."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 4000)})
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (1024 * 1024, 256 * 1024)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


def feed(line: Connection, data: bytes) -> None:
    line.get_buffer(-1)[: len(data)] = data
    line.buffer_updated(len(data))


# turns


def test_all_frames_of_one_read_are_one_turn() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder()
        await joined(client, server)

        client.connection.write(frame_of(body=b"1"))
        client.connection.write(frame_of(body=b"2") + frame_of(body=b"3")[:10])
        await asyncio.sleep(0.01)
        client.connection.write(frame_of(body=b"3")[10:])
        await asyncio.sleep(0.01)

        assert [[body for _, _, body in turn] for turn in server.turns] == [[b"1", b"2"], [b"3"]]

    run(main())


def test_all_writes_of_a_turn_are_one_write_at_its_end() -> None:
    async def main() -> None:
        transport = WrittenTransport()
        seen_during_turn: list[int] = []

        def answer_each(line: Connection, frames: list[Frame]) -> None:
            for number, _ in enumerate(frames):
                line.write(b"answer %d " % number)
            seen_during_turn.append(len(transport.writes))

        line = Connection(answer_each, lambda *_: None)
        line.connection_made(transport)
        feed(line, frame_of() * 3)

        assert seen_during_turn == [0]
        assert transport.writes == [b"answer 0 answer 1 answer 2 "]

    run(main())


@every_loop
def test_large_pieces_are_sent_in_order_without_copying(new_loop: NewLoop) -> None:
    pieces = [bytes([number]) * (JOINED_BYTES // 2 + number) for number in range(1, 40)]
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 20):
            heard.extend(data)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        line = Connection(lambda *_: None, lambda *_: None)
        await asyncio.get_running_loop().create_connection(lambda: line, "127.0.0.1", port)

        for piece in pieces:
            line.write(piece)
        await until(lambda: len(heard) >= sum(map(len, pieces)))

        line.close()
        await line.wait_lost()
        server.close()

    run_on(new_loop, main())
    assert heard == b"".join(pieces)


def test_writes_outside_a_turn_are_joined_until_the_next_loop_iteration() -> None:
    async def main() -> None:
        transport = WrittenTransport()
        line = Connection(lambda *_: None, lambda *_: None)
        line.connection_made(transport)

        line.write(b"a")
        line.write(b"b")
        assert line.unsent_bytes == 2
        await asyncio.sleep(0)

        assert transport.writes == [b"ab"]

    run(main())


def test_waiting_writes_are_sent_with_the_next_turn() -> None:
    async def main() -> None:
        transport = WrittenTransport()
        line = Connection(lambda line, _: line.write(b"answer"), lambda *_: None)
        line.connection_made(transport)

        line.write(b"before ")
        feed(line, frame_of())
        await asyncio.sleep(0)

        assert transport.writes == [b"before answer"]

    run(main())


def test_all_connections_of_a_loop_read_into_one_buffer() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder()
        await joined(client, server)

        assert client.connection.get_buffer(-1) is server.connection.get_buffer(10)
        assert len(client.connection.get_buffer(-1)) == RECEIVE_BYTES

    run(main())


def test_a_connection_knows_its_peer() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder()
        await joined(client, server)

        assert client.connection.address == Address("10.0.0.1", 10911)
        assert server.connection.address.host == "127.0.0.1"

    run(main())


def test_a_connection_knows_its_own_side_once_it_is_connected() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder()
        with pytest.raises(WrongState):
            _ = client.connection.own_address
        await joined(client, server)

        assert client.connection.own_address == server.connection.address
        assert server.connection.own_address == client.connection.address

    run(main())


# what ends a line


def test_frames_before_invalid_bytes_are_answered_and_the_reason_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> tuple[Recorder, Recorder]:
        client, server = Recorder(), Recorder(answer=frame_of(body=b"served"))
        await joined(client, server)
        client.connection.write(frame_of(body=b"good") + b"GET / HTTP/1.1\r\n\r\n")
        await client.connection.wait_lost()
        await server.connection.wait_lost()
        return client, server

    with caplog.at_level(logging.WARNING, "pocketmq.net"):
        client, server = run(main())

    assert [body for _, _, body in server.heard] == [b"good"]
    assert [body for _, _, body in client.heard] == [b"served"]
    assert server.connection.ending is CloseReason.PROTOCOL
    assert [type(reason) for reason in server.lost] == [ProtocolError]
    assert len(caplog.records) == 1
    assert "127.0.0.1" in caplog.text
    assert "exceeds the limit" in caplog.text


def test_a_too_large_frame_closes_the_connection_at_its_header() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder(ConnectionSettings(limits=FrameLimits(frame_bytes=1000)))
        await joined(client, server)

        client.connection.write((1001).to_bytes(4, "big"))
        await server.connection.wait_lost()

        assert "exceeds the limit of 1000" in str(server.lost[0])
        assert server.turns == []

    run(main())


def test_a_protocol_error_in_a_turn_closes_the_connection_after_the_answers() -> None:
    async def main() -> None:
        client = Recorder()

        def turn(line: Connection, frames: list[Frame]) -> None:
            line.write(frame_of(body=b"first answer"))
            raise ProtocolError("second header is invalid")

        server = Recorder()
        server.connection = Connection(turn, lambda _, reason: server.lost.append(reason))
        await joined(client, server)
        client.connection.write(frame_of() * 2)
        await client.connection.wait_lost()

        assert [body for _, _, body in client.heard] == [b"first answer"]
        assert server.connection.ending is CloseReason.PROTOCOL
        assert str(server.lost[0]) == "second header is invalid"

    run(main())


def test_a_failed_turn_closes_its_connection_and_is_logged_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> Recorder:
        client, server = Recorder(), Recorder()

        def turn(line: Connection, frames: list[Frame]) -> None:
            raise KeyError("bug")

        server.connection = Connection(turn, lambda _, reason: server.lost.append(reason))
        await joined(client, server)
        client.connection.write(frame_of())
        await server.connection.wait_lost()
        return server

    server = run(main())

    assert server.connection.ending is CloseReason.FAILED
    assert "KeyError: 'bug'" in caplog.text


# idle lines


def test_a_silent_connection_is_closed_after_two_minutes() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder()
        await joined(client, server)
        started_at = asyncio.get_running_loop().time()

        await server.connection.wait_lost()

        assert asyncio.get_running_loop().time() - started_at == pytest.approx(120.0)
        assert CloseReason.IDLE in (client.connection.ending, server.connection.ending)

    run(main())


@pytest.mark.parametrize("speaker", ["client", "server"])
def test_bytes_in_either_direction_keep_both_ends_open(speaker: str) -> None:
    async def main() -> None:
        ends = {"client": Recorder(), "server": Recorder()}
        await joined(ends["client"], ends["server"])

        for _ in range(5):
            await asyncio.sleep(100)
            ends[speaker].connection.write(frame_of())
        spoken_at = asyncio.get_running_loop().time()
        await asyncio.sleep(0.01)
        assert all(end.connection.is_open for end in ends.values())
        await ends["server"].connection.wait_lost()

        assert asyncio.get_running_loop().time() - spoken_at == pytest.approx(120.0, abs=0.01)

    run(main())


def test_a_half_open_peer_is_closed_as_idle() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder()
        network = await joined(client, server)
        network.half_open("10.0.0.1")
        client.connection.write(frame_of())

        await server.connection.wait_lost()

        assert server.connection.ending is CloseReason.IDLE
        assert server.heard == []

    run(main())


# closing


def test_closing_sends_waiting_writes_and_notifies_both_ends_once() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder()
        await joined(client, server)

        client.connection.write(frame_of(body=b"last words"))
        client.connection.close()
        client.connection.close()
        client.connection.write(b"too late")
        await client.connection.wait_lost()
        await server.connection.wait_lost()
        client.connection.close()
        client.connection.abort()

        assert [body for _, _, body in server.heard] == [b"last words"]
        assert len(client.lost) == len(server.lost) == 1
        assert client.connection.ending is CloseReason.CLOSED
        assert server.connection.ending is CloseReason.PEER
        assert not client.connection.is_open

    run(main())


def test_aborting_drops_waiting_writes() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder()
        await joined(client, server)

        client.connection.write(frame_of(body=b"never sent"))
        client.connection.abort()
        await server.connection.wait_lost()

        assert server.heard == []
        assert len(client.lost) == 1

    run(main())


def test_a_closing_connection_does_not_wait_forever_for_a_peer_that_does_not_read() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder()
        network = await joined(client, server, NARROW)
        (connection,) = network.connections.values()
        connection.ends[0].pause_reading()
        server.connection.write(frame_of(body=bytes(50_000)))
        await asyncio.sleep(0)
        closed_at = asyncio.get_running_loop().time()

        server.connection.close()
        await server.connection.wait_lost()

        assert asyncio.get_running_loop().time() - closed_at == pytest.approx(5.0)

    run(main())


def test_a_connection_that_is_cut_is_lost_with_its_cause() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder()
        network = await joined(client, server)

        network.cut("10.0.0.1")
        await client.connection.wait_lost()

        assert client.connection.ending is CloseReason.PEER
        assert "connection reset by peer" in str(client.lost[0])

    run(main())


def test_frames_that_arrive_while_a_connection_is_ending_are_not_served() -> None:
    async def main() -> None:
        transport = WrittenTransport()
        recorder = Recorder()
        recorder.connection.connection_made(transport)

        recorder.connection.close()
        feed(recorder.connection, frame_of())

        assert transport.closed
        assert recorder.turns == []

    run(main())


def test_an_unconnected_connection_cannot_be_written_to() -> None:
    line = Recorder().connection

    line.close()
    with pytest.raises(WrongState, match="not open yet"):
        line.write(b"x")
    assert line.unsent_bytes == 0


# settings


@pytest.mark.parametrize(("low", "high", "largest"), [(10, 10, 20), (10, 20, 20), (-1, 20, 30), (30, 20, 40)])
def test_limits_of_unsent_bytes_must_be_ascending(low: int, high: int, largest: int) -> None:
    with pytest.raises(InvalidSetting, match="low < high < max"):
        ConnectionSettings(unsent_low_bytes=low, unsent_high_bytes=high, unsent_max_bytes=largest)


@pytest.mark.parametrize("times", [(0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0)])
def test_timeouts_of_a_connection_must_be_above_zero(times: tuple[float, float, float]) -> None:
    idle_s, slow_s, linger_s = times

    with pytest.raises(InvalidSetting, match="idle_s, slow_s and linger_s"):
        ConnectionSettings(idle_s=idle_s, slow_s=slow_s, linger_s=linger_s)
