"""The form of a lake: format, columns, folders and file names. It is the same for all files, and is recorded in the lake.

    staged   _staging/0000000007/topic=orders/day=2026-11-15/part-00000-….parquet
    final                        topic=orders/day=2026-11-15/0000000007-part-00000-….parquet

Readers of the folder ignore names that begin with `_` or `.`. The number of the commit makes file names unique.
"""

import os
import zipfile
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec

from pocketmq.errors import InvalidSetting, StoreDamaged
from pocketmq.files import DiskFiles, NamedFiles, may_write_in, write_atomically
from pocketmq.pipelines.core.libraries import Column, DataFrame, functions, pyspark_folder, pyspark_version
from pocketmq.spark.schema import COLUMNS, Name, type_of

MANIFEST: Final = "_manifest"
STAGING: Final = "_staging"
CHECKPOINT: Final = "_checkpoint"
OFFSET_COLUMNS: Final = (Name.TOPIC, Name.BROKER_NAME, Name.QUEUE_ID, Name.QUEUE_OFFSET)
"""The columns that say which message a row is."""
_DIGITS: Final = 10


class Slot(StrEnum):
    """The period of one folder, by store time."""

    DAY = "day"
    HOUR = "hour"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that name the folders."""
        return ("topic", "day") if self is Slot.DAY else ("topic", "day", "hour")


def padded(number: int) -> str:
    """A number as a text that sorts like the number."""
    return f"{number:0{_DIGITS}}"


def staging_of(number: int) -> str:
    return f"{STAGING}/{padded(number)}"


def final_path(staged: str, number: int) -> str:
    """The final path of a staged file of commit `number`; `staged` is relative to its staging folder."""
    folder, _, name = staged.rpartition("/")
    return f"{folder}/{padded(number)}-{name}"


def staged_path(final: str, number: int) -> str:
    """The staging path of a file of commit `number`, relative to the lake."""
    folder, _, name = final.rpartition("/")
    return f"{staging_of(number)}/{folder}/{name.removeprefix(padded(number) + '-')}"


def is_data(name: str) -> bool:
    """Whether a file has messages, unlike the files that Spark adds."""
    return not name.startswith(("_", "."))


def partition_values(path: str) -> dict[str, str]:
    """The values in the folders of a path: topic, day, hour. Spark writes characters that a file name cannot have as %XX."""
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    return {name: unquote(text) for name, mark, text in pairs if mark}


def columns_of(*, properties: bool) -> tuple[Name, ...]:
    """The columns to read from a topic: all of the connector. The map of properties is the most expensive one."""
    return tuple(column.name for column in COLUMNS if properties or column.name is not Name.PROPERTIES)


def schema_of(*, properties: bool) -> str:
    """The same columns as a Spark schema."""
    return ", ".join(f"{name} {type_of(name)}" for name in columns_of(properties=properties))


def lake_schema(slot: Slot, *, properties: bool) -> str:
    """The schema of the files of a lake. Folders are strings, so that a topic called 007 keeps its name."""
    folders = [name for name in slot.columns if name != Name.TOPIC]
    return ", ".join([schema_of(properties=properties), *(f"{name} string" for name in folders)])


def archive_rows(messages: DataFrame, slot: Slot) -> DataFrame:
    """Messages with the columns of their folders, by the brokers' store time in UTC."""
    times = {
        "day": stored_day().cast("string"),
        "hour": functions.lpad(functions.expr(f"string({_STORED_US} div {_HOUR_US} % 24)"), 2, "0"),
    }
    return messages.withColumns({name: times[name] for name in slot.columns if name in times})


def stored_day() -> Column:
    """The day of the store time in UTC, as a date. Whole numbers cost less for each row than the functions of a time zone."""
    return functions.expr(f"date_from_unix_date(int({_STORED_US} div {24 * _HOUR_US}))")


_STORED_US: Final = f"unix_micros({Name.STORE_TIMESTAMP})"
_HOUR_US: Final = 3_600_000_000


