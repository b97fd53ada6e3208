"""The JSON header, which both sides use unless told otherwise.

    {"code":310,"extFields":{"a":"group",…},"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":479}

Written as Java writes it: keys in alphabetical order, no blanks (a blank after a colon breaks some Java peers), every ext
value a string, absent things left out. Read generously: any key order, unknown keys, numbers and booleans as ext values,
numbers as texts.
"""

from typing import Literal

import msgspec

from pocketmq.errors import ProtocolError, UsageError
from pocketmq.protocol.fields import LANGUAGE_NAMES, MAX_EXT_FIELDS, Header, Int32, language_of

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises on bytes that are not the JSON it was told to expect."""


class _ReadHead(msgspec.Struct, gc=False):
    code: Int32
    remark: str | None = None
    flag: Int32 = 0
    opaque: Int32 = 0
    version: Int32 = 0
    language: str | int | None = None


class _Read(_ReadHead, gc=False):
    extFields: dict[str, str] | None = None  # noqa: N815


class _ReadExt(msgspec.Struct, gc=False):
    extFields: dict[str, msgspec.Raw] | None = None  # noqa: N815


class _Written(msgspec.Struct, gc=False):
    """Field order is the wire's order; what is UNSET is left out."""

    code: int
    extFields: dict[str, str] | msgspec.UnsetType  # noqa: N815
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: Literal["JSON"]  # noqa: N815
    version: int


_read = msgspec.json.Decoder(_Read).decode
_read_without_ext = msgspec.json.Decoder(_ReadHead, strict=False).decode
_read_ext = msgspec.json.Decoder(_ReadExt).decode
_write = msgspec.json.Encoder().encode


def decode(header: bytes) -> Header:
    try:
        read = _read(header)
    except msgspec.ValidationError:
        return _decode_any_values(header)
    except DECODE_ERRORS as error:
        raise _failure(error) from None
    return _header(read, read.extFields)


def encode(header: Header) -> bytes:
    code, ext, remark, flag, opaque, version, language = header
    written = _Written(
        code,
        msgspec.UNSET if ext is None else ext,
        flag,
        LANGUAGE_NAMES[language],
        opaque,
        msgspec.UNSET if remark is None else remark,
        "JSON",
        version,
    )
    try:
        return _write(written)
    except UnicodeEncodeError as error:
        raise UsageError(f"half of a surrogate pair cannot be written into a header: {error.object[:80]!r}") from None


def _decode_any_values(header: bytes) -> Header:
    """As Java reads: numbers and booleans as ext values are their text, null is no value; a number may be a text."""
    try:
        head = _read_without_ext(header)
        raw_ext = _read_ext(header).extFields
        ext = None if raw_ext is None else {name: _text(raw) for name, raw in raw_ext.items() if bytes(raw) != b"null"}
    except DECODE_ERRORS as error:
        raise _failure(error) from None
    return _header(head, ext)


def _header(head: _ReadHead, ext: dict[str, str] | None) -> Header:
    if ext is not None and len(ext) > MAX_EXT_FIELDS:
        raise ProtocolError(f"JSON header with {len(ext)} ext fields; at most {MAX_EXT_FIELDS} are accepted")
    return head.code, ext, head.remark, head.flag, head.opaque, head.version, language_of(head.language)


def _text(raw: msgspec.Raw) -> str:
    text = bytes(raw)
    return msgspec.json.decode(text, type=str) if text.startswith(b'"') else text.decode()


def _failure(error: Exception) -> ProtocolError:
    if isinstance(error, RecursionError):
        return ProtocolError("JSON header: nested deeper than the interpreter's recursion limit")
    return ProtocolError(f"JSON header: {error}")
