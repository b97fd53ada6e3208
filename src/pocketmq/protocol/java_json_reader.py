"""A reader for JSON as Java's libraries write it. Three forms are not standard JSON:

    {0:"a"}                            a number as a key          read as the key "0"
    {{"topic":"T",…}:1}                an object as a key         read as a MessageQueue, which all such keys are
    {"a":[1],"b":{"$ref":"$.a"}}       a reference                read as its target

Control characters may appear unescaped in texts. Standard JSON goes straight to msgspec; otherwise one pass rewrites these forms (quotes keys,
escapes controls) for msgspec. Single quotes, unquoted names and comments are refused: Java reads them, but never writes them.

References can be hostile: ten lists that each contain the one before ten times stand for ten thousand million values. All values are
therefore measured with their references resolved before they are used.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from pocketmq.errors import ProtocolError
from pocketmq.model import MessageQueue
from pocketmq.protocol.header_encodings import DECODE_ERRORS

REFERENCE = "$ref"
REFERENCE_MARK = b'"$ref"'
"""Occurs in every document with a reference; Java has no other spelling."""


class JsonLimits(msgspec.Struct, frozen=True):
    """Limits of size in bytes, nesting, and number of values, with references resolved."""

    document_bytes: int = 64 * 1024 * 1024
    depth: int = 64
    values: int = 2_000_000


DEFAULT_LIMITS = JsonLimits()

_CLEAN_TEXT = rb'"[^"\\\x00-\x1f]*+(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*+)*+"'
_ANY_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NUMBER = rb"\s*+(-?+[0-9]++)(?=\s*+:)"
# Nothing here backtracks, so the time is linear for any document.
_DIALECT = (
    _CLEAN_TEXT,  # plain JSON: most of the document, passed over
    rb"\{" + _NUMBER,  # 1: a number as the first key
    rb"," + _NUMBER,  # 2: a number as a further key
    rb'(\{[^{}"]*+(?:' + _ANY_TEXT + rb'[^{}"]*+)*+\})(?=\s*+:)',  # 3: an object as a key
    rb"(" + _ANY_TEXT + rb"?+)",  # 4: a text with control characters, or without an end
)
_TOKEN = re.compile(b"|".join(_DIALECT), re.DOTALL)
_OBJECT_KEY, _TEXT = 3, 4
_ESCAPE_OR_CONTROL = re.compile(rb"\\.|[\x00-\x1f]", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]\\]*+(?:\\.[^.\[\]\\]*+)*+)|\[([0-9]{1,9})\]", re.DOTALL)
_POSITION = re.compile(r" \(byte (\d+)\)$")

_decode = msgspec.json.Decoder().decode
_decode_queue = msgspec.json.Decoder(MessageQueue, strict=False).decode
_encode = msgspec.json.Encoder().encode


def read_json(data: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> Any:
    """Parse `data`. ProtocolError names the error and its position. Keys are texts or queues."""
    if len(data) > limits.document_bytes:
        raise ProtocolError(f"JSON of {len(data)} bytes exceeds the limit of {limits.document_bytes}")
    most_values = data.count(b",") + data.count(b"[") + data.count(b"{")
    if most_values > limits.values:
        raise ProtocolError(f"JSON with about {most_values} values exceeds the limit of {limits.values}")
    value = _parse(data)
    if isinstance(value, dict) and _is_reference(value):
        raise ProtocolError("JSON consists of a reference only")
    if isinstance(value, dict | list):
        if REFERENCE_MARK in data:
            _Resolver(value, limits).resolve(value, 1)
        else:
            _replace_keys_only(value, limits.depth, limits.depth)
    return value


def _parse(data: bytes) -> Any:
    try:
        return _decode(data)
    except DECODE_ERRORS:
        respelled = _respell(data)
    try:
        return _decode(respelled)
    except RecursionError:
        raise ProtocolError("JSON is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ProtocolError(f"JSON is not UTF-8: {error.reason} (byte {_first_bad_byte(data)})") from None
    except msgspec.DecodeError as error:
        raise ProtocolError(_with_position(str(error), data)) from None


def _respell(data: bytes) -> bytes:
    """The document rewritten as standard JSON."""
    parts: list[bytes] = []
    copied = 0
    for start, end, plain in _irregular_tokens(data):
        parts += data[copied:start], plain
        copied = end
    parts.append(data[copied:])
    return b"".join(parts)


def _irregular_tokens(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The tokens that are not standard JSON: start, end, and replacement."""
    for token in _TOKEN.finditer(data):
        kind = token.lastindex
        if kind is not None:
            start, end = token.span(kind)
            yield start, end, _plain_spelling(kind, token[kind], start)


