"""Subscriptions of one consumer: topic → what it wants of it.

    subscribe, unsubscribe, touch ──► version: wall time of the change, always larger than the one before

A broker takes the subscription with the largest version for the group's, so a change must have a larger one even when the
wall clock was set back. A clustering consumer is subscribed to its retry topic by itself. Filters by tag are checked once more
here: brokers compare hashes, and two tags may have the same.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pocketmq.errors import InvalidExpression, UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import GroupName, is_retry, parse_topic, retry_topic
from pocketmq.model.properties import TAGS, raw_property
from pocketmq.model.sql92 import check_expression
from pocketmq.model.subscription import ExpressionType, Subscription

_TAGS = TAGS.encode()


class SubscriptionTable:
    """What a consumer subscribes to. Told the wall time."""

    def __init__(self, group: GroupName, now_ms: int, *, with_retries: bool) -> None:
        """`with_retries` False: a broadcasting consumer, which has no retries."""
        self._table: dict[str, Subscription] = {}
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
        """Want `topic`, filtered; replaces what was wanted of it. InvalidName or InvalidExpression say what is wrong."""
        name = parse_topic(topic)
        if is_retry(name):
            raise UsageError(f"{topic} is a retry topic, which a consumer of that group is subscribed to by itself")
        wanted = Subscription.parse(name, expression, kind)
        known = self._table.get(name)
        if known is None or not known.same_filter(wanted):
            self._table[name] = replace(wanted, sub_version=self._next_version(known, now_ms))
        return self._table[name]

    def unsubscribe(self, topic: str) -> bool:
        """Want nothing of `topic` any more; False when nothing was wanted, or it is the retry topic."""
        return not is_retry(topic) and self._table.pop(topic, None) is not None

    def touch(self, topic: str, now_ms: int) -> None:
        """The queues of `topic` were shared out anew: the broker is to take this subscription for the latest."""
        known = self._table.get(topic)
        if known is not None:
            self._table[topic] = replace(known, sub_version=self._next_version(known, now_ms))

    def _next_version(self, known: Subscription | None, now_ms: int) -> int:
        return now_ms if known is None else max(now_ms, known.sub_version + 1)


def wanted_messages(subscription: Subscription, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    """Those that the tag filter really means; all of them for other filters, which the broker alone can judge."""
    tags = subscription.tags_set
    if not tags or not subscription.is_tag or subscription.class_filter_mode:
        return messages
    wanted = {tag.encode() for tag in tags}
    return [message for message in messages if raw_property(message.raw_properties, _TAGS) in wanted]


def filter_of(topic: str, tags: str | None, sql: str | None) -> tuple[str | None, str]:
    """The expression that a user means who gave tags, or SQL, or neither, and its kind."""
    if tags is not None and sql is not None:
        raise UsageError(f"topic {topic!r} is filtered by tags or by sql, not by both")
    if sql is None:
        return tags, ExpressionType.TAG
    if not sql.strip():
        raise InvalidExpression(f"the sql expression for topic {topic!r} is empty")
    try:
        check_expression(sql)
    except InvalidExpression as error:
        raise InvalidExpression(f"the sql expression {sql!r} for topic {topic!r} is wrong: {error}") from None
    return sql, ExpressionType.SQL92
