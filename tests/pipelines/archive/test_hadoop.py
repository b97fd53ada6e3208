"""Lakes on file systems of Hadoop: the same manifest, compaction and repair, through Hadoop's own library."""

import errno
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.pipelines.sent_kit import values_in
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq.errors import InvalidSetting, PipelineFailed
from pocketmq.files import DiskFiles, write_atomically
from pocketmq.pipelines.archive import lake as lake_module
from pocketmq.pipelines.archive.hadoop import HadoopFiles, check_scheme, located, root_of
from pocketmq.pipelines.archive.job import examination, run_archive
from pocketmq.pipelines.archive.manifest import ManifestLog
from pocketmq.pipelines.archive.reading import ReadLake
from pocketmq.pipelines.archive.settings import ArchiveSettings
from pocketmq.pipelines.core.running import Run
from pocketmq.pipelines.core.settings import Time
from pocketmq.pipelines.jobs import replay
from pocketmq.pipelines.jobs.replay import ReplaySettings, check_replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = "viewfs://lakes"


@pytest.fixture
def mounted(spark: "SparkSession", tmp_path: Path) -> str:
    """A folder of a file system of Hadoop, which is this disk under another name."""
    java: Any = spark
    java._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.lakes.link./data", tmp_path.as_uri())
    java._jsc.hadoopConfiguration().setBoolean("fs.viewfs.impl.disable.cache", True)
    return f"{ROOT}/data/lake"


def settings(broker: Broker, topic: str, lake: str, **given: object) -> ArchiveSettings:
    told: dict[str, Any] = {"max_messages": 4, "compact": False, **given}
    return ArchiveSettings(namesrv=broker.name_server, topics=[topic], lake=lake, **told)


def values(spark: "SparkSession", lake: str) -> Counter[str]:
    return Counter(row[0] for row in spark.read.parquet(lake).selectExpr("CAST(value AS string)").collect())


def test_a_lake_of_hadoop_has_each_message_once_after_failures_at_each_step(
    spark: "SparkSession", broker: Broker, mounted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, [f"{number}" for number in range(9)])
    told = settings(broker, topic, mounted, compact=True, compact_files=2)
    examine = examination(told)
    assert examine is not None

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "the machine is gone")

    assert examine(spark) == ()
    for module, step in ((lake_module, "stage_rows"), (ManifestLog, "commit"), (lake_module, "publish")):
        with monkeypatch.context() as patch:
            patch.setattr(module, step, broken)
            with pytest.raises(PipelineFailed, match="the machine is gone"):
                run_archive(spark, told, Run())
    run_archive(spark, told, Run())
    fill(broker, topic, ["9"])
    again = run_archive(spark, told, Run())

    assert again.messages == 1
    assert values(spark, mounted) == Counter("0123456789")
    lake = ReadLake(mounted, spark)
    assert (lake.manifest.rows, [(one.start, one.end) for one in lake.ranges_of()]) == (10, [(0, 10)])
    assert lake.rows(spark, lake.ranges_of()).where("queueOffset > 7").count() == 2
    assert DiskFiles().list(tmp_path / "lake" / "_staging") == []


def test_files_of_hadoop_behave_as_those_of_a_disk(spark: "SparkSession", mounted: str) -> None:
    location = located(f"{mounted}/inner", spark)
    folder, files = location.folder, location.files
    assert isinstance(files, HadoopFiles)

    assert (files.status(folder), files.list(folder)) == (None, [])
    files.make_dir(folder)
    write_atomically(files, folder / "a", b"one")
    write_atomically(files, folder / "a", b"other")
    assert (files.read(folder / "a"), files.list(folder)) == (b"other", ["a"])
    status = files.status(folder / "a")
    assert status is not None
    assert (status.size, status.is_dir) == (5, False)
    with files.open(folder / "a", write=False) as file:
        file.sync()
        assert file.size() == 5
    with pytest.raises(FileNotFoundError):
        files.read(folder / "b")
    with pytest.raises(FileNotFoundError):
        files.open(folder / "b")
    assert files.usage(folder).free > 0
    assert files.may_write_in(folder / "new" / "newer") is None
    files.unlink(folder / "a")
    files.remove_dir(folder)
    assert files.status(folder) is None