FORM_FILE: Final = "form"
COMPRESSION: Final = "compression"
CODECS: Final = {
    "none": "none",
    "uncompressed": "none",
    "snappy": "snappy",
    "gzip": "gzip",
    "brotli": "brotli",
    "zstd": "zstd",
    "lz4_raw": "lz4",
}
"""Spark's names of the compressions that Arrow supports, and Arrow's names."""
_MAP: Final = f"{Name.PROPERTIES}.key_value"
DIFFERENT: Final = (Name.VALUE, Name.MSG_ID, Name.QUEUE_OFFSET, Name.KEYS, f"{_MAP}.value")
"""Columns whose values are different in most rows."""
NEVER_SKIPPED: Final = (Name.VALUE, Name.MSG_ID, f"{_MAP}.key", f"{_MAP}.value")
"""Columns whose least and greatest value tell nothing about a file."""
PARQUET_OPTIONS: Final = {
    # The buffer of a writer. Times open files and tasks, it must fit into the heap.
    "parquet.block.size": str(32 * 1024 * 1024),
    # Trying a dictionary for these columns costs as much as writing them.
    **{f"parquet.enable.dictionary#{name}": "false" for name in DIFFERENT},
    **{f"parquet.column.statistics.enabled#{name}": "false" for name in NEVER_SKIPPED},
    "parquet.size.statistics.enabled": "false",
}
"""Options of Spark's Parquet writer, unless the user sets others."""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """Format, folders and columns of a lake."""

    format: str = "parquet"
    slot: Slot = Slot.DAY
    properties: bool = True
    options: dict[str, str] = {}
    """Options of the format."""
    partitions: tuple[str, ...] = ()
    """Columns of more folders, below topic and day."""
    columns: dict[str, str] = {}
    """Names and types of chosen columns; empty for the columns of the connector."""

    @property
    def schema(self) -> str:
        """The schema of the files; the properties are omitted if the lake has none."""
        if self.columns:
            return ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())
        return lake_schema(self.slot, properties=self.properties)

    @property
    def folders(self) -> tuple[str, ...]:
        """The columns that name the folders."""
        return (*self.slot.columns, *self.partitions)

    @property
    def _by(self) -> str:
        return ", ".join((self.slot, *self.partitions))

    def joined(self, more: "Form", lake: str) -> "Form":
        """This form of a lake with the new columns of a run; InvalidSetting for another form."""
        if (self.format, self.folders) != (more.format, more.folders):
            raise InvalidSetting(
                f"the lake {lake} has {self.format} files by {self._by}, not {more.format} by {more._by}; use these settings, "
                "or another lake"
            )
        if not (self.columns or more.columns):
            return msgspec.structs.replace(more, properties=more.properties or self.properties)
        known, wanted = self._all_columns(), more._all_columns()
        for name in known.keys() & wanted.keys():
            if known[name] != wanted[name]:
                raise InvalidSetting(
                    f"the lake {lake} has the column {name} as {known[name]}, not {wanted[name]}; cast it in --select, or use "
                    "another lake"
                )
        return msgspec.structs.replace(more, columns={**known, **wanted})

    def _all_columns(self) -> dict[str, str]:
        if self.columns:
            return self.columns
        own = {name.value: type_of(name) for name in columns_of(properties=self.properties)}
        return own | {name: "string" for name in self.slot.columns if name != Name.TOPIC}

    @property
    def is_of_tasks(self) -> bool:
        """Whether tasks can write the files themselves; see `staging`. They support one option of Spark's Parquet format."""
        return self.format == "parquet" and self.options.keys() <= {COMPRESSION} and self._compression in CODECS

    @property
    def codec(self) -> str:
        """Arrow's name of the compression."""
        return CODECS[self._compression]

    @property
    def _compression(self) -> str:
        return self.options.get(COMPRESSION, "snappy").lower()

    @property
    def writing(self) -> dict[str, str]:
        """The options of Spark's writer."""
        blocks = PARQUET_OPTIONS if self.format == "parquet" else {}
        return {**blocks, **self.options}

    def check_tasks(self) -> None:
        """InvalidSetting if only Spark can write these files."""
        if self.columns or self.partitions:
            raise InvalidSetting("--engine direct writes the columns of messages unchanged; use --engine spark")
        if not self.is_of_tasks:
            raise InvalidSetting(
                "--engine direct writes parquet, and of its options only compression; use --engine spark"
            )


