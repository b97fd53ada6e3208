"""Settings by RocketMQ's names: in properties files, and in requests that read and change them.

    read     a file, or options at the start: any key. A key without effect here, or an unknown one, is a warning. A key that is
             almost the name of a setting is an error, because the intended setting would be missing
    change   a request: only keys marked `at_run_time`. One other key refuses all of them
    write    all settings with their current values

A setting that can change at run time is a switch or a number that is read for each request. A request can never change paths,
addresses, limits of memory or names, and it changes no file. Name server and broker share this code.
"""

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from pocketmq.errors import InvalidParameter, InvalidSetting, NoPermission, UsageError

S = TypeVar("S", bound=msgspec.Struct)

REFUSED: Final = "Can not update config in black list."
"""RocketMQ's text. Our explanation follows it."""

LARGEST_NUMBER: Final = 2**63 - 1
"""The largest long of Java. A larger number, for example as a timeout, would fail when it is used."""

_SURELY_MEANT: Final = 0.85
"""The `difflib` similarity from which an unknown key counts as a misspelled setting."""
_SIMILAR: Final = 0.8
"""The similarity from which a warning names another key."""

SHOWN_CHARS: Final = 80
"""How many characters of a wrong name or value an error shows."""


def require_positive(kind: str, settings: msgspec.Struct, may_be_zero: Collection[str] = ()) -> None:
    """InvalidSetting for a number that is 0 or less, or less than 0 if it may be zero."""
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if value < 0 or (value == 0 and name not in may_be_zero):
            least = "0 or above" if name in may_be_zero else "above 0"
            raise InvalidSetting(f"{kind} setting {name} = {value} must be {least}")


class InUse(Generic[S]):
    """The current settings. `now` is replaced as a whole when one of them changes."""

    __slots__ = ("now",)

    def __init__(self, settings: S) -> None:
        self.now = settings


class Form(NamedTuple):
    """The text form of a value. `read` raises a ValueError that names the expected form."""

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
    """The field of a key. `store.flush` is the field `flush` of the settings in the field `store`."""

    field: str
    form: Form
    at_run_time: bool = False
    why_not: str = ""
    """Why it cannot change at run time."""


class Constant(NamedTuple):
    """A key of RocketMQ with one fixed value here. A file with another value is refused."""

    text: str
    why: str

    def value_of(self, settings: msgspec.Struct) -> str:
        return self.text


class Consequence(NamedTuple):
    """A key of RocketMQ whose value follows from other settings. A file with another value is refused."""

    follows: Callable[[Any], str]
    why: str

    def value_of(self, settings: msgspec.Struct) -> str:
        return self.follows(settings)


class ReadKeys(NamedTuple, Generic[S]):
    """Settings from a file, and a warning for each key without effect."""

    settings: S
    warnings: list[str]


class SettingKeys(Generic[S]):
    """Reads, changes and writes the keys of one program."""

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
        """`base` with the values of `properties`. UsageError for an invalid value."""
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
        """The settings after a change at run time. NoPermission names a key that cannot change at run time."""
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
        """All keys with an effect and their current values. Keys without a value are left out."""
        written = {name: constant.value_of(settings) for name, constant in self._constants.items()}
        for name, key in self._keys.items():
            value = _value(settings, key.field)
            if value is not None:
                written[name] = key.form.write(value)
        return written

    def _replaced(self, settings: S, properties: Mapping[str, str]) -> S:
        changes: dict[str, dict[str, Any]] = {}
        for name, text in properties.items():
            part, _, field = self._keys[name].field.rpartition(".")
            changes.setdefault(part, {})[field] = self._value_of(name, text.strip())
        try:
            own = changes.pop("", {})
            for part, fields in changes.items():
                own[part] = msgspec.structs.replace(getattr(settings, part), **fields)
            return msgspec.structs.replace(settings, **own)
        except InvalidSetting as error:
            fields_of = {name: self._keys[name].field.rpartition(".")[2] for name in properties}
            wrong = [name for name, field in fields_of.items() if field in str(error).split()]
            raise InvalidSetting(f"{', '.join(wrong)}: {error}" if wrong else str(error)) from None

    def _value_of(self, name: str, text: str) -> Any:
        try:
            return self._keys[name].form.read(text)
        except InvalidSetting as error:
            raise InvalidSetting(f"{name}: {error}") from None
        except ValueError as error:
            raise InvalidSetting(f"{name}={text[:SHOWN_CHARS]} is not {error}") from None

    def _check_constant(self, name: str, text: str, settings: S) -> None:
        constant = self._constants[name]
        value = constant.value_of(settings)
        if text.lower() != value.lower():
            raise InvalidSetting(
                f"{name}={text[:SHOWN_CHARS]} is not supported: {constant.why}. Use {name}={value}, or remove it"
            )

    def _warning(self, name: str) -> str:
        if name in self._without_effect:
            return f"{name} has no effect here: {self._without_effect[name]}"
        known = [*self._keys, *self._constants, *self._without_effect]
        near = get_close_matches(name[:SHOWN_CHARS], known, n=1, cutoff=_SIMILAR)
        return f"{name[:SHOWN_CHARS]} is not known" + (f"; did you mean {near[0]}?" if near else "")


def _value(settings: msgspec.Struct, field: str) -> Any:
    part, _, name = field.rpartition(".")
    return getattr(getattr(settings, part) if part else settings, name)
