"""The compact binary header, called ROCKETMQ, which peers may use instead of JSON.

    | code 2 | language 1 | version 2 | opaque 4 | flag 4 |
    | remark length 4 | remark … | ext length 4 | ext … |
      ext: | name length 2 | name … | value length 4 | value … | repeated

Codes above 32767 do not fit and wrap, as in Java, so POP requests cannot use this encoding. An empty remark means none.
"""

import struct

from pocketmq.errors import ProtocolError, UsageError
from pocketmq.protocol.fields import MAX_EXT_FIELDS, Header, language_of

_HEAD = struct.Struct(">hbhiii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")


def decode(header: bytes) -> Header:
    try:
        code, language, version, opaque, flag, remark_size = _HEAD.unpack_from(header)
        at = _HEAD.size
        remark, at = _text(header, at, remark_size)
        (ext_size,) = _INT.unpack_from(header, at)
        at += 4
        if ext_size < 0 or at + ext_size != len(header):
            raise ProtocolError(
                f"binary header: ext fields of {ext_size} bytes but only {len(header) - at} bytes are left"
            )
        ext = _ext(header, at) if ext_size else None
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"binary header: {error}") from None
    return code, ext, remark or None, flag, opaque, version, language_of(language)


def _ext(header: bytes, at: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    while at < len(header):
        (size,) = _SHORT.unpack_from(header, at)
        name, at = _text(header, at + 2, size)
        (size,) = _INT.unpack_from(header, at)
        ext[name], at = _text(header, at + 4, size)
        if len(ext) > MAX_EXT_FIELDS:
            raise ProtocolError(f"binary header with more than {MAX_EXT_FIELDS} ext fields")
    return ext


def _text(header: bytes, at: int, size: int) -> tuple[str, int]:
    end = at + size
    if size < 0 or end > len(header):
        raise ProtocolError(f"binary header: a text of {size} bytes but only {len(header) - at} bytes are left")
    return header[at:end].decode(), end


def encode(header: Header) -> bytes:
    try:
        return _encode(header)
    except struct.error as error:
        raise UsageError(f"a number or text is too large for a binary header: {error}") from None
    except UnicodeEncodeError as error:
        raise UsageError(f"an unpaired surrogate cannot be encoded in a header: {error.object[:80]!r}") from None


def _encode(header: Header) -> bytes:
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
