"""Consume results: what a listener says, and what that means for each message.

    a listener returns, or raises                 concurrent            orderly
    None, True, SUCCESS                           done                  done
    False, LATER, any exception                   tried again           the queue waits a moment, then tried again
    RetryLater(delay_level=5)                     … after that level    … after that level's time
    DeadLetter("no such customer")                a dead letter         a dead letter
    Suspend(wait_ms=200)                          —                     the queue waits so long
    COMMIT, ROLLBACK                              —                     with auto_commit=False: see below
    AckIndex(2)                                   the first three done, the others tried again
    [SUCCESS, DeadLetter(…), …]                   one for each message

With `auto_commit=False`, what an orderly listener has done is committed only when it returns COMMIT, together with all that it did before.
ROLLBACK lets all of that come again. Neither counts as an attempt, and a crash is a rollback. A failure is only that of its own messages.

A listener that comes to its end is content: to say nothing is success, as everywhere in Python. Anything else that it returns
is an error (UsageError), and counts as any exception: a text or a number may have been meant as a failure, and a message that
comes once more does less harm than one that is lost.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from math import isnan
from pathlib import PurePath
from traceback import walk_tb
from typing import Any, Final, NamedTuple

from pocketmq.errors import UnreadableMessage, UsageError
from pocketmq.model.delay import DELAY_LEVELS, delay_level_fault
from pocketmq.model.message import StoredMessage
from pocketmq.model.retries import DEAD_LETTER_LEVEL
from pocketmq.protocol.bodies.running_info import ConsumeOutcome
from pocketmq.protocol.trace_text import Outcome

SUSPEND_MS: Final = 1000
"""How long an ordered queue waits when nobody says."""
MIN_SUSPEND_MS: Final = 10
MAX_SUSPEND_MS: Final = 30_000
MAX_PLACES: Final = 5
"""Calls that the reason of a dead letter tells of, when an error made it one."""


class ConsumeResult(Enum):
    """What a listener may return."""

    SUCCESS = "success"
    LATER = "later"
    COMMIT = "commit"
    ROLLBACK = "rollback"


SUCCESS: Final = ConsumeResult.SUCCESS
LATER: Final = ConsumeResult.LATER
COMMIT: Final = ConsumeResult.COMMIT
ROLLBACK: Final = ConsumeResult.ROLLBACK


class RetryLater(Exception):
    """The message is to be tried again, after the time of `delay_level`; 0 lets the broker choose, longer every time."""

    def __init__(self, reason: str = "", *, delay_level: int = 0) -> None:
        if fault := delay_level_fault(delay_level):
            raise UsageError(f"{fault}, or 0: the broker chooses; for a dead letter raise DeadLetter")
        super().__init__(reason)
        self.reason = words_of(reason)
        self.delay_level = delay_level


class DeadLetter(Exception):
    """The message can never be handled. It goes to the dead letters at once, with the reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = words_of(reason)


class Suspend(Exception):
    """An orderly listener wants its queue to wait `wait_ms`, and then the same messages again."""

    def __init__(self, reason: str = "", *, wait_ms: int = SUSPEND_MS) -> None:
        if not isinstance(wait_ms, int | float) or isnan(wait_ms):
            raise UsageError(f"a queue cannot wait for {wait_ms!r} ms; give a number")
        super().__init__(reason)
        self.reason = words_of(reason)
        self.wait_ms = wait_ms


class AckIndex(NamedTuple):
    """Of a batch, the messages up to index `last` are done, -1 for none; the others are tried again after `delay_level`."""

    last: int
    delay_level: int = 0


OneResult = ConsumeResult | Exception | bool | None
ListenerResult = OneResult | AckIndex | Sequence[OneResult]
"""What a listener returns. Exceptions may be raised as well as returned, one by one as `gather` gives them."""


class Verdict(NamedTuple):
    """What happens to one message: done, sent back with a delay level, or buried (level -1) for a reason."""

    is_done: bool
    delay_level: int = 0
    reason: str = ""

    @property
    def is_dead(self) -> bool:
        return self.delay_level < 0


DONE: Final = Verdict(True)


def verdicts(result: ListenerResult | BaseException, count: int) -> list[Verdict]:
    """One for each of `count` messages that a concurrent listener was given. UsageError for what is no result."""
    try:
        return _verdicts(result, count)
    except (TypeError, AttributeError) as error:  # an AckIndex of no number, say
        raise UsageError(f"the listener returned {words_of(result, repr):.80}, which means nothing: {error}") from error


