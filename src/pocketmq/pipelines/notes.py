"""Small notes that pipelines keep beside their checkpoints: whose it is, and what must be remembered from batch to batch.

on this machine                      a file, replaced whole and synced
on object stores, by Spark Connect   a folder of text that Spark writes: only Spark can reach it
"""

import re
from pathlib import Path
from typing import Any, Protocol

from pocketmq.files import DiskFiles, Files, write_atomically
from pocketmq.pipelines.libraries import SparkSession


class Notes(Protocol):
    """Texts by name, in one folder."""

    def read(self, name: str) -> str | None:
        """None when there is none."""

    def write(self, name: str, text: str) -> None:
        """Replaces what was there. One line."""

    def has(self, *names: str) -> bool:
        """Whether there is anything of one of these names."""


class FileNotes:
    """Notes as files."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder
        self._files = files

    def read(self, name: str) -> str | None:
        path = self._folder / name
        return None if self._files.status(path) is None else self._files.read(path).decode()

    def write(self, name: str, text: str) -> None:
        self._files.make_dir(self._folder)
        write_atomically(self._files, self._folder / name, text.encode())

    def has(self, *names: str) -> bool:
        return any(self._files.status(self._folder / name) is not None for name in names)


class SparkNotes:
    """Notes as small tables of text."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder.rstrip("/")

    def read(self, name: str) -> str | None:
        rows = self._rows(name)
        return str(rows[0][0]) if rows else None

    def write(self, name: str, text: str) -> None:
        table = self._spark.createDataFrame([(text,)], "value string").coalesce(1)
        table.write.mode("overwrite").text(f"{self._folder}/{name}")

    def has(self, *names: str) -> bool:
        return any(self._rows(name) for name in names)

    def _rows(self, name: str) -> list[Any]:
        try:
            return list(self._spark.read.text(f"{self._folder}/{name}").take(1))
        except Exception as error:  # classic and Connect have classes of their own for it
            if "PATH_NOT_FOUND" in str(error):
                return []
            raise


def is_local(folder: str) -> bool:
    """Whether a path is one of a file system of this machine."""
    return not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", folder)


def is_classic(spark: SparkSession) -> bool:
    """Whether Spark's driver is this process, and not behind Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def notes_in(spark: SparkSession, folder: str, files: Files | None = None) -> Notes:
    """The notes of a folder, by whoever can reach it."""
    if is_local(folder) and is_classic(spark):
        return FileNotes(Path(folder), files or DiskFiles())
    return SparkNotes(spark, folder)
