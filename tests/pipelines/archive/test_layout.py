"""The paths of the files in a lake."""

from pocketmq.pipelines.archive.form import Slot, final_path, is_data, partition_values, staged_path


def test_a_staged_file_knows_its_final_path_and_its_origin() -> None:
    final = final_path("topic=orders/day=2026-01-01/part-0.parquet", 7)

    assert final == "topic=orders/day=2026-01-01/0000000007-part-0.parquet"
    assert staged_path(final, 7) == "_staging/0000000007/topic=orders/day=2026-01-01/part-0.parquet"


def test_folders_are_named_by_topic_and_time() -> None:
    path = "topic=%25DLQ%25billing/day=2026-01-01/hour=07/part-0.parquet"

    assert partition_values(path) == {"topic": "%DLQ%billing", "day": "2026-01-01", "hour": "07"}
    assert Slot.DAY.columns == ("topic", "day")
    assert Slot.HOUR.columns == ("topic", "day", "hour")


def test_auxiliary_files_of_spark_are_not_data() -> None:
    assert [name for name in ("part-0.parquet", "_SUCCESS", ".part-0.parquet.crc") if is_data(name)] == [
        "part-0.parquet"
    ]
