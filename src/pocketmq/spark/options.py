"""Options of a DataFrame: declared once as rows of a table, from which they are read, checked and documented.

    {"maxoffsetspertrigger": "10000", …} ── names as Spark gives them: lower case ──► a frozen struct with a field for each

A name that is none is refused with the nearest one that is. Whatever cannot be is refused before anything is asked of a broker.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Flag, auto
from typing import Any, Final, NamedTuple

from pocketmq.errors import InvalidSetting
from pocketmq.spark.option_kinds import Kind

SHOWN_CHARS: Final = 80
"""How much of a name or value that cannot be is repeated in the sentence about it."""


class Use(Flag):
    """What an option is for."""

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
    """A row of the table. `field` is where its value goes; a default of None means none, or is told in `meaning`."""

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
    """A name that somebody may well try, and why it is refused."""

    name: str
    why: str


class OptionTable:
    """The options of reading, or of writing."""

    def __init__(self, options: Sequence[Option], forbidden: Sequence[Forbidden] = ()) -> None:
        self.options = tuple(options)
        self._by_key = {name.lower(): option for option in options for name in option.names}
        self._forbidden = {each.name.lower(): each for each in forbidden}

    def read(self, given: Mapping[str, str], use: Use) -> dict[str, Any]:
        """The values of all options of this use, by field; InvalidSetting says what is wrong with one."""
        values = {option.field: option.default for option in self.options if use in option.use}
        seen: dict[str, str] = {}
        for key, text in given.items():
            option = self._option(key, use)
            if seen.setdefault(option.name, text) != text:
                raise InvalidSetting(f"the options {' and '.join(option.names)} mean the same; give one of them")
            values[option.field] = _value(option, text)
        return values

    def given(self, given: Mapping[str, str]) -> frozenset[str]:
        """The fields that were given a value."""
        return frozenset(self._by_key[key.lower()].field for key in given)

    def named(self, key: str, use: Use | None = None) -> str | None:
        """What the option is called that has this name or alias; None when there is none that is good for all of `use`."""
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
            ends = "; trigger(availableNow=True) ends a stream at the last message that is there"
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
        """The rows of the documentation: name, values, default, what for, meaning, example."""
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
    """InvalidSetting unless one of these (field, option name) was given, and only one."""
    pairs = list(fields)
    found = [name for field, name in pairs if values[field] is not None]
    if len(found) != 1:
        names = ", ".join(name for _, name in pairs)
        told = f"{' and '.join(found)} exclude one another" if found else "none is given"
        raise InvalidSetting(f"exactly one of the options {names} is needed: {told}")


def at_most_one(values: Mapping[str, Any], fields: Iterable[tuple[str, str]]) -> None:
    """InvalidSetting if more than one of these (field, option name) was given."""
    found = [name for field, name in fields if values[field] is not None]
    if len(found) > 1:
        raise InvalidSetting(f"the options {' and '.join(found)} exclude one another")
