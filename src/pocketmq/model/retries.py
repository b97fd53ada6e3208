"""How often a failed message is retried, and when it becomes a dead letter.

    failed ── times < max ──► delay level 3 + times ──► %RETRY%group
           └─ times ≥ max, or the listener gave up ──► %DLQ%group

Two paths lead there with different counts: for a consumer's send-back the broker checks the stored count; a plain send to
%RETRY%group, after a failed send-back, has the count that the client has already increased.

A broker that refuses a request temporarily says in the remark when to retry:

    [TIMEOUT_CLEAN_QUEUE]broker busy, … retry after: 120ms

The beginning is RocketMQ's text, which other clients recognise; the end is ours, and they ignore it.
"""

import re

MAX_RECONSUME_TIMES = 16
"""The default number of retries of a group."""

FIRST_RETRY_LEVEL = 3
"""Delay level of the first retry, 10 s."""

DEAD_LETTER_LEVEL = -1
"""The delay level that sends a message to the dead letters without another attempt."""

UNLIMITED = 2**31 - 1
"""The default of orderly consumers."""


def max_attempts(client_max: int | None, group_max: int, *, client_max_counts: bool) -> int:
    """The effective limit: the client's if it sent one and `client_max_counts` for its version, else the group's."""
    if client_max is not None and client_max_counts:
        return client_max
    return group_max


def retry_level(delay_level: int, reconsume_times: int) -> int:
    """The delay level of the next attempt: the client's, or 3 plus the attempts so far."""
    return delay_level if delay_level > 0 else FIRST_RETRY_LEVEL + reconsume_times


def sent_back_is_dead(delay_level: int, reconsume_times: int, max_times: int) -> bool:
    """Whether a message that a consumer sent back becomes a dead letter. `reconsume_times` is the stored count."""
    return delay_level < 0 or reconsume_times >= max_times


def resent_is_dead(reconsume_times: int, max_times: int, *, group_holds_locks: bool) -> bool:
    """Whether a message that a client sends to %RETRY%group itself becomes a dead letter.

    `reconsume_times` includes the failed attempt. A group with order locks sends there only to give up.
    """
    return group_holds_locks or reconsume_times > max_times


_RETRY_AFTER = re.compile(r"retry after: (\d{1,9})ms\s*$")


def retry_after_ms(remark: str | None) -> int | None:
    """The time after which to retry, if the remark has one."""
    found = _RETRY_AFTER.search(remark) if remark else None
    return int(found[1]) if found else None
