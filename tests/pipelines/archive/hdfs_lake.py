"""A lake on HDFS for real: a small cluster of Hadoop in the JVM of Spark's driver, failures at each step, and the lock.

python -m tests.pipelines.archive.hdfs_lake --jar hadoop-client-minicluster-3.5.0.jar

The library is `org.apache.hadoop:hadoop-client-minicluster` on Maven, in the version of Hadoop that PySpark ships.
"""

import argparse
import errno
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from rich.console import Console
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq import Server
from pocketmq.errors import InvalidSetting, PipelineFailed, StoreLocked
from pocketmq.pipelines.archive import lake as lake_module
from pocketmq.pipelines.archive.form import Form
from pocketmq.pipelines.archive.hadoop import located
from pocketmq.pipelines.archive.job import examination, run_archive
from pocketmq.pipelines.archive.lake import Lake
from pocketmq.pipelines.archive.manifest import ManifestLog
from pocketmq.pipelines.archive.reading import ReadLake
from pocketmq.pipelines.archive.settings import ArchiveSettings
from pocketmq.pipelines.core.running import Run
from pocketmq.pipelines.core.sessions import session


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m tests.pipelines.archive.hdfs_lake")
    parser.add_argument("--jar", required=True)
    given = parser.parse_args(arguments)
    say = Console(highlight=False).print
    settings = {"spark.driver.extraClassPath": given.jar, "spark.driver.memory": "1g"}
    with TemporaryDirectory() as folder, Server() as server, session("hdfs", "local[2]", settings=settings) as spark:
        java: Any = spark
        hdfs = java._jvm.org.apache.hadoop.hdfs
        configuration = java._jsc.hadoopConfiguration()
        configuration.set("hdfs.minidfs.basedir", folder)
        configuration.set("dfs.client.block.write.replace-datanode-on-failure.enable", "false")
        cluster = getattr(hdfs, "MiniDFSCluster$Builder")(configuration).numDataNodes(1).build()
        try:
            cluster.waitActive()
            root = f"hdfs://127.0.0.1:{cluster.getNameNodePort()}"
            check(spark, Broker.of(server), f"{root}/lake")
            check_permission(spark, Broker.of(server), root, cluster)
        finally:
            cluster.shutdown()
    say("HDFS: each message once after failures at each step, and one writer at a time")


def check(spark: Any, broker: Broker, uri: str) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, [f"{number}" for number in range(9)])
    told: dict[str, Any] = {"max_messages": 4, "compact": True, "compact_files": 2}
    settings = ArchiveSettings(namesrv=broker.name_server, topics=[topic], lake=uri, **told)

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "the machine is gone")

    for module, step in ((lake_module, "stage_rows"), (ManifestLog, "commit"), (lake_module, "publish")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, step, broken)
            with pytest.raises(PipelineFailed, match="the machine is gone"):
                run_archive(spark, settings, Run())
    run_archive(spark, settings, Run())
    fill(broker, topic, ["9"])
    assert run_archive(spark, settings, Run()).messages == 1
    found = Counter(row[0] for row in spark.read.parquet(uri).selectExpr("CAST(value AS string)").collect())
    assert found == Counter("0123456789"), found
    assert ReadLake(uri, spark).manifest.rows == 10
    assert located(uri, spark).files.list(Path("/lake/_staging")) == []
    with Lake(located(uri, spark), Form()), pytest.raises(StoreLocked, match="another process writes"):
        Lake(located(uri, spark), Form())


def check_permission(spark: Any, broker: Broker, root: str, cluster: Any) -> None:
    """The superuser may do everything, so a quota that permits no file stands for the full disk."""
    topic = new_topic(broker)
    files = cluster.getFileSystem()
    folder = spark._jvm.org.apache.hadoop.fs.Path("/full")
    files.mkdirs(folder)
    files.setQuota(folder, 1, 1 << 40)
    examine = examination(ArchiveSettings(namesrv=broker.name_server, topics=[topic], lake=f"{root}/full/lake"))
    assert examine is not None
    with pytest.raises(InvalidSetting, match=r"--lake .*/full/lake is not writable: .*quota"):
        examine(spark)


if __name__ == "__main__":
    main()
