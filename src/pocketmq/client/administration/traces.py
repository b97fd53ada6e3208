"""Traces of one message: what its producer, its consumers and whoever decided its transaction wrote about it.

Pub ──► sent      SubBefore ┐ same request id
                  SubAfter  ┘ ──► one attempt to consume it      EndTransaction ──► decided      Recall ──► recalled
"""

from collections.abc import Iterable

import msgspec

from pocketmq.protocol.trace_text import EndTransaction, Outcome, Pub, Recall, SubAfter, SubBefore, Trace


class TracedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to consume a message. What its consumer has not written, or not yet, is None."""

    group: str
    request_id: str
    started_ms: int | None = None
    retry_times: int | None = None
    cost_ms: int | None = None
    outcome: Outcome | None = None


class MessageTrace(msgspec.Struct, frozen=True, kw_only=True):
    """All that is written about a message, each part in the order of time."""

    message_id: str
    sent: tuple[Pub, ...] = ()
    attempts: tuple[TracedAttempt, ...] = ()
    decided: tuple[EndTransaction, ...] = ()
    recalled: tuple[Recall, ...] = ()


def trace_of(message_id: str, records: Iterable[Trace]) -> MessageTrace:
    """Those of `records` that are about this message: one body has those of several."""
    own = [record for record in records if getattr(record, "message_id", None) == message_id]
    before = {record.request_id: record for record in own if isinstance(record, SubBefore)}
    after = {record.request_id: record for record in own if isinstance(record, SubAfter)}
    attempts = [_attempt(number, before.get(number), after.get(number)) for number in {**before, **after}]
    return MessageTrace(
        message_id=message_id,
        sent=tuple(sorted((each for each in own if isinstance(each, Pub)), key=lambda each: each.time_ms)),
        attempts=tuple(sorted(attempts, key=lambda each: each.started_ms or 0)),
        decided=tuple(
            sorted((each for each in own if isinstance(each, EndTransaction)), key=lambda each: each.time_ms)
        ),
        recalled=tuple(sorted((each for each in own if isinstance(each, Recall)), key=lambda each: each.time_ms)),
    )


def _attempt(request_id: str, before: SubBefore | None, after: SubAfter | None) -> TracedAttempt:
    return TracedAttempt(
        group=before.group if before else after.group if after else "",
        request_id=request_id,
        started_ms=None if before is None else before.time_ms,
        retry_times=None if before is None else before.retry_times,
        cost_ms=None if after is None else after.cost_ms,
        outcome=None if after is None else after.outcome,
    )
