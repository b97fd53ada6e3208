"""What can be said about a message in place: `send("orders", b"…", keys="42", tags="new")` instead of making it first."""

from collections.abc import Iterable, Mapping
from typing import Final, TypedDict

from pocketmq.errors import UsageError
from pocketmq.model.message import MESSAGE_ARGUMENTS, Message
from pocketmq.model.suggesting import refuse_unknown

SEND_ARGUMENTS: Final = ("queue", "selector", "selector_key", "timeout_s")
"""The keyword arguments of the calls that send, beside those of the message."""


class MessageOptions(TypedDict, total=False):
    """The keyword arguments of `Message`."""

    tags: str | None
    keys: str | Iterable[str]
    properties: Mapping[str, str] | None
    flag: int
    delay_level: int
    deliver_at_ms: int | None
    delay_ms: int | None
    sharding_key: str | None
    wait_stored: bool


def message_of(what: Message | str, body: object, options: MessageOptions) -> Message:
    """The message that is meant: the one that was given, or a new one to the topic that was given."""
    if not isinstance(what, Message):
        if body is None:
            raise UsageError(f"a message to topic {what!r} needs a body: send({what!r}, b'…')")
        try:
            return Message(what, body, **options)
        except UsageError:
            unknown = options.keys() - set(MESSAGE_ARGUMENTS)
            refuse_unknown("send", unknown, (*MESSAGE_ARGUMENTS, *SEND_ARGUMENTS))
            raise
    if body is not None or options:
        refuse_unknown("send", options.keys() - set(MESSAGE_ARGUMENTS), (*MESSAGE_ARGUMENTS, *SEND_ARGUMENTS))
        extra = ", ".join(options) or "body"
        raise UsageError(f"a whole Message was given, so {extra} must be given to it and not to this call")
    return what
