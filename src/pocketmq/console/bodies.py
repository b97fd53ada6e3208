"""Bodies of messages for a page: as text, JSON or hex, cut when they are long; the whole of them can be downloaded.

No more of a body is decompressed, and no more of it indented, than is shown: a small message may hold a large one.
"""

import json
from typing import Final

import msgspec

from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.compression import MAX_INFLATED_BYTES
from pocketmq.store.tools.message_fields import BodyStart, body_start

FORMS: Final = ("text", "json", "hex")
HEX_BYTES: Final = 16
"""Of one line."""
SEARCHED_BYTES: Final = 1024 * 1024
"""What is decompressed of a body to look for a text in it."""
INDENTED_TIMES: Final = 4
"""JSON that is indented may be so many times as long as the bytes that are shown; else it stays as it was sent."""


class ShownBody(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a body."""

    form: str
    text: str
    total_bytes: int | None
    """None where the rest is compressed: its length is unknown."""
    shown_bytes: int
    problem: str = ""

    @property
    def is_cut(self) -> bool:
        return self.total_bytes is None or self.shown_bytes < self.total_bytes


def shown_body(message: StoredMessage, wanted: str, most_bytes: int) -> ShownBody:
    """In the form that is wanted. If none is asked for: JSON when it is, text when it can be read, else hex."""
    start = body_start(message, most_bytes)
    problem = f"it cannot be decompressed: {start.problem}" if start.problem else ""
    form = wanted if wanted in FORMS else _guess(start)
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


def first_line(message: StoredMessage, most_chars: int = 120) -> str:
    """A glimpse, for a table."""
    text = body_start(message, most_chars * 4).plain.decode("utf-8", "replace")
    line = "".join(char if char.isprintable() else " " for char in text)
    return line[:most_chars] + ("…" if len(line) > most_chars else "")


def holds(message: StoredMessage, needle: bytes) -> bool:
    """Whether a body holds some bytes: one that is compressed, in the first MiB."""
    if not message.sys_flag & SysFlag.COMPRESSED:
        return needle in message.body
    return needle in body_start(message, SEARCHED_BYTES).plain


def whole_body(message: StoredMessage) -> bytes:
    """All of it; as it is stored when it cannot be decompressed."""
    start = body_start(message, MAX_INFLATED_BYTES)
    return start.plain if start.is_whole else message.body


def editable_text(message: StoredMessage, most_bytes: int) -> str | None:
    """A body that can be put into a field of a form and comes back as it was; None when it cannot, or is too long."""
    start = body_start(message, most_bytes)
    if start.problem or not start.is_whole or not is_text(start.plain):
        return None
    return start.plain.decode()


def is_text(body: bytes) -> bool:
    """Whether it can be put into a field of a form and comes back as it was."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return False
    return "\r" not in text and all(char.isprintable() or char in "\n\t" for char in text)


def _indented(start: BodyStart, most_chars: int) -> tuple[str, str]:
    """The JSON over lines, or nothing and why not. What is nested deeply becomes far longer than it was, so it is made bit by bit."""
    if not start.is_whole:
        return "", "it is too long to be shown as JSON"
    try:
        parts, total = [], 0
        for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(start.plain)):
            parts.append(part)
            total += len(part)
            if total > most_chars:
                return "", "its JSON is nested too deeply to be indented"
    except (ValueError, RecursionError) as error:
        return "", f"it is no JSON: {error}"
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
    """Offset, bytes, and those of them that can be printed."""
    lines = []
    for at in range(0, len(body), HEX_BYTES):
        part = body[at : at + HEX_BYTES]
        printed = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{HEX_BYTES * 3 - 1}}  {printed}")
    return "\n".join(lines)
