"""The rows of a table are those of PostgreSQL after every kind of change, and whatever is killed on the way.

CDC_BROKER=PocketMQ LAKE_FORMAT=delta python -m pytest conformance/cdc/row_checks.py       or CDC_BROKER=5.3.3, of Apache

    PostgreSQL ─► Debezium Server ─► broker ─► pocketmq pipeline cdc ─► table

The tests are one day of a shop: each continues with the table of the one before.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol, Self

import pytest
from pyspark.sql import SparkSession

from conformance.apache import ROOT, ApacheBroker
from conformance.cdc.database import Database
from conformance.cdc.debezium import TOPIC, Debezium
from conformance.lake.table_checks import FORMAT, PATIENT, SMALL
from conformance.programs import OurServer
from pocketmq import Admin
from pocketmq.errors import PipelineFailed, PocketMQError
from pocketmq.pipelines.cdc.job import CdcSettings, run_cdc
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.core.sessions import session

BROKER: Final = os.environ.get("CDC_BROKER", "PocketMQ")
PATIENCE_S: Final = 600.0
QUEUES: Final = 4
CREATE: Final = """
CREATE TABLE orders (
    id int PRIMARY KEY, city text, price numeric(10,2), free numeric, at timestamp, zoned timestamptz, day date, paid boolean,
    blob bytea, tod time, tags text[], info jsonb, uid uuid, many bigint, part real, letter text
)
"""
FILL: Final = """
INSERT INTO orders SELECT g, 'city ' || g, g * -1.55, g * 1.25, timestamp '2026-01-01 10:00:00.123456' + g * interval '1 h',
    timestamptz '2026-06-01 10:00:00+02' + g * interval '1 d', date '1970-01-01' - g, g % 2 = 0, decode(md5(g::text), 'hex'),
    time '23:59:59.5', ARRAY['a', 'b' || g], jsonb_build_object('g', g), md5(g::text)::uuid, 9000000000000000000 + g, g / 4.0::real,
    (SELECT string_agg(md5(n::text || g), '') FROM generate_series(1, 200) n)
