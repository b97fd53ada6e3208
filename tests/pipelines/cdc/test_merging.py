"""The newest change of a row counts, whatever order they arrive in; versions of a row begin and end at its changes."""

import random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq.pipelines.archive.table import Target
from pocketmq.pipelines.cdc.changes import UNCHANGED
from pocketmq.pipelines.cdc.merging import Kind, limit_of, newest, versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "id int, city string, _op string, _position string, _changed_at timestamp, _offset bigint"
KNOWN = "id int, city string, _position string, _valid_from timestamp, _valid_to timestamp, _end_position string"


def changes(spark: "SparkSession", *given: tuple[int, str | None, str, int]) -> "DataFrame":
    """Changes as (id, city, operation, position)."""
    rows = [(key, city, op, f"{position:03}", None, offset) for offset, (key, city, op, position) in enumerate(given)]
    return spark.createDataFrame(rows, COLUMNS)


def test_the_newest_change_of_a_key_counts(spark: "SparkSession") -> None:
    given = changes(
        spark,
        (1, "late", "u", 30),
        (1, "early", "u", 20),
        (2, "gone", "d", 9),
        (2, "there", "c", 8),
        (1, "same", "u", 30),
    )

    rows = newest(given, ["id"], has_unchanged=False).orderBy("id").collect()

    assert [(row.id, row.city, row._op, row._position) for row in rows] == [
        (1, "same", "u", "030"),
        (2, "gone", "d", "009"),
    ]


def test_a_value_that_was_not_logged_is_that_of_the_change_before(spark: "SparkSession") -> None:
    given = changes(
        spark,
        (1, "large", "u", 10),
        (1, UNCHANGED, "u", 20),
        (2, UNCHANGED, "u", 10),
        (3, "old", "u", 10),
        (3, None, "u", 20),
        (3, UNCHANGED, "u", 30),
    )

    rows = newest(given, ["id"], has_unchanged=True).orderBy("id").collect()

    assert [row.city for row in rows] == ["large", UNCHANGED, None]


def applied(
    spark: "SparkSession", known: dict[tuple[int, str], Any], batch: "DataFrame", deleted: "DataFrame | None"
) -> None:
    """What the MERGE of versions does to a table."""
    rows = [(*key, *rest) for key, rest in known.items()]
    table = spark.createDataFrame([(row[0], row[2], row[1], None, None, row[3]) for row in rows], KNOWN)
    table.createOrReplaceTempView("known_versions")
    for row in versions(batch, "known_versions", deleted, ["id"]).collect():
        place = (row.id, row._position)
        city = known[place][0] if place in known else row.city
        known[place] = (city, row._end_position)


def test_versions_are_the_same_in_any_order(spark: "SparkSession") -> None:
    given = [
        (1, "a", "c", 10),
        (1, "b", "u", 20),
        (1, "b", "d", 30),
        (1, "c", "c", 40),
        (1, "d", "u", 50),
        (2, "z", "c", 15),
    ]
    expected = {
        (1, "010"): ("a", "020"),
        (1, "020"): ("b", "030"),
        (1, "040"): ("c", "050"),
        (1, "050"): ("d", None),
        (2, "015"): ("z", None),
    }
    shuffled = random.Random(7).sample(given, len(given))

    for order in (given[::-1], shuffled):
        known: dict[tuple[int, str], Any] = {}
        for part in (order[:4], order[3:]):  # one change comes twice
            deletions = changes(spark, *(one for one in given if one[2] == "d")).select(
                "id", "_position", "_changed_at"
            )
            applied(spark, known, changes(spark, *part), deletions)

        assert known == expected


def test_files_without_the_keys_of_a_batch_are_not_read(spark: "SparkSession") -> None:
    given = changes(spark, (7, "Rome", "c", 1), (3, "it's", "c", 2))

    for keys, inside in ((["id"], [(3, ""), (5, ""), (7, "")]), (["city", "id"], [(5, "X")])):
        others = spark.createDataFrame([(2, "X"), (8, "X"), *inside], "id int, city string")
        assert sorted(map(tuple, others.where(limit_of(given, keys)).collect())) == inside


def test_a_table_that_was_merged_otherwise_is_named() -> None:
    assert str(Kind(("id", "region"), 1, "mysql")) == "rows by id, region of mysql"
    assert str(Kind(("id",), 2)) == "versions of rows by id"
    assert Target("iceberg", "pocketmq.`orders`").beside("deletes").name == "pocketmq.`orders_deletes`"
    assert Target("delta", path="/lake/orders/").beside("deletes").path == "/lake/orders_deletes"
