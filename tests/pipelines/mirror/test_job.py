"""One cluster's topics on another, on a real Spark."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.sent_kit import FailsOnce, bodies, rows_in, values_in
from tests.spark.broker_kit import Broker, fill, new_topic, queue

from pocketmq import Admin, Server
from pocketmq.errors import GroupNotFound, InvalidSetting, PipelineFailed
from pocketmq.pipelines.core.running import Run
from pocketmq.pipelines.mirror import job
from pocketmq.pipelines.mirror.job import STATE_FILE, MirrorSettings, check_mirror, plan_mirror, run_mirror
from pocketmq.pipelines.mirror.offset_map import read_map

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Broker]:
    with Server(data=tmp_path / "other", settings={"brokerName": "broker-b"}) as server:
        yield Broker.of(server)


def settings(broker: Broker, other: Broker, folder: Path, topic: str, **given: object) -> MirrorSettings:
    told = {"max_messages": 4, "target": other.name_server, "checkpoint": str(folder / "notes"), **given}
    return MirrorSettings(namesrv=broker.name_server, topics=[topic], **told)  # type: ignore[arg-type]


def test_an_interrupted_mirror_copies_each_message_once_in_order_and_moves_groups(
    spark: "SparkSession", broker: Broker, other: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = new_topic(broker, queues=3), "mirrored-group"
    fill(broker, topic, bodies(0, 6), tags="paid")
    fill(broker, topic, bodies(6, 9), number=2)
    with Admin(broker.name_server) as admin:
        admin.groups.create(group)
        admin.offsets.reset(group, topic, {queue(broker, topic, 0): 4, queue(broker, topic, 2): 3})
    told = settings(broker, other, tmp_path, topic, groups=[group])

    planned = plan_mirror(told)
    with monkeypatch.context() as patch:
        patch.setattr(job, "_sent", FailsOnce(job._sent, 2))  # the batch is stored, but not recorded
        with pytest.raises(PipelineFailed, match="the machine is gone"):
            run_mirror(spark, told, Run())
    fill(broker, topic, ["last"], number=2)
    summary = run_mirror(spark, told, Run())

    rows = rows_in(other, topic)
    assert planned.messages == 9
    assert values_in(other, topic) == Counter([*bodies(0, 9), "last"])
    assert [row["value"].decode() for row in rows if row["queueId"] == 0] == bodies(0, 6)
    assert [row["value"].decode() for row in rows if row["queueId"] == 2] == [*bodies(6, 9), "last"]
    first = rows[0]
    assert (first["tags"], first["keys"], dict(first["properties"])["said"]) == ("paid", "0", "0")
    with Admin(other.name_server) as admin:
        assert len(admin.topics.describe(topic).queues) == 3
        moved = admin.offsets.committed(group, topic)
    assert (moved[queue(other, topic, 0)], moved[queue(other, topic, 2)]) == (4, 3)
    assert [row["done"] for row in summary.tables["groups"]] == ["moved", "moved"]
    offsets = read_map((tmp_path / "notes" / STATE_FILE).read_text())
    assert {(run.source_start, run.target_start, run.count) for runs in offsets.runs.values() for run in runs} == {
        (0, 0, 6),
        (0, 0, 4),
    }


def test_copies_are_not_mirrored_back(spark: "SparkSession", broker: Broker, other: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, ["here"])
    run_mirror(spark, settings(broker, other, tmp_path, topic), Run())
    fill(other, topic, ["there"])

    back = settings(other, broker, tmp_path, topic, checkpoint=str(tmp_path / "back"))
    run_mirror(spark, back, Run())

    assert values_in(broker, topic) == values_in(other, topic) == Counter(["here", "there"])


def test_a_cluster_is_not_mirrored_to_itself(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="is the source cluster"):
        plan_mirror(settings(broker, broker, tmp_path, "orders"))


def test_a_cluster_is_recognised_by_its_brokers_not_by_the_address(broker: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    host, _, port = broker.name_server.rpartition(":")
    same = Broker(f"localhost:{port},{host}:{port}", broker.name)

    with pytest.raises(InvalidSetting, match=r"both have the broker at .*; use another --target"):
        check_mirror(settings(broker, same, tmp_path, topic))


def test_a_missing_group_is_reported_before_anything_is_mirrored(broker: Broker, other: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker)

    with pytest.raises(GroupNotFound, match="group 'nobody' does not exist"):
        check_mirror(settings(broker, other, tmp_path, topic, groups=["nobody"]))