FROM generate_series({first}, {last}) g
"""
IN_DATABASE: Final = """
SELECT id, city, price::text, trim_scale(free)::text AS free, to_char(at, 'YYYY-MM-DD HH24:MI:SS.US') AS at,
    to_char(zoned AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') AS zoned, day::text, paid, encode(blob, 'hex') AS blob,
    to_char(tod, 'HH24:MI:SS.US') AS tod, array_to_string(tags, ',') AS tags, info->>'g' AS info, uid::text, many::text, part::numeric(10,2)::text AS part,
    md5(letter) AS letter {more}
FROM orders ORDER BY id
"""
IN_TABLE: Final = (
    "id",
    "city",
    "string(price) AS price",
    "free",
    "date_format(at, 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS at",
    "date_format(zoned, 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS zoned",
    "string(day) AS day",
    "paid",
    "lower(hex(blob)) AS blob",
    "tod",
    "array_join(tags, ',') AS tags",
    "get_json_object(info, '$.g') AS info",
    "uid",
    "string(many) AS many",
    "string(cast(part AS decimal(10,2))) AS part",
    "md5(letter) AS letter",
)


class BrokerProcess(Protocol):
    """A name server and a broker that can be stopped and started again."""

    @property
    def name_server(self) -> str: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


def _broker(folder: Path) -> BrokerProcess:
    if BROKER == "PocketMQ":
        return OurServer.both(print, folder)
    return ApacheBroker(BROKER, folder, {"waitTimeMillsInSendQueue": 10_000}, print)


class Shop:
    """All parts of a change's way, and the comparison of its two ends."""

    def __init__(self, spark: SparkSession, database: Database, broker: BrokerProcess, folder: Path) -> None:
        self.spark = spark
        self.database = database
        self.broker = broker
        self.told = settings(broker.name_server, folder)
        self.debezium = Debezium(database, broker.name_server, folder / "debezium")
        self.more = ""
        self.columns: tuple[str, ...] = IN_TABLE

    def run(self) -> Summary:
        """A run, and another one if Spark did not wait for its Python: it waits for ten seconds, which a busy machine may need."""
        while True:
            try:
                return run_cdc(self.spark, self.told, Run())
            except PipelineFailed as error:
                if "worker failed to connect back" not in str(error):
                    raise

    def in_table(self) -> list[dict[str, Any]]:
        name = self.told.target.sql_name
        self.spark.sql(f"REFRESH TABLE {name}")
        return [row.asDict() for row in self.spark.table(name).selectExpr(*self.columns).orderBy("id").collect()]

    def in_database(self) -> list[dict[str, Any]]:
        return self.database.rows(IN_DATABASE.format(more=self.more))

    def sent(self) -> int:
        """The messages of the topic."""
        with Admin(self.broker.name_server) as admin:
            return sum(queue.max_offset for queue in admin.topics.describe(TOPIC).queues)

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, f"{what}: {self.debezium.log[-2000:]}"
            time.sleep(0.3)

    def check(self) -> None:
        """The rows of the table become those of the database."""
        expected = self.in_database()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.run()
            found = self.in_table()
            if found == expected:
                return
            if time.monotonic() > deadline:
                wrong = [(one, other) for one, other in zip(found, expected, strict=False) if one != other][:3]
                pytest.fail(f"{len(found)} rows, {len(expected)} in the database; {wrong}; {self.debezium.log[-2000:]}")


def settings(name_server: str, folder: Path) -> CdcSettings:
    return CdcSettings(
        namesrv=name_server,
        topics=[TOPIC],
        keys=["id"],
        lake=str(folder / "lake" / "orders"),
        format=FORMAT,
        checkpoint=str(folder / "checkpoint"),
    )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    told = settings("127.0.0.1:1", folder)
    with (
        session("cdc", "local[2]", settings={**told.session, **PATIENT, **SMALL}, is_quiet=True) as spark,
        Database() as database,
        _broker(folder / "broker") as broker,
    ):
        database.run(CREATE, FILL.format(first=1, last=300))
        with Admin(broker.name_server) as admin:
            admin.topics.create(TOPIC, queues=QUEUES)
        shop = Shop(spark, database, broker, folder)
        with shop.debezium:
            yield shop


def test_the_snapshot_has_all_rows(shop: Shop) -> None:
    shop.wait_for(lambda: shop.sent() >= 300, "Debezium sends the snapshot")

    shop.check()


def test_inserts_updates_and_deletes_arrive(shop: Shop) -> None:
    shop.wait_for(
        lambda: "slot" in shop.database.run("SELECT 'slot' FROM pg_replication_slots WHERE active"), "Debezium reads"
    )
    shop.database.run(
        FILL.format(first=301, last=320),
        "UPDATE orders SET city = NULL, price = 0.01, paid = NULL WHERE id % 3 = 0",
        "UPDATE orders SET letter = 'short' WHERE id % 30 = 0",
        "DELETE FROM orders WHERE id % 7 = 0",
        "BEGIN; UPDATE orders SET city = 'x' WHERE id = 1; UPDATE orders SET city = 'y' WHERE id = 1; COMMIT",
        "BEGIN; DELETE FROM orders WHERE id = 2; " + FILL.format(first=2, last=2) + "; COMMIT",
    )

    shop.check()


def test_keys_that_change_are_other_rows(shop: Shop) -> None:
    shop.database.run(
        "ALTER TABLE orders REPLICA IDENTITY FULL",  # large values of rows that move are logged then
        "UPDATE orders SET id = id + 1000 WHERE id <= 20",
        "BEGIN; UPDATE orders SET id = -1 WHERE id = 50; UPDATE orders SET id = 50 WHERE id = 51; "
        "UPDATE orders SET id = 51 WHERE id = -1; COMMIT",
        "ALTER TABLE orders REPLICA IDENTITY DEFAULT",
    )

    shop.check()


def test_an_added_column_is_added_to_the_table(shop: Shop) -> None:
    shop.database.run(
        "ALTER TABLE orders ADD COLUMN note varchar(20)",
        "UPDATE orders SET note = 'note ' || id WHERE id % 5 = 0",
        "INSERT INTO orders (id, note) VALUES (5000, 'all others are null')",
    )
    shop.more, shop.columns = ", note", (*IN_TABLE, "note")

    shop.wait_for(lambda: _has_column(shop), "Debezium sends the new column")
    shop.check()


def _has_column(shop: Shop) -> bool:
    shop.run()
    return "note" in shop.spark.table(shop.told.target.sql_name).columns


def _changes(shop: Shop, first: int) -> None:
    """Some seconds of changes, each in a transaction of its own."""
    for number in range(first, first + 30):
        shop.database.run(
            f"UPDATE orders SET city = 'round {number}', price = price + 1 WHERE id % 10 = {number % 10}",
            f"DELETE FROM orders WHERE id = {100 + number % 200}",
            f"INSERT INTO orders (id, city) VALUES ({10_000 + number}, 'new') ON CONFLICT DO NOTHING",
        )


def test_a_killed_debezium_continues(shop: Shop) -> None:
    before = shop.sent()
    _changes(shop, 0)
    shop.wait_for(lambda: shop.sent() > before, "Debezium sends changes")

    shop.debezium.kill()
    _changes(shop, 30)
    shop.debezium.start()

    shop.check()


def test_a_killed_driver_continues(shop: Shop) -> None:
    before = shop.sent()
    _changes(shop, 60)
    shop.wait_for(lambda: shop.sent() > before, "Debezium sends changes")
    told = [shop.broker.name_server, str(Path(shop.told.lake).parents[1])]

    killed = subprocess.run(
        [sys.executable, "-m", "conformance.cdc.killed_driver", *told],
        cwd=ROOT,
        env={**os.environ, "LAKE_FORMAT": FORMAT},
        capture_output=True,
        start_new_session=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    shop.check()


def test_a_broker_that_was_restarted_is_continued(shop: Shop) -> None:
    _changes(shop, 90)

    shop.broker.__exit__(None, None, None)
    _changes(shop, 120)
    shop.broker.__enter__()
    shop.wait_for(lambda: _is_up(shop), "the broker is up")
    # The sink waits without end for messages that it could not send, so that it is started again.
    shop.debezium.kill()
    shop.debezium.start()

    shop.check()


def _is_up(shop: Shop) -> bool:
    try:
        return shop.sent() > 0
    except PocketMQError:
        return False


def test_a_deleted_checkpoint_does_no_work_twice(shop: Shop) -> None:
    shop.run()
    shutil.rmtree(shop.told.checkpoint)

    summary = shop.run()

    assert summary.messages == 0
    shop.check()
