"""The syntax tree of an expression.

    operands      Property  Text  Number  Minus
    conditions    Truth  Filled  Not  AllOf  AnyOf  Equal  Ordered  OneOf  Search

<> is a Not of an Equal, BETWEEN is an AllOf of two Ordered, IS NULL is an Equal with `Truth(None)`, and the sign of a number is part of it.
"""

from collections.abc import Iterator
from enum import Enum, auto
from typing import TypeAlias

import msgspec


class NumberType(Enum):
    """The Java type of a number, which determines how a property compared with it is parsed."""

    INT = auto()
    LONG = auto()
    DOUBLE = auto()


class Property(msgspec.Struct, frozen=True):
    name: str


class Text(msgspec.Struct, frozen=True):
    value: str


class Number(msgspec.Struct, frozen=True):
    value: int | float
    type: NumberType


class Minus(msgspec.Struct, frozen=True):
    """The negation of something other than a number, such as `-'5'` or `-a`. Always unknown."""

    operand: "Node"


class Truth(msgspec.Struct, frozen=True):
    """TRUE, FALSE, and NULL as None."""

    value: bool | None


class Filled(msgspec.Struct, frozen=True):
    """A property used as a condition: unknown if it is missing, else false."""

    name: str


class Not(msgspec.Struct, frozen=True):
    term: "Condition"


class AllOf(msgspec.Struct, frozen=True):
    """AND of two or more."""

    terms: tuple["Condition", ...]


class AnyOf(msgspec.Struct, frozen=True):
    """OR of two or more."""

    terms: tuple["Condition", ...]


class Equal(msgspec.Struct, frozen=True):
    left: "Node"
    right: "Node"


class Ordered(msgspec.Struct, frozen=True):
    """`sign` is one of > >= < <=. Neither side is a Text."""

    sign: str
    left: "Operand"
    right: "Operand"


class OneOf(msgspec.Struct, frozen=True):
    """[NOT] IN."""

    name: str
    texts: frozenset[str]
    wanted: bool


class Search(msgspec.Struct, frozen=True):
    """`verb` is CONTAINS, STARTSWITH or ENDSWITH; `wanted` is False after NOT."""

    verb: str
    operand: "Node"
    text: str
    wanted: bool


Operand: TypeAlias = Property | Text | Number | Minus
Condition: TypeAlias = Truth | Filled | Not | AllOf | AnyOf | Equal | Ordered | OneOf | Search
Node: TypeAlias = Operand | Condition


def parts_of(node: Node) -> tuple[Node, ...]:
    match node:
        case AllOf(terms) | AnyOf(terms):
            return terms
        case Not(part) | Minus(part):
            return (part,)
        case Search(_, part):
            return (part,)
        case Equal(left, right) | Ordered(_, left, right):
            return left, right
    return ()


def nodes_with_depth(tree: Node) -> Iterator[tuple[Node, int]]:
    """All nodes with their depths, the root at 1. Not recursive, for trees of any depth."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting += [(part, depth + 1) for part in parts_of(node)]
