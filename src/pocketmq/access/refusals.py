"""Rejected requests: counted, logged once, and limited per address.

    failed authentication ──► counted per address ──┬─ up to `max_failures` within `window_s` ──► rejected
                                                    └─ more ──► rejected, and the connection is closed
    known account without permission ─────────────────────────► rejected; it may have other permissions

Only the connection of the request is closed; others from the same address, such as a proxy, stay open.
"""

import logging
from collections import Counter
from enum import StrEnum
from typing import Final

from pocketmq.access.settings import AuthenticationSettings

log = logging.getLogger("pocketmq.access")

MAX_LOGGED: Final = 16
"""Limit on logged causes per address and window; all are counted."""


class Cause(StrEnum):
    UNSIGNED = "Unsigned"
    UNKNOWN = "UnknownAccessKey"
    SOURCE = "WrongSource"
    SIGNATURE = "WrongSignature"
    RIGHT = "NoRight"


class _Failures:
    __slots__ = ("count", "logged", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.logged: set[tuple[Cause, str]] = set()


class Refusals:
    """Counts rejected requests. Callers pass the monotonic time."""

    def __init__(self, settings: AuthenticationSettings) -> None:
        self._settings = settings
        self._addresses: dict[str, _Failures] = {}
        self.counts: Counter[Cause] = Counter()
        self.connections_closed = 0

    def __len__(self) -> int:
        """The number of addresses with recent failures."""
        return len(self._addresses)

    def record(self, host: str, cause: Cause, who: str, why: str, now: float) -> bool:
        """Count and log a rejection. True if its connection must be closed."""
        self.counts[cause] += 1
        failures = self._of(host, now)
        self._log(failures, host, cause, who, why)
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

    def _log(self, failures: _Failures, host: str, cause: Cause, who: str, why: str) -> None:
        entry = cause, who
        if entry not in failures.logged and len(failures.logged) < MAX_LOGGED:
            failures.logged.add(entry)
            log.warning(
                "Rejected %s: %s; further rejections with this cause are not logged for %s s",
                host,
                why,
                self._settings.window_s,
            )

    def runtime_info(self) -> dict[str, str]:
        """Keys for `mqadmin brokerStatus` (code 28)."""
        counts = {f"refused{cause}": str(self.counts[cause]) for cause in Cause}
        return {**counts, "connectionsClosedByFailures": str(self.connections_closed)}
