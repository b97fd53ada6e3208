"""Formats that Spark can write: looked up in its libraries before it starts."""

import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles, Files
from pocketmq.pipelines.libraries import pyspark_folder, pyspark_version

BUILT_IN: Final = ("parquet", "orc", "json", "csv", "text")
_MORE_LIBRARIES: Final = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath", "spark.jars.repositories")
_OTHER_SPARK: Final = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
_SERVICE: Final = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"


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
    if "." not in name and not any(name.lower() in source.lower() for source in _sources(folder, files or DiskFiles())):
        raise InvalidSetting(
            f"--format {name}: Spark has no such format here. It has parquet, orc and json; others need their library, such as "
            f"--spark spark.jars.packages=org.apache.spark:spark-avro_2.13:{pyspark_version()} for avro"
        )


def _sources(folder: Path, files: Files) -> Iterator[str]:
    """Names of the classes that libraries offer as formats."""
    for jar in sorted(files.list(folder)):
        if not jar.endswith(".jar"):
            continue
        with zipfile.ZipFile(folder / jar) as archive:
            if _SERVICE in archive.NameToInfo:
                yield from archive.read(_SERVICE).decode().split()
