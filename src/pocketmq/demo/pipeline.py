"""What Spark does with the orders: three queries, written with the helpers that are there for everybody.

    topic of orders ─ parse and validate ─┬─ bad rows ─────────────────────────────► topic of dead orders, each with its reason
                                          └─ orders ─ each once ─► lake/orders ─ by hour and city ─► topic of revenue ─► lake/revenue

Times are those of the shop. How long duplicates are looked for, and how long an hour stays open, are watermarks over them. An order
that comes later than that is marked `late` by its own two times, so it is late whenever it is read; it is in the lake, and in no hour.
"""

from typing import TYPE_CHECKING, Final

from pocketmq.demo.folder import DemoFolder
from pocketmq.demo.names import DEAD_ORDERS, ORDERS, REVENUE, SPARK
from pocketmq.demo.shop import LATE_AFTER_MS
from pocketmq.pipelines import Checked, Contract, dead_letters, deduplicate, read_json
from pocketmq.pipelines.json_rows import MESSAGE
from pocketmq.pipelines.libraries import DataFrame, SparkSession
from pocketmq.pipelines.libraries import functions as f

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SCHEMA: Final = (
    "order_id string NOT NULL, number bigint NOT NULL, customer string NOT NULL, city string NOT NULL, "
    "amount_cents bigint NOT NULL, placed_at timestamp NOT NULL, received_at timestamp NOT NULL"
)
CONTRACT: Final = Contract.of([{"column": "amount_cents", "min": 0}])
OPEN: Final = f"{LATE_AFTER_MS // 60_000} minutes"
"""How long duplicates are looked for, and how long an hour waits for its orders."""
MAX_PER_BATCH: Final = 200_000
EVERY: Final = "1 second"
LAKE, DEAD, HOURS = "lake", "dead", "revenue"
"""The names of the queries."""


class ShopPipeline:
    """The queries of the shop on one session."""

    def __init__(self, spark: SparkSession, name_servers: str, folder: DemoFolder) -> None:
        self._spark = spark
        self._address = {"rocketmq.namesrv.addr": name_servers}
        self._folder = folder
        self._orders = str(folder.lake / "orders")

    def start(self, query: str, *, once: bool) -> "StreamingQuery":
        """One of LAKE, DEAD and HOURS; with `once` it ends when all that is there is done."""
        made = {LAKE: self._lake, DEAD: self._dead, HOURS: self._hours}[query]()
        writer = made.queryName(query).option("checkpointLocation", str(self._folder.checkpoint(query)))
        return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=EVERY)).start()

    def _lake(self) -> "DataStreamWriter":
        """Orders that can be read, each once, to the lake."""
        orders = each_once(self._read(LAKE, includeProperties="false").good)
        return orders.writeStream.format("parquet").partitionBy("late").option("path", self._orders)

    def _dead(self) -> "DataStreamWriter":
        """The others to a topic, each with its reason."""
        writer = dead_letters(self._read(DEAD).bad).writeStream.format("rocketmq")
        return writer.options(**self._address, topic=DEAD_ORDERS, reservedProperties="drop")

    def _hours(self) -> "DataStreamWriter":
        """Revenue by hour and city, from what is in the lake."""
        self._folder.make(self._folder.lake / "orders")
        orders = self._spark.readStream.schema(f"{SCHEMA}, late boolean").parquet(self._orders)
        return revenue(orders).writeStream.outputMode("update").foreachBatch(self._tell)

    def _read(self, query: str, **options: str) -> Checked:
        reading = {
            **self._address,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(MAX_PER_BATCH),
            "groupId": f"{SPARK}-{query}",  # so that lag tools see how far Spark is
            **options,
        }
        return CONTRACT.check(read_json(self._spark, ORDERS, SCHEMA, options=reading).rows)

    def _tell(self, hours: DataFrame, batch: int) -> None:
        """The hours that have grown, as messages; a batch that is run again is not told twice."""
        writer = as_messages(hours).write.format("rocketmq").options(**self._address, topic=REVENUE)
        writer.options(writeId=HOURS, writeBatch=str(batch)).mode("append").save()


def each_once(orders: DataFrame) -> DataFrame:
    """Each order once, and whether it came late."""
    is_late = f.col("received_at") - f.col("placed_at") > f.expr(f"INTERVAL {OPEN}")
    once = deduplicate(orders, "order_id", event_time="received_at", watermark=OPEN)
    return once.drop(MESSAGE).withColumn("late", is_late)


def revenue(orders: DataFrame) -> DataFrame:
    """What each city bought in each hour."""
    punctual = orders.where("NOT late").withWatermark("placed_at", OPEN)
    hours = punctual.groupBy("city", f.window("placed_at", "1 hour").alias("hour"))
    return hours.agg(f.count("*").alias("orders"), f.sum("amount_cents").alias("amount_cents"))


def as_messages(hours: DataFrame) -> DataFrame:
    """An hour of a city is a message, with both as its key."""
    told = hours.selectExpr("city", "hour.start AS begin", "orders", "amount_cents")
    return told.selectExpr(
        "to_json(struct(*)) AS value", "concat_ws('-', city, unix_seconds(begin)) AS keys", "city AS tags"
    )
