"""A stored message as plain fields, for tables and JSON lines: numbers, texts, and the body in a chosen form."""

import base64
import json
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pocketmq.codes import SysFlag
from pocketmq.errors import MissingLibrary, ProtocolError
from pocketmq.model import StoredMessage
from pocketmq.model.human import local_time
from pocketmq.protocol.compression import MAX_INFLATED_BYTES, decompress, decompress_start

_TRANSACTION: Final = {
    0: "none",
    SysFlag.TRANSACTION_PREPARED: "prepared",
    SysFlag.TRANSACTION_COMMIT: "commit",
    SysFlag.TRANSACTION_ROLLBACK: "rollback",
}


class BodyForm(StrEnum):
    """How to show a body."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    NONE = "none"


class BodyStart(NamedTuple):
    """The beginning of a body, decompressed."""

    plain: bytes
    is_whole: bool
    total_bytes: int | None
    """None if the rest is compressed: its size is unknown until it is decompressed."""
    problem: str = ""
    """Why it could not be decompressed; `plain` then contains the stored bytes."""


def body_start(message: StoredMessage, most_bytes: int = MAX_INFLATED_BYTES) -> BodyStart:
    """The first bytes of a body. Decompresses only the bytes to show."""
    stored = message.body
    try:
        plain, is_whole = decompress_start(stored, message.sys_flag, most_bytes)
    except (ProtocolError, MissingLibrary) as error:
        return BodyStart(stored[:most_bytes], len(stored) <= most_bytes, len(stored), str(error))
    if is_whole:
        return BodyStart(plain, True, len(plain))
    return BodyStart(plain, False, None if message.sys_flag & SysFlag.COMPRESSED else len(stored))


def fields_of(message: StoredMessage, body: BodyForm, most_bytes: int | None = None) -> dict[str, Any]:
    """All fields of a message, by their names in JSON. `most_bytes` limits the decompressed part of the body;
    `body_cut` is then the full size.
    """
    fields: dict[str, Any] = {
        "log_offset": message.log_offset,
        "topic": message.topic,
        "queue": message.queue_id,
        "queue_offset": message.queue_offset,
        "stored": local_time(message.store_ms),
        "store_ms": message.store_ms,
        "store_host": str(message.store_host),
        "born": local_time(message.born_ms),
        "born_ms": message.born_ms,
        "born_host": str(message.born_host),
        "tags": message.tags,
        "keys": message.keys,
        "message_id": message.message_id,
        "offset_id": message.offset_id,
        "size": message.size,
        "reconsume_times": message.reconsume_times,
        "transaction": _TRANSACTION[message.sys_flag & SysFlag.TRANSACTION_MASK],
        "prepared_offset": message.prepared_offset,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "body_crc": message.body_crc,
        "properties": message.properties,
    }
    if body is not BodyForm.NONE:
        fields |= _body_fields(message, body, most_bytes)
    return fields


def _body_fields(message: StoredMessage, form: BodyForm, most_bytes: int | None) -> dict[str, Any]:
    if most_bytes is not None:
        start = body_start(message, most_bytes)
        if start.problem:
            return {"body": None, "body_error": start.problem}
        if not start.is_whole:
            of = "more after decompression" if start.total_bytes is None else f"{start.total_bytes:,} bytes"
            cut = BodyForm.TEXT if form is BodyForm.JSON else form
            return {**_in_form(start.plain, cut), "body_cut": of}
        return _in_form(start.plain, form)
    try:
        plain = decompress(message.body, message.sys_flag)
    except (ProtocolError, MissingLibrary) as error:
        return {"body": None, "body_error": str(error)}
    return _in_form(plain, form)


def _in_form(plain: bytes, form: BodyForm) -> dict[str, Any]:
    match form:
        case BodyForm.HEX:
            return {"body": plain.hex()}
        case BodyForm.BASE64:
            return {"body": base64.b64encode(plain).decode()}
        case BodyForm.JSON:
            return _parsed(plain)
        case _:
            return {"body": _text(plain)}


def _parsed(plain: bytes) -> dict[str, Any]:
    try:
        return {"body": json.loads(plain)}
    except (ValueError, RecursionError) as error:
        return {"body": _text(plain), "body_error": f"the body is not JSON: {error}"}


def _text(plain: bytes) -> str:
    """Bytes that are not UTF-8 are shown as \\xff."""
    return plain.decode("utf-8", "backslashreplace")
