"""How the files of a lake are written and read: the same for all of them, so it is noted in the lake.

Formats that Spark can write: looked up in its libraries before it starts.

Where things lie in a lake: names of folders and files, and nothing else.

staged   _staging/0000000007/topic=orders/day=2026-11-15/part-00000-….parquet
final                        topic=orders/day=2026-11-15/0000000007-part-00000-….parquet

Names that begin with `_` or `.` are not seen by readers of the folder. The number of the commit makes names unique.

The rows of an archive: which columns of a topic are kept, and the folders that their times put them into.
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
from pocketmq.files import DiskFiles, Files, may_write_in, write_atomically
from pocketmq.pipelines.core.checkpoint import is_local
from pocketmq.pipelines.core.libraries import DataFrame, functions, pyspark_folder, pyspark_version
from pocketmq.spark.schema import Name, type_of

MANIFEST: Final = "_manifest"
STAGING: Final = "_staging"
CHECKPOINT: Final = "_checkpoint"
_DIGITS: Final = 10


class Slot(StrEnum):
    """How long the messages of one folder were stored in."""

    DAY = "day"
    HOUR = "hour"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that name the folders."""
        return ("topic", "day") if self is Slot.DAY else ("topic", "day", "hour")


def padded(number: int) -> str:
    """Numbers as texts that sort as numbers do."""
    return f"{number:0{_DIGITS}}"


def staging_of(number: int) -> str:
    return f"{STAGING}/{padded(number)}"


def final_path(staged: str, number: int) -> str:
    """Where a staged file of commit `number` goes; `staged` is relative to its staging folder."""
    folder, _, name = staged.rpartition("/")
    return f"{folder}/{padded(number)}-{name}"


def staged_path(final: str, number: int) -> str:
    """Where a file of commit `number` came from, relative to the lake."""
    folder, _, name = final.rpartition("/")
    return f"{staging_of(number)}/{folder}/{name.removeprefix(padded(number) + '-')}"


def is_data(name: str) -> bool:
    """Whether a file holds messages, and is none of those that Spark puts beside them."""
    return not name.startswith(("_", "."))


def partition_values(path: str) -> dict[str, str]:
    """What the folders of a path say: topic, day, hour. Spark writes what a file name cannot hold as %XX."""
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    return {name: unquote(text) for name, mark, text in pairs if mark}


NEEDED: Final = (Name.TOPIC, Name.BROKER_NAME, Name.QUEUE_ID, Name.QUEUE_OFFSET, Name.STORE_TIMESTAMP)
"""Without them nobody knows what is in a file."""
KEPT: Final = (*NEEDED, Name.KEYS, Name.TAGS, Name.VALUE, Name.BORN_TIMESTAMP)


def columns_of(*, properties: bool) -> tuple[Name, ...]:
    """What is read of a topic. Ids are among the properties, whose map is what costs most to decode."""
    return (*KEPT, Name.PROPERTIES) if properties else KEPT


def schema_of(*, properties: bool) -> str:
    """The same, as Spark is told."""
    return ", ".join(f"{name} {type_of(name)}" for name in columns_of(properties=properties))


def lake_schema(slot: Slot, *, properties: bool) -> str:
    """What is read of the files of a lake; folders are texts, so that a topic called 007 stays one."""
    folders = [name for name in slot.columns if name != Name.TOPIC]
    return ", ".join([schema_of(properties=properties), *(f"{name} string" for name in folders)])


def archive_rows(messages: DataFrame, slot: Slot) -> DataFrame:
    """Messages with the columns that name their folders, by the time at which brokers stored them, in UTC."""
    stored = functions.col(Name.STORE_TIMESTAMP)
    # Casts: a formatter of dates costs more for each row.
    times = {
        "day": stored.cast("date").cast("string"),
        "hour": functions.lpad(functions.hour(stored).cast("string"), 2, "0"),
    }
    return messages.withColumns({name: times[name] for name in slot.columns if name in times})


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
"""Spark's names of what Arrow can do as well, and Arrow's."""
PARQUET_BLOCK_BYTES: Final = 32 * 1024 * 1024
"""What a writer keeps in memory before it writes; times open files and tasks this must fit into the heap."""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """Format of Spark, folders, and whether properties are kept."""

    format: str = "parquet"
    slot: Slot = Slot.DAY
    properties: bool = True
    options: dict[str, str] = {}
    """Of the format."""

    @property
    def schema(self) -> str:
        """What is read of the files. Files without properties have none to tell."""
        return lake_schema(self.slot, properties=self.properties)

    @property
    def is_quick(self) -> bool:
        """Whether tasks write the files themselves; see `staging`. Of the options of Spark's Parquet they know one."""
        return self.format == "parquet" and self.options.keys() <= {COMPRESSION} and self._compression in CODECS

    @property
    def codec(self) -> str:
        """What Arrow calls the compression."""
        return CODECS[self._compression]

    @property
    def _compression(self) -> str:
        return self.options.get(COMPRESSION, "snappy").lower()

    @property
    def writing(self) -> dict[str, str]:
        if self.is_quick:
            return {COMPRESSION: self._compression}
        blocks = {"parquet.block.size": str(PARQUET_BLOCK_BYTES)} if self.format == "parquet" else {}
        return {**blocks, **self.options}