def words_of(thing: object, say: Callable[[object], str] = str) -> str:
    """What it says, also if it cannot: an error of the user's must not keep its own message from coming again."""
    try:
        return say(thing)
    except Exception:
        return f"{type(thing).__name__} without words"


def _verdicts(result: ListenerResult | BaseException, count: int) -> list[Verdict]:
    if isinstance(result, AckIndex):
        if fault := delay_level_fault(result.delay_level):
            raise UsageError(f"the listener returned {result}: {fault}")
        done = min(max(result.last + 1, 0), count)
        return [DONE] * done + [Verdict(False, result.delay_level)] * (count - done)
    if isinstance(result, Sequence) and not isinstance(result, str | bytes):
        if len(result) != count:
            raise UsageError(f"the listener gave {len(result)} results for {count} messages; one for each is needed")
        return [_verdict(one) for one in result]
    return [_verdict(result)] * count


def _verdict(result: object) -> Verdict:
    match result:
        case None | True | ConsumeResult.SUCCESS | ConsumeResult.COMMIT:
            return DONE
        case ConsumeResult.ROLLBACK:
            raise UsageError(
                "the listener returned ROLLBACK, which is for ordered consumers with auto_commit=False; return LATER instead"
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
            return Verdict(False, reason=_told(result))
    raise UsageError(
        f"the listener returned {words_of(result, repr):.80}; return nothing or SUCCESS, LATER, RetryLater(…) or "
        "DeadLetter(…), or raise"
    )


def _told(error: BaseException) -> str:
    """What went wrong, and where in the user's code, innermost first: `ValueError: no price, at tax.py:7 in rate, at …`."""
    places = [
        f", at {PurePath(frame.f_code.co_filename).name}:{line} in {frame.f_code.co_name}"
        for frame, line in walk_tb(error.__traceback__)
        if not frame.f_globals.get("__name__", "").startswith("pocketmq.")
    ]
    return f"{type(error).__name__}: {words_of(error)}" + "".join(places[: -MAX_PLACES - 1 : -1])


class OrderlyVerdict(NamedTuple):
    """What happens to the messages that an orderly listener was given.

    `dead` are sent to the dead letters and are then done, each for its reason. With `wait_ms`, all `again` wait in the
    process queue with one attempt more, and the queue rests so long. Everything else is done.
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
    """From the first that may be tried again, all come again: what follows it must not be handled before it.

    One that was tried `max_times` again already is a dead letter; so is one that the listener gives up, and one whose body cannot
    be read: another attempt reads the same bytes, and would hold up the queue for ever.
    """
    result = [*map(_given_up, result)] if isinstance(result, list) else _given_up(result)
    fates = list(zip(messages, verdicts(result, len(messages)), strict=True))
    cut = next((at for at, (message, fate) in enumerate(fates) if _comes_again(message, fate, max_times)), len(fates))
    dead = tuple(
        (message, fate.reason or f"failed {message.reconsume_times + 1} times")
        for message, fate in fates[:cut]
        if not fate.is_done
    )
    if cut == len(fates):
        return OrderlyVerdict(dead)
    return OrderlyVerdict(dead, tuple(messages[cut:]), _wait_ms(result, suspend_ms))


def _given_up(result: Any) -> Any:
    return DeadLetter(_told(result)) if isinstance(result, UnreadableMessage) else result


def _comes_again(message: StoredMessage, fate: Verdict, max_times: int) -> bool:
    return not fate.is_done and not fate.is_dead and message.reconsume_times < max_times


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
    """What an administrator is told who had one message consumed directly."""
    if isinstance(result, BaseException) and not isinstance(result, RetryLater | DeadLetter | Suspend):
        return ConsumeOutcome.CR_THROW_EXCEPTION
    if result is COMMIT:
        return ConsumeOutcome.CR_COMMIT
    if result is ROLLBACK:
        return ConsumeOutcome.CR_ROLLBACK
    return ConsumeOutcome.CR_SUCCESS if verdicts(result, 1)[0].is_done else ConsumeOutcome.CR_LATER


def traced_outcome(result: ListenerResult | BaseException, took_ms: float, timeout_ms: float) -> Outcome:
    """What a trace record says of it: of a batch, success only when every message is done."""
    if isinstance(result, BaseException) and not isinstance(result, RetryLater | DeadLetter | Suspend):
        return Outcome.RAISED
    if took_ms >= timeout_ms:
        return Outcome.TIMED_OUT
    if result is ROLLBACK:
        return Outcome.FAILED
    count = len(result) if isinstance(result, Sequence) and not isinstance(result, AckIndex) else 1
    return Outcome.SUCCESS if all(fate.is_done for fate in verdicts(result, count)) else Outcome.FAILED
