"""How the value of an option is written: each kind reads a text, or says what it should have been."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pocketmq.errors import InvalidName
from pocketmq.model.names import LMQ_PREFIX, parse_group, parse_topic
from pocketmq.model.queue import MessageQueue

LARGEST: Final = 2**63 - 1
EARLIEST: Final = -2
LATEST: Final = -1
"""What stands for an offset in JSON, as in Spark's Kafka connector."""

MAX_JSON_CHARS: Final = 16 * 1024 * 1024
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d{1,15})\s*(ms|s|m|min|h|d)?")


class Kind(NamedTuple):
    """How a value is written. `read` raises a ValueError whose text goes on after "is not"."""

    word: str
    read: Callable[[str], Any]


def whole(smallest: int, largest: int = LARGEST) -> Kind:
    """A whole number from `smallest` to `largest`."""
    bounds = f"a whole number of at least {smallest}" + (f" and at most {largest}" if largest < LARGEST else "")

    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not smallest <= int(text) <= largest:
            raise ValueError(bounds)
        return int(text)

    return Kind("number", read)


def choice(*words: str) -> Kind:
    """One of some words, however it is capitalised."""

    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text.lower()

    return Kind(", ".join(words), read)


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _text(text: str) -> str:
    if not text:
        raise ValueError("a text, but empty")
    return text


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.lower())
    if not match:
        raise ValueError("a duration such as 500ms, 30s, 15m, 2h or 1d")
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not topics:
        raise ValueError("a list of topics, separated by commas")
    return tuple(map(_topic, topics))


def _topic(text: str) -> str:
    try:
        name = parse_topic(text)
    except InvalidName as error:
        raise ValueError(f"a topic: {error}") from None
    if name.startswith(LMQ_PREFIX):
        raise ValueError("a topic that can be read by offsets: light queues keep no records of their own")
    return name


def _group(text: str) -> str:
    try:
        return parse_group(text)
    except InvalidName as error:
        raise ValueError(f"a group: {error}") from None


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"a regular expression: {error}") from None
    return text


def _number_of_each_queue(smallest: int, what: str) -> Callable[[str], dict[MessageQueue, int]]:
    example = f'JSON such as {{"orders": {{"broker-a": {{"0": {what}}}}}}}'

    def read(text: str) -> dict[MessageQueue, int]:
        found: dict[MessageQueue, int] = {}
        for topic, broker, queues in _brokers_of_topics(text, example):
            if not isinstance(queues, dict):
                raise ValueError(example)
            for queue_id, number in queues.items():
                if type(number) is not int or not smallest <= number <= LARGEST:
                    raise ValueError(f"{example}, with a number of at least {smallest} for each queue")
                found[_queue(topic, broker, queue_id, example)] = number
        if not found:
            raise ValueError(f"{example}, with at least one queue")
        return found

    return read


def _queues(text: str) -> tuple[MessageQueue, ...]:
    example = 'JSON such as {"orders": {"broker-a": [0, 1]}}'
    found: set[MessageQueue] = set()
    for topic, broker, numbers in _brokers_of_topics(text, example):
        if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
            raise ValueError(example)
        found.update(_queue(topic, broker, str(number), example) for number in numbers)
    if not found:
        raise ValueError(f"{example}, with at least one queue")
    return tuple(sorted(found))


def _brokers_of_topics(text: str, example: str) -> list[tuple[str, str, Any]]:
    try:
        read = json.loads(text) if len(text) <= MAX_JSON_CHARS else None
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict) or not all(isinstance(brokers, dict) for brokers in read.values()):
        raise ValueError(example)
    return [(_topic(topic), broker, inner) for topic, brokers in read.items() for broker, inner in brokers.items()]


def _queue(topic: str, broker: str, queue_id: str, example: str) -> MessageQueue:
    if not re.fullmatch(r"[0-9]{1,9}", queue_id) or not broker:
        raise ValueError(example)
    return MessageQueue(topic, broker, int(queue_id))


def words_or(kind: Kind, *words: str) -> Kind:
    """One of some words, or what `kind` reads."""

    def read(text: str) -> Any:
        if text.lower() in words:
            return text.lower()
        try:
            return kind.read(text)
        except ValueError as error:
            raise ValueError(f"{', '.join(words)} or {error}") from None

    return Kind(f"{', '.join(words)} or {kind.word}", read)


SWITCH: Final = Kind("true or false", _switch)
TEXT: Final = Kind("text", _text)
DURATION: Final = Kind("duration", _duration_ms)
TOPIC: Final = Kind("topic", _topic)
TOPICS: Final = Kind("topics", _topics)
GROUP: Final = Kind("group", _group)
PATTERN: Final = Kind("regular expression", _pattern)
QUEUES: Final = Kind("JSON", _queues)
OFFSETS: Final = Kind("JSON", _number_of_each_queue(EARLIEST, "23"))
TIMES: Final = Kind("JSON", _number_of_each_queue(0, "1767225600000"))

Offsets = Mapping[MessageQueue, int]
