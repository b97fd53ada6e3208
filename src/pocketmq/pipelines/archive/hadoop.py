"""Where a lake is: a local folder, or a folder of a file system of Hadoop, by Hadoop's own library in the JVM of Spark's driver.

    /data/lake  file:///data/lake      this machine's disk
    hdfs://  abfss://  viewfs:// …     their rename is atomic: manifest, compaction and lost ranges work as on a disk
    s3a://  gs:// …                    a rename copies file by file, so a reader could see half a batch: such a lake is refused, and the
                                       error says which tables to use

The lock of the manifest is HDFS's own: only one program may have a file open for writing. After a kill, HDFS keeps it for a minute. Other
file systems of Hadoop have no lock, so the user must not run two archives into one lake.
"""

import re
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles, DiskUsage, FileStatus, NamedFiles
from pocketmq.pipelines.core.checkpoint import is_classic, is_local, local_path
from pocketmq.pipelines.core.libraries import SPARK_ERRORS, SparkSession, error_text

DISK: Final = "file://"
RENAMING: Final = frozenset({"hdfs", "webhdfs", "swebhdfs", "viewfs", "abfs", "abfss", "ofs", "o3fs", "maprfs"})
"""Schemes of file systems whose rename is atomic."""
_URI: Final = re.compile(r"(?P<root>(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://[^/]*)(?P<path>/.*)?")


class Location(NamedTuple):
    """The folder of a lake."""

    folder: Path
    """Its path inside the file system."""
    root: str = DISK
    """The file system, as a URI begins with it."""
    files: NamedFiles = DiskFiles()

    def uri(self, path: Path) -> str:
        """A path of this file system for Spark, whose default may be another one. Spark expects its characters as they are."""
        return f"{self.root}{path.absolute()}"


def check_scheme(lake: str) -> None:
    """InvalidSetting for a lake on a file system whose rename is not known to be atomic, and for a path that is no URI."""
    if is_local(lake):
        return
    found = _URI.fullmatch(lake)
    if found is None or not found["path"]:
        raise InvalidSetting(f"--lake {lake} must be a path, or a URI with a path such as hdfs://namenode:8020/lake")
    if found["scheme"].lower() == "file":
        raise InvalidSetting(f"--lake {lake} names another machine; a path of this one begins with file:///")
    if found["scheme"].lower() not in RENAMING:
        raise InvalidSetting(
            f"--lake {lake}: a rename on {found['scheme']}: is not atomic, so a reader of plain files could see half a batch. Use a "
            "table: --table catalog.db.name, for example of Iceberg, or --format delta with this path; their commits are atomic"
        )


def check_folder(spark: SparkSession, flag: str, path: str) -> None:
    """InvalidSetting for a URI that this user may not write to. Local paths are checked without Spark."""
    if is_local(path) or not is_classic(spark):
        return
    folder, _, files = root_of(path, spark)
    assert isinstance(files, HadoopFiles), "a URI is on a file system of Hadoop"
    if (reason := files.may_write_in(folder)) is not None:
        raise InvalidSetting(f"{flag} {path} is not writable: {reason}")


def located(lake: str, spark: SparkSession | None = None) -> Location:
    """The location of a lake with a manifest; InvalidSetting if it cannot be one. Only a local one needs no Spark."""
    if is_local(lake):
        return Location(Path(local_path(lake)))
    check_scheme(lake)
    if spark is None:
        raise InvalidSetting(f"{lake} can only be read with Spark")
    return root_of(lake, spark)


def root_of(path: str, spark: SparkSession) -> Location:
    """The location of a URI; InvalidSetting if its file system cannot be opened."""
    found = _URI.fullmatch(path)
    if found is None or not found["path"]:
        raise InvalidSetting(f"{path} must be a URI with a path, such as s3a://bucket/orders")
    return Location(Path(found["path"]), found["root"], HadoopFiles(spark, found["root"]))


