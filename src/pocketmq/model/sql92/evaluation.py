"""From a syntax tree to functions that return True, False or None (unknown).

    a         b         a AND b    a OR b    NOT a
    true      unknown   unknown    true      false
    false     unknown   false      unknown   true
    unknown   unknown   unknown    unknown   unknown

A comparison with a missing property is usually unknown; `_equal` has the exceptions. If a property that is compared with a number does
not contain one, evaluation raises ValueError for the whole expression, even if another term of an OR would be true. Terms are evaluated
from left to right until the result is certain.

The types of both sides of a comparison are known in advance: a property is a text, a number is a literal, and everything else is a
condition. Conversions are therefore chosen once, when the function is built.

Properties are converted to numbers as in Java:

    literal in the expression      the property must be
    5, up to 2147483647            a whole number of 32 bits: 7, +7, -7, 007; not 7.0, 3000000000 or blanks
    3000000000                     a whole number of 64 bits
    5.0, 5e3                       any number: 7, 7.5, 1e3, .5, 7d, 0x1p3, NaN, Infinity, also with blanks around it

Python's `int` and `float` accept other texts (1_000, inf), so texts are checked first. The functions raise ValueError for a text that
Java would refuse.
"""

import math
import operator
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pocketmq.model.sql92.parser import parse
from pocketmq.model.sql92.tree import (
    AllOf,
    AnyOf,
    Condition,
    Equal,
    Filled,
    Minus,
    Node,
    Not,
    Number,
    NumberType,
    OneOf,
    Ordered,
    Property,
    Search,
    Text,
    Truth,
    nodes_with_depth,
)

INT_BITS: Final = 32
LONG_BITS: Final = 64
_SAFE_DIGITS: Final = 9
"""Any number with this many digits fits into 32 bits."""
_LONG_DIGITS: Final = 19
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that Java trims."""

_WHOLE = re.compile(r"([+-]?)(\d+)")
_NO_NUMBER = re.compile(r"[+-]?(?:NaN|Infinity)")
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEX = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")


def java_int(text: str) -> int:
    """A whole number of 32 bits."""
    if len(text) <= _SAFE_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return _whole(text, INT_BITS)


def java_long(text: str) -> int:
    """A whole number of 64 bits."""
    return _whole(text, LONG_BITS)


def _whole(text: str, bits: int) -> int:
    match = _WHOLE.fullmatch(text)
    if match is None or max(text) > "\uffff":  # Java sees two surrogates, which are not digits
        raise ValueError(f"{text[:40]!r} is not a whole number")
    digits = match[2].lstrip("0") or "0"
    value = int(match[1] + digits) if len(digits) <= _LONG_DIGITS else 1 << LONG_BITS
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{text[:40]!r} has more than {bits} bits")
    return value


def java_double(text: str) -> float:
    """Any number. Too large a number is infinite."""
    digits = text.replace(".", "", 1)
    if digits.isascii() and digits.isdigit():
        return float(text)
    text = text.strip(_JAVA_BLANKS)
    if match := _DECIMAL.fullmatch(text):
        return float(match[1])
    if _NO_NUMBER.fullmatch(text):
        return float(text)
    if match := _HEX.fullmatch(text):
        return _from_hex(match[1])
    raise ValueError(f"{text[:40]!r} is not a number")


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.copysign(math.inf, -1 if text.startswith("-") else 1)


def java_double_or_infinite(text: str) -> float:
    """`java_double`, with NaN as infinity: compared with finite numbers, Java sorts both above."""
    value = java_double(text)
    return math.inf if math.isnan(value) else value


def java_order(left: float, right: float) -> int:
    """-1, 0 or 1 as in Java: NaN equals itself and is above all others, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_rank, right_rank = _rank(left), _rank(right)
    return (left_rank > right_rank) - (left_rank < right_rank)


