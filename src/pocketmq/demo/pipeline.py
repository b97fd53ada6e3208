"""The Spark queries of the demo, written with the public helpers of the pipelines.

    topic of orders ─ parse and validate ─┬─ bad rows ─────────────────────────────► topic of dead orders, with the reason
                                          └─ orders ─ deduplicate ─► lake/orders ─ by hour and city ─► topic of revenue ─► lake/revenue

Watermarks over the shop's own times limit how long duplicates are recognised, and how long an hour accepts orders. An order that arrives
later is marked `late` by its two times, whenever it is read: it is in the lake, but in no hour.

On an overloaded machine, processes of Spark may time out and fail a query that would succeed a moment later. Such a query is started
again from its checkpoint, a limited number of times. At the end of the day, batch reads count the lake and the written topics.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pocketmq.client.received import DEAD_LETTER_REASON
from pocketmq.demo.live import Line, Window
from pocketmq.demo.reconciliation import Lake
from pocketmq.demo.servers import DemoFolder
from pocketmq.demo.shop import DEAD_ORDERS, LATE_AFTER_MS, ORDERS, REVENUE, SPARK
from pocketmq.errors import PipelineFailed
from pocketmq.pipelines import Checked, Contract, dead_letters, deduplicate, read_json
from pocketmq.pipelines.core.libraries import DataFrame, SparkSession, error_text
from pocketmq.pipelines.core.libraries import functions as f
from pocketmq.pipelines.core.progress import Progress, Tally
from pocketmq.pipelines.core.rows import MESSAGE
from pocketmq.pipelines.core.running import is_caught_up

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SCHEMA: Final = (
    "order_id string NOT NULL, number bigint NOT NULL, customer string NOT NULL, city string NOT NULL, "
    "amount_cents bigint NOT NULL, placed_at timestamp NOT NULL, received_at timestamp NOT NULL"
)
CONTRACT: Final = Contract.of([{"column": "amount_cents", "min": 0}])
OPEN: Final = f"{LATE_AFTER_MS // 60_000} minutes"
"""How long duplicates are recognised, and how long an hour accepts orders."""
MAX_PER_BATCH: Final = 200_000
EVERY: Final = "1 second"
LAKE, DEAD, HOURS = "lake", "dead", "revenue"
"""The names of the queries."""


class ShopPipeline:
    """The queries of the shop in one session."""

    def __init__(self, spark: SparkSession, name_servers: str, folder: DemoFolder) -> None:
        self._spark = spark
        self._address = {"rocketmq.namesrv.addr": name_servers}
        self._folder = folder
        self._orders = str(folder.lake / "orders")

    def start(self, query: str, *, once: bool) -> "StreamingQuery":
        """Start LAKE, DEAD or HOURS; with `once` it ends when all available messages are processed."""
        made = {LAKE: self._lake, DEAD: self._dead, HOURS: self._hours}[query]()
        writer = made.queryName(query).option("checkpointLocation", str(self._folder.checkpoint(query)))
        return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=EVERY)).start()

    def _lake(self) -> "DataStreamWriter":
        """Valid orders, each once, to the lake."""
        orders = each_once(self._read(LAKE, includeProperties="false").good)
        return orders.writeStream.format("parquet").partitionBy("late").option("path", self._orders)

    def _dead(self) -> "DataStreamWriter":
        """Invalid ones to a topic, with the reason."""
        writer = dead_letters(self._read(DEAD).bad).writeStream.format("rocketmq")
        return writer.options(**self._address, topic=DEAD_ORDERS, reservedProperties="drop")

    def _hours(self) -> "DataStreamWriter":
        """Revenue by hour and city, from the lake."""
        self._folder.make(self._folder.lake / "orders")
        orders = self._spark.readStream.schema(f"{SCHEMA}, late boolean").parquet(self._orders)
        return revenue(orders).writeStream.outputMode("update").foreachBatch(self._write_hours)

    def _read(self, query: str, **options: str) -> Checked:
        reading = {
            **self._address,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(MAX_PER_BATCH),
            "groupId": f"{SPARK}-{query}",  # so that lag tools see Spark's offsets
            **options,
        }
        return CONTRACT.check(read_json(self._spark, ORDERS, SCHEMA, options=reading).rows)

    def _write_hours(self, hours: DataFrame, batch: int) -> None:
        """Write changed hours as messages; a batch that is run again writes none twice."""
        writer = as_messages(hours).write.format("rocketmq").options(**self._address, topic=REVENUE)
        writer.options(writeId=HOURS, writeBatch=str(batch)).mode("append").save()


def each_once(orders: DataFrame) -> DataFrame:
    """Each order once, and whether it was late."""
    is_late = f.col("received_at") - f.col("placed_at") > f.expr(f"INTERVAL {OPEN}")
    once = deduplicate(orders, "order_id", event_time="received_at", watermark=OPEN)
    return once.drop(MESSAGE).withColumn("late", is_late)


def revenue(orders: DataFrame) -> DataFrame:
    """The orders of each city in each hour."""
    punctual = orders.where("NOT late").withWatermark("placed_at", OPEN)
    hours = punctual.groupBy("city", f.window("placed_at", "1 hour").alias("hour"))
    return hours.agg(f.count("*").alias("orders"), f.sum("amount_cents").alias("amount_cents"))


def as_messages(hours: DataFrame) -> DataFrame:
    """An hour of a city as a message, with both as its key."""
    rows = hours.selectExpr("city", "hour.start AS begin", "orders", "amount_cents")
    return rows.selectExpr(
        "to_json(struct(*)) AS value", "concat_ws('-', city, unix_seconds(begin)) AS keys", "city AS tags"
    )


MAX_FAILURES: Final = 12
"""Of all queries together; one more fails the demo."""


class Queries:
    """Queries by name. A query that is started again continues its line."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._running: dict[str, StreamingQuery] = {}
        self._starts: dict[str, Callable[[str], StreamingQuery]] = {}
        self._failures = 0
        self._tallies: dict[str, Tally] = {}
        self._last: dict[str, Progress] = {}

    def begin(self, names: Sequence[str], start: "Callable[[str], StreamingQuery]") -> None:
        """Start these queries, and forget the ones before."""
        self._starts = dict.fromkeys(names, start)
        self._running = {}
        for name in names:
            self._begin(name)

    @property
    def are_active(self) -> bool:
        return any(query.isActive for query in self._running.values())

    def have_caught_up(self, *names: str) -> bool:
        """Whether these queries have read everything, by Spark's status. A failed query counts, too, until the next update."""
        return all(is_caught_up(self._running[name]) for name in names)

    def update(self) -> None:
        """Collect progress, and start failed queries again; PipelineFailed if that happens too often."""
        for name, query in list(self._running.items()):
            for row in self._tallies.setdefault(name, Tally(name)).update(query):
                self.record(row)
            if (error := query.exception()) is not None:
                self._count_failure(name, error)
                self._begin(name)

    def record(self, row: Progress) -> None:
        self._last[row.query] = row

    def stop(self) -> None:
        for query in self._running.values():
            query.stop()

    def _begin(self, name: str) -> None:
        while True:
            try:
                self._running[name] = self._starts[name](name)
                return
            except Exception as error:  # Spark has many types, and any of them may be temporary
                self._count_failure(name, error)

    def _count_failure(self, name: str, error: Exception) -> None:
        self._failures += 1
        if self._failures > MAX_FAILURES:
            raise PipelineFailed(f"{name}: {error_text(error)}") from error
        self._log(f"Query {name} failed: {error_text(error)}; starting it again")

    # for the display

    def done(self, name: str, total: int) -> int:
        """The number of messages that it has read, of `total`."""
        row = self._last.get(name)
        if row is None:
            return 0
        return min(total, row.messages) if row.behind is None else max(0, total - row.behind)

    def lines(self) -> list[Line]:
        return [
            Line(f"Spark: {name}", row.messages, None, row.per_s, row.behind, _detail(row))
            for name, row in list(self._last.items())  # called in the thread of the display, too
        ]


