"""Consume results: what a listener returns, and what follows for each message.

    a listener returns or raises                  concurrent            orderly
    None, True, SUCCESS                           done                  done
    False, LATER, any exception                   retried               the queue pauses, then the message is retried
    RetryLater(delay_level=5)                     retried, that level   the same, after the time of that level
    DeadLetter("no such customer")                a dead letter         a dead letter
    Suspend(wait_ms=200)                          —                     the queue pauses for this time
    COMMIT, ROLLBACK                              —                     with auto_commit=False: see below
    AckIndex(2)                                   the first three done, the others retried
    [SUCCESS, DeadLetter(…), …]                   one for each message

With `auto_commit=False`, handled messages of an orderly listener are committed together when it returns COMMIT.
ROLLBACK delivers all of them again. Neither counts as an attempt, and a crash is a rollback. A failure affects only
the messages of its call.

A listener that returns None has succeeded. Any other result is a UsageError, which counts as an exception: a text or
a number may express a failure, and a repeated message does less harm than a lost one.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from math import isnan
from pathlib import PurePath
from traceback import walk_tb
from types import TracebackType
from typing import Any, Final, NamedTuple

from pocketmq.errors import UnreadableMessage, UsageError
from pocketmq.model import StoredMessage
from pocketmq.model.delay import DELAY_LEVELS, delay_level_fault
from pocketmq.model.retries import DEAD_LETTER_LEVEL
from pocketmq.protocol.bodies.clients import ConsumeOutcome
from pocketmq.protocol.trace_text import Outcome

SUSPEND_MS: Final = 1000
"""The pause of an orderly queue unless the listener gives one."""
MIN_SUSPEND_MS: Final = 10
MAX_SUSPEND_MS: Final = 30_000
MAX_FRAMES: Final = 5
"""Calls in the reason of a dead letter that an exception caused."""


class ConsumeResult(Enum):
    """Results of a listener."""

    SUCCESS = "success"
    LATER = "later"
    COMMIT = "commit"
    ROLLBACK = "rollback"


SUCCESS: Final = ConsumeResult.SUCCESS
LATER: Final = ConsumeResult.LATER
COMMIT: Final = ConsumeResult.COMMIT
ROLLBACK: Final = ConsumeResult.ROLLBACK


class RetryLater(Exception):
    """Retry the message after the time of `delay_level`. With 0 the broker chooses it, longer each time."""

    def __init__(self, reason: str = "", *, delay_level: int = 0) -> None:
        if fault := delay_level_fault(delay_level):
            raise UsageError(f"{fault}, or 0 to let the broker choose; raise DeadLetter for a dead letter")
        super().__init__(reason)
        self.reason = text_of(reason)
        self.delay_level = delay_level


class DeadLetter(Exception):
    """The message cannot be handled: move it to the dead letters at once, with the reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = text_of(reason)


class Suspend(Exception):
    """Pause the queue of an orderly listener for `wait_ms`, then deliver the same messages again."""

    def __init__(self, reason: str = "", *, wait_ms: int = SUSPEND_MS) -> None:
        if not isinstance(wait_ms, int | float) or isnan(wait_ms):
            raise UsageError(f"wait_ms = {wait_ms!r} must be a number")
        super().__init__(reason)
        self.reason = text_of(reason)
        self.wait_ms = wait_ms


class AckIndex(NamedTuple):
    """Of a batch, the messages up to index `last` are done (-1: none); the others are retried after `delay_level`."""

    last: int
    delay_level: int = 0


OneResult = ConsumeResult | Exception | bool | None
ListenerResult = OneResult | AckIndex | Sequence[OneResult]
"""What a listener returns. Exceptions may be raised or returned, also in a list, as `asyncio.gather` returns them."""


class Verdict(NamedTuple):
    """What happens to one message: done, sent back with a delay level, or made a dead letter (level -1) with a reason."""

    is_done: bool
    delay_level: int = 0
    reason: str = ""

    @property
    def is_dead(self) -> bool:
        return self.delay_level < 0


DONE: Final = Verdict(True)


def verdicts(result: ListenerResult | BaseException, count: int) -> list[Verdict]:
    """One for each of `count` messages of a concurrent listener. Raises UsageError for an invalid result."""
    try:
        return _verdicts(result, count)
    except (TypeError, AttributeError) as error:  # for example an AckIndex without a number
        raise UsageError(f"the listener returned {text_of(result, repr):.80}, which is invalid: {error}") from error


def text_of(thing: object, text: Callable[[object], str] = str) -> str:
    """The text of an object of the user, also if its `__str__` raises: that must not prevent the retry of a message."""
    try:
        return text(thing)
    except Exception:
        return f"{type(thing).__name__} without text"


def is_exception(result: object) -> bool:
    """Whether the listener raised or returned an exception that is not one of this module's results."""
    return isinstance(result, BaseException) and not isinstance(result, RetryLater | DeadLetter | Suspend)


def _verdicts(result: ListenerResult | BaseException, count: int) -> list[Verdict]:
    if isinstance(result, AckIndex):
        if fault := delay_level_fault(result.delay_level):
            raise UsageError(f"the listener returned {result}: {fault}")
        done = min(max(result.last + 1, 0), count)
        return [DONE] * done + [Verdict(False, result.delay_level)] * (count - done)
    if isinstance(result, Sequence) and not isinstance(result, str | bytes):
        if len(result) != count:
            raise UsageError(f"the listener returned {len(result)} results for {count} messages; expected one for each")
        return [_verdict(one) for one in result]
    return [_verdict(result)] * count


