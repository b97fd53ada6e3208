"""Consume results, as tables."""

from typing import Any

import pytest
from tests.client.messages import stored

from pocketmq.client.consumer.consume_result import (
    LATER,
    MAX_FRAMES,
    SUCCESS,
    AckIndex,
    ConsumeResult,
    DeadLetter,
    OneResult,
    OrderlyVerdict,
    RetryLater,
    Suspend,
    Verdict,
    direct_outcome,
    orderly_verdict,
    traced_outcome,
    verdicts,
)
from pocketmq.errors import UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.model.retries import UNLIMITED
from pocketmq.protocol.bodies.clients import ConsumeOutcome
from pocketmq.protocol.trace_text import Outcome

DONE = Verdict(True)
AGAIN = Verdict(False)


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (None, DONE),
        (True, DONE),
        (SUCCESS, DONE),
        (ConsumeResult("success"), DONE),
        (False, AGAIN),
        (LATER, AGAIN),
        (RetryLater(), AGAIN),
        (RetryLater("busy", delay_level=5), Verdict(False, 5, "busy")),
        (DeadLetter("no such customer"), Verdict(False, -1, "no such customer")),
        (Suspend(wait_ms=5), AGAIN),
        (ValueError("bad"), Verdict(False, 0, "ValueError: bad")),
        (KeyError("bad"), Verdict(False, 0, "KeyError: 'bad'")),
    ],
)
def test_the_result_of_a_listener_applies_to_all_its_messages(result: Any, verdict: Verdict) -> None:
    assert verdicts(result, 1) == [verdict]
    assert verdicts(result, 3) == [verdict] * 3
    assert verdict.is_dead is isinstance(result, DeadLetter)


@pytest.mark.parametrize(("last", "done"), [(-2, 0), (-1, 0), (0, 1), (1, 2), (2, 3), (3, 3), (2**31 - 1, 3)])
def test_the_ack_index_is_the_last_message_that_is_done(last: int, done: int) -> None:
    assert verdicts(AckIndex(last), 3) == [DONE] * done + [AGAIN] * (3 - done)
    assert verdicts(AckIndex(last, delay_level=4), 3) == [DONE] * done + [Verdict(False, 4)] * (3 - done)


def test_each_message_of_a_batch_may_have_its_own_result() -> None:
    results: list[OneResult] = [SUCCESS, RetryLater(delay_level=2), DeadLetter("x"), None, ValueError("y")]

    assert verdicts(results, 5) == [
        DONE,
        Verdict(False, 2),
        Verdict(False, -1, "x"),
        DONE,
        Verdict(False, 0, "ValueError: y"),
    ]


@pytest.mark.parametrize("count", [1, 3])
def test_a_list_of_the_wrong_length_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match=f"2 results for {count} messages"):
        verdicts([SUCCESS, SUCCESS], count)


@pytest.mark.parametrize("result", ["RECONSUME_LATER", b"ok", 0, 1, 200, {"ok": True}, object(), 1.0, {SUCCESS}])
def test_other_results_are_refused_because_they_may_mean_a_failure(result: Any) -> None:
    with pytest.raises(UsageError, match="the listener returned"):
        verdicts(result, 1)


def test_a_long_result_is_shortened_in_the_error() -> None:
    with pytest.raises(UsageError) as caught:
        verdicts([{"text": "x" * 1000}], 1)  # type: ignore[list-item]

    assert len(str(caught.value)) < 250


def test_a_delay_level_below_zero_is_refused() -> None:
    assert RetryLater(delay_level=0).delay_level == 0

    with pytest.raises(UsageError, match="raise DeadLetter"):
        RetryLater(delay_level=-1)


def test_raised_results_have_a_readable_text() -> None:
    assert str(DeadLetter("no such customer")) == "no such customer"
    assert str(RetryLater("locked")) == "locked"
    assert Suspend("locked").wait_ms == 1000
    with pytest.raises(UsageError, match="wait_ms = nan must be"):
        Suspend(wait_ms=float("nan"))  # type: ignore[arg-type]


def batch(*times: int) -> list[StoredMessage]:
    return [stored(offset, times=count) for offset, count in enumerate(times)]


def test_an_orderly_listener_without_an_error_has_succeeded() -> None:
    assert orderly_verdict(None, batch(0, 0), UNLIMITED) == OrderlyVerdict()
    assert orderly_verdict(SUCCESS, [], UNLIMITED) == OrderlyVerdict()


@pytest.mark.parametrize(
    ("result", "wait_ms"),
    [
        (LATER, 1000),
        (False, 1000),
        (ValueError("x"), 1000),
        (RetryLater(), 1000),
        (RetryLater(delay_level=2), 5000),
        (RetryLater(delay_level=18), 30_000),
        (Suspend(), 1000),
        (Suspend(wait_ms=9), 10),
        (Suspend(wait_ms=10), 10),
        (Suspend(wait_ms=11), 11),
        (Suspend(wait_ms=29_999), 29_999),
        (Suspend(wait_ms=30_000), 30_000),
        (Suspend(wait_ms=30_001), 30_000),
    ],
)
def test_a_failed_ordered_message_is_delivered_again_after_a_pause(result: Any, wait_ms: int) -> None:
    messages = batch(0, 7)

    assert orderly_verdict(result, messages, UNLIMITED) == OrderlyVerdict((), tuple(messages), wait_ms)


def test_the_pause_can_be_set() -> None:
    assert orderly_verdict(LATER, batch(0), 16, suspend_ms=200).wait_ms == 200
    assert orderly_verdict(Suspend(wait_ms=50), batch(0), 16, suspend_ms=200).wait_ms == 50


