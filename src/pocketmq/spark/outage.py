"""Brokers that do not answer a streaming query: how long it waits for them, how often it asks, and what it reports meanwhile.

a new query      fails after `fetchOffset.numRetries`: a wrong address shows at once
any other query  asks again, at longer and longer intervals, and fails after `fetchOffset.retryTimeout`
"""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from pocketmq.clock import Clock
from pocketmq.errors import CallTimedOut, PocketMQError
from pocketmq.spark.read_options import ReadOptions

log = logging.getLogger("pocketmq.spark")

LONGEST_PAUSE_S: Final = 5.0
LOGGED_FAILURES: Final = 6
"""The first failure is logged, and then each of this number."""


class Outage:
    """Of one query. There is none until a question fails, and none after one is answered."""

    def __init__(self, options: ReadOptions, clock: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self._retries = options.fetch_retries
        self._interval_s = options.fetch_interval_ms / 1000
        self._timeout_s = options.fetch_timeout_ms / 1000
        self._clock = clock
        self._sleep = sleep
        self._began = 0.0
        self._began_ms = 0
        self._failures = 0
        self._error = ""

    @property
    def is_on(self) -> bool:
        return self._failures > 0

    def note(self, error: PocketMQError, *, is_new: bool) -> None:
        """A question failed. Raises if asking again cannot help, or has not helped for long enough."""
        if not error.retriable:
            raise error
        if not self._failures:
            self._began, self._began_ms = self._clock.monotonic(), self._clock.now_ms()
        lasted_s = self._clock.monotonic() - self._began
        if is_new and self._failures >= self._retries:
            raise error
        if not is_new and lasted_s >= self._timeout_s:
            raise CallTimedOut(
                f"brokers have not answered for {lasted_s:.0f} s, and fetchOffset.retryTimeout is {self._timeout_s:g} s; "
                f"the query can be started again with its checkpoint. The last error: {error}"
            ) from error
        self._failures += 1
        self._error = f"{type(error).__name__}: {error}"
        if self._failures == 1 or self._failures % LOGGED_FAILURES == 0:
            limit = f"{self._retries} retries" if is_new else f"{self._timeout_s:g} s"
            log.warning(
                "brokers have not answered the query for %.0f s; it asks again and fails after %s: %s",
                lasted_s,
                limit,
                self._error,
            )

    def end(self) -> None:
        """A question was answered."""
        if self._failures:
            lasted_s = self._clock.monotonic() - self._began
            log.warning("brokers answer the query again, after %.1f s; it continues where it was", lasted_s)
        self._failures, self._error = 0, ""

    def pause(self) -> None:
        """Wait before the next question, longer after each failure."""
        if self._failures:
            self._sleep(self._pause_s)

    def to_json(self) -> dict[str, Any] | None:
        """For the progress of the query: since when, and the last error."""
        if not self._failures:
            return None
        lasted_ms = round((self._clock.monotonic() - self._began) * 1000)
        return {"sinceMs": self._began_ms, "lastedMs": lasted_ms, "failures": self._failures, "error": self._error}

    @property
    def _pause_s(self) -> float:
        return min(self._interval_s * (1 << min(self._failures - 1, 10)), max(LONGEST_PAUSE_S, self._interval_s))