def _verdict(result: object) -> Verdict:
    match result:
        case None | True | ConsumeResult.SUCCESS | ConsumeResult.COMMIT:
            return DONE
        case ConsumeResult.ROLLBACK:
            raise UsageError(
                "the listener returned ROLLBACK, which requires ordered=True and auto_commit=False; return LATER instead"
            )
        case False | ConsumeResult.LATER:
            return Verdict(False)
        case RetryLater():
            return Verdict(False, result.delay_level, result.reason)
        case DeadLetter():
            return Verdict(False, DEAD_LETTER_LEVEL, result.reason)
        case Suspend():
            return Verdict(False, reason=result.reason)
        case BaseException():
            return Verdict(False, reason=_error_text(result))
    raise UsageError(
        f"the listener returned {text_of(result, repr):.80}; expected None, SUCCESS, LATER, RetryLater(…) or "
        "DeadLetter(…), or an exception"
    )


def _error_text(error: BaseException) -> str:
    """The error, and where it was raised in the user's code, innermost first: `ValueError: no price, at tax.py:7 in rate, at …`."""
    frames = [
        f", at {PurePath(frame.f_code.co_filename).name}:{line} in {frame.f_code.co_name}"
        for frame, line in walk_tb(error.__traceback__)
        if not frame.f_globals.get("__name__", "").startswith("pocketmq.")
    ]
    return f"{type(error).__name__}: {text_of(error)}" + "".join(frames[: -MAX_FRAMES - 1 : -1])


class OrderlyVerdict(NamedTuple):
    """What happens to the messages of an orderly listener.

    `dead` become dead letters, each with its reason, and are done then. `again` are retried after a pause of `wait_ms`. All others
    are done.
    """

    dead: tuple[tuple[StoredMessage, str], ...] = ()
    again: tuple[StoredMessage, ...] = ()
    wait_ms: int | None = None


def orderly_verdict(
    result: ListenerResult | BaseException,
    messages: Sequence[StoredMessage],
    max_times: int,
    suspend_ms: int = SUSPEND_MS,
) -> OrderlyVerdict:
    """All messages from the first retried one on are delivered again, to keep their order.

    A message becomes a dead letter if the listener gives it up, if it was retried `max_times`, or if its body is unreadable: another
    attempt would read the same bytes, and always block the queue.
    """
    result = [*map(_as_dead_letter, result)] if isinstance(result, list) else _as_dead_letter(result)
    found = list(zip(messages, verdicts(result, len(messages)), strict=True))
    cut = next(
        (at for at, (message, verdict) in enumerate(found) if _is_retried(message, verdict, max_times)), len(found)
    )
    dead = tuple(
        (message, verdict.reason or f"failed {message.reconsume_times + 1} times")
        for message, verdict in found[:cut]
        if not verdict.is_done
    )
    if cut == len(found):
        return OrderlyVerdict(dead)
    return OrderlyVerdict(dead, tuple(messages[cut:]), _wait_ms(result, suspend_ms))


def _as_dead_letter(result: Any) -> Any:
    return DeadLetter(_error_text(result)) if isinstance(result, UnreadableMessage) else result


def _is_retried(message: StoredMessage, verdict: Verdict, max_times: int) -> bool:
    return not verdict.is_done and not verdict.is_dead and message.reconsume_times < max_times


def _wait_ms(result: object, suspend_ms: int) -> int:
    match result:
        case Suspend():
            wait_ms = result.wait_ms
        case RetryLater(delay_level=level) if level:
            wait_ms = DELAY_LEVELS.ms(level)
        case _:
            wait_ms = suspend_ms
    return min(max(wait_ms, MIN_SUSPEND_MS), MAX_SUSPEND_MS)


def direct_outcome(result: ListenerResult | BaseException) -> ConsumeOutcome:
    """The result that an administrator gets for a message that was consumed directly."""
    if is_exception(result):
        return ConsumeOutcome.CR_THROW_EXCEPTION
    if result is COMMIT:
        return ConsumeOutcome.CR_COMMIT
    if result is ROLLBACK:
        return ConsumeOutcome.CR_ROLLBACK
    try:
        return ConsumeOutcome.CR_SUCCESS if verdicts(result, 1)[0].is_done else ConsumeOutcome.CR_LATER
    except UsageError:
        return ConsumeOutcome.CR_THROW_EXCEPTION


def traced_outcome(result: ListenerResult | BaseException, took_ms: float, timeout_ms: float) -> Outcome:
    """The result in a trace record: a batch succeeds if every message is done."""
    if is_exception(result):
        return Outcome.RAISED
    if took_ms >= timeout_ms:
        return Outcome.TIMED_OUT
    if result is ROLLBACK:
        return Outcome.FAILED
    count = len(result) if isinstance(result, Sequence) and not isinstance(result, AckIndex) else 1
    return Outcome.SUCCESS if all(verdict.is_done for verdict in verdicts(result, count)) else Outcome.FAILED


_OURS: Final = ("pocketmq.client.", "pocketmq.net.")
"""Modules whose frames are removed from tracebacks of listeners."""


def user_frames(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this client; None if it has no others."""
    if traceback is None:
        return None
    rest = user_frames(traceback.tb_next)
    if traceback.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        return rest
    return TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)
