"""A connection pool: one shared peer for each address.

    peer(address) ── connected ────────────────────────────────► that peer
                  ├─ connecting ── all callers wait for it ─────► that peer, or ConnectFailed for all
                  ├─ backing off ──────────────────────────────► ConnectFailed at once, with the time of the next attempt
                  └─ unknown ── connect within `connect_s` ─────► …
    waits_for_retry=False, after a failure: ConnectFailed at once; the next attempt runs in the background

    wait after n failures in a row:  backoff_s · 2ⁿ⁻¹, at most backoff_max_s, times a random factor from 0.5 to 1

A connection that the server closes within `settled_s` counts as a failure too, so that a server that accepts and closes is not
hammered. A lost peer is removed at once; the next caller connects again.
"""

import asyncio
import random
import ssl
from contextlib import ExitStack
from typing import Self

import msgspec

from pocketmq.errors import ConnectFailed, ConnectionLost, InvalidSetting, PocketMQError, WrongState
from pocketmq.net.address import Address
from pocketmq.net.connection import CloseReason, ConnectionSettings
from pocketmq.net.network import Network, TcpNetwork
from pocketmq.net.peer import Peer, PeerSettings, Serve

CLIENT_PEER = PeerSettings(connection=ConnectionSettings(pause_reading=False))
"""A client keeps reading while it cannot write. If both sides paused, neither would continue."""


class PoolSettings(msgspec.Struct, frozen=True):
    """Limits of a pool."""

    peer: PeerSettings = CLIENT_PEER
    connect_s: float = 3.0
    """Time to connect, including the TLS handshake."""
    backoff_s: float = 0.2
    backoff_max_s: float = 10.0
    settled_s: float = 1.0
    max_addresses: int = 1024
    """Addresses that are connected, connecting or backing off. One more raises ConnectFailed."""

    def __post_init__(self) -> None:
        if min(self.connect_s, self.backoff_s, self.max_addresses) <= 0 or self.settled_s < 0:
            raise InvalidSetting(
                "connect_s, backoff_s and max_addresses must be above 0, and settled_s must not be negative"
            )
        if self.backoff_max_s < self.backoff_s:
            raise InvalidSetting(f"backoff_max_s={self.backoff_max_s} is below backoff_s={self.backoff_s}")


class _Entry:
    """The state of one address."""

    __slots__ = ("attempt", "failure", "failures", "made_at", "next_try_at", "peer")

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.attempt: asyncio.Task[Peer | ConnectFailed] | None = None
        self.made_at = 0.0
        self.failures = 0
        self.failure = ""
        self.next_try_at = 0.0


