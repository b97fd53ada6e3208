"""The ends of an in-memory connection keep the rules of asyncio for their protocols."""

import asyncio

import pytest
from tests.net.talk import BRISK, SERVER
from tests.testing.ear import Ear, pair

from pocketmq.testing import run
from pocketmq.testing.memory_net import MemoryNetwork, Weather


def test_a_paused_reader_fills_the_window_and_pauses_the_writer() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=Weather(delay_s=(0.001, 0.001), segment_bytes=(100, 100), window_bytes=1_000))
        paused: list[str] = []

        class Writer(Ear):
            def pause_writing(self) -> None:
                paused.append("pause")

            def resume_writing(self) -> None:
                paused.append("resume")

        server = Ear()
        await network.listen(lambda: server, SERVER)
        client = await network.connect(Writer, SERVER)
        server.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=2_000, low=500)

        client.transport.write(bytes(3_000))
        assert (client.transport.get_write_buffer_size(), paused) == (2_000, [])
        client.transport.write(bytes(1))
        await asyncio.sleep(1)
        assert (server.heard, paused) == (b"", ["pause"])
        assert not server.transport.is_reading()
        server.transport.resume_reading()
        await asyncio.sleep(1)

        assert len(server.heard) == 3_001
        assert paused == ["pause", "resume"]
        assert client.transport.get_write_buffer_size() == 0

    run(main())


def test_a_reader_that_pauses_between_two_segments_gets_the_rest_later() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=Weather(delay_s=(1.0, 1.0), segment_bytes=(10, 10)))
        client, server = await pair(network)
        client.transport.write(bytes(10))
        await asyncio.sleep(0.5)
        client.transport.write(bytes(10))
        await asyncio.sleep(0.6)
        server.transport.pause_reading()
        await asyncio.sleep(5)
        heard_while_paused = len(server.heard)
        server.transport.resume_reading()
        await asyncio.sleep(0.01)

        assert (heard_while_paused, len(server.heard)) == (10, 20)

    run(main())


def test_limits_of_the_write_buffer_are_those_of_asyncio() -> None:
    async def main() -> None:
        client, _ = await pair(MemoryNetwork(weather=BRISK))
        transport = client.transport

        assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
        transport.set_write_buffer_limits(high=100)
        assert transport.get_write_buffer_limits() == (25, 100)
        transport.set_write_buffer_limits(low=100)
        assert transport.get_write_buffer_limits() == (100, 400)
        transport.set_write_buffer_limits()
        assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)

    run(main())


def test_both_ends_know_their_own_and_the_others_address() -> None:
    async def main() -> None:
        client, server = await pair(MemoryNetwork(weather=BRISK))

        assert client.transport.get_extra_info("peername") == ("10.0.0.1", 10911)
        assert client.transport.get_extra_info("sockname") == server.transport.get_extra_info("peername")
        assert client.transport.get_extra_info("socket") is None

    run(main())


def test_closing_sends_waiting_bytes_and_aborting_does_not() -> None:
    async def main(abort: bool) -> tuple[int, bool, list[Exception | None]]:
        client, server = await pair(MemoryNetwork(weather=Weather(window_bytes=1_000)))
        client.transport.write(bytes(50_000))
        if abort:
            client.transport.abort()
            client.transport.abort()
        else:
            client.transport.close()
            client.transport.close()
        assert client.transport.is_closing()
        client.transport.write(b"ignored")
        await asyncio.sleep(5)
        assert client.lost == [None]
        return len(server.heard), server.ended, server.lost

    assert run(main(abort=False)) == (50_000, True, [None])
    heard, ended, lost = run(main(abort=True))
    assert (heard <= 1_000, ended) == (True, False)
    assert [type(error) for error in lost] == [ConnectionResetError]


def test_one_direction_may_end_before_the_other() -> None:
    class Answering(Ear):
        def eof_received(self) -> bool:  # type: ignore[override]
            self.transport.write(b"answer to: " + self.heard)
            self.transport.write_eof()
            return True

    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        await network.listen(Answering, SERVER)
        client = await network.connect(Ear, SERVER)
        assert client.transport.can_write_eof()

        client.transport.write(b"question")
        client.transport.write_eof()
        client.transport.write_eof()
        with pytest.raises(RuntimeError, match="after write_eof"):
            client.transport.write(b"more")
        await asyncio.sleep(1)

        assert client.heard == b"answer to: question"
        assert client.lost == [None]

    run(main())


def test_a_protocol_can_be_replaced() -> None:
    async def main() -> None:
        client, server = await pair(MemoryNetwork(weather=BRISK))
        other = Ear()
        assert server.transport.get_protocol() is server

        server.transport.set_protocol(other)
        client.transport.write(b"for the other")
        await asyncio.sleep(1)

        assert (server.heard, other.heard) == (b"", b"for the other")

    run(main())


def test_a_segment_larger_than_the_buffer_of_a_protocol_arrives_in_parts() -> None:
    class Tiny(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(7)
            self.heard = b""

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.heard += self.buffer[:nbytes]

    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        server = Tiny()
        await network.listen(lambda: server, SERVER)
        client = await network.connect(Ear, SERVER)
        client.transport.write(bytes(range(100)))
        await asyncio.sleep(1)

        assert server.heard == bytes(range(100))

    run(main())