def test_a_uri_of_this_disk_is_a_path_and_others_are_checked(spark: "SparkSession", tmp_path: Path) -> None:
    for text in ("file:/data/lake", "file:///data/lake", "file://localhost/data/lake", "/data/lake"):
        told = ArchiveSettings(topics=["orders"], lake=text)
        assert (told.lake, told.checkpoint_folder) == ("/data/lake", "/data/lake/_checkpoint")
    for lake in (
        "hdfs://namenode:8020/lake",
        "abfss://lakes@account.dfs.core.windows.net/lake",
        "viewfs://x/lake",
        "/lake",
    ):
        check_scheme(lake)
    for lake in ("s3a://bucket/lake", "gs://bucket/lake", "ftp://host/lake"):
        with pytest.raises(
            InvalidSetting, match=r"is not atomic.*--table catalog\.db\.name.*--format delta with this path"
        ):
            check_scheme(lake)
    with pytest.raises(InvalidSetting, match="names another machine; a path of this one begins with file:///"):
        check_scheme(ArchiveSettings(topics=["orders"], lake="file://host/lake").lake)
    for lake in ("hdfs:lake", "hdfs://namenode", "x:y"):
        with pytest.raises(InvalidSetting, match="URI with a path such as hdfs"):
            check_scheme(lake)
    with pytest.raises(InvalidSetting, match=r"abfss://.* cannot be opened.*spark\.jars\.packages"):
        root_of("abfss://lakes@account.dfs.core.windows.net/lake", spark)
    with pytest.raises(InvalidSetting, match="can only be read with Spark"):
        located("hdfs://namenode:8020/lake")


def test_a_dry_run_refuses_a_lake_of_hadoop_without_write_permission(
    spark: "SparkSession", broker: Broker, mounted: str
) -> None:
    topic = new_topic(broker)
    examine = examination(settings(broker, topic, f"{ROOT}/lake"))  # the root of viewfs is only a table of mounts
    assert examine is not None

    with pytest.raises(InvalidSetting, match=r"--lake viewfs://lakes/lake is not writable"):
        examine(spark)


def test_a_file_system_without_its_library_or_its_servers_is_named_with_its_flag_by_a_dry_run(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    java: Any = spark
    java._jsc.hadoopConfiguration().set("ipc.client.connect.max.retries", "0")

    def message_of(**given: str) -> str:
        examine = examination(settings(broker, topic, given.pop("lake", str(tmp_path / "lake")), **given))
        assert examine is not None
        with pytest.raises(InvalidSetting) as caught:
            examine(spark)
        return str(caught.value)

    for uri in ("abfss://c@a.dfs.core.windows.net/lake", "hdfs://127.0.0.1:1/lake"):
        assert uri.rpartition("/")[0] in message_of(lake=uri)
    assert "--lake hdfs://127.0.0.1:1/lake is not writable: ConnectException" in message_of(
        lake="hdfs://127.0.0.1:1/lake"
    )
    assert "the file system s3a://bucket cannot be opened" in message_of(checkpoint="s3a://bucket/notes")
    assert "--checkpoint viewfs://" in message_of(checkpoint=f"{ROOT}/notes")
    assert not (tmp_path / "lake").exists()


def test_a_lake_of_hadoop_is_replayed(spark: "SparkSession", broker: Broker, mounted: str, tmp_path: Path) -> None:
    topic, lake = new_topic(broker, queues=1), f"file://{tmp_path}/lake"
    fill(broker, topic, ["a", "b", "c"])
    run_archive(spark, settings(broker, topic, mounted, slot="hour"), Run())
    targets = [new_topic(broker), new_topic(broker)]

    for uri, target in zip((mounted, lake), targets, strict=True):
        told = ReplaySettings(
            namesrv=broker.name_server, lake=uri, to=target, checkpoint=str(tmp_path / target), since=Time(1)
        )
        check_replay(told)
        examine = replay.examination(told)
        assert (None if examine is None else examine(spark)) == (
            ("the lake has 3 messages to send",) if uri == mounted else None
        )
        assert replay.plan_replay(told).messages == (0 if uri == mounted else 3)
        replay.run_replay(spark, told, Run())

    for target in targets:
        assert values_in(broker, target) == Counter("abc")
