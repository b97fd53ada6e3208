"""Filters: which messages match a subscription, decided by the broker.

    subscription   on a queue entry        on a record            a held pull wakes when
    *              all                     all                    anything arrives
    tags           its tags code is one    all: the client        the tags code is one
                   of the subscribed       compares the text
    SQL92          all                     its properties match   the properties match

Each message is checked once per pull. Only the properties in the expression are searched, in the record's own bytes;
nothing is parsed.

Pulls may include their subscription: lite pull consumers and tools are served without a heartbeat. These subscriptions
are kept for a while, only to answer administrators who query the subscriptions of a group. They serve no other pull.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from pocketmq.errors import InvalidExpression, ProtocolError
from pocketmq.model import ExpressionType, Subscription
from pocketmq.model import properties as names
from pocketmq.model.properties import parse_properties, raw_property
from pocketmq.model.sql92 import LONGEST_EXPRESSION, Expression, Lookup
from pocketmq.protocol.record import properties_start

MAX_EXPRESSIONS: Final = 256
"""Limit on cached SQL92 expressions."""
MAX_CHARACTERS: Final = 262_144
"""Limit on their total length: a long expression needs about fifty times its length in memory."""
FEW_NAMES: Final = 2
"""Up to this many properties, a search for each is faster than parsing all properties."""

_RETRY_TOPIC: Final = names.RETRY_TOPIC.encode()

Decision: TypeAlias = Callable[[bytes, int], bool]
"""Whether a message matches; its properties are the bytes from an index to the end."""


class Filter:
    """The filter of a read and a held pull. Without `tag_codes` and `matches`, it selects everything.

    `expression` is set for SQL92 only; it counts messages without a result.
    """

    __slots__ = ("_decide", "expression", "matches", "tag_codes")

    def __init__(
        self,
        tag_codes: frozenset[int] | None = None,
        decide: Decision | None = None,
        expression: Expression | None = None,
    ) -> None:
        self.tag_codes = tag_codes
        self.matches = decide and _on_whole_records(decide)
        self.expression = expression
        self._decide = decide

    def wakes(self, tags_code: int, raw_properties: bytes) -> bool:
        """Whether the arrival of such a message wakes a held pull."""
        if self.tag_codes is not None:
            return tags_code in self.tag_codes
        return self._decide is None or self._decide(raw_properties, 0)


EVERYTHING: Final = Filter()


class Filters:
    """Filters of subscriptions. SQL92 expressions are cached, least recently used first out.

    An invalid expression is cached as well: its client repeats it.
    """

    def __init__(self, max_expressions: int = MAX_EXPRESSIONS, max_characters: int = MAX_CHARACTERS) -> None:
        self._max_expressions = max_expressions
        self._max_characters = max_characters
        self._characters = 0
        self._ready: dict[str, Filter | InvalidExpression] = {}

    def of(self, subscription: Subscription) -> Filter:
        """The filter of `subscription`. InvalidExpression if its expression is invalid or of an unknown type."""
        if subscription.class_filter_mode or subscription.matches_all:
            return EVERYTHING
        if subscription.is_tag:
            return Filter(tag_codes=frozenset(subscription.code_set))
        if subscription.expression_type != ExpressionType.SQL92:
            raise InvalidExpression(
                f"topic {subscription.topic} has the unknown expression type {subscription.expression_type!r}; "
                "use TAG or SQL92"
            )
        return self._of_expression(subscription.sub_string)

    def of_retries(self, subscription: Subscription, original: Callable[[str], Subscription | None]) -> Filter:
        """The filter of a retry topic: each message is matched by the group's subscription of its original topic.

        `original` returns that subscription, or None. As in RocketMQ, this applies only if the retry topic itself is
        subscribed with SQL92. Clients subscribe to it with `*`, and get back everything that they failed to consume. A
        message matches if its topic is unknown, or is not subscribed with a valid SQL92 expression.
        """
        if subscription.class_filter_mode or subscription.is_tag:
            return self.of(subscription)

        def decide(buffer: bytes, start: int) -> bool:
            topic = raw_property(buffer[start:], _RETRY_TOPIC)
            wanted = original(topic.decode("utf-8", "replace")) if topic else None
            if wanted is None or wanted.is_tag:
                return True
            try:
                decision = self.of(wanted)._decide
            except InvalidExpression:
                return True
            return decision is None or decision(buffer, start)

        return Filter(decide=decide)

    def _of_expression(self, text: str) -> Filter:
        ready = self._ready.pop(text, None)
        if ready is None:
            ready = _compiled(text)
        else:
            self._characters -= len(text)
        if len(text) <= LONGEST_EXPRESSION:  # a longer one is rejected quickly, and would evict all others
            self._keep(text, ready)
        if isinstance(ready, InvalidExpression):
            raise InvalidExpression(*ready.args)
        return ready

    def _keep(self, text: str, ready: Filter | InvalidExpression) -> None:
        self._ready[text] = ready
        self._characters += len(text)
        while len(self._ready) > self._max_expressions or self._characters > self._max_characters:
            oldest = next(iter(self._ready))
            del self._ready[oldest]
            self._characters -= len(oldest)


def _compiled(text: str) -> Filter | InvalidExpression:
    try:
        expression = Expression(text)
    except InvalidExpression as error:
        return error.with_traceback(None)
    return Filter(decide=_decision(expression), expression=expression)


def _decision(expression: Expression) -> Decision:
    matches = expression.matches
    if len(expression.names) > FEW_NAMES:
        return lambda buffer, start: matches(parse_properties(buffer[start:].decode("utf-8", "replace")).get)
    marks = {name: f"\x02{name}\x01".encode() for name in expression.names}
    return lambda buffer, start: matches(_lookup(buffer, start, marks))


def _lookup(buffer: bytes, start: int, marks: dict[str, bytes]) -> Lookup:
    """Search properties one by one. Of equal names the last non-empty value counts, as in `parse_properties`."""

    def get(name: str) -> str | None:
        mark = marks[name]
        at = buffer.rfind(mark, start)
        if at < 0:
            if not buffer.startswith(mark[1:], start):
                return None
            at = start - 1
        at += len(mark)
        end = buffer.find(b"\x02", at)
        value = buffer[at:] if end < 0 else buffer[at:end]
        if value:
            return value.decode("utf-8", "replace")
        return parse_properties(buffer[start:].decode("utf-8", "replace")).get(name)

    return get


def _on_whole_records(decide: Decision) -> Callable[[bytes], bool]:
    def matches(record: bytes) -> bool:
        try:
            start = properties_start(record)
        except ProtocolError:
            return True  # a filter does not hide damage: the reader reports it
        return decide(record, start)

    return matches


EXPIRY_SECONDS = 600.0
MAX_SUBSCRIPTIONS = 10_000
"""Limit on pairs of group and topic; above it, the least recently used one is removed."""


class RequestSubscriptions:
    """Subscriptions in pull requests, by group and topic, the least recent first. Callers pass the monotonic time."""

    def __init__(self, *, expiry: float = EXPIRY_SECONDS, max_subscriptions: int = MAX_SUBSCRIPTIONS) -> None:
        self._subscriptions: dict[tuple[str, str], tuple[Subscription, float]] = {}
        self._expiry = expiry
        self._max_subscriptions = max_subscriptions

    def __len__(self) -> int:
        return len(self._subscriptions)

    def record(self, group: str, subscription: Subscription, now: float) -> None:
        """A pull of this group included a subscription."""
        key = group, subscription.topic
        self._subscriptions.pop(key, None)
        self._subscriptions[key] = subscription, now
        if len(self._subscriptions) > self._max_subscriptions:
            del self._subscriptions[next(iter(self._subscriptions))]

    def find(self, group: str, topic: str) -> Subscription | None:
        found = self._subscriptions.get((group, topic))
        return found and found[0]

    def expire(self, now: float) -> None:
        """Remove subscriptions that no pull included for too long."""
        for key, (_, recorded) in list(self._subscriptions.items()):
            if now - recorded <= self._expiry:
                break
            del self._subscriptions[key]
