"""The master's side of replication: serves the log to slaves as RocketMQ does; and the bytes of RocketMQ's stream.

    slave ──► master    | log offset 8 |                             "I have everything before it"; the first is a request
    master ──► slave    | log offset 8 | size 4 | bytes of the log |   size 0 is a heartbeat

Frames have no relation to records: a record may be split between frames. A frame never spans two files of the log.

    slave connects ──► its first report ──► n: from n on │ 0: from the start of the newest log file, because a slave begins there
                                                │
    new bytes, or the socket is free ──► frames, at most `transfer_bytes` of one file each
    nothing for `heartbeat_ms` ──► a frame without bytes          no report for `silence_ms` ──► the connection is closed

A slave whose offset is not in the log gets heartbeats only: either it has bytes that this broker lost, or it needs files
that retention deleted. RocketMQ does not report this; here the log says which.

The bytes are read and sent on the event loop, a burst at a time, so that sends and pulls are served in between.
"""

import asyncio
import logging
import struct
from collections.abc import Iterator
from functools import partial
from typing import Final, cast

from pocketmq.broker.reads.replicas import Replicas
from pocketmq.broker.settings import SettingsInUse
from pocketmq.errors import ProtocolError, StoreError
from pocketmq.net import Address, Listener, Network, TcpNetwork
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("pocketmq.broker")

BURST_BYTES: Final = 512 * 1024
"""The bytes that one slave is sent in one step of the event loop."""
RATE_WINDOW_S: Final = 1.0
RETRY_S: Final = 0.5
"""Pause after a read of the log that failed."""


_HEAD: Final = struct.Struct(">qi")
_REPORT: Final = struct.Struct(">q")
HEAD_BYTES: Final = _HEAD.size
REPORT_BYTES: Final = _REPORT.size
LARGEST_FRAME_BYTES: Final = 64 * 1024 * 1024
"""A slave closes a connection with a larger frame: the other side is no master."""


def frame(log_offset: int, data: bytes) -> bytes:
    """A frame with bytes of the log; without them, a heartbeat."""
    return _HEAD.pack(log_offset, len(data)) + data


def report(log_offset: int) -> bytes:
    return _REPORT.pack(log_offset)


def last_report(unread: bytearray) -> int | None:
    """The last whole report in `unread`, which keeps the rest of the next one; None without a whole report."""
    whole = len(unread) - len(unread) % REPORT_BYTES
    if not whole:
        return None
    found: int = _REPORT.unpack_from(unread, whole - REPORT_BYTES)[0]
    del unread[:whole]
    return found


def frames(unread: bytearray) -> Iterator[tuple[int, bytes]]:
    """The whole frames in `unread`, each as log offset and bytes. They are removed from it. ProtocolError if it is no stream."""
    while len(unread) >= HEAD_BYTES:
        log_offset, size = _HEAD.unpack_from(unread)
        if log_offset < 0 or not 0 <= size <= LARGEST_FRAME_BYTES:
            raise ProtocolError(f"the stream has a frame of {size} bytes for log offset {log_offset}")
        if len(unread) < HEAD_BYTES + size:
            return
        data = bytes(memoryview(unread)[HEAD_BYTES : HEAD_BYTES + size])
        del unread[: HEAD_BYTES + size]
        yield log_offset, data


