"""A pool: from an address to a live peer. One connection for each address, shared by all who ask.

    peer(address) ── connected ───────────────────────────────► that peer
                  ├─ connecting ── all wait for the same try ──► that peer, or ConnectFailed for all
                  ├─ backing off ─────────────────────────────► ConnectFailed at once, saying when the next try may be
                  └─ unknown ── connect within `connect_s` ────► …
    the same, when the last try failed and the caller has another address: ConnectFailed at once, the next try is made beside

    wait after the n-th failure in a row:  backoff_s · 2ⁿ⁻¹, at most backoff_max_s, times a random half to whole

A connection that is lost before it lived for `settled_s` counts as a failure too: a server that accepts and hangs up must not be
hammered. A lost peer is forgotten at once; whoever asks next connects anew.
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
"""A client goes on reading while it cannot write: if both sides stopped, neither would ever start again."""


class PoolSettings(msgspec.Struct, frozen=True):
    """Bounds of a pool."""

    peer: PeerSettings = CLIENT_PEER
    connect_s: float = 3.0
    """Time for connecting, TLS included."""
    backoff_s: float = 0.2
    backoff_max_s: float = 10.0
    settled_s: float = 1.0
    max_addresses: int = 1024
    """Addresses that are connected, connecting or backing off; one more is ConnectFailed."""

    def __post_init__(self) -> None:
        if min(self.connect_s, self.backoff_s, self.max_addresses) <= 0 or self.settled_s < 0:
            raise InvalidSetting("connect_s, backoff_s and max_addresses must be above 0, settled_s not below")
        if self.backoff_max_s < self.backoff_s:
            raise InvalidSetting(f"backoff_max_s={self.backoff_max_s} is below backoff_s={self.backoff_s}")


class _Place:
    """What is known about one address."""

    __slots__ = ("attempt", "failure", "failures", "made_at", "next_try_at", "peer")

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.attempt: asyncio.Task[Peer | ConnectFailed] | None = None
        self.made_at = 0.0
        self.failures = 0
        self.failure = ""
        self.next_try_at = 0.0


class Pool:
    """Live peers by address. Requests that they send are answered by `serve`."""

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
        self._places: dict[Address, _Place] = {}
        self._alive: dict[Peer, None] = {}
        self._closed = False

    @property
    def peers(self) -> list[Peer]:
        """Those connected now."""
        return [peer for peer in self._alive if peer.is_open]

    async def peer(self, address: Address, *, waits_for_retry: bool = True) -> Peer:
        """The live peer at `address`, connected if need be; ConnectFailed says why not and when to try again.

        A caller that can use another address does not wait for an address whose last try failed: a host that answers
        nothing would cost every caller the whole time for connecting. The try is made all the same.
        """
        place = self._places.get(address)
        if place is not None and place.peer is not None and place.peer.is_open:
            return place.peer
        if self._closed:
            raise WrongState("the pool is closed")
        place = place or self._add_place(address)
        attempt = place.attempt
        if attempt is None:
            self._refuse_while_backing_off(place)
            attempt = place.attempt = asyncio.get_running_loop().create_task(self._connect(address, place))
        if place.failures and not waits_for_retry:
            raise ConnectFailed(f"{place.failure}; it is being tried again")
        # Not awaited itself: a waiter that is cancelled must not take the connection away from the others.
        await asyncio.wait((attempt,))
        if attempt.cancelled():
            raise WrongState("the pool was closed while connecting")
        outcome = attempt.result()
        if isinstance(outcome, ConnectFailed):
            raise ConnectFailed(str(outcome))
        return outcome

    async def close(self) -> None:
        """Close every connection and wait for their end. Harmless when done twice."""
        self._closed = True
        attempts = [place.attempt for place in self._places.values() if place.attempt is not None]
        for attempt in attempts:
            attempt.cancel()
        if attempts:
            await asyncio.wait(attempts)
        for peer in self._alive:
            peer.close()
        await asyncio.gather(*(peer.wait_lost() for peer in self._alive))
        self._places.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _connect(self, address: Address, place: _Place) -> Peer | ConnectFailed:
        settings = self._settings
        peer = Peer(
            serve=self._serve,
            on_made=self._made,
            on_lost=lambda peer, reason: self._lost(address, peer, reason),
            settings=settings.peer,
        )
        try:
            async with asyncio.timeout(settings.connect_s):
                await self._reach(peer, address)
        except TimeoutError:
            return self._failed(place, f"{address}: no connection within {settings.connect_s} s")
        except ConnectFailed as error:
            return self._failed(place, str(error))
        finally:
            place.attempt = None
        if not peer.is_open:
            return self._failed(place, f"{address}: {peer.connection.reason}")
        place.peer, place.made_at = peer, asyncio.get_running_loop().time()
        return peer

    async def _reach(self, peer: Peer, address: Address) -> None:
        with ExitStack() as undo:
            undo.callback(peer.connection.give_up, ConnectionLost("given up while connecting"))
            await self._network.connect(lambda: peer.connection, address, tls=self._tls)
            undo.pop_all()

    def _failed(self, place: _Place, why: str) -> ConnectFailed:
        settings = self._settings
        place.failures += 1
        wait_s = min(settings.backoff_max_s, settings.backoff_s * 2.0 ** min(place.failures - 1, 62))
        place.failure = why
        wait_s *= self._dice.uniform(0.5, 1.0)
        place.next_try_at = asyncio.get_running_loop().time() + wait_s
        return ConnectFailed(f"{why}; next try in {wait_s:.1f} s")

    def _refuse_while_backing_off(self, place: _Place) -> None:
        wait_s = place.next_try_at - asyncio.get_running_loop().time()
        if wait_s > 0:
            raise ConnectFailed(f"{place.failure}; next try in {wait_s:.1f} s")

    def _add_place(self, address: Address) -> _Place:
        if len(self._places) >= self._settings.max_addresses:
            self._forget_failures()
        if len(self._places) >= self._settings.max_addresses:
            raise ConnectFailed(f"{address}: the pool holds {len(self._places)} other addresses, its limit")
        place = self._places[address] = _Place()
        return place

    def _forget_failures(self) -> None:
        """Addresses that nobody asked for again after their wait was over."""
        now = asyncio.get_running_loop().time()
        for address, place in list(self._places.items()):
            if place.peer is None and place.attempt is None and place.next_try_at <= now:
                del self._places[address]

    def _made(self, peer: Peer) -> None:
        self._alive[peer] = None

    def _lost(self, address: Address, peer: Peer, reason: PocketMQError) -> None:
        del self._alive[peer]
        place = self._places.get(address)
        if place is None or place.peer is not peer:
            return
        place.peer = None
        lived_s = asyncio.get_running_loop().time() - place.made_at
        if peer.connection.ending is CloseReason.PEER and lived_s < self._settings.settled_s:
            self._failed(place, f"{address}: {reason}")
        elif place.attempt is None:
            del self._places[address]
