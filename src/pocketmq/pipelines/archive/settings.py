"""The settings of `pocketmq pipeline archive`, and the checks before Spark starts."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.archive.form import CHECKPOINT, Form, Slot
from pocketmq.pipelines.archive.sinks import FILE_FORMATS, SinkSettings, check_sink
from pocketmq.pipelines.core.checkpoint import Owner, check_owner, local_path
from pocketmq.pipelines.core.plan import require_topics
from pocketmq.pipelines.core.settings import Size, StreamSettings, of_writes

Slots = Literal["day", "hour"]
Engine = Literal["spark", "direct"]
LAKE = Meta(
    description="The folder of the lake: a path, or a URI such as hdfs://namenode:8020/lake. --path is the same.",
    extra={"more": ["path"]},
)
TABLE = Meta(description="A table of a catalog of Spark, for example catalog.db.orders, instead of a lake.")
FORMAT = Meta(
    description="parquet, orc, json or avro; or delta or iceberg, whose libraries are added; or another Spark format, without a "
    "manifest.  [default: parquet; for a table that of its catalog]"
)
ENGINE = Meta(
    description="spark: a DataFrame of the connector and Spark's writer. direct: tasks pull and write Parquet by themselves, "
    "which is faster, but Spark does not count these rows."
)
PARTITION_BY = Meta(
    description="A column for more folders of a lake, below topic and day, or for the partitions of a table; may be repeated.  "
    "[default: for a table topic and day]"
)
SCHEMA = Meta(
    description="Typed columns body.* from bodies: JSON as 'id string NOT NULL, amount double', Avro as orders.avsc, Protobuf as "
    "orders.desc#shop.Order, or a subject of a schema registry as http://host:8081/subjects/orders-value."
)
DEAD_LETTERS = Meta(description="With --schema: the topic for messages whose bodies do not fit.")


class ArchiveSettings(StreamSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of an archive."""

    lake: Annotated[str, LAKE] = ""
    table: Annotated[str, TABLE] = ""
    checkpoint: Annotated[
        str, Meta(description="The folder of the checkpoint; a table needs one.  [default: _checkpoint in the lake]")
    ] = ""
    slot: Annotated[Slots, Meta(description="One folder for each day, or each hour, by store time in UTC.")] = "day"
    format: Annotated[str, FORMAT] = ""
    engine: Annotated[Engine, ENGINE] = "spark"
    file_options: Annotated[
        dict[str, str],
        Meta(description="An option of the format, for example compression=zstd.", extra={"flag": "file-option"}),
    ] = msgspec.field(default_factory=dict)
    properties: Annotated[
        bool,
        Meta(description="Keep the map of properties, which takes a sixth of the time. Tags and keys are always kept."),
    ] = True
    where: Annotated[
        str | None, Meta(description="Only messages for which this SQL is true, for example \"tags = 'paid'\".")
    ] = None
    select: Annotated[
        list[str],
        Meta(
            description="A column to write, in SQL, for example 'string(value) AS text'; may be repeated.  [default: all]",
            extra={"split": False},
        ),
    ] = msgspec.field(default_factory=list)
    partition_by: Annotated[list[str], PARTITION_BY] = msgspec.field(default_factory=list)
    schema: Annotated[str, SCHEMA] = ""
    dead_letters: Annotated[str, DEAD_LETTERS] = ""
    max_messages: Annotated[
        int, Meta(ge=1, description="Maximum number of messages in a batch, and so in its files.")
    ] = 1_000_000
    on_data_loss: Annotated[
        Literal["fail", "skip", "earliest"],
        Meta(description="If messages were deleted before they were read: skip them and record the ranges, or fail."),
    ] = "skip"
    compact: Annotated[bool, Meta(description="Merge many small files of a folder into one.")] = True
    compact_size: Annotated[Size, Meta(description="The approximate size of a merged file.")] = Size(128 * 1024 * 1024)
    compact_files: Annotated[int, Meta(ge=2, description="Merge at least this many small files.")] = 8

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "format", known_format(self.format, self.table))
        msgspec.structs.force_setattr(self, "lake", local_path(self.lake))
        msgspec.structs.force_setattr(self, "checkpoint", local_path(self.checkpoint))

    @property
    def own_reading(self) -> dict[str, str]:
        return {**super().own_reading, "includeProperties": str(self.properties).lower()}

    @property
    def checkpoint_folder(self) -> str:
        if self.checkpoint:
            return self.checkpoint
        return f"{self.lake.rstrip('/')}/{CHECKPOINT}" if self.lake else ""

    @property
    def form(self) -> Form:
        return self.sink.form

    @property
    def sink(self) -> SinkSettings:
        return SinkSettings(
            lake=self.lake,
            table=self.table,
            format=self.format,
            slot=Slot(self.slot),
            is_direct=self.is_direct,
            options=self.file_options,
            properties=self.properties,
            where=self.where,
            select=self.select,
            partition_by=self.partition_by,
            schema=self.schema,
            dead_letters=self.dead_letters,
            topics=self.topics,
            connection=self.connection,
            writing=of_writes(self.options, self.address) if self.dead_letters else {},
        )

    @property
    def session(self) -> dict[str, str]:
        return self.sink.session(self.spark, is_remote=self.remote is not None)

    @property
    def owner(self) -> Owner:
        engine = " by --engine direct" if self.is_direct else ""
        sink = f"the table {self.table}" if self.table else f"{self.format} in {self.lake}{engine}"
        return Owner(pipeline="archive", topics=tuple(self.topics), sink=sink)

    @property
    def has_manifest(self) -> bool:
        return self.sink.has_manifest

    @property
    def is_direct(self) -> bool:
        """Whether tasks pull and write by themselves."""
        return self.engine == "direct"


def known_format(name: str, table: str) -> str:
    """A format as Spark names it: of files in small letters, and of a lake parquet by default."""
    if not name:
        return "" if table else "parquet"
    return name.lower() if name.lower() in FILE_FORMATS else name


def check_archive(settings: ArchiveSettings) -> None:
    settings.check_reading()
    check_sink(settings.sink, settings.session, is_remote=settings.remote is not None)
    if not settings.checkpoint_folder:
        raise InvalidSetting("--table needs --checkpoint FOLDER, where Spark records what was written")
    if settings.remote is None:
        check_owner(settings.checkpoint_folder, settings.owner)
    require_topics(settings.connection, settings.topics)
