"""How the files of a lake are written and read: the same for all of them, so it is noted in the lake."""

from pathlib import Path
from typing import Final

import msgspec

from pocketmq.errors import InvalidSetting, StoreDamaged
from pocketmq.files import Files, write_atomically
from pocketmq.pipelines.archive.layout import MANIFEST, Slot
from pocketmq.pipelines.archive.rows import lake_schema
from pocketmq.pipelines.notes import is_local

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
        """Whether tasks write the files themselves; see `tasks`. Of the options of Spark's Parquet they know one."""
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
    """InvalidSetting for a lake that is on no file system of this machine, is no folder, or has files of another form."""
    if not is_local(lake):
        raise InvalidSetting(
            f"the lake {lake} is on no file system of this machine: mount it, on the executors as well, or give a "
            "--format whose tables have commits of their own"
        )
    if (status := files.status(Path(lake))) is not None and not status.is_dir:
        raise InvalidSetting(f"the lake {lake} is a file: give a folder")
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
