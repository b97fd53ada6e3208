"""The hash under which the key index files a key: Java's, made positive. It is computed once per key of every message.

    hash("Orders#7F00000100012A139A5514E1B2C300A1")
         └ topic ┘└─ head, seen before ────────┘└─┴─ tail: few different ones

The hash of a text is that of its first part × 31ⁿ plus that of the n characters behind it, so the three parts are known each by
itself. Keys come in families: the unique keys that one producer makes in one millisecond differ in their last characters only,
whatever topics they go to, so all three parts are usually known already.
"""

from operator import mul
from typing import Final

from pocketmq.model.java_hash import java_hash

KNOWN_HEADS: Final = 8192
"""Parts that are remembered; when there are more, all are forgotten."""
KNOWN_TAILS: Final = 16_384
KNOWN_TOPICS: Final = 16_384
MAX_KNOWN_CHARS: Final = 128
"""Longer keys are hashed without memory, so that a few of them cannot fill it."""

_TAIL_CHARS: Final = 3
_FAMILY_CHARS: Final = 12
"""What differs between the unique keys of one producer: eight digits of time and four of a counter."""

_MASK: Final = 0xFFFFFFFF
_POWERS: Final[list[tuple[int, list[int]]]] = [
    (31**size & _MASK, [31**n & _MASK for n in range(size)][::-1]) for size in range(65)
]
"""By the size of a text: the factor for what stands before it, and for each of its own characters."""
_TAIL_FACTOR: Final[int] = 31**_TAIL_CHARS
_FACTORS: Final[list[int]] = [31**size & _MASK for size in range(MAX_KNOWN_CHARS + 1)]
"""By the size of a key: the factor for the topic before it."""


def key_hash(topic: str, key: str) -> int:
    """The hash of one key of one topic, without any memory. Java's smallest int has no opposite: RocketMQ takes 0 for it."""
    return abs(java_hash(f"{topic}#{key}")) & 0x7FFFFFFF


class KeyHashes:
    """`key_hash` with a memory for the parts that keys share; takes the bytes that a record holds."""

    def __init__(self) -> None:
        self._topics: dict[bytes, int] = {}
        self._heads: dict[bytes, int] = {}
        self._tails: dict[bytes, int] = {}

    def of(self, topic: bytes, key: bytes) -> int:
        """The hash of `key`."""
        base = self._topics.get(topic)
        head = self._heads.get(key[:-3])
        tail = self._tails.get(key[-3:])
        if base is None or head is None or tail is None:
            value = self._learn(topic, key)
        else:
            value = base * _FACTORS[len(key)] + head * _TAIL_FACTOR + tail & _MASK
        return value if value < 0x80000000 else 0x100000000 - value & 0x7FFFFFFF

    def _learn(self, topic: bytes, key: bytes) -> int:
        if not _TAIL_CHARS <= len(key) <= MAX_KNOWN_CHARS or not key.isascii():
            return java_hash(f"{topic.decode('utf-8', 'replace')}#{key.decode('utf-8', 'replace')}") & _MASK
        base = self._topics.get(topic)
        if base is None:
            base = java_hash(topic.decode("utf-8", "replace") + "#") & _MASK
            _remember(self._topics, topic, base, KNOWN_TOPICS)
        return base * _FACTORS[len(key)] + self._learn_key(key) & _MASK

    def _learn_key(self, key: bytes) -> int:
        family = key[:-_FAMILY_CHARS]
        known = self._heads.get(family)
        if known is None:
            # The first of its family, and maybe the only one: a key made of random digits has none.
            known = _extended(0, family)
            _remember(self._heads, family, known, KNOWN_HEADS)
            return _extended(known, key[-_FAMILY_CHARS:])
        head = _extended(known, key[len(family) : -3])
        _remember(self._heads, key[:-3], head, KNOWN_HEADS)
        tail = self._tails.get(key[-3:])
        if tail is None:
            tail = _extended(0, key[-3:])
            _remember(self._tails, key[-3:], tail, KNOWN_TAILS)
        return head * _TAIL_FACTOR + tail


def _remember(known: dict[bytes, int], part: bytes, value: int, most: int) -> None:
    """Keep the hash of a part. When there are too many all are forgotten: those in use are soon known again."""
    if len(known) >= most:
        known.clear()
    known[part] = value


def _extended(start: int, text: bytes) -> int:
    """The hash of a text that begins with one whose hash is `start` and goes on with `text`."""
    if len(text) < len(_POWERS):
        factor, powers = _POWERS[len(text)]
        own: int = sum(map(mul, text, powers))
        return start * factor + own & _MASK
    for unit in text:
        start = start * 31 + unit & _MASK
    return start
