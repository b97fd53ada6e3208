"""Settings by RocketMQ's names: in the properties file of a program, and in the requests that tell and change them.

    read     a file or options at the start: any key. One that has no meaning here, or that is unknown, is a warning. One that is
             almost the name of a setting is an error: what it was to set, a promise perhaps, would not be so
    change   a request: only keys that are on the list as `at_run_time`; one that is not refuses all of them
    write    all of them, as they are now

A change while running is a switch or a number that is looked at for each request. No path, listener, bound or name of a
program can be changed from outside, and no change is written to any file. Name server and broker share this code, so that
what is closed in one cannot stay open in the other.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from pocketmq.errors import InvalidParameter, InvalidSetting, NoPermission, UsageError

S = TypeVar("S", bound=msgspec.Struct)

REFUSED: Final = "Can not update config in black list."
"""RocketMQ's words; what follows them is ours."""

LARGEST_NUMBER: Final = 2**63 - 1
"""Java's largest. Nothing is meant by more, and what is counted by such a number, as a time to wait, would fail when it is used."""

_SURELY_MEANT: Final = 0.85
"""How alike (see `difflib`) an unknown key and a setting are when the one is a slip of the pen for the other."""

SHOWN_CHARS: Final = 80
"""How much of a name or value that cannot be is repeated in the sentence about it."""


class Form(NamedTuple):
    """How a value is written as text. `read` raises a ValueError that says what it should have been."""

    read: Callable[[str], Any]
    write: Callable[[Any], str] = str


def read_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("a whole number")
    if len(text) > len(str(LARGEST_NUMBER)) or int(text) > LARGEST_NUMBER:
        raise ValueError(f"a number up to {LARGEST_NUMBER}")
    return int(text)


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError("a path")
    return Path(text)


NUMBER: Final = Form(read_number)
SWITCH: Final = Form(_switch, lambda value: str(value).lower())
TEXT: Final = Form(str)
PATH: Final = Form(_path)


class Key(NamedTuple):
    """The field that a key stands for; `store.flush` is the field `flush` of the settings in the field `store`."""

    field: str
    form: Form
    at_run_time: bool = False
    why_not: str = ""
    """Why it cannot change while running."""


class Constant(NamedTuple):
    """What a key of RocketMQ always says here. A file that says something else is refused: it means another program."""

    text: str
    why: str

    def told(self, settings: msgspec.Struct) -> str:
        return self.text


class Consequence(NamedTuple):
    """What a key of RocketMQ says here, as it follows from the settings. A file that says something else is refused."""

    follows: Callable[[Any], str]
    why: str

    def told(self, settings: msgspec.Struct) -> str:
        return self.follows(settings)


class ReadKeys(NamedTuple, Generic[S]):
    """Settings from a file, and a sentence for each key that had no effect."""

    settings: S
    warnings: list[str]


class SettingKeys(Generic[S]):
    """The keys of one program, and what is done with them."""

    def __init__(
        self,
        program: str,
        keys: Mapping[str, Key],
        *,
        without_effect: Mapping[str, str],
        constants: Mapping[str, Constant | Consequence] | None = None,
    ) -> None:
        self._program = program
        self._keys = keys
        self._without_effect = without_effect
        self._constants = constants or {}

    def read(self, properties: Mapping[str, str], base: S) -> ReadKeys[S]:
        """`base` with what the properties say. UsageError for a value that cannot be."""
        honoured = {name: text for name, text in properties.items() if name in self._keys}
        others = {name: text.strip() for name, text in properties.items() if name not in self._keys}
        settings = self._replaced(base, honoured)
        for name in sorted(self._constants.keys() & others.keys()):
            self._check_constant(name, others.pop(name), settings)
        for name in others.keys() - self._without_effect.keys():
            if near := get_close_matches(name[:SHOWN_CHARS], self._keys, n=1, cutoff=_SURELY_MEANT):
                raise InvalidSetting(f"{name} is not known; did you mean {near[0]}?")
        return ReadKeys(settings, [self._warning(name) for name in others])

    def change(self, settings: S, properties: Mapping[str, str]) -> S:
        """The settings after a request to change some while running. NoPermission names a key that must not be changed so."""
        for name in properties:
            if name not in self._keys and name not in self._constants:
                raise NoPermission(f"{REFUSED} {self._warning(name)}")
            if name in self._constants or not self._keys[name].at_run_time:
                raise NoPermission(
                    f"{REFUSED} {name} can only be set when the {self._program} starts{self._why_not(name)}"
                )
        try:
            return self._replaced(settings, properties)
        except UsageError as error:
            raise InvalidParameter(str(error)) from None

    def _why_not(self, name: str) -> str:
        why = self._constants[name].why if name in self._constants else self._keys[name].why_not
        return f": {why}" if why else ""

    def write(self, settings: S) -> dict[str, str]:
        """Every key that is honoured, with its value now; those without a value are left out."""
        told = {name: constant.told(settings) for name, constant in self._constants.items()}
        for name, key in self._keys.items():
            value = _value(settings, key.field)
            if value is not None:
                told[name] = key.form.write(value)
        return told

    def _replaced(self, settings: S, properties: Mapping[str, str]) -> S:
        changes: dict[str, dict[str, Any]] = {}
        for name, text in properties.items():
            part, _, field = self._keys[name].field.rpartition(".")
            changes.setdefault(part, {})[field] = self._value_of(name, text.strip())
        own = changes.pop("", {})
        for part, fields in changes.items():
            own[part] = msgspec.structs.replace(getattr(settings, part), **fields)
        return msgspec.structs.replace(settings, **own)

    def _value_of(self, name: str, text: str) -> Any:
        try:
            return self._keys[name].form.read(text)
        except InvalidSetting as error:
            raise InvalidSetting(f"{name}: {error}") from None
        except ValueError as error:
            raise InvalidSetting(f"{name}={text[:SHOWN_CHARS]} is not {error}") from None

    def _check_constant(self, name: str, text: str, settings: S) -> None:
        constant = self._constants[name]
        told = constant.told(settings)
        if text.lower() != told.lower():
            raise InvalidSetting(
                f"{name}={text[:SHOWN_CHARS]} cannot be: {constant.why}. Say {name}={told}, or leave it out"
            )

    def _warning(self, name: str) -> str:
        if name in self._without_effect:
            return f"{name} has no effect here: {self._without_effect[name]}"
        near = get_close_matches(name[:SHOWN_CHARS], [*self._keys, *self._constants, *self._without_effect], n=1)
        return f"{name[:SHOWN_CHARS]} is not known" + (f"; did you mean {near[0]}?" if near else "")


def _value(settings: msgspec.Struct, field: str) -> Any:
    part, _, name = field.rpartition(".")
    return getattr(getattr(settings, part) if part else settings, name)
