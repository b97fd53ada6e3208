"""A consumer's filter on a topic: all messages, some tags, or a SQL92 expression."""

from collections.abc import Collection
from enum import StrEnum

import msgspec

from pocketmq.errors import InvalidExpression
from pocketmq.model.java_hash import java_hash

ALL = "*"
TAG_SEPARATOR = "||"
_JAVA_BLANKS = "".join(map(chr, range(0x21)))
"""The characters that Java trims from a tag. Python's `strip` would trim more and change the hash."""


class ExpressionType(StrEnum):
    TAG = "TAG"
    SQL92 = "SQL92"


class Subscription(msgspec.Struct, frozen=True, rename="camel"):
    """A topic and a filter. `sub_version` is the wall-clock time of the last change."""

    topic: str
    sub_string: str = ALL
    tags_set: tuple[str, ...] = ()
    code_set: tuple[int, ...] = ()
    sub_version: int = 0
    expression_type: str = ExpressionType.TAG
    class_filter_mode: bool = False

    @classmethod
    def parse(
        cls,
        topic: str,
        expression: str | None = None,
        kind: str | None = ExpressionType.TAG,
        sub_version: int = 0,
    ) -> "Subscription":
        """Parse `expression`. None, the empty text and `*` match everything; `a || b` matches two tags."""
        if kind and kind != ExpressionType.TAG:
            if not expression:
                raise InvalidExpression(f"the {kind} expression for topic {topic} is empty")
            return cls(topic, expression, sub_version=sub_version, expression_type=kind)
        if not expression or expression == ALL:
            return cls(topic, ALL, sub_version=sub_version)
        words = (word.strip(_JAVA_BLANKS) for word in expression.split(TAG_SEPARATOR))
        tags = tuple(dict.fromkeys(filter(None, words)))
        if not tags:
            raise InvalidExpression(
                f"the tag expression {expression!r} for topic {topic} contains no tag; use for example 'a || b' or '*'"
            )
        codes = tuple(dict.fromkeys(map(java_hash, tags)))
        return cls(topic, expression, tags, codes, sub_version)

    @property
    def is_tag(self) -> bool:
        return not self.expression_type or self.expression_type == ExpressionType.TAG

    @property
    def matches_all(self) -> bool:
        """Whether every message matches."""
        return self.is_tag and self.sub_string in ("", ALL)

    def same_filter(self, other: "Subscription") -> bool:
        """Whether both match the same messages, regardless of version."""
        if self.topic != other.topic or self.is_tag != other.is_tag:
            return False
        if self.is_tag:
            return self.matches_all == other.matches_all and set(self.tags_set) == set(other.tags_set)
        return self.sub_string == other.sub_string


def union_expression(tags: Collection[str]) -> str:
    """The expression for any of these tags."""
    return f" {TAG_SEPARATOR} ".join(tags) if tags else ALL
