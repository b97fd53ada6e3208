"""The tree of a condition. A leaf has the name and the fields of Spark's filter of the same meaning.

    And(EqualTo(("topic",), "orders"), Or(EqualTo(("properties", "city"), "Oslo"), IsNull(("tags",))))

So the functions that push filters down take both: those that Spark offers to a batch, and those of the option `filter`.

A condition selects the rows for which it is true, not those for which it is unknown (a comparison with null). NOT is moved to
the leaves, where `a < 1` becomes `a >= 1`, and stays only before EqualTo and In. Without NOT above them, AND and OR select the
same rows whether a leaf is false or unknown, so a leaf may be evaluated by anything that agrees on when it is true.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from pocketmq.spark.schema import Name

Path = tuple[str, ...]
"""The name of a column, or `("properties", key)`."""


class Comparison(msgspec.Struct, frozen=True):
    """A leaf. `value` is a text, a whole number, or microseconds since 1970 for a timestamp."""

    attribute: Path
    value: str | int


class EqualTo(Comparison, frozen=True):
    pass


class GreaterThan(Comparison, frozen=True):
    pass


class GreaterThanOrEqual(Comparison, frozen=True):
    pass


class LessThan(Comparison, frozen=True):
    pass


class LessThanOrEqual(Comparison, frozen=True):
    pass


class In(msgspec.Struct, frozen=True):
    attribute: Path
    value: tuple[str | int, ...]


class IsNull(msgspec.Struct, frozen=True):
    attribute: Path


class IsNotNull(msgspec.Struct, frozen=True):
    attribute: Path


class Not(msgspec.Struct, frozen=True):
    child: EqualTo | In


class And(msgspec.Struct, frozen=True):
    children: "tuple[Condition, ...]"


class Or(msgspec.Struct, frozen=True):
    children: "tuple[Condition, ...]"


Leaf = Comparison | In | IsNull | IsNotNull
Condition = Leaf | Not | And | Or

_OPPOSITES: Final[dict[type[Comparison], type[Comparison]]] = {
    GreaterThan: LessThanOrEqual,
    LessThanOrEqual: GreaterThan,
    LessThan: GreaterThanOrEqual,
    GreaterThanOrEqual: LessThan,
}


def negated(condition: Condition) -> Condition:
    """NOT of a condition, moved to its leaves."""
    match condition:
        case And(children):
            return Or(tuple(map(negated, children)))
        case Or(children):
            return And(tuple(map(negated, children)))
        case Not(child):
            return child
        case IsNull(attribute):
            return IsNotNull(attribute)
        case IsNotNull(attribute):
            return IsNull(attribute)
        case EqualTo() | In():
            return Not(condition)
        case Comparison(attribute, value):
            return _OPPOSITES[type(condition)](attribute, value)


def all_of(conditions: Sequence[Condition]) -> Condition | None:
    """All of these conditions; None if there are none."""
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions)) if conditions else None


def parts_of(condition: Condition | None) -> tuple[Condition, ...]:
    """The conditions that AND joins at the top; none for None."""
    if condition is None:
        return ()
    if isinstance(condition, And):
        return tuple(part for child in condition.children for part in parts_of(child))
    return (condition,)


def columns_of(condition: Condition | None) -> frozenset[Name]:
    """The columns that a condition needs."""
    return frozenset(Name(leaf.attribute[0]) for leaf in _leaves(condition)) if condition is not None else frozenset()


def _leaves(condition: Condition) -> Iterator[Leaf]:
    match condition:
        case And(children) | Or(children):
            for child in children:
                yield from _leaves(child)
        case Not(child):
            yield child
        case _:
            yield condition
