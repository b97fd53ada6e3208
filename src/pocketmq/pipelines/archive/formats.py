"""Delta and Iceberg: records in commits, compaction and expiry by the format's own commands.

                 a record is in              a commit is refused if another writer was first         compaction, expiry
    delta        userMetadata of a commit    txnAppId and txnVersion: the number of the record       OPTIMIZE, VACUUM
    iceberg      summary of a snapshot       files that were added behind the snapshot that         rewrite_data_files,
                                             was read: validate-from-snapshot-id                     expire_snapshots

A record is found by the commits of the table, the newest first. If they are removed, a property of the table has the record: `expire`
sets it before it removes anything. If neither has one, the columns of the rows say which offsets the table has.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from pocketmq.errors import NotFound, WrongState
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.pipelines.archive.contents import Record, is_record, nested, parse_record
from pocketmq.pipelines.core.libraries import SPARK_ERRORS, DataFrame, SparkSession, functions
from pocketmq.spark.schema import Name

RECORD: Final = "pocketmq.record"
"""The name of the record in a snapshot of Iceberg, and of the property of a table."""
WRITER: Final = "pocketmq"
"""The transactions of all archives into one table of Delta: their numbers exclude each other."""
FIRST_COMMITS: Final = 20
"""Commits of Delta that are read first; most tables have a record there."""
_OF_DELTA: Final = "spark.databricks.delta"
_SKIP: Final = 1024
_SKIPS: Final = 5
"""Larger numbers to try, by this factor, if Delta ignores one."""
_CONFLICT: Final = (
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "ConcurrentTransactionException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "ConcurrentAppendException",
    "Found conflicting files",
    "CommitFailedException",
    "Cannot determine history between",
)
_POSITION: Final = (Name.TOPIC, Name.BROKER_NAME, Name.QUEUE_ID, Name.QUEUE_OFFSET)


Merging = Callable[[], object]
"""Runs a MERGE."""


class Commit(NamedTuple):
    """A commit of a table: a version of Delta, or a snapshot of Iceberg."""

    id: int
    made_ms: int
    operation: str
    record: Record | None = None


class State(NamedTuple):
    """What a table contains, and the commit that says so; None if the table has no commit."""

    record: Record
    at: int | None


class AsOf(NamedTuple):
    """A state of a table in the past: a version or snapshot, or a time."""

    commit: int | None = None
    ms: int | None = None

    @property
    def sql(self) -> str:
        """Behind the name of a table in SQL."""
        if self.commit is not None:
            return f" VERSION AS OF {self.commit}"
        return "" if self.ms is None else f" TIMESTAMP AS OF '{_utc(self.ms)}'"

    def __str__(self) -> str:
        return str(self.commit) if self.commit is not None else _utc(self.ms or 0)


class TableFormat(Protocol):
    """A table with commits of its own."""

    file: str
    """The column with the file of a row."""

    @property
    def exists(self) -> bool:
        """Whether there is such a table."""

    def commits(self) -> list[Commit]:
        """The commits that lead to the current state, the newest first."""

    def state(self) -> State:
        """The current state."""

    def append(self, rows: DataFrame, record: Record, at: int | None) -> bool:
        """Append rows with a record; False if another writer was first, and nothing was written."""

    def merge(self, run: Merging, record: Record) -> bool:
        """Run a MERGE that commits a record, also if it changes no row; False if another writer was first."""

    def keep(self, record: Record) -> None:
        """Make the record a property of the table, so that it outlives its commit."""

    def compact(self) -> dict[str, int]:
        """Merge small files; what was done, by name."""

    def expire(self, older_than_ms: int, now_ms: int) -> dict[str, int]:
        """Remove old commits and files that no other commit needs; what was done, by name."""


class DeltaTable:
    """A table of Delta. `name` is as in SQL; `path` is empty for a table of a catalog."""

    file = "_metadata.file_path"

    def __init__(
        self, spark: SparkSession, name: str, path: str, partitions: Sequence[str], options: Mapping[str, str]
    ):
        self._spark = spark
        self._name = name
        self._path = path
        self._partitions = partitions
        self._options = options

    @property
    def exists(self) -> bool:
        try:
            return bool(self._history(1))
        except SPARK_ERRORS as error:
            if _is_absent(error):
                return False
            raise

    def commits(self) -> list[Commit]:
        return [*map(self._commit, self._history())]

    def state(self) -> State:
        if not self.exists:
            return State(Record(), None)
        for limit in (FIRST_COMMITS, None):
            rows = self._history(limit)
            for row in rows:
                if row.operation == "RESTORE":
                    return State(self._restored(), int(rows[0].version))
                if is_record(row.userMetadata):
                    return State(parse_record(row.userMetadata, self._name), int(rows[0].version))
        return State(_kept(self._spark, self._name) or scanned(self._spark, self._name), int(rows[0].version))

    def append(self, rows: DataFrame, record: Record, at: int | None) -> bool:
        return self._committed(partial(self._write, rows), record)

    def merge(self, run: Merging, record: Record) -> bool:
        return self._committed(partial(self._run, run), record)

    def _committed(self, write: Callable[[Record], bool], record: Record) -> bool:
        for _ in range(_SKIPS):
            if not write(record):
                return False
            records = [one.record for one in map(self._commit, self._history(FIRST_COMMITS)) if one.record is not None]
            if any(one.attempt == record.attempt for one in records):
                return True
            if any(one.number >= record.number for one in records):
                return False
            # Delta knows a larger number from commits whose records were removed: it ignored this write.
            record = msgspec.structs.replace(record, number=record.number * _SKIP)
        raise WrongState(
            f"{self._name} ignores commits of {WRITER}: its last transaction is above {record.number // _SKIP:,}"
        )

    def keep(self, record: Record) -> None:
        _keep(self._spark, self._name, record)

    def compact(self) -> dict[str, int]:
        done = self._spark.sql(f"OPTIMIZE {self._name}").collect()[0].metrics
        return {"files_removed": int(done.numFilesRemoved), "files_written": int(done.numFilesAdded)}

    def expire(self, older_than_ms: int, now_ms: int) -> dict[str, int]:
        hours = max(0, now_ms - older_than_ms) / 3_600_000
        self._spark.sql(f"VACUUM {self._name} RETAIN {hours:.2f} HOURS").collect()
        last = self._history(1)[0]
        metrics = last.operationMetrics if last.operation == "VACUUM END" else {}
        return {"files_deleted": int(metrics["numDeletedFiles"])} if "numDeletedFiles" in metrics else {}

    def _restored(self) -> Record:
        """The record after RESTORE: older ones are about rows that may be gone, and their numbers are taken."""
        numbers = [one.record.number for one in self.commits() if one.record is not None]
        return msgspec.structs.replace(scanned(self._spark, self._name), number=max(numbers, default=0))

    def _write(self, rows: DataFrame, record: Record) -> bool:
        transaction = {"txnAppId": WRITER, "txnVersion": str(record.number), "userMetadata": record.to_json()}
        options = {"mergeSchema": "true", **self._options, **transaction}
        writer = rows.write.format("delta").mode("append").options(**options)
        try:
            if self._path:
                writer.partitionBy(*self._partitions).save(self._path)
            else:
                writer.saveAsTable(self._name)
        except SPARK_ERRORS as error:
            if is_conflict(error):
                return False
            raise
        return True

    def _run(self, run: Merging, record: Record) -> bool:
        settings = {
            f"{_OF_DELTA}.commitInfo.userMetadata": record.to_json(),
            f"{_OF_DELTA}.write.txnAppId": WRITER,
            f"{_OF_DELTA}.write.txnVersion": str(record.number),
        }
        return _merged(self._spark, run, settings)

    def _history(self, limit: int | None = None) -> list[Any]:
        return self._spark.sql(f"DESCRIBE HISTORY {self._name}{f' LIMIT {limit}' if limit else ''}").collect()

    def _commit(self, row: Any) -> Commit:
        record = parse_record(row.userMetadata, self._name) if is_record(row.userMetadata) else None
        return Commit(int(row.version), _ms(row.timestamp), str(row.operation), record)


class IcebergTable:
    """A table of Iceberg, by its name in SQL."""

    file = "_file"

    def __init__(self, spark: SparkSession, name: str, options: Mapping[str, str]):
        self._spark = spark
        self._name = name
        self._options = options

    @property
    def exists(self) -> bool:
        return bool(self._spark.catalog.tableExists(self._name))

    def commits(self) -> list[Commit]:
        # Catalogs keep tables for a while, and each session has its own catalogs: this one may not know what another has written.
        self._spark.sql(f"REFRESH TABLE {self._name}")
        current = properties(self._spark, self._name).get("current-snapshot-id", "none")
        record = functions.col("summary").getItem(RECORD).alias("record")
        snapshots = self._spark.table(f"{self._name}.snapshots")
        rows = snapshots.select("snapshot_id", "parent_id", "committed_at", "operation", record).collect()
        return list(self._ancestors({int(row.snapshot_id): row for row in rows}, current))

    def state(self) -> State:
        if not self.exists:
            return State(Record(), None)
        commits = self.commits()
        record = next((one.record for one in commits if one.record is not None), None)
        if record is None:
            record = _kept(self._spark, self._name) or scanned(self._spark, self._name)
        return State(record, commits[0].id if commits else None)

    def append(self, rows: DataFrame, record: Record, at: int | None) -> bool:
        options = {
            **self._options,
            f"snapshot-property.{RECORD}": record.to_json(),
            "isolation-level": "serializable",
            **({} if at is None else {"validate-from-snapshot-id": str(at)}),
        }
        try:
            # It overwrites no row. Unlike an append, it fails if files were added behind that snapshot.
            rows.writeTo(self._name).options(**options).overwrite(functions.lit(False))
        except SPARK_ERRORS as error:
            if is_conflict(error):
                return False
            raise
        return True

    def merge(self, run: Merging, record: Record) -> bool:
        if not _merged(self._spark, run, {f"spark.sql.iceberg.snapshot-property.{RECORD}": record.to_json()}):
            return False
        state = self.state()
        if state.record.attempt == record.attempt:
            return True
        # A MERGE that changes nothing commits nothing.
        return self.append(self._spark.table(self._name).limit(0), record, state.at)

    def keep(self, record: Record) -> None:
        _keep(self._spark, self._name, record)

    def compact(self) -> dict[str, int]:
        done = self._call("rewrite_data_files")
        return {
            "files_removed": int(done.rewritten_data_files_count),
            "files_written": int(done.added_data_files_count),
        }

    def expire(self, older_than_ms: int, now_ms: int) -> dict[str, int]:
        done = self._call("expire_snapshots", f", older_than => TIMESTAMP '{_utc(older_than_ms)}'")
        return {
            "files_deleted": int(done.deleted_data_files_count),
            "manifests_deleted": int(done.deleted_manifest_files_count),
        }

    def _call(self, procedure: str, more: str = "") -> Any:
        catalog, _, table = self._name.partition(".")
        return self._spark.sql(f"CALL {catalog}.system.{procedure}(table => '{table}'{more})").collect()[0]

    def _ancestors(self, snapshots: Mapping[int, Any], current: str) -> Iterator[Commit]:
        at = int(current) if current != "none" else None
        while at is not None and (row := snapshots.get(at)) is not None:
            record = parse_record(row.record, self._name) if is_record(row.record) else None
            yield Commit(int(row.snapshot_id), _ms(row.committed_at), str(row.operation), record)
            at = row.parent_id


def _merged(spark: SparkSession, run: Merging, settings: Mapping[str, str]) -> bool:
    """Run a MERGE with settings of the session; False if another writer was first."""
    try:
        for name, text in settings.items():
            spark.conf.set(name, text)
        run()
    except SPARK_ERRORS as error:
        if is_conflict(error):
            return False
        raise
    finally:
        for name in settings:
            spark.conf.unset(name)
    return True


def is_conflict(error: Exception) -> bool:
    """Whether a write failed because another writer was first."""
    return any(word in str(error) for word in _CONFLICT)


def scanned(spark: SparkSession, name: str) -> Record:
    """The record of a table without one, by the columns of its rows; an empty record if it has no such columns."""
    table = spark.table(name)
    if not {*_POSITION} <= {*table.columns}:
        return Record()
    offset = functions.col(Name.QUEUE_OFFSET)
    rows = table.groupBy(*_POSITION[:3]).agg(functions.min(offset).alias("first"), functions.max(offset).alias("last"))
    ranges = [
        QueueRange(MessageQueue(row.topic, row.brokerName, row.queueId), row.first, row.last + 1)
        for row in rows.collect()
        if row.first is not None
    ]
    return Record(holds=nested(ranges))


def state_as_of(table: TableFormat, as_of: AsOf) -> State:
    """The state of a table in the past; NotFound if it is not known any more."""
    commits = table.commits()
    at = next((number for number, one in enumerate(commits) if _is_at(one, as_of)), None)
    record = None if at is None else next((one.record for one in commits[at:] if one.record is not None), None)
    if at is None or record is None:
        oldest = (
            f"its oldest commit is {commits[-1].id} of {_utc(commits[-1].made_ms)}" if commits else "it has no commits"
        )
        raise NotFound(f"the table has no record of offsets as of {as_of}: {oldest}")
    return State(record, commits[at].id)


def _is_at(commit: Commit, as_of: AsOf) -> bool:
    if as_of.commit is not None:
        return commit.id == as_of.commit
    return as_of.ms is None or commit.made_ms <= as_of.ms


def _ms(moment: datetime) -> int:
    """A time of Spark, which Python has in the zone of this machine."""
    return round(moment.timestamp() * 1000)


def _utc(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f} UTC"


def _is_absent(error: Exception) -> bool:
    words = (
        "DELTA_MISSING_DELTA_TABLE",
        "TABLE_OR_VIEW_NOT_FOUND",
        "DELTA_TABLE_NOT_FOUND",
        "PATH_NOT_FOUND",
        "is not a Delta table",
    )
    return any(word in str(error) for word in words)


def properties(spark: SparkSession, name: str) -> dict[str, str]:
    return {str(row.key): str(row.value) for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}


def _kept(spark: SparkSession, name: str) -> Record | None:
    text = properties(spark, name).get(RECORD)
    return parse_record(text, name) if is_record(text) and text is not None else None


def _keep(spark: SparkSession, name: str, record: Record) -> None:
    set_property(spark, name, RECORD, record.to_json())


def set_property(spark: SparkSession, name: str, key: str, text: str) -> None:
    """Set a property of a table."""
    plain = text.replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{key}' = '{plain}')")