class SlaveConnection(asyncio.Protocol):
    """The connection of one slave. It belongs to `replicas` while it is open."""

    def __init__(self, store: MessageStore, replicas: Replicas, settings: SettingsInUse) -> None:
        self._store, self._replicas, self._settings = store, replicas, settings
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self._has_request = self._is_served = self._is_paused = False
        self._sending: asyncio.Handle | None = None
        self._checking: asyncio.TimerHandle | None = None
        self._reported_at = self._sent_at = self._window_at = self._loop.time()
        self._window_bytes = 0
        self.address = Address("", 0)
        self.acked = -1
        self.next_offset = -1
        self.bytes_per_s = 0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.address = Address(*(transport.get_extra_info("peername") or ("", 0))[:2])
        hosts = self._settings.now.replication.slave_hosts
        if hosts and self.address.host not in hosts:
            log.warning("Rejected a slave at %s: its address is not in haSlaveHosts", self.address)
            self._transport.abort()
            return
        log.info("Slave %s connected", self.address)
        self._replicas.add(self)
        self._check()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        offset = last_report(self._unread)
        if offset is None or self._checking is None:
            return
        self._reported_at = self._loop.time()
        if not self._has_request:
            self._has_request = True
            self._begin(offset)
        if self._is_served:
            self.acked = offset
            self._replicas.acked()
        self.wake()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.wake()

    def connection_lost(self, error: Exception | None) -> None:
        if self._checking is None:
            return
        self._checking.cancel()
        self._checking = None
        if self._sending is not None:
            self._sending.cancel()
        self._replicas.remove(self)
        log.info("Slave %s disconnected%s", self.address, f": {error}" if error else "")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # sending

    def wake(self) -> None:
        """Send what is new, soon: the turn that stored it is answered first."""
        if self._is_served and self._sending is None and not self._is_paused:
            self._sending = self._loop.call_soon(self._send)

    def _begin(self, requested: int) -> None:
        facts, file_bytes = self._store.facts, self._store.settings.log_file_bytes
        end = facts.log_written
        self.next_offset = requested or max(end - end % file_bytes, facts.log_start)
        if facts.log_start <= self.next_offset <= end:
            self._is_served = True
            log.info("Sending the log to slave %s from offset %d on", self.address, self.next_offset)
        elif requested > end:
            log.error(
                "Slave %s has the log up to %d, but this broker only up to %d: it follows another log, or this broker lost "
                "messages; nothing is sent to it",
                self.address,
                requested,
                end,
            )
        else:
            log.error(
                "Slave %s asks for log offset %d, but the log begins at %d: nothing is sent to it; start it with an empty store",
                self.address,
                requested,
                facts.log_start,
            )

    def _send(self) -> None:
        self._sending = None
        transport, settings = self._transport, self._settings.now.replication
        if transport is None or transport.is_closing():
            return
        left = BURST_BYTES
        while not self._is_paused:
            most = min(settings.transfer_bytes, self._rate_left()) if settings.limits_rate else settings.transfer_bytes
            if left <= 0 or not most:
                wait_s = 0.0 if most else self._window_at + RATE_WINDOW_S - self._loop.time()
                self._sending = (
                    self._loop.call_later(wait_s, self._send) if wait_s > 0 else self._loop.call_soon(self._send)
                )
                return
            data = self._read(most)
            if not data:
                return
            left -= len(data)
            self._write(data)

    def _read(self, most: int) -> bytes:
        try:
            return self._store.log_bytes(self.next_offset, most)
        except StoreError as error:
            log.error("Cannot send the log to slave %s; retrying: %s", self.address, error)
            self._sending = self._loop.call_later(RETRY_S, self._send)
            return b""

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(frame(self.next_offset, data))
        self.next_offset += len(data)
        self._sent_at = now = self._loop.time()
        self._count(now)
        self._window_bytes += len(data)

    def _count(self, now: float) -> None:
        passed_s = now - self._window_at
        if passed_s >= RATE_WINDOW_S:
            self.bytes_per_s = int(self._window_bytes / passed_s)
            self._window_at, self._window_bytes = now, 0

    def _rate_left(self) -> int:
        self._count(self._loop.time())
        return max(self._settings.now.replication.max_bytes_per_s - self._window_bytes, 0)

    # time

    def _check(self) -> None:
        """Send a heartbeat if one is due, and close the connection to a silent slave."""
        settings, now = self._settings.now.replication, self._loop.time()
        self._count(now)
        silence_s, heartbeat_s = settings.silence_ms / 1000, settings.heartbeat_ms / 1000
        if now - self._reported_at >= silence_s:
            log.warning("Slave %s has reported nothing for %g s; closing its connection", self.address, silence_s)
            self.close()
        if self._has_request and now - self._sent_at >= heartbeat_s and not self._is_paused:
            assert self._transport is not None
            self._transport.write(frame(self.next_offset, b""))
            self._sent_at = now
        due = (
            min(self._reported_at + silence_s, self._sent_at + heartbeat_s)
            if self._has_request
            else self._reported_at + silence_s
        )
        self._checking = self._loop.call_later(min(max(due - now, 0.01), RATE_WINDOW_S), self._check)


class SlaveServer:
    """The port for slaves."""

    def __init__(
        self, store: MessageStore, replicas: Replicas, settings: SettingsInUse, network: Network | None
    ) -> None:
        self._network = network or TcpNetwork()
        self._replicas = replicas
        self._make = partial(SlaveConnection, store, replicas, settings)
        self._listener: Listener | None = None

    async def start(self, address: Address) -> Address:
        """Listen. Returns the actual address. ListenFailed if that is impossible."""
        self._listener = await self._network.listen(self._make, address)
        log.info("Serving slaves on %s", self._listener.address)
        return self._listener.address

    def stop(self) -> None:
        """Close the port and all connections. Harmless if called twice."""
        if self._listener is not None:
            self._listener.close()
        for slave in list(self._replicas):
            cast("SlaveConnection", slave).close()