def _rank(value: float) -> tuple[bool, float]:
    """Orders numbers that neither < nor > distinguishes."""
    return (True, 0.0) if math.isnan(value) else (False, math.copysign(1.0, value))


Lookup: TypeAlias = Callable[[str], str | None]
"""The text of a property, or None."""
Value: TypeAlias = str | int | float | bool | None
Predicate: TypeAlias = Callable[[Lookup], bool | None]

_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_MIRRORED: Final = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
_READERS: dict[NumberType, Callable[[str], float]] = {
    NumberType.INT: java_int,
    NumberType.LONG: java_long,
    NumberType.DOUBLE: java_double_or_infinite,
}
_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def function_of(node: Condition) -> Predicate:
    """The function that evaluates a condition. It raises ValueError if a property is not a number."""
    match node:
        case Truth(value):
            return lambda get: value
        case Filled(name):
            return lambda get: None if get(name) is None else False
        case Not(term):
            return _not(function_of(term))
        case AllOf(terms):
            return _all([function_of(term) for term in terms])
        case AnyOf(terms):
            return _any([function_of(term) for term in terms])
        case Equal(left, right):
            return _equal(left, right)
        case Ordered(sign, left, right):
            return _ordered(sign, left, right)
        case OneOf(name, texts, wanted):
            return _one_of(name, texts, wanted)
        case Search(verb, operand, text, wanted):
            return _search(_SEARCHES[verb], operand, text, wanted)


def _not(term: Predicate) -> Predicate:
    def negated(get: Lookup) -> bool | None:
        answer = term(get)
        return None if answer is None else not answer

    return negated


def _all(terms: list[Predicate]) -> Predicate:
    def every(get: Lookup) -> bool | None:
        verdict: bool | None = True
        for term in terms:
            answer = term(get)
            if answer is False:
                return False
            if answer is None:
                verdict = None
        return verdict

    return every


def _any(terms: list[Predicate]) -> Predicate:
    def some(get: Lookup) -> bool | None:
        verdict: bool | None = False
        for term in terms:
            answer = term(get)
            if answer:
                return True
            if answer is None:
                verdict = None
        return verdict

    return some


def _one_of(name: str, texts: frozenset[str], wanted: bool) -> Predicate:
    def listed(get: Lookup) -> bool | None:
        text = get(name)
        return None if text is None else (text in texts) is wanted

    return listed


def _search(test: Callable[[str, str], bool], operand: Node, text: str, wanted: bool) -> Predicate:
    """Never unknown: a missing property, a number, and a search for the empty text are false, also with NOT."""
    if not text:
        return lambda get: False
    value = _value(operand)

    def searched(get: Lookup) -> bool:
        inside = value(get)
        return isinstance(inside, str) and test(inside, text) is wanted

    return searched


def _ordered(sign: str, left: Node, right: Node) -> Predicate:
    test = _SIGNS[sign]
    match left, right:
        case Property(name), Number():
            return _against_number(name, test, right, missing=None)
        case Number(), Property(name):
            return _against_number(name, _SIGNS[_MIRRORED[sign]], left, missing=None)
        case Property(name), Property(other):
            return _two_properties(name, test, other)
        case Number(), Number():
            verdict = test(*_common_type(left, right))
            return lambda get: verdict
    first, second = _value(left), _value(right)

    def unknown(get: Lookup) -> None:
        """One side is a Minus. It is evaluated because it may raise an error."""
        if first(get) is not None:
            second(get)

    return unknown


def _against_number(name: str, test: Callable[[float, float], bool], number: Number, missing: bool | None) -> Predicate:
    read, value = _READERS[number.type], number.value

    def compared(get: Lookup) -> bool | None:
        text = get(name)
        return missing if text is None else test(read(text), value)

    return compared


def _against_text(name: str, value: str, missing: bool | None) -> Predicate:
    def compared(get: Lookup) -> bool | None:
        text = get(name)
        return missing if text is None else text == value

    return compared


