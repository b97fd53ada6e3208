"""Filters: which messages a subscription wants, decided by the broker.

    subscription   on a queue entry        on a record            a held pull wakes when
    *              all                     all                    anything arrives
    tags           its tags code is one    all: the client        the tags code is one
                   of the wanted           checks the text
    SQL92          all                     its properties match   the properties match

A record is asked once per message and pull, so only the properties that an expression names are looked for, in the record's own
bytes; nothing is parsed.

Subscriptions that pulls carry with them: lite pull consumers and tools need no heartbeat to be served.

They are remembered for a while only to answer an administrator who asks what a group wants of a topic. No pull is served by them.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from pocketmq.errors import InvalidExpression, ProtocolError
from pocketmq.model import properties as names
from pocketmq.model.properties import parse_properties, raw_property
from pocketmq.model.sql92 import LONGEST_EXPRESSION, Expression, Lookup
from pocketmq.model.subscription import ExpressionType, Subscription
from pocketmq.protocol.record import properties_start

MAX_EXPRESSIONS: Final = 256
"""Different SQL92 expressions that are kept ready."""
MAX_CHARACTERS: Final = 262_144
"""Of all of them together: a long one takes some fifty times its length in memory."""
FEW_NAMES: Final = 2
"""Looking for so many properties one by one is quicker than parsing all that a message has."""

_RETRY_TOPIC: Final = names.RETRY_TOPIC.encode()

Decision: TypeAlias = Callable[[bytes, int], bool]
"""Whether a message is wanted whose properties begin at an index of these bytes and end with them."""


class Filter:
    """What a read and a held pull ask. `tag_codes` and `matches` are None when there is nothing to ask.

    `expression` is there for SQL92 only; it counts the messages that had no answer.
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
        """Whether the arrival of such a message ends the wait of a held pull."""
        if self.tag_codes is not None:
            return tags_code in self.tag_codes
        return self._decide is None or self._decide(raw_properties, 0)


EVERYTHING: Final = Filter()


class Filters:
    """Filters of subscriptions. SQL92 expressions are kept ready, the least recently used is forgotten first.

    A wrong expression is remembered as well: its client asks again and again.
    """

    def __init__(self, max_expressions: int = MAX_EXPRESSIONS, max_characters: int = MAX_CHARACTERS) -> None:
        self._max_expressions = max_expressions
        self._max_characters = max_characters
        self._characters = 0
        self._ready: dict[str, Filter | InvalidExpression] = {}

    def of(self, subscription: Subscription) -> Filter:
        """The filter of `subscription`; InvalidExpression when its expression is wrong, or of an unknown type."""
        if subscription.class_filter_mode or subscription.takes_all:
            return EVERYTHING
        if subscription.is_tag:
            return Filter(tag_codes=frozenset(subscription.code_set))
        if subscription.expression_type != ExpressionType.SQL92:
            raise InvalidExpression(
                f"topic {subscription.topic} is subscribed by {subscription.expression_type!r}; use TAG or SQL92"
            )
        return self._of_expression(subscription.sub_string)

    def of_retries(self, subscription: Subscription, original: Callable[[str], Subscription | None]) -> Filter:
        """The filter of a retry topic, where each message is judged by the group's subscription of the topic it came from.

        `original` gives that subscription, None when there is none any more. As in RocketMQ this holds only where the retry
        topic itself is subscribed by SQL92; clients subscribe to it by `*`, and get back all that they failed on. A message
        whose topic is unknown, or not subscribed by a valid SQL92 expression, is wanted.
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
        if len(text) <= LONGEST_EXPRESSION:  # one beyond is refused at a glance, and would push out all others
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
    """Finds properties one by one; of equal names the last that is not empty counts, as in `parse_properties`."""

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
            return True  # not for a filter to hide: whoever reads it says what is wrong with it
        return decide(record, start)

    return matches


EXPIRY_SECONDS = 600.0
MAX_CARRIED = 10_000
"""Pairs of group and topic that are remembered; beyond that, the one that was heard of longest ago is forgotten."""


class RequestSubscriptions:
    """By group and topic, those that were heard of last at the end. Told the monotonic time."""

    def __init__(self, *, expiry: float = EXPIRY_SECONDS, max_carried: int = MAX_CARRIED) -> None:
        self._carried: dict[tuple[str, str], tuple[Subscription, float]] = {}
        self._expiry = expiry
        self._max_carried = max_carried

    def __len__(self) -> int:
        return len(self._carried)

    def note(self, group: str, subscription: Subscription, now: float) -> None:
        """A pull of this group came with a subscription."""
        key = group, subscription.topic
        self._carried.pop(key, None)
        self._carried[key] = subscription, now
        if len(self._carried) > self._max_carried:
            del self._carried[next(iter(self._carried))]

    def find(self, group: str, topic: str) -> Subscription | None:
        found = self._carried.get((group, topic))
        return found and found[0]

    def expire(self, now: float) -> None:
        """Forget those that nobody carried for too long."""
        for key, (_, noted) in list(self._carried.items()):
            if now - noted <= self._expiry:
                break
            del self._carried[key]
