"""A checkpoint belongs to one pipeline, and one run uses it at a time."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq.errors import InvalidSetting, WrongState
from pocketmq.files import DiskFiles
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.pipelines.core.checkpoint import Owner, check_owner, is_local, last_batch, owned
from pocketmq.spark.read.offsets import UNRESOLVED, QueryOffset, write_batch

OWNER = Owner(pipeline="archive", topics=("orders",), sink="the lake /l")


class Classic:
    """A stand-in for a session whose driver is this process: it gets no calls."""


def use(folder: Path, owner: Owner = OWNER) -> str:
    spark: Any = Classic()
    with owned(spark, str(folder), owner) as name:
        return name


def test_the_first_run_writes_the_owner_of_a_checkpoint_and_later_ones_check_it(tmp_path: Path) -> None:
    name = use(tmp_path / "new" / "checkpoint")

    assert len(name) == 12
    assert use(tmp_path / "new" / "checkpoint") == name


def test_topics_may_be_added_and_not_removed(tmp_path: Path) -> None:
    use(tmp_path)
    use(tmp_path, Owner(pipeline="archive", topics=("orders", "payments"), sink="the lake /l"))

    with pytest.raises(
        WrongState, match=r"belongs to archive of orders, payments into the lake /l, not to archive of orders"
    ):
        use(tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        Owner(pipeline="mirror", topics=("orders",), sink="the lake /l"),
        Owner(pipeline="archive", topics=("payments",), sink="the lake /l"),
        Owner(pipeline="archive", topics=("orders",), sink="the lake /other"),
    ],
)
def test_the_checkpoint_of_another_pipeline_is_refused_and_not_changed(tmp_path: Path, other: Owner) -> None:
    use(tmp_path)
    before = (tmp_path / "pipeline.json").read_text("utf-8")

    with pytest.raises(WrongState, match="use another --checkpoint, or remove this one"):
        use(tmp_path, other)

    assert (tmp_path / "pipeline.json").read_text("utf-8") == before


def test_the_checkpoint_of_a_foreign_query_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"x"}', "utf-8")

    with pytest.raises(WrongState, match="is not a pipeline"):
        use(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["metadata"]


def test_a_damaged_owner_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_text("{", "utf-8")

    with pytest.raises(WrongState, match="is damaged"):
        use(tmp_path)


def test_a_file_is_not_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("of somebody", "utf-8")

    with pytest.raises(WrongState, match="notes is a file; it must be a folder"):
        use(tmp_path / "notes")


def test_a_second_run_is_refused_during_the_first(tmp_path: Path) -> None:
    spark: Any = Classic()
    with (
        owned(spark, str(tmp_path), OWNER),
        pytest.raises(WrongState, match="another run of archive uses the checkpoint"),
    ):
        use(tmp_path)

    assert use(tmp_path)


def test_the_file_of_its_last_batch_has_the_progress_of_a_checkpoint(tmp_path: Path) -> None:
    files, place = DiskFiles(), MessageQueue("t", "b", 0)
    for offset in (9, 10):
        write_batch(tmp_path / "batch.json", dict(UNRESOLVED), QueryOffset({place: offset}, {place: 2}).to_json())

    batch = last_batch(str(tmp_path), files)

    assert batch is not None
    assert batch.ranges == [QueueRange(place, 2, 10)]
    assert last_batch(str(tmp_path / "none"), files) is None
    assert last_batch("s3a://bucket/c", files) is None


def test_a_damaged_file_of_the_last_batch_is_named(tmp_path: Path) -> None:
    (tmp_path / "batch.json").write_text("", "utf-8")  # as a power failure may leave it

    with pytest.raises(WrongState, match=r"batch\.json is damaged: .*the next batch replaces it"):
        last_batch(str(tmp_path), DiskFiles())


def test_a_checkpoint_without_permission_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="the checkpoint /proc/notes is not writable; use a folder in which"):
        check_owner("/proc/notes", OWNER)


def test_local_paths_are_recognised() -> None:
    assert is_local("/data/c")
    assert is_local("c")
    assert not is_local("s3a://bucket/c")
