"""Trace batches: trace records are collected and go out together, as messages of the trace topic.

    one send, one consumed batch ──► TraceContext: its records ──► waiting, at most 2048 ──► every 20 contexts, or 5 s
                                                                        │
    messages of one topic are told in one trace message ◄───────────────┘  ≤ 128,000 bytes, keys ≤ 16 KiB

A trace message is found by the ids and keys of the messages that it speaks of. When more contexts come than go out, new ones
are dropped and counted: tracing never makes a client wait.

Told the time, as monotonic seconds.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pocketmq.model.names import TRACE_TOPIC
from pocketmq.model.properties import KEY_SEPARATOR
from pocketmq.protocol.trace_text import Trace, encode_trace, trace_keys

MAX_CONTEXTS: Final = 20
"""Contexts that go out at once."""
MAX_BODY_BYTES: Final = 128_000
MAX_KEYS_BYTES: Final = 16 * 1024
"""All properties of a message together have 32 KiB; beyond that, it could not be sent."""
MAX_WAITING: Final = 2_048
FLUSH_SECONDS: Final = 5.0


class TraceContext(NamedTuple):
    """What happened at once: a send, or one call of a listener with a record for each of its messages."""

    topic: str
    """Of the messages that it speaks of."""
    records: Sequence[Trace]
    trace_topic: str = TRACE_TOPIC


class TraceMessage(NamedTuple):
    """One message to send."""

    topic: str
    body: bytes
    keys: str


class TraceBatches:
    """Contexts that wait to be sent. `dropped` counts those for which there was no room."""

    def __init__(self, now: float, *, max_waiting: int = MAX_WAITING) -> None:
        self._waiting: deque[TraceContext] = deque()
        self._max_waiting = max_waiting
        self._last_flush = now
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, context: TraceContext) -> bool:
        """Keep a context until it is time; False when it was dropped."""
        if len(self._waiting) >= self._max_waiting:
            self.dropped += 1
            return False
        if context.records:
            self._waiting.append(context)
        return True

    def is_due(self, now: float) -> bool:
        return len(self._waiting) >= MAX_CONTEXTS or (bool(self._waiting) and now >= self._last_flush + FLUSH_SECONDS)

    def take(self, now: float) -> list[TraceMessage]:
        """The messages of the oldest contexts, at most 20 of them; whether it is time or not."""
        self._last_flush = now
        count = min(MAX_CONTEXTS, len(self._waiting))
        return list(trace_messages([self._waiting.popleft() for _ in range(count)]))


def trace_messages(contexts: Sequence[TraceContext]) -> Iterator[TraceMessage]:
    """The messages that tell all contexts, by topic, in their order."""
    by_topic: dict[tuple[str, str], list[Trace]] = {}
    for context in contexts:
        by_topic.setdefault((context.topic, context.trace_topic), []).extend(context.records)
    for (_, trace_topic), records in by_topic.items():
        yield from _split(trace_topic, records)


def _split(topic: str, records: Sequence[Trace]) -> Iterator[TraceMessage]:
    """Messages that are as full as the limits allow; a record that is larger than they are goes alone."""
    draft = _Draft()
    for record in records:
        text = encode_trace((record,))
        keys = trace_keys((record,))
        if not draft.has_room(text, keys):
            yield draft.message(topic)
            draft = _Draft()
        draft.add(text, keys)
    if draft.texts:
        yield draft.message(topic)


class _Draft:
    """A message that is being filled."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._body_bytes = 0
        self._keys: dict[str, None] = {}
        self._keys_bytes = 0

    def has_room(self, text: bytes, keys: Sequence[str]) -> bool:
        if not self.texts:
            return True
        grown = self._keys_bytes + sum(_key_bytes(key) for key in keys if key not in self._keys)
        return self._body_bytes + len(text) <= MAX_BODY_BYTES and grown <= MAX_KEYS_BYTES

    def add(self, text: bytes, keys: Sequence[str]) -> None:
        """One record; of its keys those that fit, for a single one may have too many."""
        self.texts.append(text)
        self._body_bytes += len(text)
        for key in keys:
            size = _key_bytes(key)
            if key not in self._keys and self._keys_bytes + size <= MAX_KEYS_BYTES:
                self._keys[key] = None
                self._keys_bytes += size

    def message(self, topic: str) -> TraceMessage:
        return TraceMessage(topic, b"".join(self.texts), KEY_SEPARATOR.join(self._keys))


def _key_bytes(key: str) -> int:
    return len(key.encode()) + len(KEY_SEPARATOR)
