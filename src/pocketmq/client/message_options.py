"""What can be said about a message in place: `send("orders", b"…", keys="42", tags="new")` instead of making it first."""

from collections.abc import Iterable, Mapping
from typing import TypedDict

from pocketmq.errors import UsageError
from pocketmq.model.message import Message


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


def message_of(what: Message | str, body: bytes | None, options: MessageOptions) -> Message:
    """The message that is meant: the one that was given, or a new one to the topic that was given."""
    if not isinstance(what, Message):
        if body is None:
            raise UsageError(f"a message to topic {what!r} needs a body: send({what!r}, b'…')")
        return Message(what, body, **options)
    if body is not None or options:
        extra = ", ".join(options) or "body"
        raise UsageError(f"a whole Message was given, so {extra} must be given to it and not to this call")
    return what