def read_form(lake: Path, files: Files) -> Form | None:
    """The form of a lake; None where there is no lake."""
    path = lake / MANIFEST / FORM_FILE
    if files.status(path) is None:
        return None
    try:
        return msgspec.json.decode(files.read(path), type=Form)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"{path} does not tell the form of a lake: {error}") from None


def check_form(lake: str, form: Form, files: Files) -> None:
    """InvalidSetting for a lake that is on no file system of this machine, is no folder, cannot be written, or has files of another form."""
    if not is_local(lake):
        raise InvalidSetting(
            f"the lake {lake} is on no file system of this machine: mount it, on the executors as well, or give a "
            "--format whose tables have commits of their own"
        )
    if (status := files.status(Path(lake))) is not None and not status.is_dir:
        raise InvalidSetting(f"the lake {lake} is a file: give a folder")
    if not may_write_in(Path(lake)):
        raise InvalidSetting(f"the lake {lake} cannot be written: give a folder in which this user may make files")
    _known_form(Path(lake), form, files)


def _known_form(lake: Path, form: Form, files: Files) -> Form | None:
    known = read_form(lake, files)
    if known is not None and (known.format, known.slot) != (form.format, form.slot):
        raise InvalidSetting(
            f"the lake {lake} has {known.format} files by {known.slot}, not {form.format} by {form.slot}: say so, or give another lake"
        )
    return known


def keep_form(lake: Path, form: Form, files: Files) -> Form:
    """Note the form of a lake. What is read of one that ever had properties has them; InvalidSetting for another form."""
    known = _known_form(lake, form, files)
    kept = form if known is None or form.properties else msgspec.structs.replace(form, properties=known.properties)
    if kept != known:
        files.make_dir(lake / MANIFEST)
        write_atomically(files, lake / MANIFEST / FORM_FILE, msgspec.json.encode(kept))
    return kept


BUILT_IN: Final = ("parquet", "orc", "json", "csv")
_MORE_LIBRARIES: Final = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath", "spark.jars.repositories")
_OTHER_SPARK: Final = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
_SERVICE: Final = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"


def check_columns(name: str, *, properties: bool) -> None:
    """InvalidSetting for a format of Spark that cannot hold the columns of messages."""
    if name.lower() == "text":
        raise InvalidSetting("--format text has one column, and messages have more: give parquet, orc or json")
    if name.lower() == "csv" and properties:
        raise InvalidSetting(
            "--format csv has no maps, and properties are one: give --no-properties, or parquet, orc or json"
        )


def check_format(
    name: str,
    settings: Mapping[str, str],
    environ: Mapping[str, str] = os.environ,
    jars: Path | None = None,
    files: Files | None = None,
) -> None:
    """InvalidSetting for a format that no library of Spark has here. Libraries that `settings` name, and another Spark, are not known."""
    folder = pyspark_folder() / "jars" if jars is None else jars
    if name in BUILT_IN or any(key in settings for key in _MORE_LIBRARIES) or any(map(environ.get, _OTHER_SPARK)):
        return
    if "." not in name and not any(_is_called(name, source) for source in _sources(folder, files or DiskFiles())):
        raise InvalidSetting(
            f"--format {name}: Spark has no such format here. It has parquet, orc and json; others need their library, such as "
            f"--spark spark.jars.packages=org.apache.spark:spark-avro_2.13:{pyspark_version()} for avro"
        )


def _is_called(name: str, source: str) -> bool:
    """Whether a class looks like the format `name`: DeltaDataSource, or a class of whatever name in a package `hudi`."""
    *packages, last = source.split(".")
    begins = last.lower().startswith(name.lower()) and not last[len(name) : len(name) + 1].islower()
    return begins or packages[-1:] == [name.lower()]


def _sources(folder: Path, files: Files) -> Iterator[str]:
    """Names of the classes that libraries offer as formats."""
    for jar in sorted(files.list(folder)):
        if not jar.endswith(".jar"):
            continue
        with zipfile.ZipFile(folder / jar) as archive:
            if _SERVICE in archive.NameToInfo:
                lines = (line.partition("#")[0].strip() for line in archive.read(_SERVICE).decode().splitlines())
                yield from filter(None, lines)
