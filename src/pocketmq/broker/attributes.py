"""Attributes: names with values that an administrator gives to a topic or a group.

    +message.type=FIFO      set it, or change it
    -message.type           remove it

A request brings changes, not the result: as one text, `+a=1,-b`, or as a map whose names have the sign in front. What Apache
knows and this broker cannot do is refused, so that no attribute is kept that means nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pocketmq.errors import ImpossibleRequest


class Attribute(NamedTuple):
    """What an attribute may be. One that is not changeable is given when its topic is made, or never."""

    values: tuple[str, ...]
    changeable: bool = True
    why: str = ""
    """Why a topic with another value cannot be served at all, though Apache knows it."""


TOPIC_ATTRIBUTES: dict[str, Attribute] = {
    "message.type": Attribute(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION")),
    "queue.type": Attribute(("SimpleCQ",), False, "each message of a batch is stored by itself"),
    "cleanup.policy": Attribute(("DELETE",), changeable=False),
}
GROUP_ATTRIBUTES: dict[str, Attribute] = {}


def parse_changes(text: str | None) -> dict[str, str]:
    """The changes in `+name=value,-name`: names with their sign, the value empty for what is removed."""
    changes: dict[str, str] = {}
    for word in text.split(",") if text else ():
        change, _, value = word.partition("=")
        if change in changes:
            raise ImpossibleRequest(f"attribute change {change!r} is there twice in {text!r}")
        changes[change] = value
    return changes


def altered(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """The attributes after `changes`; `current` is None for what is just being made."""
    result = dict(current or {})
    for change, value in changes.items():
        sign, name = change[:1], change[1:]
        _check(known, sign, name, exists=current is not None)
        if sign == "+" and f"-{name}" in changes:
            raise ImpossibleRequest(f"attribute {name!r} is both set and removed; do one of them")
        if sign == "+":
            _check_value(known[name], name, value)
            result[name] = value
        elif result.pop(name, None) is None:
            raise ImpossibleRequest(f"attribute {name!r} cannot be removed: it is not set")
    return result


def _check(known: Mapping[str, Attribute], sign: str, name: str, *, exists: bool) -> None:
    if sign not in ("+", "-"):
        raise ImpossibleRequest(f"attribute change {sign + name!r} begins neither with + (set) nor with - (remove)")
    if name not in known:
        raise ImpossibleRequest(f"attribute {name!r} is not supported; known are: {', '.join(known) or 'none'}")
    if exists and not known[name].changeable:
        raise ImpossibleRequest(f"attribute {name!r} can be given only when the topic is made")


def _check_value(attribute: Attribute, name: str, value: str) -> None:
    if value not in attribute.values:
        raise ImpossibleRequest(
            f"attribute {name!r} cannot be {value!r}; this broker supports: {', '.join(attribute.values)}"
            + (f", because {attribute.why}" if attribute.why else "")
        )


def unsupported(known: Mapping[str, Attribute], current: Mapping[str, str]) -> str | None:
    """The attribute, of those that another broker gave, with which a topic cannot be served here; None when it can."""
    for name, value in current.items():
        attribute = known.get(name)
        if attribute is not None and attribute.why and value not in attribute.values:
            return f"{name}={value}: this broker supports {', '.join(attribute.values)}, because {attribute.why}"
    return None
