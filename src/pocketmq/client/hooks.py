"""Hooks: what happens to messages, told to whoever wants to know. Traces, metrics and users all use the same.

    carry                                                properties that a message takes along, asked where it is handed over
    before_send ──► an attempt ──► after_send            once for each attempt, so a retried message is told of twice
    before_consume ──► a listener ──► after_consume      once for each call of a listener
    after_decision                                       a transaction was committed, rolled back, or left open
    after_pull, after_pause, after_leave                 a queue was pulled, had to wait, or is not read any more
    filter_messages                                      which of the pulled messages a consumer gets

A hook is a class with those of these methods that it wants. They run where the message is handled and must not wait. One that
raises is logged and does no harm to the message: watching must never change what is watched. Only `filter_messages` is asked for a
choice: what it takes away counts as done.

An `RpcHook` is below all that: it sees every request to a name server or broker, and its response.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pocketmq.client.producer.results import SendResult
from pocketmq.errors import InvalidSetting
from pocketmq.model.flags import TransactionState
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.command import Command
from pocketmq.protocol.trace_text import Outcome, TracedType

log = logging.getLogger("pocketmq.client")


class SendEvent(msgspec.Struct, kw_only=True):
    """One attempt to send. `result` or `error` is there afterwards; neither is for a one-way send. `notes` are the hook's own."""

    group: str
    messages: Sequence[Message]
    message_ids: Sequence[str]
    queue: MessageQueue
    address: str
    kind: TracedType
    body_bytes: int
    started_ms: int
    """By the wall clock; `started` is by the one that only grows."""
    started: float
    attempt: int = 1
    """Above 1: the message is sent once more, because an earlier attempt failed."""
    cost_ms: float = 0.0
    result: SendResult | None = None
    error: BaseException | None = None
    notes: dict[str, Any] = msgspec.field(default_factory=dict)


class DecisionEvent(msgspec.Struct, kw_only=True):
    """How a transaction was decided."""

    group: str
    message: Message | StoredMessage
    topic: str
    message_id: str
    transaction_id: str | None
    state: TransactionState
    address: str
    at_ms: int
    from_check: bool


class ConsumeEvent(msgspec.Struct, kw_only=True):
    """One call of a listener. `outcome` and `cost_ms` are there afterwards. `notes` are the hook's own."""

    group: str
    messages: Sequence[StoredMessage]
    queue: MessageQueue
    started_ms: int
    cost_ms: float = 0.0
    outcome: Outcome | None = None
    error: BaseException | None = None
    notes: dict[str, Any] = msgspec.field(default_factory=dict)


class PullEvent(msgspec.Struct, kw_only=True):
    """One pull that was answered."""

    group: str
    queue: MessageQueue
    messages: int
    cost_ms: float
    """Also the time for which the broker held it, when there was nothing."""
    behind: int
    """Messages of the queue that are still at the broker."""
    held: int
    """Those that are here and not done with."""


class PauseEvent(msgspec.Struct, kw_only=True):
    """A pull that had to wait."""

    group: str
    queue: MessageQueue
    cause: str
    """See `flow_limits.PauseCause`."""


class LeaveEvent(msgspec.Struct, kw_only=True):
    """A queue that this member does not read any more."""

    group: str
    queue: MessageQueue


class FilterEvent(msgspec.Struct, kw_only=True):
    """Messages of one pull, before a listener or a poll gets them. A hook sets `messages` to those that are to be handled."""

    group: str
    queue: MessageQueue
    messages: Sequence[StoredMessage]


class RpcHook:
    """Sees every request of a client to a name server or a broker, and its response. Inherit, and override what you want.

    It runs on the thread of the network and must not wait. A hook that raises is logged, and the request goes its way. With a hook, sends and
    pulls take the longer way through `Command`, which costs two to three times as much for each request.
    """

    def before_request(self, address: str, request: Command) -> None:
        """A request is about to leave. Its `ext` fields may be changed or added to: it is signed afterwards."""

    def after_response(self, address: str, request: Command, response: Command) -> None:
        """Its response came, whatever it says. Requests that are sent one-way have none, nor have those that fail."""