def _plain_spelling(kind: int, token: bytes, start: int) -> bytes:
    if kind < _OBJECT_KEY:
        return b'"%b"' % token
    if kind == _TEXT:
        # Characters after a backslash stay, so that an invalid escape is still refused.
        return _ESCAPE_OR_CONTROL.sub(lambda one: one[0] if len(one[0]) > 1 else b"\\u%04x" % one[0][0], token)
    try:
        return _encode(token.decode())
    except UnicodeDecodeError as error:
        raise ProtocolError(f"JSON is not UTF-8: {error.reason} (byte {start + error.start})") from None


def _first_bad_byte(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _with_position(reason: str, data: bytes) -> str:
    """The reason, with the position in the original document instead of the rewritten one."""
    found = _POSITION.search(reason)
    if found is None:
        return f"JSON: {reason} (in {len(data)} bytes)"
    position = int(found[1])
    shift = 0
    for start, end, plain in _irregular_tokens(data):
        if start + shift + len(plain) > position:
            break
        shift += len(plain) - (end - start)
    return f"{reason[: found.start()]} (byte {position - shift})"


def _replace_keys_only(node: dict[Any, Any] | list[Any], levels: int, most: int) -> None:
    """Replace key texts by queues in a document without references."""
    if levels < 1:
        raise ProtocolError(f"JSON is nested deeper than {most}")
    if isinstance(node, dict):
        _replace_keys(node)
    for child in node.values() if isinstance(node, dict) else node:
        if type(child) is dict or type(child) is list:  # skips scalars
            _replace_keys_only(child, levels - 1, most)


class _Resolver:
    """Replaces key texts by queues and references by their targets, and measures the result."""

    __slots__ = ("_limits", "_measured", "_root")

    def __init__(self, root: Any, limits: JsonLimits) -> None:
        self._root = root
        self._limits = limits
        self._measured: dict[int, tuple[int, int] | None] = {}
        """Values and depth of resolved objects, by identity; None while an object is being resolved."""

    def resolve(self, node: dict[Any, Any] | list[Any], depth: int) -> tuple[int, int]:
        """Resolve `node`. Returns its number of values and its depth."""
        known = self._measured.get(id(node), ())
        if known is None:
            raise ProtocolError("JSON contains a circular reference")
        if known:
            return self._checked(known[0], known[1], depth)
        self._checked(0, 1, depth)
        self._measured[id(node)] = None
        if isinstance(node, dict):
            _replace_keys(node)
        values, below = 1, 0
        for key, child in list(node.items() if isinstance(node, dict) else enumerate(node)):
            if isinstance(child, dict) and _is_reference(child):
                child = node[key] = self._target(child[REFERENCE])
            if isinstance(child, dict | list):
                inside, levels = self.resolve(child, depth + 1)
                values += inside
                below = max(below, levels)
            else:
                values += 1
        self._measured[id(node)] = measure = self._checked(values, below + 1, depth)
        return measure

    def _checked(self, values: int, levels: int, depth: int) -> tuple[int, int]:
        if values > self._limits.values:
            raise ProtocolError(f"JSON whose references stand for more than {self._limits.values} values")
        if depth + levels - 1 > self._limits.depth:
            raise ProtocolError(f"JSON is nested deeper than {self._limits.depth}")
        return values, levels

    def _target(self, path: str) -> Any:
        """The target of a path such as `$.table.broker\\-a[0]`. `..` and `@` refer to their own position."""
        node, at = self._root, 1
        while path[:1] == "$" and at < len(path):
            step = _STEP.match(path, at)
            if step is None:
                break
            name, number = step.groups()
            try:
                if name is not None:
                    node = node[re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)]
                else:
                    node = node[number] if isinstance(node, dict) else node[int(number)]
            except (LookupError, TypeError):
                break
            at = step.end()
        else:
            if path[:1] == "$" and not (isinstance(node, dict) and _is_reference(node)):
                return node
        raise ProtocolError(f"JSON reference {path[:200]!r} has no target")


def _is_reference(node: dict[Any, Any]) -> bool:
    return len(node) == 1 and isinstance(node.get(REFERENCE), str)


def _replace_keys(node: dict[Any, Any]) -> None:
    for text in [key for key in node if key[:1] == "{"]:
        try:
            queue = _decode_queue(text)
        except DECODE_ERRORS:
            continue
        node[queue] = node.pop(text)
