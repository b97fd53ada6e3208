"""Retries of a send: which failures are worth another attempt, and how long to wait before it.

                                          awaited send   callback send   one-way, or a chosen queue
    line lost, time-out                   elsewhere      elsewhere       no
    too many calls in flight here         elsewhere      no              no
    response 1 14 16 17 204 205 1500      elsewhere      no              no
    stored, but not safely (10 11 12)     if told so     no              no
    flow control (2, 215)                 if told so     if told so      no
    anything else                         no             no              no

The same as RocketMQ's, except for flow control, which its 5.x client meets with two more sends at once. A broker that cannot
keep up is not helped by three times the load: the caller is told. Who wants retries there gets them, after the time that
the broker asks for, spread so that many refused producers do not come back in the same millisecond.

A retry goes to another queue, of another broker if there is one; a queue that was chosen, for the sake of order, has no other.
One budget of time covers all attempts. A message that found no connection was not sent, so that is no attempt: see `attempts`.
"""

from enum import Enum
from typing import Final

import msgspec

from pocketmq.codes import ResponseCode
from pocketmq.errors import (
    CallTimedOut,
    ConnectionLost,
    PocketMQError,
    RemoteError,
    TooManyCalls,
)
from pocketmq.model.retry_after import retry_after_ms

RETRIED_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
FLOW_CONTROL_CODES: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})
UNSAFE_CODES: Final = frozenset(
    {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}
)
"""Stored, but not as safely as the broker promises: a result with a status, no error."""

BUSY_WAIT_MS: Final = 100
"""Before the first retry after a refusal that names no time; it doubles with each."""
SPREAD: Final = 0.5
"""Part of a wait that is added at most, by chance."""

_LINE_FAILURES = (ConnectionLost, CallTimedOut)


class SendKind(Enum):
    """How the caller learns what became of a send."""

    AWAITED = "awaited"
    CALLBACK = "callback"
    ONE_WAY = "one way"


class SendRetries(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer was told about retries. `retries` is how many follow the first attempt."""

    retries: int = 2
    when_not_stored: bool = False
    when_busy: bool = False

    def wait_ms(
        self,
        failure: PocketMQError,
        *,
        attempts: int,
        left_ms: float,
        kind: SendKind = SendKind.AWAITED,
        is_pinned: bool = False,
        chance: float = 0.0,
    ) -> int | None:
        """How long to wait before the next attempt; None when there is to be none.

        `attempts` were made so far, `left_ms` is what is left of the time for all of them, `is_pinned` says that the
        caller chose the queue, and `chance` (0 to 1) spreads waiting producers.
        """
        if is_pinned or kind is SendKind.ONE_WAY or attempts > self.retries or left_ms <= 0:
            return None
        if isinstance(failure, RemoteError) and failure.response_code in FLOW_CONTROL_CODES:
            wait_ms = _busy_wait_ms(failure, attempts, chance)
            return wait_ms if self.when_busy and wait_ms < left_ms else None
        return 0 if self._is_worth_it(failure, kind) else None

    def _is_worth_it(self, failure: PocketMQError, kind: SendKind) -> bool:
        if isinstance(failure, _LINE_FAILURES):
            return True
        if kind is not SendKind.AWAITED:
            return False
        if isinstance(failure, RemoteError):
            code = failure.response_code
            return code in RETRIED_CODES or (self.when_not_stored and code in UNSAFE_CODES)
        return isinstance(failure, TooManyCalls)


def _busy_wait_ms(refusal: RemoteError, attempts: int, chance: float) -> int:
    asked = retry_after_ms(refusal.remark)
    wait_ms = BUSY_WAIT_MS << max(attempts - 1, 0) if asked is None else asked
    return wait_ms + int(wait_ms * SPREAD * chance)