def _detail(row: Progress) -> str:
    watermark = f", watermark {row.watermark[11:16]}" if row.watermark and not row.watermark.startswith("1970") else ""
    return f"batch {row.batch}{watermark}"


HOUR: Final = "city string, begin timestamp, orders bigint, amount_cents bigint"
"""The fields of a revenue message."""


class Count:
    """Counts the results."""

    def __init__(self, spark: SparkSession, name_servers: str, folder: DemoFolder) -> None:
        self._spark = spark
        self._address = {"rocketmq.namesrv.addr": name_servers}
        self._lake = folder.lake

    def windows(self) -> list[Window]:
        """The final state of each hour and city, which is also saved in the lake."""
        path = str(self._lake / "revenue")
        final_hours(self._read(REVENUE, "value binary")).coalesce(1).write.mode("overwrite").parquet(path)
        rows = self._spark.read.parquet(path).selectExpr("city", "unix_millis(begin)", "orders", "amount_cents")
        return [Window(*row) for row in rows.collect()]

    def lake(self, windows: list[Window]) -> Lake:
        orders = self._spark.read.parquet(str(self._lake / "orders"))
        sums = (f.count("*"), f.countDistinct("order_id"), f.count_if("late"), f.sum("amount_cents"), f.sum("number"))
        found = [value or 0 for value in orders.agg(*sums).collect()[0]]
        known = orders.select(f.col("order_id").alias("keys")).distinct()
        return Lake(
            orders=found[0],
            distinct=found[1],
            late=found[2],
            amount_cents=found[3],
            numbers=found[4],
            dead=sum(self.reasons().values()),
            duplicates=self._read(ORDERS, "keys string").join(known, "keys").count() - found[1],
            window_orders=sum(window.orders for window in windows),
            window_cents=sum(window.amount_cents for window in windows),
        )

    def reasons(self) -> dict[str, int]:
        """The number of dead orders by reason, without the invalid values."""
        dead = self._read(DEAD_ORDERS, "properties map<string,string>")
        reason = f.regexp_replace(f.col("properties")[DEAD_LETTER_REASON], " = .* is not ", " is not ")
        return {row[0]: row[1] for row in dead.groupBy(reason).count().collect()}

    def _read(self, topic: str, schema: str) -> DataFrame:
        return self._spark.read.format("rocketmq").schema(schema).options(**self._address, subscribe=topic).load()


def final_hours(messages: DataFrame) -> DataFrame:
    """The final state of each hour: hours only grow, so it is the maximum."""
    hours = messages.select(f.from_json(f.col("value").cast("string"), HOUR).alias("hour")).select("hour.*")
    most = (f.max(name).alias(name) for name in ("orders", "amount_cents"))
    return hours.groupBy("city", "begin").agg(*most).orderBy("begin", "city")
