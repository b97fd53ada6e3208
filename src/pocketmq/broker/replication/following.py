"""The slave's side of replication: follows the log of a master.

    connect ──► report the end of the own log ──► frames ──► store ──► report ──► …
       ▲                                           │
       │   5 s later ◄── another offset than the next one, bytes that are no log, an error of the disk
       └── at once ◄──── the connection is lost, or was silent for `silence_ms`

The master is the one in `haMasterAddress`; otherwise the one that the name servers report. While the store cannot write, the
connection is not read, so the master waits.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final, cast

from pocketmq.broker.reads.replicas import KnownMaster
from pocketmq.broker.replication.serving import frames, report
from pocketmq.broker.settings import SettingsInUse
from pocketmq.clock import Clock
from pocketmq.errors import ConnectionLost, PocketMQError, ProtocolError, StoreBusy
from pocketmq.net import Address, Network, TcpNetwork
from pocketmq.store.receiving import SlaveStore

log = logging.getLogger("pocketmq.broker")

RETRY_S: Final = 5.0
"""Pause after a failure, as in RocketMQ."""
NO_MASTER_S: Final = 1.0
"""Pause while no master is known."""
BUSY_S: Final = 0.01
"""Pause while the store cannot write."""
WATCH_S: Final = 1.0


class MasterConnection(asyncio.Protocol):
    """The connection to the master."""

    def __init__(self, store: SlaveStore, settings: SettingsInUse, clock: Clock, address: Address) -> None:
        self.address = address
        self._store, self._settings, self._clock = store, settings, clock
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self._offset = 0
        self._chunk: bytes | None = None
        self._reported = -1
        self._reported_at = self._read_at = self._loop.time()
        self._watching: asyncio.TimerHandle | None = None
        self._waiting: asyncio.TimerHandle | None = None
        self.lost: asyncio.Future[PocketMQError] = self._loop.create_future()
        """Done when the connection is closed, with the reason."""
        self.read_ms = self.written_ms = clock.now_ms()
        self.received_bytes = 0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._store.forget_unfinished()
        self._report()
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._read_at = self._loop.time()
        self.read_ms = self._clock.now_ms()
        self.received_bytes += len(data)
        self._unread += data
        if self._waiting is None:
            self._take()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(ConnectionLost(f"the connection was closed{f': {error}' if error else ''}"))

    def close(self, reason: PocketMQError) -> None:
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: PocketMQError) -> None:
        for timer in (self._watching, self._waiting):
            if timer is not None:
                timer.cancel()
        self._watching = self._waiting = None
        if not self.lost.done():
            self._store.forget_unfinished()
            self.lost.set_result(reason)

    # receiving

    def _take(self) -> None:
        """Store the frames that are whole."""
        self._waiting = None
        assert self._transport is not None
        try:
            while not self.lost.done():
                if self._chunk is None:
                    following = next(frames(self._unread), None)
                    if following is None:
                        self._transport.resume_reading()
                        break
                    self._offset, self._chunk = following
                if not self._store_chunk():
                    self._transport.pause_reading()
                    self._waiting = self._loop.call_later(BUSY_S, self._take)
                    break
        except PocketMQError as error:
            self.close(error)
            return
        if self._store.facts.log_written > self._reported:
            self._report()

    def _store_chunk(self) -> bool:
        """Store the bytes of a frame. Returns False if the store must be asked again."""
        store, data = self._store, self._chunk
        if data and store.begins and self._offset:
            try:
                store.begin_at(self._offset)
            except StoreBusy:
                return False
        if data is not None and not self._is_next(len(data)):
            raise ProtocolError(
                f"the master sends log offset {self._offset}, but the log of this slave ends at {store.received_to}: it "
                "belongs to another log, or to an older one. Start this slave with an empty store"
            )
        self._offset += len(data or b"")
        self._chunk = b""
        if not store.receive(data or b""):
            return False
        self._chunk = None
        return True

    def _is_next(self, size: int) -> bool:
        return self._offset == self._store.received_to or (self._store.begins and not size)

    # reports

    def _report(self) -> None:
        assert self._transport is not None
        self._reported = self._store.facts.log_written
        self._reported_at = self._loop.time()
        self.written_ms = self._clock.now_ms()
        self._transport.write(report(self._reported))

    def _watch(self) -> None:
        """Report regularly, and close a silent connection."""
        settings, now = self._settings.now.replication, self._loop.time()
        if self._waiting is None and now - self._read_at >= settings.silence_ms / 1000:
            self.close(ConnectionLost(f"the master was silent for {settings.silence_ms / 1000:g} s"))
            return
        if now - self._reported_at >= settings.heartbeat_ms / 1000 - WATCH_S:
            self._report()
        self._watching = self._loop.call_later(min(WATCH_S, settings.silence_ms / 1000), self._watch)


class Following:
    """Follows the master for as long as the broker runs."""

    def __init__(
        self,
        store: SlaveStore,
        settings: SettingsInUse,
        clock: Clock,
        known: KnownMaster,
        network: Network | None,
    ) -> None:
        self._store, self._settings, self._clock = store, settings, clock
        self._known = known
        self._network = network or TcpNetwork()
        self._task: asyncio.Task[None] | None = None
        self._failure = ""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="pocketmq following the master")

    async def stop(self) -> None:
        """Close the connection. Harmless if called twice."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None

    async def _run(self) -> None:
        while True:
            pause_s = await self._follow()
            await asyncio.sleep(pause_s)

    async def _follow(self) -> float:
        """Follow until the connection ends. Returns how long to wait before the next one."""
        master = self._settings.now.replication.master or self._known.ha_address
        if master is None:
            self._log_failure("no master is known; set haMasterAddress, or register it with the same name servers")
            return NO_MASTER_S
        try:
            connection = await self._network.connect(
                lambda: MasterConnection(self._store, self._settings, self._clock, master), master
            )
        except PocketMQError as error:
            self._log_failure(f"cannot connect to master {master}: {error}")
            return RETRY_S
        self._known.connection, before = connection, self._store.facts.log_written
        log.info("Following master %s from log offset %d on", master, self._store.facts.log_end)
        try:
            reason = await connection.lost
        finally:
            connection.close(ConnectionLost("the broker stops"))
            self._known.connection = None
        if self._store.facts.log_written > before:
            self._failure = ""
        self._log_failure(f"lost master {master}: {reason}")
        return 0 if isinstance(reason, ConnectionLost) and connection.received_bytes else RETRY_S

    def _log_failure(self, failure: str) -> None:
        """Every attempt may fail in the same way, so it is logged only if it changes."""
        if failure != self._failure:
            self._failure = failure
            log.warning("This slave does not follow: %s", failure)
