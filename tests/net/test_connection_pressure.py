"""A peer that reads slowly or not at all: what waits, what is deferred, and when its connection ends."""

import asyncio
import random
import socket
import struct
from pathlib import Path

import pytest
from tests.net.talk import NewLoop, Recorder, every_loop, frame_of, joined, run_on, until

from pocketmq.errors import ConnectionLost, PocketMQError
from pocketmq.files import DiskFiles
from pocketmq.net.connection import CloseReason, Connection, ConnectionSettings
from pocketmq.protocol.frames import Frame
from pocketmq.testing import run
from pocketmq.testing.memory_net import Weather

SMALL = ConnectionSettings(unsent_low_bytes=1_000, unsent_high_bytes=10_000, unsent_max_bytes=100_000)
NARROW = Weather(delay_s=(0.001, 0.001), segment_bytes=(1 << 20, 1 << 20), window_bytes=1_000)


def test_requests_of_a_peer_that_does_not_read_are_not_read() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder(SMALL, answer=frame_of(body=bytes(6_000)))
        network = await joined(client, server, NARROW)
        (connection,) = network.connections.values()
        connection.ends[0].pause_reading()

        for _ in range(10):
            client.connection.write(frame_of())
            await asyncio.sleep(0.01)
        turns_while_slow = len(server.turns)
        unsent_while_slow, writable_while_slow = server.connection.unsent_bytes, server.connection.writable

        connection.ends[0].resume_reading()
        await asyncio.sleep(1)

        assert turns_while_slow == 2
        assert unsent_while_slow > SMALL.unsent_high_bytes
        assert (writable_while_slow, server.connection.writable) == (False, True)
        assert sum(len(turn) for turn in server.turns) == 10
        assert len(client.heard) == 10

    run(main())


class Careful(Recorder):
    """Answers each request with `answer`, and defers those that it should not serve yet."""

    def __init__(self, settings: ConnectionSettings, answer: bytes) -> None:
        super().__init__(settings, answer)
        self.connection = Connection(self._serve_some, lambda _, reason: self.lost.append(reason), None, settings)

    def _serve_some(self, line: Connection, frames: list[Frame]) -> None:
        served = 0
        while served < len(frames) and not line.should_pause:
            line.write(self.answer)
            served += 1
        self.turns.append(frames[:served])
        line.put_back(frames[served:])


def test_deferred_requests_are_served_in_order_when_the_buffer_has_space() -> None:
    async def main() -> None:
        client, server = Recorder(), Careful(SMALL, answer=frame_of(body=bytes(6_000)))
        network = await joined(client, server, NARROW)
        (connection,) = network.connections.values()
        connection.ends[0].pause_reading()

        client.connection.write(b"".join(frame_of(body=b"%d" % number) for number in range(9)))
        await asyncio.sleep(1)
        served_while_slow, unsent_while_slow = len(server.heard), server.connection.unsent_bytes
        client.connection.write(b"".join(frame_of(body=b"%d" % number) for number in range(9, 200)))
        connection.ends[0].resume_reading()
        await asyncio.sleep(10)

        assert served_while_slow == 2
        assert unsent_while_slow < SMALL.unsent_high_bytes + 6_200
        assert [body for _, _, body in server.heard] == [b"%d" % number for number in range(200)]
        assert len(client.heard) == 200
        assert server.connection.writable

    run(main())


def test_deferred_requests_continue_when_the_system_accepts_the_answers() -> None:
    async def main() -> None:
        client, server = Recorder(), Careful(SMALL, answer=frame_of(body=bytes(6_000)))
        await joined(client, server)
        started_at = asyncio.get_running_loop().time()

        client.connection.write(frame_of() * 20)
        await asyncio.sleep(0.003)

        assert asyncio.get_running_loop().time() - started_at < 0.01
        assert len(client.heard) == 20
        assert len(server.turns) == 10

    run(main())


def test_invalid_bytes_after_deferred_requests_close_the_connection_after_them() -> None:
    async def main() -> None:
        client, server = Recorder(), Careful(SMALL, answer=frame_of(body=bytes(6_000)))
        await joined(client, server, NARROW)

        client.connection.write(frame_of() * 10 + b"garbage!")
        await client.connection.wait_lost()

        assert len(client.heard) == 10
        assert server.connection.ending is CloseReason.PROTOCOL

    run(main())


