"""What was refused, and to whom: counted, told once, and too much of it from one address ends the connection it came by.

    failed to show who it is ── counted for its address ──┬─ up to `max_failures` within `window_s` ──► refused, the line stays
                                                          └─ more ──► refused, and the line is closed
    known, but without the right ─────────────────────────► refused, the line stays: it may have rights to other things

Only the line on which it happens is closed: others from the same address, behind a proxy perhaps, are not touched.
"""

import logging
from collections import Counter
from enum import StrEnum
from typing import Final

import msgspec

from pocketmq.errors import InvalidSetting

log = logging.getLogger("pocketmq.access")

MAX_TOLD: Final = 16
"""Causes that are told of one address within the time; the others are counted."""


class AuthenticationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much failing is borne."""

    max_failures: int = 100
    """Failed authentications of one address within the window; each further one closes its connection."""
    window_s: int = 60
    """The length of that window, in seconds."""
    max_addresses: int = 10_000
    """Limit on addresses with failures that are remembered."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise InvalidSetting(f"authentication setting {name} = {getattr(self, name)} must be above 0")


class Cause(StrEnum):
    """Why a request was refused."""

    UNSIGNED = "Unsigned"
    UNKNOWN = "UnknownAccessKey"
    SOURCE = "WrongSource"
    SIGNATURE = "WrongSignature"
    RIGHT = "NoRight"


class _Failures:
    """Of one address."""

    __slots__ = ("count", "since", "told")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.told: set[tuple[Cause, str]] = set()


class Refusals:
    """Keeps count. Told the monotonic time."""

    def __init__(self, settings: AuthenticationSettings) -> None:
        self._settings = settings
        self._addresses: dict[str, _Failures] = {}
        self.counts: Counter[Cause] = Counter()
        self.connections_closed = 0

    def __len__(self) -> int:
        """Addresses that are remembered."""
        return len(self._addresses)

    def note(self, host: str, cause: Cause, who: str, why: str, now: float) -> bool:
        """Count and tell a refusal; True when the line that it came by is to be closed."""
        self.counts[cause] += 1
        failures = self._of(host, now)
        self._tell(failures, host, cause, who, why)
        if cause is Cause.RIGHT:
            return False
        failures.count += 1
        if failures.count <= self._settings.max_failures:
            return False
        self.connections_closed += 1
        return True

    def _of(self, host: str, now: float) -> _Failures:
        failures = self._addresses.get(host)
        if failures is not None and now - failures.since < self._settings.window_s:
            return failures
        self._addresses.pop(host, None)
        if len(self._addresses) >= self._settings.max_addresses:
            del self._addresses[next(iter(self._addresses))]
        failures = self._addresses[host] = _Failures(now)
        return failures

    def _tell(self, failures: _Failures, host: str, cause: Cause, who: str, why: str) -> None:
        told = cause, who
        if told not in failures.told and len(failures.told) < MAX_TOLD:
            failures.told.add(told)
            log.warning("refused %s, and maybe more in the next %s s: %s", host, self._settings.window_s, why)

    def runtime_info(self) -> dict[str, str]:
        """For `mqadmin brokerStatus` (code 28)."""
        counts = {f"refused{cause}": str(self.counts[cause]) for cause in Cause}
        return {**counts, "connectionsClosedByFailures": str(self.connections_closed)}
