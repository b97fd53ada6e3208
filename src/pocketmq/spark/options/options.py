"""Options of a DataFrame: rows of a table, from which they are read, checked and documented.

    {"maxoffsetspertrigger": "10000", …} ── lower-case names, as Spark passes them ──► a frozen struct with a field for each

An unknown name is refused with the nearest known one. Invalid values are refused before any request to a broker. Each kind of
value reads a text, or says what it expects.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Flag, auto
from typing import Any, Final, NamedTuple

from pocketmq.errors import InvalidName, InvalidSetting
from pocketmq.model import MessageQueue
from pocketmq.model.human import DURATION_UNITS_MS
from pocketmq.model.names import LMQ_PREFIX, parse_group, parse_topic

LARGEST: Final = 2**63 - 1
EARLIEST: Final = -2
LATEST: Final = -1
"""Values that replace an offset in JSON, as in Spark's Kafka connector."""

MAX_JSON_CHARS: Final = 16 * 1024 * 1024
_DURATION: Final = re.compile(r"(\d{1,15})\s*(ms|s|m|min|h|d)?")


class Kind(NamedTuple):
    """A kind of value. `read` raises a ValueError whose text continues the words "is not"."""

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
    """One of some words, in upper or lower case."""

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
        raise ValueError("valid: it is empty")
    return text


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.lower())
    if not match:
        raise ValueError("a duration such as 500ms, 30s, 15m, 2h or 1d")
    return int(match[1]) * DURATION_UNITS_MS[match[2] or "ms"]


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
        raise ValueError("a topic that can be read by offsets: light message queues have no records of their own")
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


SHOWN_CHARS: Final = 80
"""Longest name or value that an error repeats; the rest is cut off."""


class Use(Flag):
    """The operations that accept an option."""

    BATCH = auto()
    STREAM = auto()
    READ = BATCH | STREAM
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    WRITE = BATCH_WRITE | STREAM_WRITE
    ALL = READ | WRITE


_WORDS: Final = {
    Use.BATCH: "a batch read",
    Use.STREAM: "a streaming read",
    Use.BATCH_WRITE: "a batch write",
    Use.STREAM_WRITE: "a streaming write",
}


class Option(NamedTuple):
    """A row of the table. `field` is the field of its value; a default of None means none, or `meaning` describes it."""

    name: str
    field: str
    kind: Kind
    default: Any
    use: Use
    meaning: str
    example: str
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.name, *self.aliases


class Forbidden(NamedTuple):
    """A name that a user may try, and why it is refused."""

    name: str
    why: str


class OptionTable:
    """The options for reading, or for writing."""

    def __init__(self, options: Sequence[Option], forbidden: Sequence[Forbidden] = ()) -> None:
        self.options = tuple(options)
        self._by_key = {name.lower(): option for option in options for name in option.names}
        self._forbidden = {each.name.lower(): each for each in forbidden}

    def read(self, given: Mapping[str, str], use: Use) -> dict[str, Any]:
        """The values of all options for this use, by field; InvalidSetting describes a wrong one."""
        values = {option.field: option.default for option in self.options if use in option.use}
        seen: dict[str, str] = {}
        for key, text in given.items():
            option = self._option(key, use)
            if seen.setdefault(option.name, text) != text:
                raise InvalidSetting(f"the options {' and '.join(option.names)} are the same option; set one of them")
            values[option.field] = _value(option, text)
        return values

    def check(self, name: str, text: str) -> Any:
        """The value of one option; InvalidSetting describes a wrong one."""
        return _value(self._by_key[name.lower()], text)

    def set_fields(self, given: Mapping[str, str]) -> frozenset[str]:
        """The fields that the user set."""
        return frozenset(self._by_key[key.lower()].field for key in given)

    def named(self, key: str, use: Use | None = None) -> str | None:
        """The main name of the option with this name or alias; None if no option applies to all of `use`."""
        option = self._by_key.get(key.lower())
        return None if option is None or (use is not None and use not in option.use) else option.name

    def _option(self, key: str, use: Use) -> Option:
        folded = key.lower()
        if folded in self._forbidden:
            raise InvalidSetting(
                f"the option {self._forbidden[folded].name} cannot be set: {self._forbidden[folded].why}"
            )
        option = self._by_key.get(folded)
        if option is None:
            raise InvalidSetting(f"there is no option {key[:SHOWN_CHARS]!r} for {_WORDS[use]}{self._hint(folded, use)}")
        if use not in option.use:
            uses = " or ".join(word for one, word in _WORDS.items() if one in option.use)
            ends = "; trigger(availableNow=True) ends a stream at the last available message"
            hint = ends if use is Use.STREAM and option.field.startswith("ending") else ""
            raise InvalidSetting(f"the option {option.name} is for {uses}, not for {_WORDS[use]}{hint}")
        return option

    def _hint(self, folded: str, use: Use) -> str:
        usable = {key: option for key, option in self._by_key.items() if use in option.use}
        near = get_close_matches(folded[:SHOWN_CHARS], usable, 1, 0.6)
        if not near:
            return f"; there are: {', '.join(sorted({option.name for option in usable.values()}, key=str.lower))}"
        option = usable[near[0]]
        return f"; did you mean {next(name for name in option.names if name.lower() == near[0])}?"

    def markdown_rows(self) -> list[str]:
        """The rows of the documentation: name, values, default, uses, meaning, example."""
        return [_markdown_row(option) for option in self.options]


def _value(option: Option, text: str) -> Any:
    try:
        return option.kind.read(text.strip())
    except ValueError as error:
        shown = text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "…"
        raise InvalidSetting(f"the option {option.name} = {shown!r} is not {error}") from None


def _markdown_row(option: Option) -> str:
    names = f"`{option.name}`" + "".join(f", alias `{alias}`" for alias in option.aliases)
    default = "none" if option.default is None else str(option.default).lower() or "none"
    uses = {Use.ALL: "all", Use.READ: "read", Use.WRITE: "write"}.get(option.use) or _use_words(option.use)
    return f"| {names} | {option.kind.word} | {default} | {uses} | {option.meaning} | `{option.example}` |"


def _use_words(use: Use) -> str:
    return ", ".join(word.removeprefix("a ") for one, word in _WORDS.items() if one in use)


def exactly_one(values: Mapping[str, Any], fields: Iterable[tuple[str, str]]) -> None:
    """InvalidSetting unless exactly one of these (field, option name) is set."""
    pairs = list(fields)
    found = [name for field, name in pairs if values[field] is not None]
    if len(found) != 1:
        names = ", ".join(name for _, name in pairs)
        problem = f"{' and '.join(found)} exclude one another" if found else "none is set"
        raise InvalidSetting(f"exactly one of the options {names} is required: {problem}")


def at_most_one(values: Mapping[str, Any], fields: Iterable[tuple[str, str]]) -> None:
    """InvalidSetting if more than one of these (field, option name) is set."""
    found = [name for field, name in fields if values[field] is not None]
    if len(found) > 1:
        raise InvalidSetting(f"the options {' and '.join(found)} exclude one another")
