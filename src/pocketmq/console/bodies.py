"""Bodies of messages for a page: as text, JSON or hex, cut when they are long; the whole of them can be downloaded."""

import json
from typing import Final

import msgspec

from pocketmq.model.message import StoredMessage

FORMS: Final = ("text", "json", "hex")
HEX_BYTES: Final = 16
"""Of one line."""


class ShownBody(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a body."""

    form: str
    text: str
    total_bytes: int
    shown_bytes: int
    problem: str = ""

    @property
    def is_cut(self) -> bool:
        return self.shown_bytes < self.total_bytes


def shown_body(body: bytes, wanted: str, most_bytes: int) -> ShownBody:
    """In the form that is wanted. Without a wish: JSON when it is, text when it can be read, else hex."""
    form = wanted if wanted in FORMS else _guess(body, most_bytes)
    cut = body[:most_bytes]
    if form == "hex":
        return ShownBody(form=form, text=_hex(cut), total_bytes=len(body), shown_bytes=len(cut))
    if form == "json" and len(body) <= most_bytes:
        try:
            text = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
            return ShownBody(form=form, text=text, total_bytes=len(body), shown_bytes=len(body))
        except (ValueError, RecursionError) as error:
            problem = f"it is no JSON: {error}"
    else:
        problem = "it is too long to be shown as JSON" if form == "json" else ""
    text = cut.decode("utf-8", "replace")
    return ShownBody(form="text", text=text, total_bytes=len(body), shown_bytes=len(cut), problem=problem)


def first_line(message: StoredMessage, most_chars: int = 120) -> str:
    """A glimpse, for a table."""
    text = message.body[: most_chars * 4].decode("utf-8", "replace")
    line = "".join(char if char.isprintable() else " " for char in text)
    return line[:most_chars] + ("…" if len(line) > most_chars else "")


def is_text(body: bytes) -> bool:
    """Whether it can be put into a field of a form and comes back as it was."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return False
    return "\r" not in text and all(char.isprintable() or char in "\n\t" for char in text)


def _guess(body: bytes, most_bytes: int) -> str:
    if body[:1] in (b"{", b"[") and len(body) <= most_bytes:
        try:
            json.loads(body)
        except (ValueError, RecursionError):
            return "text"
        return "json"
    try:
        text = body[:most_bytes].decode("utf-8", "ignore" if len(body) > most_bytes else "strict")
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
