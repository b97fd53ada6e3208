"""What an expression says, as a tree.

    operands      Property  Text  Number  Minus
    conditions    Truth  Filled  Not  AllOf  AnyOf  Equal  Ordered  OneOf  Search

Only what can differ between messages is left here: <> is a Not of an Equal, BETWEEN is an AllOf of two Ordered, IS NULL is an Equal with
`Truth(None)`, and the minus of a number is part of the number.
"""

from collections.abc import Iterator
from enum import Enum, auto
from typing import TypeAlias

import msgspec


class NumberType(Enum):
    """How Java keeps a number, which decides how it reads a property that is compared with it."""

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
    """The minus of what is not a number: always unknown. `-'5'` and `-a` are, even if a is 5."""

    operand: "Node"


class Truth(msgspec.Struct, frozen=True):
    """TRUE, FALSE, and NULL as None."""

    value: bool | None


class Filled(msgspec.Struct, frozen=True):
    """A property where a condition should stand: unknown when it is missing, else false, whatever it holds."""

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
    """`sign` is one of > >= < <=; no side is a Text."""

    sign: str
    left: "Operand"
    right: "Operand"


class OneOf(msgspec.Struct, frozen=True):
    """[NOT] IN."""

    name: str
    texts: frozenset[str]
    wanted: bool


class Search(msgspec.Struct, frozen=True):
    """`verb` is CONTAINS, STARTSWITH or ENDSWITH; `wanted` is False behind NOT."""

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


def walk(tree: Node) -> Iterator[tuple[Node, int]]:
    """Every node with its depth, the tree itself at 1. Does not recurse, so it may look at a tree of any depth."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting += [(part, depth + 1) for part in parts_of(node)]