def read_form(lake: Path, files: NamedFiles) -> Form | None:
    """The form of a lake; None if there is no lake."""
    path = lake / MANIFEST / FORM_FILE
    if files.status(path) is None:
        return None
    try:
        return msgspec.json.decode(files.read(path), type=Form)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"{path} is damaged, so the form of the lake is unknown: {error}") from None


def check_form(lake: str, form: Form, files: NamedFiles) -> None:
    """InvalidSetting for a local lake that cannot be written, or has another form."""
    if (status := files.status(Path(lake))) is not None and not status.is_dir:
        raise InvalidSetting(f"the lake {lake} is a file; it must be a folder")
    if not may_write_in(Path(lake)):
        raise InvalidSetting(f"the lake {lake} is not writable; use a folder in which this user may create files")
    joined_form(Path(lake), form, files)


def joined_form(lake: Path, form: Form, files: NamedFiles) -> Form:
    """The form of a lake after a run with `form`; InvalidSetting if the lake has another one."""
    known = read_form(lake, files)
    return form if known is None else known.joined(form, str(lake))


def keep_form(lake: Path, form: Form, files: NamedFiles) -> Form:
    """Record the form of a lake, which keeps properties and columns that it ever had; InvalidSetting for another form."""
    kept = joined_form(lake, form, files)
    if kept != read_form(lake, files):
        files.make_dir(lake / MANIFEST)
        write_atomically(files, lake / MANIFEST / FORM_FILE, msgspec.json.encode(kept))
    return kept


BUILT_IN: Final = ("parquet", "orc", "json", "csv")
_MORE_LIBRARIES: Final = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath", "spark.jars.repositories")
_OTHER_SPARK: Final = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
_SERVICE: Final = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"


def check_columns(name: str, *, properties: bool) -> None:
    """InvalidSetting for a Spark format that cannot contain the columns of messages."""
    if name.lower() == "text":
        raise InvalidSetting("--format text has one column, and messages have more; use parquet, orc or json")
    if name.lower() == "csv" and properties:
        raise InvalidSetting(
            "--format csv cannot contain the map of properties; use --no-properties, or parquet, orc or json"
        )


def check_format(
    name: str,
    settings: Mapping[str, str],
    environ: Mapping[str, str] = os.environ,
    jars: Path | None = None,
    files: NamedFiles | None = None,
) -> None:
    """InvalidSetting for a format that Spark's libraries lack. Libraries in `settings`, and another Spark, are not checked."""
    folder = pyspark_folder() / "jars" if jars is None else jars
    if name in BUILT_IN or any(key in settings for key in _MORE_LIBRARIES) or any(map(environ.get, _OTHER_SPARK)):
        return
    if "." not in name and not any(_is_called(name, source) for source in _sources(folder, files or DiskFiles())):
        raise InvalidSetting(
            f"--format {name}: Spark does not have this format. It has parquet, orc and json; others need their library, for "
            f"example --spark spark.jars.packages=org.apache.spark:spark-avro_2.13:{pyspark_version()} for avro"
        )


def _is_called(name: str, source: str) -> bool:
    """Whether a class probably implements the format `name`: DeltaDataSource, or any class in a package `hudi`."""
    *packages, last = source.split(".")
    begins = last.lower().startswith(name.lower()) and not last[len(name) : len(name) + 1].islower()
    return begins or packages[-1:] == [name.lower()]


def _sources(folder: Path, files: NamedFiles) -> Iterator[str]:
    """The classes that libraries register as formats."""
    for jar in sorted(files.list(folder)):
        if not jar.endswith(".jar"):
            continue
        with zipfile.ZipFile(folder / jar) as archive:
            if _SERVICE in archive.NameToInfo:
                lines = (line.partition("#")[0].strip() for line in archive.read(_SERVICE).decode().splitlines())
                yield from filter(None, lines)
