"""The subscriptions of a consumer, and their filters.

    subscribe, unsubscribe, touch ──► new version: the wall time of the change, always larger than the previous version

A broker uses the subscription with the largest version for the group, so versions must grow even when the wall clock is set back. A
clustering consumer is subscribed to its retry topic. Tag filters are checked again here, because brokers compare hashes only.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from pocketmq.errors import InvalidExpression, UsageError
from pocketmq.model import ExpressionType, GroupName, StoredMessage, Subscription
from pocketmq.model.names import is_retry, parse_topic, retry_topic
from pocketmq.model.properties import TAGS, raw_property
from pocketmq.model.sql92 import check_expression
from pocketmq.protocol.pop import pop_retry_topic

_TAGS: Final = TAGS.encode()


class SubscriptionTable:
    """The subscriptions of a consumer. Times are those of the wall clock."""

    def __init__(self, group: GroupName, now_ms: int, *, with_retries: bool) -> None:
        """`with_retries`: subscribe to the group's retry topic, which broadcasting consumers do not have."""
        self._table: dict[str, Subscription] = {}
        self._group = group
        if with_retries:
            topic = retry_topic(group)
            self._table[topic] = Subscription.parse(topic, sub_version=now_ms)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(tuple(self._table.values()))

    def __len__(self) -> int:
        return len(self._table)

    def get(self, topic: str) -> Subscription | None:
        return self._table.get(topic)

    def subscribe(
        self, topic: str, expression: str | None = None, kind: str = ExpressionType.TAG, *, now_ms: int
    ) -> Subscription:
        """Subscribe to `topic`, or change its filter. Raises InvalidName or InvalidExpression."""
        name = parse_topic(topic)
        if is_retry(name):
            raise UsageError(f"{topic} is a retry topic: the consumers of its group subscribe to it automatically")
        subscription = Subscription.parse(name, expression, kind)
        known = self._table.get(name)
        if known is None or not known.same_filter(subscription):
            self._table[name] = replace(subscription, sub_version=self._next_version(known, now_ms))
        return self._table[name]

    def follow_retries(self, topic: str, *, pulls: bool, now_ms: int) -> bool:
        """A member that pulls `topic` also pulls what the group popped before and did not handle. Whether it is new."""
        is_new = False
        for name in (pop_retry_topic(self._group, topic, v2=v2) for v2 in (False, True)):
            if not pulls:
                self._table.pop(name, None)
            elif name not in self._table:
                is_new = True
                self._table[name] = Subscription.parse(name, sub_version=now_ms)
        return is_new

    def unsubscribe(self, topic: str) -> bool:
        """Remove a subscription; False if there was none, or it is that to the retry topic."""
        if is_retry(topic) or self._table.pop(topic, None) is None:
            return False
        self.follow_retries(topic, pulls=False, now_ms=0)
        return True

    def touch(self, topic: str, now_ms: int) -> None:
        """Give the subscription a new version, so that brokers use it for the group."""
        known = self._table.get(topic)
        if known is not None:
            self._table[topic] = replace(known, sub_version=self._next_version(known, now_ms))

    def _next_version(self, known: Subscription | None, now_ms: int) -> int:
        return now_ms if known is None else max(now_ms, known.sub_version + 1)


def filter_of(topic: str, tags: str | None, sql: str | None) -> tuple[str | None, str]:
    """The filter expression and its kind."""
    if tags is not None and sql is not None:
        raise UsageError(f"topic {topic!r} is filtered by tags or by sql, not by both")
    filters: dict[str, object] = {"tags": tags, "sql": sql}
    for name, value in filters.items():
        if not isinstance(value, str | None):
            example = " || ".join(map(str, value)) if isinstance(value, list | tuple | set) else "a || b"
            raise UsageError(f"{name} = {value!r} for topic {topic!r} must be one text, for example {name}={example!r}")
    if sql is None:
        return tags, ExpressionType.TAG
    if not sql.strip():
        raise InvalidExpression(f"the sql expression for topic {topic!r} is empty")
    try:
        check_expression(sql)
    except InvalidExpression as error:
        raise InvalidExpression(f"the sql expression {sql!r} for topic {topic!r} is invalid: {error}") from None
    return sql, ExpressionType.SQL92


def matching_messages(subscription: Subscription, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    """The messages that a tag filter selects: brokers compare hashes only. Other filters are evaluated by brokers alone."""
    tags = subscription.tags_set
    if not tags or not subscription.is_tag or subscription.class_filter_mode:
        return messages
    selected = {tag.encode() for tag in tags}
    return [message for message in messages if raw_property(message.raw_properties, _TAGS) in selected]
