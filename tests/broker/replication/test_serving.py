"""A master serves its log to slaves, byte for byte as Apache's slaves expect it."""

import asyncio
import struct
from typing import Any

import pytest
from tests.broker.lives import Lives, in_virtual_time, make_topic
from tests.broker.running import Client
from tests.net.talk import until

from pocketmq.broker.broker import Broker
from pocketmq.broker.replication.serving import frame, frames, last_report, report
from pocketmq.broker.replication_settings import ReplicationSettings
from pocketmq.errors import ProtocolError
from pocketmq.net.address import Address

HA = ReplicationSettings(port=10912)
FILE_BYTES = 64 * 1024


class RawSlave(asyncio.Protocol):
    """A slave that reports what the test says, and keeps what it is sent."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []
        self.lost = False
        self._unread = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self.frames += frames(self._unread)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True

    def report(self, offset: int) -> None:
        self.transport.write(report(offset))

    @property
    def log(self) -> bytes:
        """The bytes so far, which have no gaps."""
        end = self.frames[0][0]
        for offset, data in self.frames:
            assert offset == end
            end += len(data)
        return b"".join(data for _, data in self.frames)


async def raw_slave(lives: Lives, broker: Broker, host: str = "10.0.0.2") -> RawSlave:
    assert broker.slave_address is not None
    return await lives.network.at(host).connect(RawSlave, broker.slave_address)


async def fill(client: Client, count: int, size: int = 4000) -> None:
    for _ in range(count):
        await client.sent(bytes(size))


def log_of(broker: Broker) -> bytes:
    store = broker.parts.state.store
    found = bytearray()
    while part := store.log_bytes(len(found), 1 << 20):
        found += part
    return bytes(found)


def test_a_slave_gets_the_log_across_files_and_then_what_is_new() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker(replication=HA) as broker:
            make_topic(broker)
            client = await lives.client()
            slave = await raw_slave(lives, broker)
            slave.report(0)
            await until(lambda: broker.parts.state.replicas.count == 1)
            await fill(client, 40)
            await until(lambda: slave.frames != [] and len(slave.log) == broker.parts.state.store.facts.log_end)
            assert slave.log == log_of(broker)
            assert len(slave.log) > 2 * FILE_BYTES
            assert all(
                offset // FILE_BYTES == (offset + max(len(data), 1) - 1) // FILE_BYTES for offset, data in slave.frames
            )
            assert max(len(data) for _, data in slave.frames) <= 32 * 1024

    in_virtual_time(main)


def test_nothing_is_sent_before_the_first_report() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker(replication=HA) as broker:
            make_topic(broker)
            await fill(await lives.client(), 3)
            slave = await raw_slave(lives, broker)
            await asyncio.sleep(15)
            assert slave.frames == []

    in_virtual_time(main)


@pytest.mark.parametrize(("requested", "start"), [(0, FILE_BYTES), (4_312, 4_312), (FILE_BYTES, FILE_BYTES)])
def test_an_empty_slave_begins_at_the_newest_file_and_others_where_they_ask(requested: int, start: int) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker(replication=HA) as broker:
            make_topic(broker)
            await fill(await lives.client(), 20)
            slave = await raw_slave(lives, broker)
            slave.report(requested)
            end = broker.parts.state.store.facts.log_end
            await until(lambda: slave.frames != [] and start + len(slave.log) == end)
            assert slave.frames[0][0] == start
            assert slave.log == log_of(broker)[start:]

    in_virtual_time(main)


def test_a_slave_beyond_the_end_gets_heartbeats_only(caplog: pytest.LogCaptureFixture) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker(replication=HA) as broker:
            make_topic(broker)
            client = await lives.client()
            await fill(client, 1)
            slave = await raw_slave(lives, broker)
            slave.report(1_000_000)
            await fill(client, 1)
            await asyncio.sleep(11)
            assert slave.frames == [(1_000_000, b"")] * 2
            assert [one.acked for one in broker.parts.state.replicas] == [-1]

    in_virtual_time(main)
    assert "it follows another log, or this broker lost messages" in caplog.text


def test_an_idle_slave_gets_heartbeats_and_a_silent_one_is_disconnected() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker(replication=HA) as broker:
            slave = await raw_slave(lives, broker)
            slave.report(0)
            await asyncio.sleep(19.9)
            assert slave.frames == [(0, b"")] * 3
            assert broker.parts.state.replicas.count == 1
            await asyncio.sleep(0.2)
            assert slave.lost
            assert broker.parts.state.replicas.count == 0

    in_virtual_time(main)


def test_reports_say_what_a_slave_has() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker(replication=HA) as broker:
            make_topic(broker)
            await fill(await lives.client(), 2)
            slave = await raw_slave(lives, broker)
            for offset in (0, 1_000, 4_312):
                slave.report(offset)
            slave.transport.write(report(8_624)[:5])
            await until(lambda: [one.acked for one in broker.parts.state.replicas] == [4_312])
            slave.transport.write(report(8_624)[5:])
            await until(lambda: [one.acked for one in broker.parts.state.replicas] == [8_624])

    in_virtual_time(main)


def test_the_rate_is_limited() -> None:
    async def main(lives: Lives) -> None:
        limited = ReplicationSettings(port=10912, limits_rate=True, max_bytes_per_s=10_000)
        async with lives.broker(replication=limited) as broker:
            make_topic(broker)
            await fill(await lives.client(), 10)
            slave = await raw_slave(lives, broker)
            slave.report(0)
            await asyncio.sleep(2.5)
            assert 10_000 < len(slave.log) <= 30_000
            await asyncio.sleep(10)
            assert slave.log == log_of(broker)

    in_virtual_time(main)


def test_only_named_hosts_may_follow(caplog: pytest.LogCaptureFixture) -> None:
    async def main(lives: Lives) -> None:
        only = ReplicationSettings(port=10912, slave_hosts=("10.0.0.9",))
        async with lives.broker(replication=only) as broker:
            stranger = await raw_slave(lives, broker)
            await until(lambda: stranger.lost)
            known = await raw_slave(lives, broker, "10.0.0.9")
            known.report(0)
            await asyncio.sleep(6)
            assert not known.lost

    in_virtual_time(main)
    assert "its address is not in haSlaveHosts" in caplog.text


def test_without_a_port_nothing_listens() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            assert broker.slave_address is None
            assert Address("127.0.0.1", 10912) not in lives.network._listeners

    in_virtual_time(main)


def test_frames_are_those_of_rocketmq() -> None:
    assert frame(258, b"ab") == struct.pack(">qi", 258, 2) + b"ab"
    assert report(258) == struct.pack(">q", 258)
    unread = bytearray(frame(1, b"ab") + frame(3, b"") + frame(3, b"cd")[:13])
    assert list(frames(unread)) == [(1, b"ab"), (3, b"")]
    assert bytes(unread) == frame(3, b"cd")[:13]
    assert last_report(bytearray(b"1234567")) is None
    with pytest.raises(ProtocolError, match="a frame of -1 bytes"):
        list(frames(bytearray(struct.pack(">qi", 0, -1))))
