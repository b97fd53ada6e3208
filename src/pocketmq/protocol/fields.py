"""Ext fields as typed headers: one codec for every request, from the declaration of its header.

    {"topic": "T", "queueId": "3"}  ◄──►  SomeRequest(topic="T", queue_id=3)

Headers are msgspec Structs. Every wire value is a text: `"true"`, `"12"`. None, and a field that the wire does not have, are left out.
"""

from typing import TypeVar

import msgspec

from pocketmq.errors import HeaderError

H = TypeVar("H", bound="Fields")


class Fields(msgspec.Struct, rename="camel", gc=False):
    """Base of all headers. Fields without a default are mandatory."""


class NoFields(Fields):
    """The header of a request or response that has none."""


def read_fields(header: type[H], ext: dict[str, str] | None) -> H:
    """The typed header in `ext`; HeaderError names the field that is missing or wrong. Unknown fields are ignored."""
    try:
        return msgspec.convert(ext or {}, header, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(f"{header.__name__}: {error}") from None


def write_fields(header: Fields) -> dict[str, str]:
    """The ext fields of `header`, as texts."""
    ext: dict[str, str] = {}
    for name, wire_name in zip(header.__struct_fields__, header.__struct_encode_fields__, strict=True):
        value = getattr(header, name)
        if isinstance(value, bool):
            ext[wire_name] = "true" if value else "false"
        elif value is not None:
            ext[wire_name] = str(value)
    return ext
