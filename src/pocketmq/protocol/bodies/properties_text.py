"""Java's properties format, in which brokers and name servers exchange their settings.

    # a comment, as after !
    brokerName=broker-a          ends the name: = or : or a blank
    path = C:\\\\data\\              a backslash at the end of a line continues it
           \\u4e2d                \\t \\n \\r \\f and \\uXXXX are characters, any other \\x is x

Written as RocketMQ does, one `name=value` per line ordered by name, but with escapes where Java would misread it.
"""

import re
from collections.abc import Iterator, Mapping

from pocketmq.errors import BodyError

_LINE_END = re.compile(r"\r\n|\r|\n")
_ENTRY = re.compile(
    r"([^\\=: \t\f]*+(?:\\.[^\\=: \t\f]*+)*+)[ \t\f]*+[=:]?+[ \t\f]*+(.*)",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A set of safe characters: ranges up to the last character take ten milliseconds to compile at each program start.
_UNSAFE = re.compile(r"[^ -\[\]-~]")
_UNSAFE_IN_NAME = re.compile(r"[^ -\[\]-~]|[ =:#!]")
_SHORT = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def read_properties(data: bytes) -> dict[str, str]:
    """Parse names and values. The last value of a name wins."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"properties are not UTF-8: {error.reason} (byte {error.start})") from None
    properties = {}
    for line in _joined_entries(text):
        entry = _ENTRY.match(line)
        assert entry, "the pattern matches any text"
        properties[_unescaped(entry[1])] = _unescaped(entry[2])
    return properties


def write_properties(properties: Mapping[str, str]) -> bytes:
    """One line for each property, in ASCII."""
    lines = []
    for name, value in sorted(properties.items()):
        blank = "\\" if value.startswith(" ") else ""
        lines.append(f"{_UNSAFE_IN_NAME.sub(_escape, name)}={blank}{_UNSAFE.sub(_escape, value)}\n")
    return "".join(lines).encode()


def _joined_entries(text: str) -> Iterator[str]:
    """Lines without comments and leading blanks; one that ends in a backslash is joined with the next."""
    parts: list[str] = []
    for line in _LINE_END.split(text):
        line = line.lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2
        parts.append(line[:-1] if goes_on else line)
        if not goes_on:
            yield "".join(parts)
            parts = []
    if parts:
        yield "".join(parts)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    units = _ESCAPED.sub(_character, text)
    try:
        return units.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise BodyError(f"properties: an unpaired surrogate in {text[:80]!r}") from None


def _character(escaped: re.Match[str]) -> str:
    code, letter = escaped.groups()
    if code:
        return chr(int(code, 16))
    if letter == "u":
        raise BodyError(f"properties: \\u without four digits in {escaped.string[:80]!r}")
    return _ESCAPES.get(letter, letter)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    if " " <= character <= "~":
        return "\\" + character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
