"""How often a message may be tried again, and when it becomes a dead letter.

    tried and failed ── times < max ──► delay level 3 + times ──► %RETRY%group
                     └─ times ≥ max, or the listener gave up ──► %DLQ%group

Two roads lead there and test differently: a consumer's send-back looks at the stored count, a plain send to
%RETRY%group (when send-back failed) carries the count that the client already raised.

Retry-after: a broker that refuses for now says in its remark when to come back.

    [TIMEOUT_CLEAN_QUEUE]broker busy, … retry after: 120ms

The words before it are RocketMQ's, which clients of other kinds look for; the end is ours, and those do not mind it.
"""

import re

MAX_RECONSUME_TIMES = 16
"""Attempts that a group has when nobody set another number."""

FIRST_RETRY_LEVEL = 3
"""Delay level of the first retry, 10 s."""

DEAD_LETTER_LEVEL = -1
"""The delay level by which a listener says: do not try again."""

UNLIMITED = 2**31 - 1
"""Attempts of an orderly consumer that set no limit."""


def max_attempts(client_max: int | None, group_max: int, *, client_max_counts: bool) -> int:
    """The limit that holds: the client's, when it sent one and its version is trusted with it, else the group's."""
    if client_max is not None and client_max_counts:
        return client_max
    return group_max


def retry_level(delay_level: int, reconsume_times: int) -> int:
    """Delay level of the next attempt: the one that the client chose, or three above the attempts so far."""
    return delay_level if delay_level > 0 else FIRST_RETRY_LEVEL + reconsume_times


def sent_back_is_dead(delay_level: int, reconsume_times: int, max_times: int) -> bool:
    """Whether a message that a consumer sends back goes to the dead letters. `reconsume_times` is the stored count."""
    return delay_level < 0 or reconsume_times >= max_times


def resent_is_dead(reconsume_times: int, max_times: int, *, group_holds_locks: bool) -> bool:
    """Whether a message that a client itself sends to %RETRY%group goes to the dead letters.

    `reconsume_times` counts the failed attempt already. A group that holds order locks sends there only to give up.
    """
    return group_holds_locks or reconsume_times > max_times


_RETRY_AFTER = re.compile(r"retry after: (\d{1,9})ms\s*$")


def with_retry_after(remark: str, wait_ms: int) -> str:
    """The remark of a refusal that makes sense to repeat in `wait_ms`."""
    return f"{remark} retry after: {max(0, wait_ms)}ms"


def retry_after_ms(remark: str | None) -> int | None:
    """When to come back, if the remark says so."""
    found = _RETRY_AFTER.search(remark) if remark else None
    return int(found[1]) if found else None
