"""Message bodies as text, JSON or hex. Long bodies are truncated; a download has the whole body.

Only the part that is shown is decompressed and indented, since a small compressed message may contain a large body.
"""

import json
from typing import Final

import msgspec

from pocketmq.codes import SysFlag
from pocketmq.model import StoredMessage
from pocketmq.store.tools.message_fields import BodyStart, body_start

FORMS: Final = ("text", "json", "hex")
HEX_BYTES: Final = 16
"""Per line."""
SEARCHED_BYTES: Final = 1024 * 1024
"""The part of a body that is decompressed for a search."""
INDENTED_TIMES: Final = 4
"""Indented JSON may be longer than the body by this factor; otherwise the body is shown as text."""


class ShownBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body as a page shows it."""

    form: str
    text: str
    total_bytes: int | None
    """None if the rest is compressed, since its length is unknown."""
    shown_bytes: int
    problem: str = ""

    @property
    def is_cut(self) -> bool:
        return self.total_bytes is None or self.shown_bytes < self.total_bytes


def shown_body(message: StoredMessage, form: str, most_bytes: int) -> ShownBody:
    """The body in this form. Without a form: JSON if it is valid, text if it is readable, otherwise hex."""
    start = body_start(message, most_bytes)
    problem = f"the body cannot be decompressed: {start.problem}" if start.problem else ""
    form = form if form in FORMS else _guess(start)
    text = _hex(start.plain) if form == "hex" else ""
    if form == "json":
        text, why = _indented(start, most_bytes * INDENTED_TIMES)
        form, problem = ("json", problem) if text else ("text", why)
    return ShownBody(
        form=form,
        text=text or start.plain.decode("utf-8", "replace"),
        total_bytes=start.total_bytes,
        shown_bytes=len(start.plain),
        problem=problem,
    )


def preview(message: StoredMessage, most_chars: int = 120) -> str:
    """The beginning of a body, for a table."""
    text = body_start(message, most_chars * 4).plain.decode("utf-8", "replace")
    line = "".join(char if char.isprintable() else " " for char in text)
    return line[:most_chars] + ("…" if len(line) > most_chars else "")


def body_contains(message: StoredMessage, needle: bytes) -> bool:
    """Whether a body contains some bytes; of a compressed body, only the first MiB is searched."""
    if not message.sys_flag & SysFlag.COMPRESSED:
        return needle in message.body
    return needle in body_start(message, SEARCHED_BYTES).plain


def whole_body(message: StoredMessage) -> bytes:
    """The whole body, or the stored bytes if they cannot be decompressed."""
    start = body_start(message)
    return start.plain if start.is_whole else message.body


def editable_text(message: StoredMessage, most_bytes: int) -> str | None:
    """A body that a form can edit without other changes; None if it is not text or too long."""
    start = body_start(message, most_bytes)
    if start.problem or not start.is_whole or not is_text(start.plain):
        return None
    return start.plain.decode()


def is_text(body: bytes) -> bool:
    """Whether a form returns this body unchanged."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return False
    return "\r" not in text and all(char.isprintable() or char in "\n\t" for char in text)


def _indented(start: BodyStart, most_chars: int) -> tuple[str, str]:
    """Indented JSON, or an empty text and the reason. Deep nesting makes it far longer, so it is built in parts up to a limit."""
    if not start.is_whole:
        return "", "the body is too long to be shown as JSON"
    try:
        parts, total = [], 0
        for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(start.plain)):
            parts.append(part)
            total += len(part)
            if total > most_chars:
                return "", "the JSON is nested too deeply to be indented"
    except (ValueError, RecursionError) as error:
        return "", f"the body is not JSON: {error}"
    return "".join(parts), ""


def _guess(start: BodyStart) -> str:
    if start.plain[:1] in (b"{", b"[") and start.is_whole:
        try:
            json.loads(start.plain)
        except (ValueError, RecursionError):
            return "text"
        return "json"
    try:
        text = start.plain.decode("utf-8", "strict" if start.is_whole else "ignore")
    except UnicodeDecodeError:
        return "hex"
    return "hex" if any(ord(char) < 32 and char not in "\n\r\t" for char in text) else "text"


def _hex(body: bytes) -> str:
    """Lines with offset, bytes, and printable characters."""
    lines = []
    for at in range(0, len(body), HEX_BYTES):
        part = body[at : at + HEX_BYTES]
        printed = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{HEX_BYTES * 3 - 1}}  {printed}")
    return "\n".join(lines)
