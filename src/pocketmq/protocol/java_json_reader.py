"""Reads JSON as Java writes it. Three things are not JSON, or mean more than JSON says:

    {0:"a"}                            a bare number as a key     read as the key "0"
    {{"topic":"T",…}:1}                an object as a key         read as a MessageQueue, which all such keys are
    {"a":[1],"b":{"$ref":"$.a"}}       the same thing once more   read as the thing itself

and control characters may stand in a text as they are. A document in plain JSON goes straight through msgspec; otherwise one
pass spells the odd places as JSON (keys in quotes, controls escaped) and msgspec reads that. Single quotes, names without
quotes and comments are refused: Java reads them, but never writes them.

A reference may be hostile: ten lists, each naming the one before it ten times, stand for ten thousand million values. So
every thing is measured with its references in place, before anybody walks through it.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from pocketmq.errors import ProtocolError
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.header_json import DECODE_ERRORS

REFERENCE = "$ref"
REFERENCE_MARK = b'"$ref"'
"""What a document that holds a reference contains; Java never spells it any other way."""


class JsonLimits(msgspec.Struct, frozen=True):
    """Largest document in bytes, deepest nesting, and most values, each reference counted as what it stands for."""

    document_bytes: int = 64 * 1024 * 1024
    depth: int = 64
    values: int = 2_000_000


DEFAULT_LIMITS = JsonLimits()

_CLEAN_TEXT = rb'"[^"\\\x00-\x1f]*+(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*+)*+"'
_ANY_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NUMBER = rb"\s*+(-?+[0-9]++)(?=\s*+:)"
# Nothing here backtracks, and no byte is looked at more than a few times: time is linear, whatever the document holds.
_ODD = (
    _CLEAN_TEXT,  # not odd: most of the document, passed over
    rb"\{" + _NUMBER,  # 1: a number as the first key
    rb"," + _NUMBER,  # 2: a number as a further key
    rb'(\{[^{}"]*+(?:' + _ANY_TEXT + rb'[^{}"]*+)*+\})(?=\s*+:)',  # 3: an object as a key
    rb"(" + _ANY_TEXT + rb"?+)",  # 4: a text with control characters, or without an end
)
_TOKEN = re.compile(b"|".join(_ODD), re.DOTALL)
_OBJECT_KEY, _TEXT = 3, 4
_ESCAPE_OR_CONTROL = re.compile(rb"\\.|[\x00-\x1f]", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]\\]*+(?:\\.[^.\[\]\\]*+)*+)|\[([0-9]{1,9})\]", re.DOTALL)
_POSITION = re.compile(r" \(byte (\d+)\)$")

_decode = msgspec.json.Decoder().decode
_decode_queue = msgspec.json.Decoder(MessageQueue, strict=False).decode
_encode = msgspec.json.Encoder().encode


def read_json(data: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> Any:
    """The value in `data`; ProtocolError tells what is wrong, and where. Keys are texts, or queues."""
    if len(data) > limits.document_bytes:
        raise ProtocolError(f"JSON of {len(data)} bytes exceeds the limit of {limits.document_bytes}")
    most_values = data.count(b",") + data.count(b"[") + data.count(b"{")
    if most_values > limits.values:
        raise ProtocolError(f"JSON with about {most_values} values exceeds the limit of {limits.values}")
    value = _parse(data)
    if isinstance(value, dict) and _is_reference(value):
        raise ProtocolError("JSON is nothing but a reference")
    if isinstance(value, dict | list):
        if REFERENCE_MARK in data:
            _Settling(value, limits).settle(value, 1)
        else:
            _settle_plainly(value, limits.depth, limits.depth)
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
    """The document in plain JSON."""
    parts: list[bytes] = []
    copied = 0
    for start, end, plain in _odd_places(data):
        parts += data[copied:start], plain
        copied = end
    parts.append(data[copied:])
    return b"".join(parts)


def _odd_places(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Where the document is not plain JSON: start, end, and how it is spelled there."""
    for token in _TOKEN.finditer(data):
        kind = token.lastindex
        if kind is not None:
            start, end = token.span(kind)
            yield start, end, _plain_spelling(kind, token[kind], start)


def _plain_spelling(kind: int, token: bytes, start: int) -> bytes:
    if kind < _OBJECT_KEY:
        return b'"%b"' % token
    if kind == _TEXT:
        # What follows a backslash stays as it is, so that a wrong escape is still refused.
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
    """The reason, with a position in the document as it came instead of one in its plain spelling."""
    found = _POSITION.search(reason)
    if found is None:
        return f"JSON: {reason} (in {len(data)} bytes)"
    position = int(found[1])
    shift = 0
    for start, end, plain in _odd_places(data):
        if start + shift + len(plain) > position:
            break
        shift += len(plain) - (end - start)
    return f"{reason[: found.start()]} (byte {position - shift})"


def _settle_plainly(node: dict[Any, Any] | list[Any], levels: int, most: int) -> None:
    """Puts queues in the place of their texts, in a document without references: it holds no more values than were counted."""
    if levels < 1:
        raise ProtocolError(f"JSON is nested deeper than {most}")
    if isinstance(node, dict):
        _settle_keys(node)
    for child in node.values() if isinstance(node, dict) else node:
        if type(child) is dict or type(child) is list:  # thousands of plain values are passed over
            _settle_plainly(child, levels - 1, most)


class _Settling:
    """Puts queues in the place of their texts, and things in the place of references to them; measures all of it."""

    __slots__ = ("_limits", "_measured", "_root")

    def __init__(self, root: Any, limits: JsonLimits) -> None:
        self._root = root
        self._limits = limits
        self._measured: dict[int, tuple[int, int] | None] = {}
        """By identity, values and depth of what is settled; None while it is being settled."""

    def settle(self, node: dict[Any, Any] | list[Any], depth: int) -> tuple[int, int]:
        """How many values `node` stands for, and how deep it goes."""
        known = self._measured.get(id(node), ())
        if known is None:
            raise ProtocolError("JSON holds a reference to something that it is part of")
        if known:
            return self._checked(known[0], known[1], depth)
        self._checked(0, 1, depth)
        self._measured[id(node)] = None
        if isinstance(node, dict):
            _settle_keys(node)
        values, below = 1, 0
        for place, child in list(node.items() if isinstance(node, dict) else enumerate(node)):
            if isinstance(child, dict) and _is_reference(child):
                child = node[place] = self._target(child[REFERENCE])
            if isinstance(child, dict | list):
                inside, levels = self.settle(child, depth + 1)
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
        """What a path such as `$.table.broker\\-a[0]` leads to. `..` and `@` lead back to where they stand."""
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
        raise ProtocolError(f"JSON reference {path[:200]!r} leads nowhere")


def _is_reference(node: dict[Any, Any]) -> bool:
    return len(node) == 1 and isinstance(node.get(REFERENCE), str)


def _settle_keys(node: dict[Any, Any]) -> None:
    for text in [key for key in node if key[:1] == "{"]:
        try:
            queue = _decode_queue(text)
        except DECODE_ERRORS:
            continue
        node[queue] = node.pop(text)
