"""The trace of one message from its records."""

from pocketmq.client.admin.messages import MessageTrace, TracedAttempt, trace_of
from pocketmq.protocol.trace_text import (
    Decision,
    EndTransaction,
    OtherTrace,
    Outcome,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    Trace,
    TracedType,
)


def pub(message_id: str, time_ms: int) -> Pub:
    return Pub(time_ms, None, "PG", "T", message_id, None, None, None, 1, 2, TracedType.NORMAL, None, True)


def before(message_id: str, request_id: str, time_ms: int, retry_times: int = 0) -> SubBefore:
    return SubBefore(time_ms, None, "G", request_id, message_id, retry_times)


def after(message_id: str, request_id: str, outcome: Outcome) -> SubAfter:
    return SubAfter(request_id, message_id, 7, outcome is Outcome.SUCCESS, None, outcome, 0, "G")


def test_both_records_of_an_attempt_become_one_and_attempts_are_in_order() -> None:
    records: list[Trace] = [
        after("M", "r2", Outcome.SUCCESS),
        before("M", "r2", 200, 1),
        before("M", "r1", 100),
        after("M", "r1", Outcome.RAISED),
    ]

    assert trace_of("M", records).attempts == (
        TracedAttempt(group="G", request_id="r1", started_ms=100, retry_times=0, cost_ms=7, outcome=Outcome.RAISED),
        TracedAttempt(group="G", request_id="r2", started_ms=200, retry_times=1, cost_ms=7, outcome=Outcome.SUCCESS),
    )


def test_missing_records_have_the_value_none() -> None:
    [begun] = trace_of("M", [before("M", "r", 1)]).attempts
    [ended] = trace_of("M", [after("M", "r", Outcome.SUCCESS)]).attempts

    assert (begun.cost_ms, begun.outcome) == (None, None)
    assert (ended.started_ms, ended.retry_times, ended.group) == (None, None, "G")


def test_records_of_other_messages_and_other_kinds_are_left_out() -> None:
    records: list[Trace] = [pub("N", 1), before("N", "r", 2), OtherTrace("News", ("M",))]

    assert trace_of("M", records) == MessageTrace(message_id="M")


def test_sends_decisions_and_recalls_are_kept_in_order() -> None:
    decided = EndTransaction(
        5, None, "PG", "T", "M", None, None, None, TracedType.COMMITTED, "M", Decision.COMMIT, False
    )
    recalled = Recall(9, None, "PG", "T", "M", True)

    trace = trace_of("M", [recalled, pub("M", 3), decided, pub("M", 2)])

    assert [one.time_ms for one in trace.sent] == [2, 3]
    assert trace.decided == (decided,)
    assert trace.recalled == (recalled,)
