"""What decoders of bodies share: their errors, and the conversion of values to those that Spark takes."""

from collections.abc import Callable
from typing import Any

Decoder = Callable[[bytes], Any]
"""The columns of a body as a dict; BadBody if it does not fit."""
Convert = Callable[[Any], Any]

SHOWN_CHARS = 120


class BadBody(Exception):
    """A body that does not fit its schema. The text is the reason in the dead letter."""


def bad_body(kind: str, error: BaseException) -> BadBody:
    """A BadBody for an error of a library."""
    text = str(error).strip().partition("\n")[0][:SHOWN_CHARS]
    return BadBody(f"the body is not {kind} of this schema: {text or type(error).__name__}")


def values_of(convert: Convert) -> Convert:
    """Converts the values of a dict."""
    return lambda value: None if value is None else {name: convert(one) for name, one in value.items()}


def items_of(convert: Convert) -> Convert:
    return lambda value: None if value is None else [convert(one) for one in value]


def fields_of(converts: dict[str, Convert]) -> Convert:
    """Converts some fields of a dict in place."""

    def convert(value: Any) -> Any:
        if value is not None:
            for name, one in converts.items():
                value[name] = one(value[name])
        return value

    return convert