@pytest.mark.parametrize(("times", "is_dead"), [(2, False), (3, True), (4, True)])
def test_after_its_last_attempt_a_message_is_a_dead_letter_and_the_queue_continues(times: int, is_dead: bool) -> None:
    messages = batch(times)

    verdict = orderly_verdict(LATER, messages, 3)

    if is_dead:
        assert verdict == OrderlyVerdict(((messages[0], f"failed {times + 1} times"),))
    else:
        assert verdict == OrderlyVerdict((), tuple(messages), 1000)


def test_an_orderly_listener_may_create_a_dead_letter_at_once() -> None:
    messages = batch(0, 0)

    assert orderly_verdict(DeadLetter("x"), messages, UNLIMITED) == OrderlyVerdict(
        ((messages[0], "x"), (messages[1], "x"))
    )


def test_all_messages_from_the_first_retried_one_are_delivered_again() -> None:
    messages = batch(3, 1, 3, 0)

    verdict = orderly_verdict(ValueError("x"), messages, 3)

    assert verdict.dead == ((messages[0], "ValueError: x"),)
    assert verdict.again == tuple(messages[1:])


def test_of_single_results_only_those_before_the_first_failure_count() -> None:
    messages = batch(0, 0, 0, 0)

    verdict = orderly_verdict([SUCCESS, DeadLetter("x"), LATER, SUCCESS], messages, 16)

    assert verdict == OrderlyVerdict(((messages[1], "x"),), tuple(messages[2:]), 1000)


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (None, ConsumeOutcome.CR_SUCCESS),
        (LATER, ConsumeOutcome.CR_LATER),
        (RetryLater(), ConsumeOutcome.CR_LATER),
        (DeadLetter("x"), ConsumeOutcome.CR_LATER),
        (Suspend(), ConsumeOutcome.CR_LATER),
        (ValueError("x"), ConsumeOutcome.CR_THROW_EXCEPTION),
    ],
)
def test_an_administrator_gets_the_result_of_a_direct_consumption(result: Any, outcome: ConsumeOutcome) -> None:
    assert direct_outcome(result) is outcome


@pytest.mark.parametrize(
    ("result", "took_ms", "outcome"),
    [
        (None, 899, Outcome.SUCCESS),
        (None, 900, Outcome.TIMED_OUT),
        (LATER, 10, Outcome.FAILED),
        (LATER, 901, Outcome.TIMED_OUT),
        (DeadLetter("x"), 10, Outcome.FAILED),
        (ValueError("x"), 901, Outcome.RAISED),
        ([SUCCESS, SUCCESS], 10, Outcome.SUCCESS),
        ([SUCCESS, LATER], 10, Outcome.FAILED),
        (AckIndex(0), 10, Outcome.SUCCESS),
        (AckIndex(-1), 10, Outcome.FAILED),
    ],
)
def test_a_trace_record_has_the_result_of_a_listener(result: Any, took_ms: int, outcome: Outcome) -> None:
    assert traced_outcome(result, took_ms, 900) is outcome


def test_the_reason_of_a_raised_error_has_its_frames_innermost_first() -> None:
    def rate() -> None:
        raise ValueError("no price")

    def charge() -> None:
        rate()

    try:
        charge()
    except ValueError as error:
        raised = error
    [verdict] = verdicts(raised, 1)

    what, *places = verdict.reason.split(", at ")
    assert what == "ValueError: no price"
    assert [place.rpartition(" ")[2] for place in places] == [
        "rate",
        "charge",
        "test_the_reason_of_a_raised_error_has_its_frames_innermost_first",
    ]
    assert all(place.startswith("test_consume_result.py:") for place in places)


def test_the_reason_of_a_deep_error_has_its_innermost_frames() -> None:
    def fall(depth: int) -> None:
        if not depth:
            raise ValueError("bottom")
        fall(depth - 1)

    try:
        fall(40)
    except ValueError as error:
        raised = error

    assert verdicts(raised, 1)[0].reason.count(", at ") == MAX_FRAMES


class Speechless(Exception):
    """Its repr raises."""

    def __str__(self) -> str:
        raise AttributeError("never set")

    __repr__ = __str__


class Mute:
    def __repr__(self) -> str:
        raise AttributeError("never set")


def test_an_object_without_a_text_is_reported_by_its_type() -> None:
    assert verdicts(Speechless(), 2) == [Verdict(False, 0, "Speechless: Speechless without text")] * 2
    assert orderly_verdict(Speechless(), [stored(1)], UNLIMITED).again == (stored(1),)
    result: Any = Mute()
    with pytest.raises(UsageError, match="the listener returned Mute without text; expected None"):
        verdicts(result, 1)


def test_a_reason_may_be_an_exception() -> None:
    error: Any = ValueError("no such customer")
    assert verdicts(DeadLetter(error), 1) == [Verdict(False, -1, "no such customer")]
    assert verdicts(RetryLater(error), 1) == verdicts(Suspend(error), 1) == [Verdict(False, 0, "no such customer")]


def test_invalid_numbers_are_refused() -> None:
    text: Any = "2"
    for wrong in (
        lambda: RetryLater(delay_level=text),
        lambda: Suspend(wait_ms=text),
        lambda: verdicts(AckIndex(text), 3),
    ):
        with pytest.raises(UsageError, match="'2'"):
            wrong()


def test_a_delay_level_that_no_broker_has_is_refused_in_every_result() -> None:
    with pytest.raises(UsageError, match="delay_level = 19 must be a whole number from 0 to 18"):
        RetryLater(delay_level=19)
    with pytest.raises(UsageError, match="delay_level=18"):
        verdicts(AckIndex(0, 40), 2)