class HadoopFiles:
    """Names in a file system of Hadoop."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        self._io = jvm.org.apache.hadoop.io.IOUtils
        self._bytes = jvm.java.io.ByteArrayOutputStream
        self._root = root
        rename: Any = getattr(self._hadoop, "Options$Rename")
        gateway: Any = spark.sparkContext._gateway
        self._overwrite = gateway.new_array(rename, 1)
        self._overwrite[0] = rename.OVERWRITE
        self._configured = configured = spark._jsc.hadoopConfiguration()
        try:
            self._files = self._path(Path("/")).getFileSystem(configured)
            self._context = self._hadoop.FileContext.getFileContext(self._path(Path("/")).toUri(), configured)
        except SPARK_ERRORS as error:
            raise InvalidSetting(
                f"the file system {root} cannot be opened: {error_text(error)}. Its library is set by "
                "--spark spark.jars.packages=…, its access by --spark spark.hadoop.…"
            ) from None

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> "HadoopFile":
        if not create and self.status(path) is None:
            raise FileNotFoundError(str(path))
        return HadoopFile(self._files, self._path(path))

    def read(self, path: Path) -> bytes:
        if self.status(path) is None:
            raise FileNotFoundError(str(path))
        stream, found = self._files.open(self._path(path)), self._bytes()
        self._io.copyBytes(stream, found, _CHUNK_BYTES, True)
        return bytes(found.toByteArray())

    def status(self, path: Path) -> FileStatus | None:
        try:
            found = self._files.getFileStatus(self._path(path))
        except SPARK_ERRORS as error:
            if "FileNotFoundException" in str(error):
                return None
            raise
        mode = int(found.getPermission().toShort())
        return FileStatus(int(found.getLen()), int(found.getModificationTime()), bool(found.isDirectory()), mode)

    def list(self, folder: Path) -> list[str]:
        if self.status(folder) is None:
            return []
        return sorted(str(one.getPath().getName()) for one in self._files.listStatus(self._path(folder)))

    def make_dir(self, folder: Path) -> None:
        self._files.mkdirs(self._path(folder))

    def remove_dir(self, folder: Path) -> None:
        self._files.delete(self._path(folder), False)

    def replace(self, source: Path, target: Path) -> None:
        self._context.rename(self._path(source), self._path(target), self._overwrite)

    def unlink(self, path: Path) -> None:
        self._files.delete(self._path(path), False)

    def sync_dir(self, folder: Path) -> None:
        """Nothing to wait for: these file systems keep a change of names before they confirm it."""

    def usage(self, path: Path) -> DiskUsage:
        real = self._files.resolvePath(self._path(path))  # viewfs only names other file systems
        found = real.getFileSystem(self._configured).getStatus(real)
        return DiskUsage(int(found.getCapacity()), int(found.getRemaining()))

    def may_write_in(self, folder: Path) -> str | None:
        """Why this user may not create files in a folder, and the folder if it does not exist; None if it may."""
        try:
            nearest = next(path for path in (folder, *folder.parents) if self.status(path) is not None)
            probe = nearest / f".pocketmq-{id(self):x}"
            self._files.create(self._path(probe), True).close()
            self._files.delete(self._path(probe), False)
        except SPARK_ERRORS as error:
            return error_text(error)
        return None

    def _path(self, path: Path) -> Any:
        return self._hadoop.Path(f"{self._root}{path}")


_CHUNK_BYTES: Final = 64 * 1024


class HadoopFile:
    """One file that is written as a whole, or locked."""

    def __init__(self, files: Any, path: Any) -> None:
        self._files = files
        self._path = path
        self._stream: Any = None

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """The whole content: Hadoop's files cannot be changed."""
        if offset or self._stream is not None:
            raise InvalidSetting(f"{self._path} can only be written as a whole")
        self._stream = self._files.create(self._path, True)
        self._stream.write(bytearray(data))

    def size(self) -> int:
        return int(self._files.getFileStatus(self._path).getLen())

    def truncate(self, size: int) -> None:
        """Writing replaces the content."""

    def sync(self) -> None:
        """Wait until the content is on the disks. Files of Spark's writer were closed, and so are stored."""
        if self._stream is not None:
            self._stream.hsync()

    def lock(self) -> bool:
        """Keep the file open for writing, which HDFS permits to one program."""
        try:
            self._files.createNewFile(self._path)
            self._stream = self._files.append(self._path)
        except SPARK_ERRORS as error:
            if any(name in str(error) for name in _IN_USE):
                return False
            if is_unsupported(error):
                return True
            raise
        return True

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


_IN_USE: Final = ("AlreadyBeingCreatedException", "RecoveryInProgressException", "Failed to APPEND_FILE")


def is_unsupported(error: BaseException) -> bool:
    """Whether a file system cannot append, and so cannot lock."""
    return "UnsupportedOperationException" in str(error) or "not supported" in str(error).lower()
