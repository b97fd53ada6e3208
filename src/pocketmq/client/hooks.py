"""Hooks: callbacks for events of messages. Traces, metrics and users all use them.

    extra_properties                                     properties to add to a message before it is sent
    before_send ──► an attempt ──► after_send            once for each attempt, so twice for a message that is retried once
    before_consume ──► a listener ──► after_consume      once for each call of a listener
    after_decision                                       a transaction was committed, rolled back, or left open
    after_pull, after_pause, after_leave                 a queue was pulled, had to pause, or is not pulled any more
    after_lease                                          messages were leased (POP), or their leases ended
    filter_messages                                      selects the pulled messages that a consumer gets

Hooks run on the thread that handles the message, and must not block. An exception does not affect the message; the first one of
each type is logged for each hook. Messages that `filter_messages` removes count as consumed.

An `RpcHook` works below: it sees each request to a name server or broker, and its response.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from pocketmq.client.producer.results import SendResult
from pocketmq.codes import TransactionState
from pocketmq.errors import InvalidSetting
from pocketmq.model import Message, MessageQueue, StoredMessage
from pocketmq.protocol.command import Command
from pocketmq.protocol.trace_text import Outcome, TracedType

log = logging.getLogger("pocketmq.client")


class SendEvent(msgspec.Struct, kw_only=True):
    """One attempt to send. `result` or `error` is set afterwards, but not for a one-way send. `context` is for data of hooks."""

    group: str
    messages: Sequence[Message]
    message_ids: Sequence[str]
    queue: MessageQueue
    address: str
    kind: TracedType
    body_bytes: int
    started_ms: int
    """Wall clock; `started` is monotonic."""
    started: float
    attempt: int = 1
    """Above 1 after failed attempts."""
    cost_ms: float = 0.0
    result: SendResult | None = None
    error: BaseException | None = None
    context: dict[str, Any] = msgspec.field(default_factory=dict)


class DecisionEvent(msgspec.Struct, kw_only=True):
    """The decision about a transaction."""

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
    """One call of a listener. `outcome` and `cost_ms` are set afterwards. `context` is for data of hooks."""

    group: str
    messages: Sequence[StoredMessage]
    queue: MessageQueue
    started_ms: int
    cost_ms: float = 0.0
    outcome: Outcome | None = None
    error: BaseException | None = None
    context: dict[str, Any] = msgspec.field(default_factory=dict)


class PullEvent(msgspec.Struct, kw_only=True):
    """One pull that was answered."""

    group: str
    queue: MessageQueue
    messages: int
    cost_ms: float
    """Includes the time for which the broker held a pull without messages."""
    behind: int
    """Messages of the queue that the broker still has."""
    cached: int
    """Messages in this client that are not consumed."""


class PauseEvent(msgspec.Struct, kw_only=True):
    """A pull had to wait."""

    group: str
    queue: MessageQueue
    cause: str
    """See `flow_limits.PauseCause`."""


class LeaveEvent(msgspec.Struct, kw_only=True):
    """This consumer does not pull the queue any more."""

    group: str
    queue: MessageQueue


class LeaseChange(StrEnum):
    """The beginning of leases, and their ends."""

    LEASED = "leased"
    ACKNOWLEDGED = "acknowledged"
    RETURNED = "returned"
    """Given back for another attempt."""
    LAPSED = "lapsed"
    """The lease ended before the message was handled: the broker delivers it again."""
    REJECTED = "rejected"
    """The ack came after the end of the lease. It follows LAPSED."""


class LeaseEvent(msgspec.Struct, kw_only=True):
    """Messages of a topic were leased, or their leases ended."""

    group: str
    topic: str
    change: LeaseChange
    messages: int


class FilterEvent(msgspec.Struct, kw_only=True):
    """Messages of one pull, before they are consumed. A hook sets `messages` to those to consume."""

    group: str
    queue: MessageQueue
    messages: Sequence[StoredMessage]


class RpcHook:
    """Sees each request of a client to a name server or broker, and its response. Inherit, and override the methods you need.

    It runs on the thread of the network and must not block. An exception does not affect the request; its first one of each type is logged. With a hook, sends and
    pulls cost two to three times as much, because each becomes a `Command`.
    """

    def before_request(self, address: str, request: Command) -> None:
        """Called before a request is signed and sent. You may change its `ext` fields."""

    def after_response(self, address: str, request: Command, response: Command) -> None:
        """Called for each response, also for errors. One-way requests, and those that fail, have none."""


class Hooks:
    """All hooks; none does anything. Inherit, and override the methods you need."""

    def extra_properties(self, message: Message) -> Mapping[str, str] | None:
        """Properties to add to `message`. Called once or twice in the thread and context of the sender, before everything else."""

    def before_send(self, event: SendEvent) -> None:
        """An attempt begins."""

    def after_send(self, event: SendEvent) -> None:
        """The attempt has a result, or failed."""

    def before_consume(self, event: ConsumeEvent) -> None:
        """A listener is called next."""

    def after_consume(self, event: ConsumeEvent) -> None:
        """The listener returned or raised."""

    def after_decision(self, event: DecisionEvent) -> None:
        """A transaction was decided."""

    def after_pull(self, event: PullEvent) -> None:
        """A pull was answered."""

    def after_pause(self, event: PauseEvent) -> None:
        """A pull had to wait, because of a limit or of `pause()`."""

    def after_leave(self, event: LeaveEvent) -> None:
        """The queue is not pulled by this consumer any more."""

    def after_lease(self, event: LeaseEvent) -> None:
        """Messages were leased, or their leases ended."""

    def filter_messages(self, event: FilterEvent) -> None:
        """Messages were pulled: set `event.messages` to those to consume. The others count as consumed."""


class HookErrors:
    """Logs exceptions of hooks: with the traceback, once for each method and type, because hooks run once for each message."""

    def __init__(self) -> None:
        self._logged: set[tuple[object, type[Exception]]] = set()

    def log(self, function: Callable[..., object], error: Exception, what: str) -> None:
        """Log `error` of `function`; `what` continues without the hook."""
        cause = (function, type(error))
        if cause not in self._logged:
            self._logged.add(cause)
            log.error(
                "Hook %r failed; the %s continues without it. Further exceptions of type %s are not logged",
                function,
                what,
                type(error).__name__,
                exc_info=error,
            )


class HookList:
    """The hooks of one client, called in their order. Each method of `Hooks` for events is an attribute here."""

    def __init__(self, hooks: Iterable[Hooks] = ()) -> None:
        self._hooks = checked_hooks(hooks)
        self._errors = HookErrors()
        self._extra_properties = self._overrides("extra_properties")
        self.before_send = self._calls("before_send")
        self.after_send = self._calls("after_send")
        self.before_consume = self._calls("before_consume")
        self.after_consume = self._calls("after_consume")
        self.after_decision = self._calls("after_decision")
        self.after_pull = self._calls("after_pull")
        self.after_pause = self._calls("after_pause")
        self.after_leave = self._calls("after_leave")
        self.after_lease = self._calls("after_lease")
        self.filter_messages = self._calls("filter_messages")
        self.filters = self._has("filter_messages")
        self.adds_properties = self._has("extra_properties")
        self.watch_sends = self._has("before_send", "after_send")
        self.watch_consumption = self._has("before_consume", "after_consume")
        self.watch_decisions = self._has("after_decision")
        self.watch_leases = self._has("after_lease")
        self.watch_pulls = self._has("after_pull", "after_pause", "after_leave")

    def with_extra_properties(self, message: Message) -> Message:
        """The message with the properties that hooks add. They do not replace its own."""
        extended = message
        for function in self._extra_properties:
            try:
                if added := function(message):
                    extended = extended.with_properties(added)
            except Exception as error:
                self._errors.log(function, error, "message")
        return extended

    def _overrides(self, name: str) -> tuple[Callable[[Any], Any], ...]:
        """This method of the hooks that override it."""
        base = getattr(Hooks, name)
        return tuple(getattr(hook, name) for hook in self._hooks if getattr(type(hook), name) is not base)

    def _has(self, *names: str) -> bool:
        return any(self._overrides(name) for name in names)

    def _calls(self, name: str) -> Callable[[Any], None]:
        """A function that passes an event to this method of all hooks."""
        functions = self._overrides(name)

        def call(event: object) -> None:
            for function in functions:
                try:
                    function(event)
                except Exception as error:
                    self._errors.log(function, error, "message")

        return call


def checked_hooks(hooks: Iterable[Hooks]) -> tuple[Hooks, ...]:
    """The hooks of a client. Raises InvalidSetting if they are not `Hooks`."""
    checked = tuple(hooks) if isinstance(hooks, Iterable) else None
    if checked is None or not all(isinstance(hook, Hooks) for hook in checked):
        raise InvalidSetting(f"hooks = {hooks!r} must be a list of objects of classes that inherit from Hooks")
    return checked
