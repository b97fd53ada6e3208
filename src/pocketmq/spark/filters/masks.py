"""A condition on Arrow arrays, with Spark's meaning: texts are compared byte by byte, and null makes a comparison unknown."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pocketmq.spark.arrow import ARROW_TYPES, pa, pc
from pocketmq.spark.filters.conditions import (
    And,
    Comparison,
    Condition,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    Or,
    Path,
)
from pocketmq.spark.schema import Name, type_of

Arrays = Mapping[Name, Any]
Mask = Callable[[Arrays], Any]
"""True for the rows to keep; false or null for others."""

_FUNCTIONS: Final[dict[type[Comparison], Callable[[Any, Any], Any]]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}


def mask_of(condition: Condition) -> Mask:
    """The function that evaluates a condition. Values become Arrow's here, once for all batches."""
    match condition:
        case And(children):
            return _joined(pc.and_kleene, [mask_of(child) for child in children])
        case Or(children):
            return _joined(pc.or_kleene, [mask_of(child) for child in children])
        case IsNull(attribute):
            column = _column(attribute)
            return lambda arrays: pc.is_null(column(arrays))
        case IsNotNull(attribute):
            column = _column(attribute)
            return lambda arrays: pc.is_valid(column(arrays))
        case In():
            return _listed(condition)
        case Not(In() as child):
            column, listed = _column(child.attribute), _listed(child)
            return lambda arrays: pc.and_(pc.is_valid(column(arrays)), pc.invert(listed(arrays)))
        case Not(child):
            return _compared(child, pc.not_equal)
        case Comparison():
            return _compared(condition, _FUNCTIONS[type(condition)])


def _joined(function: Callable[[Any, Any], Any], masks: list[Mask]) -> Mask:
    def mask(arrays: Arrays) -> Any:
        found = masks[0](arrays)
        for other in masks[1:]:
            found = function(found, other(arrays))
        return found

    return mask


def _compared(leaf: Any, function: Callable[[Any, Any], Any]) -> Mask:
    column, value = _column(leaf.attribute), pa.scalar(leaf.value, _type(leaf.attribute))
    return lambda arrays: function(column(arrays), value)


def _listed(leaf: In) -> Mask:
    column, values = _column(leaf.attribute), pa.array(leaf.value, _type(leaf.attribute))
    return lambda arrays: pc.is_in(column(arrays), value_set=values)


def _type(path: Path) -> Any:
    """The type for values to compare with; `queueId` is compared with numbers of 64 bits."""
    kind = "string" if len(path) == 2 else type_of(Name(path[0]))
    return ARROW_TYPES["bigint" if kind == "int" else kind]


def _column(path: Path) -> Callable[[Arrays], Any]:
    name = Name(path[0])
    if len(path) == 2:
        options = pc.MapLookupOptions(pa.scalar(path[1], pa.string()), "first")
        return lambda arrays: pc.map_lookup(arrays[name], options=options)
    if type_of(name) == "int":
        return lambda arrays: arrays[name].cast(pa.int64())
    return lambda arrays: arrays[name]