def test_deferred_requests_are_dropped_with_their_connection() -> None:
    async def main() -> None:
        client, server = Recorder(), Careful(SMALL, answer=frame_of(body=bytes(6_000)))
        network = await joined(client, server, NARROW)
        (connection,) = network.connections.values()
        connection.ends[0].pause_reading()
        client.connection.write(frame_of() * 10)
        await asyncio.sleep(1)

        network.cut(connection)
        await server.connection.wait_lost()
        await asyncio.sleep(1)

        assert len(server.heard) == 2
        assert server.connection._returned == []

    run(main())


def test_a_connection_with_many_requests_continues_to_read_while_it_cannot_write() -> None:
    async def main() -> None:
        client = Recorder(ConnectionSettings(unsent_low_bytes=1_000, unsent_high_bytes=10_000, pause_reading=False))
        server = Recorder()
        network = await joined(client, server, NARROW)
        (connection,) = network.connections.values()
        connection.ends[1].pause_reading()

        client.connection.write(frame_of(body=bytes(50_000)))
        server.connection.write(frame_of(body=b"an answer"))
        await asyncio.sleep(1)

        assert not client.connection.writable
        assert [body for _, _, body in client.heard] == [b"an answer"]

    run(main())


def test_a_peer_that_reads_nothing_is_disconnected_after_its_timeout(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder(SMALL)
        network = await joined(client, server, NARROW)
        (connection,) = network.connections.values()
        connection.ends[0].pause_reading()
        loop = asyncio.get_running_loop()

        server.connection.write(frame_of(body=bytes(50_000)))
        await asyncio.sleep(0)
        paused_at = loop.time()
        await server.connection.wait_lost()

        assert loop.time() - paused_at == pytest.approx(30.0)
        assert server.connection.ending is CloseReason.SLOW
        assert server.connection.unsent_bytes == 0

    run(main())
    assert "has not read for 30.0 s" in caplog.text


def test_a_peer_above_the_limit_of_unread_bytes_is_disconnected_at_once() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder(SMALL)
        network = await joined(client, server, NARROW)
        (connection,) = network.connections.values()
        connection.ends[0].pause_reading()
        loop = asyncio.get_running_loop()
        started_at = loop.time()

        held: list[int] = []
        while server.connection.is_open:
            server.connection.write(frame_of(body=bytes(9_000)))
            held.append(server.connection.unsent_bytes)
            await asyncio.sleep(0)
        await server.connection.wait_lost()

        assert loop.time() - started_at < 1
        assert max(held) <= SMALL.unsent_max_bytes
        assert len(held) == 12
        assert "the limit of 100000" in str(server.lost[0])

    run(main())


def test_bytes_that_the_peer_has_read_do_not_count_as_unsent() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder(SMALL)
        await joined(client, server, NARROW)

        for _ in range(30):
            server.connection.write(frame_of(body=bytes(40_000)))
            await server.connection.wait_writable()
            await asyncio.sleep(0.1)

        assert server.connection.is_open
        assert len(client.heard) == 30

    run(main())


def test_waiting_for_buffer_space_ends_when_there_is_space() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder(SMALL)
        network = await joined(client, server, NARROW)
        (connection,) = network.connections.values()
        connection.ends[0].pause_reading()
        server.connection.write(frame_of(body=bytes(50_000)))
        await asyncio.sleep(0)
        waiters = [asyncio.create_task(server.connection.wait_writable()) for _ in range(3)]
        await asyncio.sleep(1)
        waiters[0].cancel()
        await asyncio.sleep(0)

        assert not any(waiter.done() for waiter in waiters[1:])
        connection.ends[0].resume_reading()
        await asyncio.gather(*waiters[1:])

        assert server.connection.writable
        assert server.connection._waiters == set()

    run(main())


def test_waiting_for_buffer_space_fails_when_the_connection_ends() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder(SMALL)
        network = await joined(client, server, NARROW)
        (connection,) = network.connections.values()
        connection.ends[0].pause_reading()
        server.connection.write(frame_of(body=bytes(50_000)))
        await asyncio.sleep(0)

        with pytest.raises(ConnectionLost, match="has not read"):
            await server.connection.wait_writable()
        with pytest.raises(ConnectionLost):
            await server.connection.wait_writable()

    run(main())


class Patient(Recorder):
    """Defers every turn until the test runs it."""

    def __init__(self) -> None:
        super().__init__(None, frame_of())
        self.waits = True
        self.connection = Connection(self._serve_later, lambda _, reason: self.lost.append(reason))

    def _serve_later(self, line: Connection, frames: list[Frame]) -> None:
        if self.waits and not line.ends_after_turn:
            line.put_off(frames)
        else:
            self._turn(line, frames)


def test_a_deferred_turn_contains_later_input_and_is_written_at_its_end() -> None:
    async def main() -> None:
        client, server = Recorder(), Patient()
        await joined(client, server)

        for number in range(3):
            client.connection.write(frame_of(body=b"%d" % number))
            await asyncio.sleep(0.01)
        before = len(server.turns)
        server.waits = False
        server.connection.take_put_off()
        server.connection.take_put_off()
        await asyncio.sleep(0.01)

        assert before == 0
        assert [[body for _, _, body in turn] for turn in server.turns] == [[b"0", b"1", b"2"]]
        assert len(client.heard) == 1

    run(main())


def test_at_the_end_of_input_a_deferred_turn_runs() -> None:
    async def main() -> None:
        client, server = Recorder(), Patient()
        await joined(client, server)

        client.connection.write(frame_of(body=b"last"))
        await asyncio.sleep(0.01)
        server.connection.eof_received()
        await client.connection.wait_lost()

        assert [body for _, _, body in server.heard] == [b"last"]
        assert len(client.heard) == 1
        assert server.connection.ending is CloseReason.PEER

    run(main())


def test_a_deferred_turn_is_dropped_with_its_connection() -> None:
    async def main() -> None:
        client, server = Recorder(), Patient()
        await joined(client, server)

        client.connection.write(frame_of())
        await asyncio.sleep(0.01)
        server.connection.abort()
        await server.connection.wait_lost()
        server.connection.take_put_off()

        assert server.turns == []

    run(main())


def test_an_immediate_write_does_not_wait_for_the_loop() -> None:
    async def main() -> None:
        client, server = Recorder(), Recorder()
        await joined(client, server)

        server.connection.write(frame_of(body=b"1"))
        server.connection.write_now(frame_of(body=b"2"))
        left = server.connection._out_bytes
        await asyncio.sleep(0.01)

        assert left == 0
        assert [body for _, _, body in client.heard] == [b"1", b"2"]

    run(main())


@every_loop
def test_a_slow_reader_gets_a_mapped_range_although_its_file_was_deleted(new_loop: NewLoop, tmp_path: Path) -> None:
    path, content = tmp_path / "log", random.Random(3).randbytes(8 << 20)
    path.write_bytes(content)

    async def main() -> bytes:
        line = Connection(lambda *_: None, lambda *_: None)
        with await connected(line) as peer, DiskFiles().open(path) as file:
            view = file.map(len(content))
            for piece in (b"head", view[1000:], b"next head", view[:2000]):
                line.write(piece)
            await until(lambda: not line.writable)
            del view, piece
            path.unlink()
            heard = await asyncio.to_thread(read_to_the_end, peer, len(content) + 1013)
            line.close()
            await line.wait_lost()
        return heard

    assert run_on(new_loop, main()) == b"head" + content[1000:] + b"next head" + content[:2000]


def read_to_the_end(peer: socket.socket, size: int) -> bytes:
    heard = bytearray()
    while len(heard) < size:
        heard += peer.recv(1 << 20)
    return bytes(heard)


@every_loop
def test_unread_bytes_of_a_peer_are_limited_also_for_writes_in_pieces(
    new_loop: NewLoop,
) -> None:
    settings = ConnectionSettings(unsent_max_bytes=16 << 20)
    piece = bytes(1 << 20)
    lost: list[PocketMQError] = []

    async def main() -> int:
        line = Connection(lambda *_: None, lambda _, reason: lost.append(reason), None, settings)
        with await connected(line):
            for _ in range(64):
                line.write(piece)
                line.write(piece)
                line.flush()
                if line.ending is not None:
                    break
            unsent = line.unsent_bytes
            line.abort()
            await line.wait_lost()
        return unsent

    unsent = run_on(new_loop, main())

    assert unsent <= settings.unsent_max_bytes + 2 * len(piece)
    assert "the limit of 16777216" in str(lost)


@every_loop
def test_writes_in_pieces_to_a_closed_peer_leave_nothing_in_the_loop(new_loop: NewLoop) -> None:
    async def main() -> bool:
        line = Connection(lambda *_: None, lambda *_: None)
        peer = await connected(line)
        number = line._transport.get_extra_info("socket").fileno()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

        line.write_now(b"this fails, and the loop is notified later")
        line.write(bytes(1 << 17))
        line.write(bytes(1 << 17))
        line.flush()
        await line.wait_lost()

        return asyncio.get_running_loop().remove_writer(number)

    assert not run_on(new_loop, main())


async def connected(line: Connection) -> socket.socket:
    """The other end of a TCP connection, which reads nothing by itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        await asyncio.get_running_loop().create_connection(lambda: line, *server.getsockname())
        peer, _ = server.accept()
    return peer
