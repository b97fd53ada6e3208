"""Debezium's messages as changes: the operation, the row as JSON, and the position of the change in the log of its database.

    JSON with a schema      {"schema": {…}, "payload": {"op": "u", "before": …, "after": {…}, "source": {…}}}
    JSON without            {"op": "u", "before": …, "after": {…}, "source": {…}}
    Avro of a registry      decoded to the second form

A position is a text. Of two changes of one row, that with the greater position is the later one:

    postgresql          last commit before the transaction / LSN        a row of a snapshot: 0 instead of the second LSN
    mysql, mariadb      number of the binlog file / position / row
    sqlserver, db2      commit LSN / change LSN / number of the event
    oracle              commit SCN / SCN / record
    others              time of the source / queue offset               changes of one row in one queue keep their order

PostgreSQL logs a change when it is made, and Debezium sends it when it is committed. So a transaction that was open during the snapshot has
changes with a lower LSN than the snapshot, which come behind it. Debezium knows no commit before such a transaction: its position begins
with the LSN of the snapshot, see `with_positions`.

Tombstones follow deletions for the compaction of Kafka, so they are left out. A message that is no change has a reason.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pocketmq.pipelines.archive.bodies import BODY
from pocketmq.pipelines.core.libraries import Column, DataFrame
from pocketmq.pipelines.core.libraries import functions as f
from pocketmq.pipelines.core.rows import REASON as UNREADABLE
from pocketmq.spark.schema import Name

MESSAGE: Final = "_message"
REASON: Final = "_reason"
OP: Final = "_op"
ROW: Final = "_row"
SCHEMA: Final = "_schema"
POSITION: Final = "_position"
AT: Final = "_changed_at"
OFFSET: Final = "_offset"
CONNECTOR: Final = "_connector"
SNAPSHOT_AT: Final = "_snapshot_at"
"""Of a row of a first snapshot: where the snapshot is in the log."""
OWN: Final = (MESSAGE, OP, ROW, SCHEMA, POSITION, AT, OFFSET, CONNECTOR, SNAPSHOT_AT, REASON)
"""Columns of a change besides those of its row."""
DELETE: Final = "d"
SNAPSHOT: Final = "r"
OPERATIONS: Final = (SNAPSHOT, "c", "u", DELETE)
UNCHANGED: Final = "__debezium_unavailable_value"
"""What Debezium sends in place of a large value that an update did not change, and that PostgreSQL did not log."""
_OUTER: Final = "schema string, payload string, op string"
_ENVELOPE: Final = "op string, before string, after string, source string"
_SOURCE: Final = (
    "connector string, sequence string, lsn bigint, file string, pos bigint, row bigint, commit_lsn string, change_lsn string, "
    "event_serial_no bigint, scn string, commit_scn string, rs_id string, ts_ms bigint, ts_us bigint, ts_ns bigint"
)
_DIGITS: Final = 20
_UNPLACED: Final = "?"
"""Begins a position whose first part is not known yet."""
_NO_ENVELOPE: Final = "the body is not a change of Debezium: it has no `op`. Messages that ExtractNewRecordState made flat cannot be merged"
_NO_KEY: Final = (
    "the message has no key, so it is unknown which row it changes: give the database table a primary key, or set message.key.columns "
    "of Debezium"
)


class Envelope(NamedTuple):
    """How the bodies of a topic are read."""

    keys: Sequence[str]
    """The columns that identify a row."""
    schema: str = ""
    """The schema of all bodies that have been decoded from Avro; empty for JSON."""

    def changes(self, messages: DataFrame) -> DataFrame:
        """The changes of messages, with the message and the reason. Messages that were decoded have `body` and `reason`."""
        is_decoded = BODY in messages.columns
        plain = f.col(Name.VALUE).cast("string")
        text = f.to_json(BODY) if is_decoded else plain
        known = f.col(UNREADABLE) if is_decoded else f.lit(None).cast("string")
        whole = f.struct(*(name for name in messages.columns if name not in (BODY, UNREADABLE))).alias(MESSAGE)
        kept = messages.where(~_is_tombstone(plain))
        rows = kept.select(whole, known.alias("_known"), text.alias("_text"))
        outer = rows.withColumn("_outer", f.from_json("_text", _OUTER))
        inner = f.coalesce("_outer.payload", "_text")
        read = outer.withColumn("_envelope", f.from_json(inner, _ENVELOPE)).withColumn(
            "_source", f.from_json("_envelope.source", _SOURCE)
        )
        key = f.coalesce(f.get_json_object(f.col(f"{MESSAGE}.{Name.KEYS}"), "$.payload"), f"{MESSAGE}.{Name.KEYS}")
        schema = f.lit(self.schema) if self.schema else f.coalesce("_outer.schema", f.lit(""))
        op, after, before = f.col("_envelope.op"), f.col("_envelope.after"), f.col("_envelope.before")
        row = f.when(op == DELETE, f.coalesce(before, key)).otherwise(after)
        changes = read.select(
            MESSAGE,
            op.alias(OP),
            row.alias(ROW),
            schema.alias(SCHEMA),
            _position(op == SNAPSHOT).alias(POSITION),
            _time().alias(AT),
            f.col(f"{MESSAGE}.{Name.QUEUE_OFFSET}").alias(OFFSET),
            f.col("_source.connector").alias(CONNECTOR),
            f.when((op == SNAPSHOT) & (_last_commit().isNull()), _padded("_source.lsn")).alias(SNAPSHOT_AT),
            key.alias("_key"),
            "_known",
        )
        return changes.withColumn(REASON, self._reason()).drop("_key", "_known")

    def _reason(self) -> Column:
        """Why a message is no change that can be merged; null if it is one."""
        op, own = f.col(OP), f.json_object_keys("_key")
        has_other_key = f.array_sort(own) != f.array_sort(f.array(*map(f.lit, self.keys)))
        other_key = f.concat(
            f.lit("the key of the message has "),
            f.array_join(own, ", "),
            f.lit(f", and --keys is {', '.join(self.keys)}: rows that are different would replace one another"),
        )
        return (
            f.when(f.col("_known").isNotNull(), f.col("_known"))
            .when(op.isNull(), f.lit(_NO_ENVELOPE))
            .when(f.col(CONNECTOR) == "mongodb", f.lit("changes of MongoDB are documents without columns"))
            .when(~op.isin(*OPERATIONS), f.concat(f.lit("the operation "), op, f.lit(" cannot be merged")))
            .when(f.coalesce(f.length(f"{MESSAGE}.{Name.KEYS}"), f.lit(0)) == 0, f.lit(_NO_KEY))
            .when(own.isNotNull() & has_other_key, other_key)
            .when(f.col(ROW).isNull(), f.lit("the change has no row: `after` or, of a deletion, `before` is missing"))
            .when(f.col(POSITION).isNull(), f.lit("`source` has no position in the log of the database, and no time"))
        )


def _is_tombstone(text: Column) -> Column:
    return f.coalesce(f.trim(text), f.lit("")).isin("", "null", '{"schema":null,"payload":null}')


def _time() -> Column:
    """When the database made the change."""
    return f.coalesce(f.timestamp_micros("_source.ts_us"), f.timestamp_millis("_source.ts_ms"))


def _position(is_snapshot: Column) -> Column:
    """The position of a change. A snapshot has the state before all changes that the log has behind its last commit."""
    connector = f.col("_source.connector")
    commit = f.coalesce(_last_commit(), f.when(is_snapshot | f.col("_source.sequence").isNull(), f.col("_source.lsn")))
    scn = f.coalesce("_source.commit_scn", "_source.scn")
    ns = f.coalesce("_source.ts_ns", f.col("_source.ts_us") * 1_000, f.col("_source.ts_ms") * 1_000_000)
    return (
        f.when((connector == "postgresql") & commit.isNull(), f.concat(f.lit(_UNPLACED), _padded("_source.lsn")))
        .when(connector == "postgresql", _joined(commit, f.when(is_snapshot, 0).otherwise(f.col("_source.lsn"))))
        .when(
            connector.isin("mysql", "mariadb"),
            _joined(f.regexp_extract("_source.file", r"(\d+)$", 1), "_source.pos", f.coalesce("_source.row", f.lit(0))),
        )
        .when(
            connector.isin("sqlserver", "db2"),
            f.concat(
                f.lower("_source.commit_lsn"),
                f.lit("/"),
                f.coalesce(f.lower("_source.change_lsn"), f.lit("")),
                f.lit("/"),
                _padded(f.coalesce("_source.event_serial_no", f.lit(0))),
            ),
        )
        .when(
            connector == "oracle",
            f.concat(
                _joined(scn, f.when(is_snapshot, "0").otherwise(f.col("_source.scn"))),
                f.lit("/"),
                f.coalesce(f.trim("_source.rs_id"), f.lit("")),
            ),
        )
        .otherwise(_joined(ns, f.col(f"{MESSAGE}.{Name.QUEUE_OFFSET}")))
    )


def _last_commit() -> Column:
    """The last commit of PostgreSQL that Debezium had seen."""
    return f.try_element_at(f.from_json("_source.sequence", "array<string>"), f.lit(1)).cast("bigint")


def with_positions(changes: DataFrame, snapshot_at: str) -> DataFrame:
    """Changes with whole positions: of transactions before the first commit that Debezium saw, behind the snapshot, if there was one."""
    lsn = f.substr(POSITION, f.lit(len(_UNPLACED) + 1))
    before = f.lit(snapshot_at) if snapshot_at else lsn
    whole = f.concat(before, f.lit("/"), lsn)
    return changes.withColumn(POSITION, f.when(f.col(POSITION).startswith(_UNPLACED), whole).otherwise(f.col(POSITION)))


def _joined(*parts: Column | str) -> Column:
    """Numbers as a text that sorts like them; null if one is missing."""
    first, *others = parts
    joined = _padded(first)
    for one in others:
        joined = f.concat(joined, f.lit("/"), _padded(one))
    return joined


def _padded(number: Column | str) -> Column:
    column = f.col(number) if isinstance(number, str) else number
    return f.lpad(column.cast("string"), _DIGITS, "0")


class Counts(NamedTuple):
    """What a batch has."""

    schemas: Sequence[str]
    """The schemas of its changes, the newest first; an empty one for changes without."""
    connectors: Sequence[str]
    has_unchanged: bool
    """Whether some values are not known, as an update did not change them."""
    snapshot_at: str
    """Where the snapshot is in the log whose rows the batch has; empty for none."""
    bad: int
    """Messages that are no change."""


def counted(changes: DataFrame) -> Counts:
    """What a batch of changes has, in one query."""
    is_good = f.col(REASON).isNull().alias("is_good")
    groups = changes.groupBy(SCHEMA, is_good).agg(
        f.count("*").alias("many"),
        f.max(POSITION).alias("newest"),
        f.collect_set(CONNECTOR).alias("connectors"),
        f.max(SNAPSHOT_AT).alias("snapshot_at"),
        f.bool_or(f.contains(f.col(ROW), f.lit(UNCHANGED))).alias("has_unchanged"),
    )
    found = sorted(groups.collect(), key=lambda row: row.newest or "", reverse=True)
    good = [row for row in found if row.is_good]
    return Counts(
        [row[SCHEMA] for row in good],
        sorted({name for row in good for name in row.connectors}),
        any(row.has_unchanged for row in good),
        max((row.snapshot_at or "" for row in good), default=""),
        sum(row.many for row in found if not row.is_good),
    )
