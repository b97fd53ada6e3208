"""The two encodings of a header: JSON, the default of both sides, and a compact binary form, called ROCKETMQ.

    {"code":310,"extFields":{"a":"group",…},"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":479}

Written as Java does: keys in alphabetical order, no blanks (a blank after a colon breaks some Java peers), all ext values as strings,
no absent values. The reader accepts any key order, unknown keys, numbers and booleans as ext values, and numbers as texts.

The binary header, which peers may use instead of JSON:

    | code 2 | language 1 | version 2 | opaque 4 | flag 4 |
    | remark length 4 | remark … | ext length 4 | ext … |
      ext: | name length 2 | name … | value length 4 | value … | repeated

Codes above 32767 do not fit and wrap, as in Java, so POP requests cannot use this encoding. An empty remark means none.
"""

import struct
from typing import Literal

import msgspec

from pocketmq.errors import ProtocolError, UsageError
from pocketmq.protocol.fields import LANGUAGE_NAMES, MAX_EXT_FIELDS, Header, Int32, language_of

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of msgspec for invalid input."""


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
    """Fields in wire order. UNSET fields are left out."""

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


def decode_json(header: bytes) -> Header:
    try:
        read = _read(header)
    except msgspec.ValidationError:
        return _decode_any_values(header)
    except DECODE_ERRORS as error:
        raise _failure(error) from None
    return _header(read, read.extFields)


def encode_json(header: Header) -> bytes:
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
        raise UsageError(f"an unpaired surrogate cannot be encoded in a header: {error.object[:80]!r}") from None


def _decode_any_values(header: bytes) -> Header:
    """Decode as Java does: ext values may be numbers, booleans or null, and numbers may be texts."""
    try:
        head = _read_without_ext(header)
        raw_ext = _read_ext(header).extFields
        ext = None if raw_ext is None else {name: _text(raw) for name, raw in raw_ext.items() if bytes(raw) != b"null"}
    except DECODE_ERRORS as error:
        raise _failure(error) from None
    return _header(head, ext)


def _header(head: _ReadHead, ext: dict[str, str] | None) -> Header:
    if ext is not None and len(ext) > MAX_EXT_FIELDS:
        raise ProtocolError(f"JSON header has {len(ext)} ext fields; the limit is {MAX_EXT_FIELDS}")
    return head.code, ext, head.remark, head.flag, head.opaque, head.version, language_of(head.language)


def _text(raw: msgspec.Raw) -> str:
    text = bytes(raw)
    return msgspec.json.decode(text, type=str) if text.startswith(b'"') else text.decode()


def _failure(error: Exception) -> ProtocolError:
    if isinstance(error, RecursionError):
        return ProtocolError("JSON header: nested deeper than the interpreter's recursion limit")
    return ProtocolError(f"JSON header: {error}")


_HEAD = struct.Struct(">hbhiii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")


def decode_binary(header: bytes) -> Header:
    try:
        code, language, version, opaque, flag, remark_size = _HEAD.unpack_from(header)
        at = _HEAD.size
        remark, at = _binary_text(header, at, remark_size)
        (ext_size,) = _INT.unpack_from(header, at)
        at += 4
        if ext_size < 0 or at + ext_size != len(header):
            raise ProtocolError(
                f"binary header: ext fields of {ext_size} bytes but only {len(header) - at} bytes are left"
            )
        ext = _binary_ext(header, at) if ext_size else None
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"binary header: {error}") from None
    return code, ext, remark or None, flag, opaque, version, language_of(language)


def _binary_ext(header: bytes, at: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    while at < len(header):
        (size,) = _SHORT.unpack_from(header, at)
        name, at = _binary_text(header, at + 2, size)
        (size,) = _INT.unpack_from(header, at)
        ext[name], at = _binary_text(header, at + 4, size)
        if len(ext) > MAX_EXT_FIELDS:
            raise ProtocolError(f"binary header with more than {MAX_EXT_FIELDS} ext fields")
    return ext


def _binary_text(header: bytes, at: int, size: int) -> tuple[str, int]:
    end = at + size
    if size < 0 or end > len(header):
        raise ProtocolError(f"binary header: a text of {size} bytes but only {len(header) - at} bytes are left")
    return header[at:end].decode(), end


def encode_binary(header: Header) -> bytes:
    try:
        return _packed(header)
    except struct.error as error:
        raise UsageError(f"a number or text is too large for a binary header: {error}") from None
    except UnicodeEncodeError as error:
        raise UsageError(f"an unpaired surrogate cannot be encoded in a header: {error.object[:80]!r}") from None


def _packed(header: Header) -> bytes:
    code, ext, remark, flag, opaque, version, language = header
    remark_bytes = remark.encode() if remark else b""
    wrapped_code = (code & 0xFFFF ^ 0x8000) - 0x8000
    parts = [_HEAD.pack(wrapped_code, language, version, opaque, flag, len(remark_bytes)), remark_bytes, b""]
    ext_size = 0
    for name, value in (ext or {}).items():
        name_bytes, value_bytes = name.encode(), value.encode()
        parts += (_SHORT.pack(len(name_bytes)), name_bytes, _INT.pack(len(value_bytes)), value_bytes)
        ext_size += 6 + len(name_bytes) + len(value_bytes)
    parts[2] = _INT.pack(ext_size)
    return b"".join(parts)