class Pool:
    """Open peers by address. `serve` answers the requests that they send."""

    def __init__(
        self,
        *,
        network: Network | None = None,
        serve: Serve | None = None,
        tls: ssl.SSLContext | None = None,
        settings: PoolSettings | None = None,
        dice: random.Random | None = None,
    ) -> None:
        self._network = network or TcpNetwork()
        self._serve = serve
        self._tls = tls
        self._settings = settings or PoolSettings()
        self._dice = dice or random.Random()  # noqa: S311 spreads retries, keeps no secret
        self._entries: dict[Address, _Entry] = {}
        self._alive: dict[Peer, None] = {}
        self._closed = False

    @property
    def peers(self) -> list[Peer]:
        """The connected peers."""
        return [peer for peer in self._alive if peer.is_open]

    async def peer(self, address: Address, *, waits_for_retry: bool = True) -> Peer:
        """The open peer at `address`, connecting if necessary. ConnectFailed says why not, and when the next attempt is.

        With `waits_for_retry=False`, a caller that can use another address does not wait for one whose last attempt failed: a host
        that does not respond would cost each caller `connect_s`. The attempt runs in the background.
        """
        entry = self._entries.get(address)
        if entry is not None and entry.peer is not None and entry.peer.is_open:
            return entry.peer
        if self._closed:
            raise WrongState("the pool is closed")
        entry = entry or self._add_entry(address)
        attempt = entry.attempt
        if attempt is None:
            self._refuse_while_backing_off(entry)
            attempt = entry.attempt = asyncio.get_running_loop().create_task(self._connect(address, entry))
        if entry.failures and not waits_for_retry:
            raise ConnectFailed(f"{entry.failure}; reconnecting")
        # Not awaited directly: cancelling one waiter must not cancel the attempt for the others.
        await asyncio.wait((attempt,))
        if attempt.cancelled():
            raise WrongState("the pool was closed while connecting")
        outcome = attempt.result()
        if isinstance(outcome, ConnectFailed):
            raise ConnectFailed(str(outcome))
        return outcome

    async def close(self) -> None:
        """Close all connections and wait until they are closed. Idempotent."""
        self._closed = True
        attempts = [entry.attempt for entry in self._entries.values() if entry.attempt is not None]
        for attempt in attempts:
            attempt.cancel()
        if attempts:
            await asyncio.wait(attempts)
        for peer in self._alive:
            peer.close()
        await asyncio.gather(*(peer.wait_lost() for peer in self._alive))
        self._entries.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _connect(self, address: Address, entry: _Entry) -> Peer | ConnectFailed:
        settings = self._settings
        peer = Peer(
            serve=self._serve,
            on_made=self._made,
            on_lost=lambda peer, reason: self._lost(address, peer, reason),
            settings=settings.peer,
        )
        try:
            async with asyncio.timeout(settings.connect_s):
                await self._open(peer, address)
        except TimeoutError:
            return self._failed(entry, f"{address}: no connection within {settings.connect_s} s")
        except ConnectFailed as error:
            return self._failed(entry, str(error))
        finally:
            entry.attempt = None
        if not peer.is_open:
            return self._failed(entry, f"{address}: {peer.connection.reason}")
        entry.peer, entry.made_at = peer, asyncio.get_running_loop().time()
        return peer

    async def _open(self, peer: Peer, address: Address) -> None:
        with ExitStack() as undo:
            undo.callback(peer.connection.give_up, ConnectionLost("connect was cancelled"))
            await self._network.connect(lambda: peer.connection, address, tls=self._tls)
            undo.pop_all()

    def _failed(self, entry: _Entry, why: str) -> ConnectFailed:
        settings = self._settings
        entry.failures += 1
        wait_s = min(settings.backoff_max_s, settings.backoff_s * 2.0 ** min(entry.failures - 1, 62))
        entry.failure = why
        wait_s *= self._dice.uniform(0.5, 1.0)
        entry.next_try_at = asyncio.get_running_loop().time() + wait_s
        return ConnectFailed(f"{why}; next attempt in {wait_s:.1f} s")

    def _refuse_while_backing_off(self, entry: _Entry) -> None:
        wait_s = entry.next_try_at - asyncio.get_running_loop().time()
        if wait_s > 0:
            raise ConnectFailed(f"{entry.failure}; next attempt in {wait_s:.1f} s")

    def _add_entry(self, address: Address) -> _Entry:
        if len(self._entries) >= self._settings.max_addresses:
            self._forget_failures()
        if len(self._entries) >= self._settings.max_addresses:
            raise ConnectFailed(
                f"{address}: the limit of {len(self._entries)} addresses in use is reached (max_addresses)"
            )
        entry = self._entries[address] = _Entry()
        return entry

    def _forget_failures(self) -> None:
        """Remove addresses whose wait is over and that no caller asked for again."""
        now = asyncio.get_running_loop().time()
        for address, entry in list(self._entries.items()):
            if entry.peer is None and entry.attempt is None and entry.next_try_at <= now:
                del self._entries[address]

    def _made(self, peer: Peer) -> None:
        self._alive[peer] = None

    def _lost(self, address: Address, peer: Peer, reason: PocketMQError) -> None:
        del self._alive[peer]
        entry = self._entries.get(address)
        if entry is None or entry.peer is not peer:
            return
        entry.peer = None
        lived_s = asyncio.get_running_loop().time() - entry.made_at
        if peer.connection.ending is CloseReason.PEER and lived_s < self._settings.settled_s:
            self._failed(entry, f"{address}: {reason}")
        elif entry.attempt is None:
            del self._entries[address]
