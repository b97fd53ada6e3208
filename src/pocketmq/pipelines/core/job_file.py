"""The settings of a pipeline: its file, and the command line flags that override it.

    topics = ["orders"]            orders.toml      --topic orders --max-messages 1000
    max-messages = 1000                 │                      │
    [spark]                             └──────► settings ◄────┘   a key of the file is a flag without its dashes
    "spark.executor.memory" = "4g"

An unknown key is refused with the nearest known one, and an invalid value with what it should be, before Spark starts or a broker is
queried.
"""

import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.files import Files
from pocketmq.pipelines.core.settings import KINDS, JobSettings, reading

S = TypeVar("S", bound=JobSettings)

MAX_FILE_BYTES: Final = 1024 * 1024
SHOWN_CHARS: Final = 80
PIPELINE_KEY: Final = "pipeline"
"""A file may name its pipeline, so that another pipeline refuses it."""


class Setting(NamedTuple):
    """A field of the settings, as the command line shows it."""

    name: str
    key: str
    flag: str
    kind: Any
    description: str
    default: Any
    is_required: bool
    extra: Mapping[str, Any]

    @property
    def is_flag(self) -> bool:
        """Whether there is a flag; nested tables are for the file only."""
        return not self.extra.get("file_only", False)

    @property
    def is_switch(self) -> bool:
        return self.kind is bool

    @property
    def is_list(self) -> bool:
        return get_origin(self.kind) in (list, tuple)

    @property
    def is_table(self) -> bool:
        return get_origin(self.kind) is dict

    @property
    def word(self) -> str:
        """The placeholder for a value in the help."""
        if self.is_table:
            return "NAME=VALUE"
        if self.choices:
            return "|".join(self.choices)
        if "word" in self.extra:
            return str(self.extra["word"])
        kinds = [self.kind, *get_args(self.kind)]
        if named := [kind.word for kind in KINDS if kind in kinds]:
            return str(named[0])
        return "NUMBER" if int in kinds or float in kinds else "TEXT"

    @property
    def choices(self) -> tuple[str, ...]:
        words = get_args(self.kind)
        return words if words and all(isinstance(word, str) for word in words) else ()


def settings_of(kind: type[JobSettings]) -> list[Setting]:
    """The fields of a pipeline's settings: its own first, then those of all pipelines."""
    found = {field.name: _setting(field) for field in msgspec.structs.fields(kind)}
    ranks: dict[str, int] = {}
    for rank, base in enumerate(base for base in kind.__mro__ if issubclass(base, JobSettings)):
        ranks |= dict.fromkeys(base.__struct_fields__, rank)  # the last base that has it declared it first
    required_first = sorted(found, key=lambda name: (ranks[name], not found[name].is_required))
    return [found[name] for name in required_first]


def _setting(field: msgspec.structs.FieldInfo) -> Setting:
    kind, meta = field.type, msgspec.Meta()
    if get_origin(kind) is Annotated:
        kind, meta = get_args(kind)[:2]
    extra = meta.extra or {}
    default = field.default
    if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return Setting(
        name=field.name,
        key=field.encode_name,
        flag=extra.get("flag", field.encode_name),
        kind=kind,
        description=meta.description or "",
        default=default,
        is_required=field.required,
        extra=extra,
    )


def read_job(
    pipeline: str, kind: type[S], *, path: Path | None, flags: Mapping[str, Any], files: Files, now_ms: int
) -> S:
    """Settings from a file, if any, and from flags by field name; InvalidSetting describes a wrong one."""
    by_name = {setting.name: setting for setting in settings_of(kind)}
    values = {} if path is None else _file(pipeline, path, files, {one.key for one in by_name.values()})
    for name, value in flags.items():
        key = by_name[name].key
        values[key] = {**values.get(key, {}), **value} if by_name[name].is_table else value
    missing = [one for one in by_name.values() if one.is_required and one.key not in values]
    if missing:
        wanted = " and ".join(f"--{one.flag}" for one in missing)
        where = f"the flag {wanted}, or {missing[0].key} in the file of --config"
        raise InvalidSetting(f"the pipeline {pipeline} needs {where}")
    try:
        return msgspec.convert(values, kind, strict=False, dec_hook=reading(now_ms))
    except msgspec.ValidationError as error:
        flag_of = {by_name[name].key: by_name[name].flag for name in flags}
        raise InvalidSetting(_error_text(str(error), path, flag_of, values)) from None


def _file(pipeline: str, path: Path, files: Files, keys: set[str]) -> dict[str, Any]:
    status = files.status(path)
    if status is None or status.is_dir:
        raise InvalidSetting(f"{path} does not exist; --config names the file with the settings of {pipeline}")
    if status.size > MAX_FILE_BYTES:
        raise InvalidSetting(f"{path} has {status.size:,} bytes; a file with settings has at most {MAX_FILE_BYTES:,}")
    try:
        values = tomllib.loads(files.read(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{path} is not TOML: {error}") from None
    other = values.pop(PIPELINE_KEY, pipeline)
    if other != pipeline:
        raise InvalidSetting(f"{path} is for the pipeline {other}, not for {pipeline}: run `pocketmq pipeline {other}`")
    for key in values:
        if key not in keys:
            raise InvalidSetting(f"{path}: unknown key {key[:SHOWN_CHARS]!r} for {pipeline}{_hint(key, keys)}")
    return values


def _hint(key: str, keys: set[str]) -> str:
    near = get_close_matches(key[:SHOWN_CHARS].replace("_", "-"), sorted(keys), n=1)
    return f"; did you mean {near[0]}?" if near else f"; the keys are {', '.join(sorted(keys))}"


def _error_text(error: str, path: Path | None, flags: Mapping[str, str], values: Mapping[str, Any]) -> str:
    what, _, position = error.partition(" - at `$")
    what = what.replace("`", "")
    if not position:
        return what
    key = re.split(r"[.\[`]", position.lstrip("."))[0]
    name = f"--{flags[key]}" if key in flags else f"{path}: {key}"
    value = values.get(key)
    shown = value.isoformat() if isinstance(value, datetime | date) else repr(value)
    if what.startswith("Expected"):
        return f"{name} = {shown[:SHOWN_CHARS]}: {what[0].lower()}{what[1:]}"
    if what.startswith("Object contains unknown field"):
        return f"{path}: {position.strip('.`')}: {what[0].lower()}{what[1:]}"
    return f"{name}: {what}"
