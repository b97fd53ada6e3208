"""The settings of `pocketmq pipeline archive`, and the checks before Spark starts."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.pipelines.archive.form import CHECKPOINT, Form, Slot, check_columns, check_form, check_format
from pocketmq.pipelines.core.checkpoint import Owner, check_owner, is_local
from pocketmq.pipelines.core.plan import require_topics
from pocketmq.pipelines.core.settings import Size, StreamSettings

FILE_FORMATS: Final = ("parquet", "orc", "json", "avro")
"""Formats that Spark writes as plain files."""
NEEDS_DRIVER: Final = (
    "an archive keeps its manifest on the disk of Spark's driver, which --remote cannot reach; use --master, or a --format whose "
    "tables have commits of their own"
)


class ArchiveSettings(StreamSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of an archive."""

    lake: Annotated[str, Meta(min_length=1, description="The folder of the lake.")]
    checkpoint: Annotated[
        str, Meta(description="The folder of the checkpoint.  [default: _checkpoint in the lake]")
    ] = ""
    slot: Annotated[
        Literal["day", "hour"], Meta(description="One folder for each day, or each hour, by store time in UTC.")
    ] = "day"
    format: Annotated[
        str,
        Meta(min_length=1, description="parquet, orc, json or avro; or another Spark format, without a manifest."),
    ] = "parquet"
    engine: Annotated[
        Literal["spark", "direct"],
        Meta(
            description="spark: a DataFrame of the connector and Spark's writer. direct: tasks pull and write Parquet by themselves, "
            "which is faster, but Spark does not count these rows."
        ),
    ] = "spark"
    file_options: Annotated[
        dict[str, str],
        Meta(description="An option of the format, for example compression=zstd.", extra={"flag": "file-option"}),
    ] = msgspec.field(default_factory=dict)
    properties: Annotated[
        bool,
        Meta(description="Keep the map of properties, which takes a sixth of the time. Tags and keys are always kept."),
    ] = True
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
        if (known := self.format.lower()) in FILE_FORMATS:  # Spark ignores case
            msgspec.structs.force_setattr(self, "format", known)

    @property
    def own_reading(self) -> dict[str, str]:
        return {**super().own_reading, "includeProperties": str(self.properties).lower()}

    @property
    def checkpoint_folder(self) -> str:
        return self.checkpoint or f"{self.lake.rstrip('/')}/{CHECKPOINT}"

    @property
    def form(self) -> Form:
        slot = Slot(self.slot)
        return Form(format=self.format, slot=slot, properties=self.properties, options=self.file_options)

    @property
    def owner(self) -> Owner:
        engine = " by --engine direct" if self.is_direct else ""
        return Owner(pipeline="archive", topics=tuple(self.topics), sink=f"{self.format} in {self.lake}{engine}")

    @property
    def has_manifest(self) -> bool:
        return self.format in FILE_FORMATS

    @property
    def is_direct(self) -> bool:
        """Whether tasks pull and write by themselves."""
        return self.engine == "direct"


def check_archive(settings: ArchiveSettings) -> None:
    settings.check_reading()
    check_columns(settings.format, properties=settings.properties)
    if settings.is_direct:
        settings.form.check_tasks()
    if settings.has_manifest:
        if settings.remote is not None:
            raise InvalidSetting(NEEDS_DRIVER)
        check_form(settings.lake, settings.form, DiskFiles())
        if not is_local(settings.checkpoint_folder):
            raise InvalidSetting(f"--checkpoint {settings.checkpoint_folder}: it must be a local path, like the lake")
    if settings.remote is None:
        check_format(settings.format, settings.spark)
        check_owner(settings.checkpoint_folder, settings.owner)
    require_topics(settings.connection, settings.topics)
