"""What Spark finds at the end of the day, in the lake and in the topics that it wrote, read anew as batches."""

from typing import Final

from pocketmq.client.send_backs import REASON
from pocketmq.demo.folder import DemoFolder
from pocketmq.demo.names import DEAD_ORDERS, ORDERS, REVENUE
from pocketmq.demo.plot import Window
from pocketmq.demo.reconciliation import Lake
from pocketmq.pipelines.libraries import DataFrame, SparkSession
from pocketmq.pipelines.libraries import functions as f

HOUR: Final = "city string, begin timestamp, orders bigint, amount_cents bigint"
"""What a message of the topic of revenue says."""


class Count:
    """Reads what is there."""

    def __init__(self, spark: SparkSession, name_servers: str, folder: DemoFolder) -> None:
        self._spark = spark
        self._address = {"rocketmq.namesrv.addr": name_servers}
        self._lake = folder.lake

    def windows(self) -> list[Window]:
        """The last word on each hour and city, which is kept in the lake, too."""
        path = str(self._lake / "revenue")
        last_words(self._read(REVENUE, "value binary")).coalesce(1).write.mode("overwrite").parquet(path)
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
        """Why orders are dead, and how many for each reason; what stood there instead is left out."""
        dead = self._read(DEAD_ORDERS, "properties map<string,string>")
        reason = f.regexp_replace(f.col("properties")[REASON], " = .* is no ", " is no ")
        return {row[0]: row[1] for row in dead.groupBy(reason).count().collect()}

    def _read(self, topic: str, schema: str) -> DataFrame:
        return self._spark.read.format("rocketmq").schema(schema).options(**self._address, subscribe=topic).load()


def last_words(messages: DataFrame) -> DataFrame:
    """Hours only grow, so what was told last is the most."""
    hours = messages.select(f.from_json(f.col("value").cast("string"), HOUR).alias("hour")).select("hour.*")
    most = (f.max(name).alias(name) for name in ("orders", "amount_cents"))
    return hours.groupBy("city", "begin").agg(*most).orderBy("begin", "city")
