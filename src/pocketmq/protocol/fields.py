"""Ext fields as typed headers: one codec for all requests, from the declarations of their headers.

    {"topic": "T", "queueId": "3"}  ── SomeRequest.decode ──►  SomeRequest(topic="T", queue_id=3)
                                    ◄──────── encode ────────

Headers are msgspec Structs. All wire values are texts: `"true"`, `"12"`. None values, and fields that are not on the wire, are left out.
Also the header tuple of both encodings, and their limits.
"""

import re
from typing import Annotated, Final, Self

import msgspec
from msgspec.structs import astuple

from pocketmq.codes import Language
from pocketmq.errors import HeaderError

_JAVA_NUMBER: Final = re.compile(r"([+-]?)0*([0-9]+)")


class Fields(msgspec.Struct, rename="camel", gc=False):
    """Base of all headers. Fields without a default are mandatory."""

    @classmethod
    def decode(cls, ext: dict[str, str] | None) -> Self:
        """The header in ext fields. HeaderError names a missing or invalid field. Unknown fields are ignored."""
        try:
            return msgspec.convert(ext or {}, cls, strict=False)
        except msgspec.ValidationError as error:
            plain = _with_plain_numbers(cls, ext or {})
            if plain != ext:
                return cls.decode(plain)
            raise HeaderError(f"{cls.__name__}: {error}") from None

    def encode(self) -> dict[str, str]:
        """The ext fields of this header, as texts."""
        ext: dict[str, str] = {}
        for wire_name, value in zip(self.__struct_encode_fields__, astuple(self), strict=True):
            if value is None:
                continue
            if isinstance(value, bool):
                ext[wire_name] = "true" if value else "false"
            else:
                ext[wire_name] = str(value)
        return ext


class NoFields(Fields):
    """The header of a request or response without fields."""


def number_fields(header: type[Fields]) -> list[str]:
    """The wire names of the fields that are numbers."""
    return [field.encode_name for field in msgspec.structs.fields(header) if _is_number(field.type)]


def _is_number(kind: object) -> bool:
    info = msgspec.inspect.type_info(kind)
    kinds = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    return any(isinstance(one, msgspec.inspect.IntType) for one in kinds)


def _with_plain_numbers(header: type[Fields], ext: dict[str, str]) -> dict[str, str]:
    """`ext` with normalized numbers: Java also accepts `+7` and `007`."""
    plain = dict(ext)
    for name in number_fields(header):
        number = _JAVA_NUMBER.fullmatch(plain.get(name, ""))
        if number:
            plain[name] = number[1].replace("+", "") + number[2]
    return plain


Header = tuple[int, dict[str, str] | None, str | None, int, int, int, Language]
"""code, ext fields, remark, flag, opaque, version, language."""

MAX_EXT_FIELDS = 512
"""The most ext fields of a header, far more than any request has."""

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's long. Larger numbers are refused here, so later code cannot overflow."""

# Dicts, because the look-ups of an enum take ten times as long.
_OTHER = Language.OTHER
_LANGUAGES: dict[str | int | None, Language] = {
    **{member.name: member for member in Language},
    **{int(member): member for member in Language},
}
LANGUAGE_NAMES = {member: member.name for member in Language}


def language_of(sent: str | int | None) -> Language:
    """The language with this name or number; OTHER if unknown."""
    return _LANGUAGES.get(sent, _OTHER)
