"""The tree of a condition. A leaf has the name and the fields of Spark's filter of the same meaning.

    And(EqualTo(("topic",), "orders"), Or(EqualTo(("properties", "city"), "Oslo"), IsNull(("tags",))))

So the functions that push filters down take both: those that Spark offers to a batch, and those of the option `filter`.

A condition selects the rows for which it is true, not those for which it is unknown (a comparison with null). NOT is moved to
the leaves, where `a < 1` becomes `a >= 1`, and stays only before EqualTo and In. Without NOT above them, AND and OR select the
same rows whether a leaf is false or unknown, so a leaf may be evaluated by anything that agrees on when it is true.

`sql92_of`: the part that brokers evaluate exactly as Spark does, as SQL92.

    properties['city'] = 'Oslo'              city = 'Oslo'
    tags IN ('paid', 'sent')                 TAGS IN ('paid', 'sent')
    properties['city'] <> 'Oslo'             city <> 'Oslo'           unknown without the property, as in Spark
    properties['city'] >= 'O'                none: brokers order numbers only
    properties['order id'] = '1'             none: not a name of SQL92

Brokers compare properties with texts letter by letter, and know no other operators on texts that agree with Spark's.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from pocketmq.errors import InvalidExpression
from pocketmq.model import properties
from pocketmq.model.sql92 import check_expression
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


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COLUMNS: Final = {Name.TAGS: properties.TAGS, Name.KEYS: properties.KEYS}


def sql92_of(condition: Condition) -> str | None:
    """The condition as SQL92; None if brokers cannot evaluate all of it."""
    text = _text(condition)
    if text is None:
        return None
    try:
        check_expression(text)
    except InvalidExpression:  # a keyword as the name of a property, or beyond a limit
        return None
    return text


def _text(condition: Condition) -> str | None:
    match condition:
        case And(children) | Or(children):
            parts = [_text(child) for child in children]
            word = " AND " if isinstance(condition, And) else " OR "
            return None if None in parts else f"({word.join(filter(None, parts))})"
        case Not(EqualTo() as child):
            return _compared(child, "<>")
        case Not(In() as child):
            return _listed(child, "NOT IN")
        case EqualTo():
            return _compared(condition, "=")
        case In():
            return _listed(condition, "IN")
        case IsNull() | IsNotNull():
            name = _property(condition)
            return None if name is None else f"{name} IS {'' if isinstance(condition, IsNull) else 'NOT '}NULL"
    return None


def _compared(leaf: Comparison, operator: str) -> str | None:
    name, value = _property(leaf), _quoted(leaf.value)
    return None if name is None or value is None else f"{name} {operator} {value}"


def _listed(leaf: In, operator: str) -> str | None:
    name, values = _property(leaf), [_quoted(value) for value in leaf.value]
    return None if name is None or None in values else f"{name} {operator} ({', '.join(filter(None, values))})"


def _property(leaf: Leaf) -> str | None:
    """The property that a leaf is about, if SQL92 can name it."""
    name = leaf.attribute[1] if len(leaf.attribute) == 2 else _COLUMNS.get(Name(leaf.attribute[0]))
    return name if name is not None and _NAME.fullmatch(name) else None


def _quoted(value: object) -> str | None:
    """A text as a literal. Control characters end properties, so no property has them."""
    if not isinstance(value, str) or not value or any(char < " " for char in value):
        return None
    return "'" + value.replace("'", "''") + "'"
