"""Login attempts by address: an attempt counts from its beginning, so that parallel guesses count as much as those one by one.

    attempt ── counted ──┬─ below the limit of its address ──► the password is checked ──┬─ right: taken back
                         └─ at the limit: refused, and no password is checked            └─ wrong: counts for a minute

A user who logged in from an address has a limit there that guesses at other names do not use up, and is checked beside them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv6Address, ip_address
from typing import Final

from pocketmq.clock import Clock

log = logging.getLogger("pocketmq.console")

WINDOW_S: Final = 60.0
MAX_ADDRESSES: Final = 1_000
"""Addresses that are remembered; one more, and the one that was used longest ago is forgotten."""
MAX_WAITING: Final = 64
"""Attempts that wait for a check of their password; one more is refused."""
MAX_NAME_CHARS: Final = 64
IPV6_CLIENT_BITS: Final = 64
"""What one client may have to itself, and change at will."""

Key = tuple[str, str]
"""An address and a user who logged in from there before; or an address and nothing."""


class Attempt:
    """One login that is under way. `is_right` is set by the check."""

    __slots__ = ("host", "is_right", "key", "name")

    def __init__(self, host: str, name: str, key: Key) -> None:
        self.host = host
        self.name = name
        self.key = key
        self.is_right = False

    @property
    def is_known(self) -> bool:
        return bool(self.key[1])


class _Bucket:
    """The attempts of one key."""

    __slots__ = ("failed", "quiet_until", "running", "turn")

    def __init__(self) -> None:
        self.failed: deque[float] = deque()
        self.running = 0
        self.quiet_until = 0.0
        """A refusal was logged; the next one is logged after this."""
        self.turn = asyncio.Lock()

    def count(self, now: float) -> int:
        while self.failed and self.failed[0] <= now - WINDOW_S:
            self.failed.popleft()
        return len(self.failed) + self.running


class LoginAttempts:
    """Which may be made, and in which order. Two passwords are checked at a time: one of them of a user who was here before."""

    def __init__(self, clock: Clock, max_failures: int) -> None:
        self._clock = clock
        self._max_failures = max_failures
        self._buckets: dict[Key, _Bucket] = {}
        self._known: dict[Key, None] = {}
        self._waiting = 0
        self._checks = {False: asyncio.Semaphore(1), True: asyncio.Semaphore(1)}

    def begin(self, peer: str, name: str) -> Attempt | None:
        """None when the address has failed too often in the last minute, or too many attempts wait."""
        host, short = _host(peer), name[:MAX_NAME_CHARS]
        key = (host, short) if (host, short) in self._known else (host, "")
        bucket = self._buckets.pop(key, None) or _Bucket()
        self._forget()
        self._buckets[key] = bucket  # the last one used is the last one forgotten
        now = self._clock.monotonic()
        if bucket.count(now) >= self._max_failures:
            self._log_refusal(bucket, host, now, f"{self._max_failures} logins from there failed or are being checked")
            return None
        if self._waiting >= MAX_WAITING and not key[1]:
            self._log_refusal(bucket, host, now, f"{MAX_WAITING} other logins wait")
            return None
        bucket.running += 1
        return Attempt(host, short, key)

    @asynccontextmanager
    async def turn(self, attempt: Attempt) -> AsyncIterator[None]:
        """When its password may be checked: one of an address at a time, so that no address waits behind all of another's."""
        bucket = self._buckets[attempt.key]
        self._waiting += int(not attempt.is_known)
        try:
            async with bucket.turn, self._checks[attempt.is_known]:
                yield
        finally:
            self._waiting -= int(not attempt.is_known)
            self._end(attempt, bucket)

    def _end(self, attempt: Attempt, bucket: _Bucket) -> None:
        bucket.running -= 1
        if not attempt.is_right:
            bucket.failed.append(self._clock.monotonic())
            return
        self._known[attempt.host, attempt.name] = None
        while len(self._known) > MAX_ADDRESSES:
            del self._known[next(iter(self._known))]

    def _log_refusal(self, bucket: _Bucket, host: str, now: float, why: str) -> None:
        if now < bucket.quiet_until:
            return
        bucket.quiet_until = now + WINDOW_S
        log.warning("logins from %s are refused without a check of the password for up to a minute: %s", host, why)

    def _forget(self) -> None:
        idle = [key for key, bucket in self._buckets.items() if not bucket.running]
        for key in idle[: max(0, len(self._buckets) - MAX_ADDRESSES + 1)]:
            del self._buckets[key]


def _host(peer: str) -> str:
    """The address, of IPv6 the network that one client has."""
    try:
        address = ip_address(peer)
    except ValueError:
        return peer
    if not isinstance(address, IPv6Address):
        return peer
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> IPV6_CLIENT_BITS << IPV6_CLIENT_BITS))