def _two_properties(name: str, test: Callable[[float, float], bool], other: str) -> Predicate:
    def compared(get: Lookup) -> bool | None:
        left = get(name)
        right = None if left is None else get(other)
        if left is None or right is None:
            return None
        return test(java_order(java_double(left), java_double(right)), 0)

    return compared


def _common_type(left: Number, right: Number) -> tuple[float, float]:
    if NumberType.DOUBLE in (left.type, right.type):
        return float(left.value), float(right.value)
    return left.value, right.value


def _equal(left: Node, right: Node) -> Predicate:
    """Equality depends on the side of a missing value.

    left      right     result
    missing   missing   true
    missing   x         unknown
    x         missing   false
    """
    match left, right:
        case Property(name), Truth(None):
            return lambda get: get(name) is None
        case Property(name), Text(text):
            return _against_text(name, text, missing=None)
        case Text(text), Property(name):
            return _against_text(name, text, missing=False)
        case Property(name), Number():
            return _against_number(name, operator.eq, right, missing=None)
        case Number(), Property(name):
            return _against_number(name, operator.eq, left, missing=False)
    first, second, same = _value(left), _value(right), _equality(left, right)

    def equal(get: Lookup) -> bool | None:
        one, other = first(get), second(get)
        if one is None:
            return True if other is None else None
        return False if other is None else same(one, other)

    return equal


def _equality(left: Node, right: Node) -> Callable[[Any, Any], bool]:
    """Compares two present values. Different types are unequal; a condition compared with a text on its right is an error."""
    match left, right:
        case Number(), Number():
            return lambda one, other: operator.eq(*_common_type(left, right))
        case Property() | Text(), Number(type=kind):
            return lambda text, number: _READERS[kind](text) == number
        case Number(type=kind), Property() | Text():
            return lambda number, text: _READERS[kind](text) == number
        case (Number(), _) | (_, Number()):
            return lambda one, other: False
        case Property() | Text(), Property() | Text():
            return operator.eq
        case Property() | Text(), _:
            return lambda text, truth: (text.lower() == "true") is truth
        case _, Property() | Text():
            return _no_answer
    return operator.is_


def _no_answer(truth: bool, text: str) -> bool:
    """RocketMQ converts a text to a truth value only on the left side."""
    raise ValueError(f"a condition on the left cannot be compared with the text {text[:40]!r} on the right")


def _value(node: Node) -> Callable[[Lookup], Value]:
    """The value of an operand for a message. A condition can be an operand too."""
    match node:
        case Property(name):
            return lambda get: get(name)
        case Text() | Number():
            constant = node.value
            return lambda get: constant
        case Minus(operand):
            return _nothing(_value(operand))
    return function_of(node)


def _nothing(operand: Callable[[Lookup], Value]) -> Callable[[Lookup], None]:
    def nothing(get: Lookup) -> None:
        operand(get)

    return nothing


__all__ = ["Expression", "Lookup", "check_expression"]


class Expression:
    """A parsed SQL92 condition on properties. InvalidExpression if `text` is not one.

    `names` are the properties it reads. `failures` counts messages whose evaluation raised an error because a property was not a
    number. Such a message does not match.
    """

    __slots__ = ("_question", "failures", "names", "text")

    def __init__(self, text: str) -> None:
        tree = parse(text)
        self.text = text
        self.names = frozenset(
            node.name for node, _ in nodes_with_depth(tree) if isinstance(node, Property | Filled | OneOf)
        )
        self.failures = 0
        self._question = function_of(tree)

    def matches(self, get: Lookup) -> bool:
        """Whether the result is True, and not unknown or an error. `get` returns a property: for a dict, its `get`."""
        try:
            return self._question(get) is True
        except ValueError:
            self.failures += 1
            return False


def check_expression(text: str) -> None:
    """Raise InvalidExpression, with position and cause, if `text` is not SQL92."""
    parse(text)