class Hooks:
    """All hooks by name; each does nothing. Inherit, and override those you want."""

    def carry(self, message: Message) -> Mapping[str, str] | None:
        """Properties that `message` shall carry besides its own. Called once or twice by whoever sends it, in their thread
        and context, before anything else happens to it.
        """

    def before_send(self, event: SendEvent) -> None:
        """An attempt is about to be made."""

    def after_send(self, event: SendEvent) -> None:
        """It has an outcome."""

    def before_consume(self, event: ConsumeEvent) -> None:
        """A listener is about to be called."""

    def after_consume(self, event: ConsumeEvent) -> None:
        """It returned or raised."""

    def after_decision(self, event: DecisionEvent) -> None:
        """A transaction was decided."""

    def after_pull(self, event: PullEvent) -> None:
        """A pull was answered."""

    def after_pause(self, event: PauseEvent) -> None:
        """A pull had to wait, because of a limit or because somebody said so."""

    def after_leave(self, event: LeaveEvent) -> None:
        """A queue is read by another member from now on, or by nobody."""

    def filter_messages(self, event: FilterEvent) -> None:
        """Messages were pulled: set `event.messages` to those that are to be handled. The others count as done."""


class HookList:
    """The hooks of one client, called in the order in which they were given. Empty lists cost one look."""

    def __init__(self, hooks: Iterable[Hooks] = ()) -> None:
        hooks = checked_hooks(hooks)
        self._carry = _overridden(hooks, "carry")
        self._before_send = _overridden(hooks, "before_send")
        self._after_send = _overridden(hooks, "after_send")
        self._before_consume = _overridden(hooks, "before_consume")
        self._after_consume = _overridden(hooks, "after_consume")
        self._after_decision = _overridden(hooks, "after_decision")
        self._after_pull = _overridden(hooks, "after_pull")
        self._after_pause = _overridden(hooks, "after_pause")
        self._after_leave = _overridden(hooks, "after_leave")
        self._filter_messages = _overridden(hooks, "filter_messages")
        self.filters = bool(self._filter_messages)
        self.add_properties = bool(self._carry)
        self.watch_sends = bool(self._before_send or self._after_send)
        self.watch_consumption = bool(self._before_consume or self._after_consume)
        self.watch_decisions = bool(self._after_decision)
        self.watch_pulls = bool(self._after_pull or self._after_pause or self._after_leave)

    def carrying(self, message: Message) -> Message:
        """The message with what hooks want it to carry; the user's own stays as it is."""
        if not self._carry:
            return message
        carrying = message
        for function in self._carry:
            try:
                if carried := function(message):
                    carrying = carrying.with_properties(carried)
            except Exception:
                log.exception("the hook %r failed; the message goes its way", function)
        return carrying

    def before_send(self, event: SendEvent) -> None:
        _call(self._before_send, event)

    def after_send(self, event: SendEvent) -> None:
        _call(self._after_send, event)

    def before_consume(self, event: ConsumeEvent) -> None:
        _call(self._before_consume, event)

    def after_consume(self, event: ConsumeEvent) -> None:
        _call(self._after_consume, event)

    def after_decision(self, event: DecisionEvent) -> None:
        _call(self._after_decision, event)

    def after_pull(self, event: PullEvent) -> None:
        _call(self._after_pull, event)

    def after_pause(self, event: PauseEvent) -> None:
        _call(self._after_pause, event)

    def after_leave(self, event: LeaveEvent) -> None:
        _call(self._after_leave, event)

    def filter_messages(self, event: FilterEvent) -> None:
        _call(self._filter_messages, event)


def checked_hooks(hooks: Iterable[Hooks]) -> tuple[Hooks, ...]:
    """The hooks that a client was given; InvalidSetting when they are none."""
    given = tuple(hooks) if isinstance(hooks, Iterable) else None
    if given is None or not all(isinstance(hook, Hooks) for hook in given):
        raise InvalidSetting(f"hooks = {hooks!r} must be a list of objects of classes that inherit from Hooks")
    return given


def _overridden(hooks: Sequence[Hooks], name: str) -> tuple[Callable[[Any], Any], ...]:
    return tuple(getattr(hook, name) for hook in hooks if getattr(type(hook), name) is not getattr(Hooks, name))


def _call(functions: Sequence[Callable[[Any], None]], event: object) -> None:
    for function in functions:
        try:
            function(event)
        except Exception:
            log.exception("the hook %r failed; the message goes its way", function)
