"""The part of a condition that brokers evaluate exactly as Spark does, as SQL92.

    properties['city'] = 'Oslo'              city = 'Oslo'
    tags IN ('paid', 'sent')                 TAGS IN ('paid', 'sent')
    properties['city'] <> 'Oslo'             city <> 'Oslo'           unknown without the property, as in Spark
    properties['city'] >= 'O'                none: brokers order numbers only
    properties['order id'] = '1'             none: not a name of SQL92

Brokers compare properties with texts letter by letter, and know no other operators on texts that agree with Spark's.
"""

import re
from typing import Final

from pocketmq.errors import InvalidExpression
from pocketmq.model import properties
from pocketmq.model.sql92 import check_expression
from pocketmq.spark.filters.conditions import And, Comparison, Condition, EqualTo, In, IsNotNull, IsNull, Leaf, Not, Or
from pocketmq.spark.schema import Name

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
