"""A broker loses the end of its log under a streaming read: new messages are read, wherever they end. Real processes, without Spark."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.assault.damage import cut_log
from tests.client.processes import Children, processes

from pocketmq import Admin, Producer
from pocketmq.errors import DataLost
from pocketmq.model.queue import MessageQueue
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.read.stream_reader import TopicStreamReader
from pocketmq.spark.schema import Name

LOST = 5
KEPT = 5
BODY_BYTES = 600


def open_reader(name_server: str, policy: str) -> TopicStreamReader:
    options = {
        "rocketmq.namesrv.addr": name_server,
        "subscribe": "T",
        "startingOffsets": "earliest",
        "latestOffset.minIntervalMs": "0",
        "onDataLoss": policy,
    }
    return TopicStreamReader(parse_read_options(options, streaming=True, environ={}), (Name.VALUE,))


def serve(children: Children, folder: Path, *ports: object) -> dict[str, Any]:
    arguments = ("--data", folder / "data", "--namesrv-port", *ports[:1], "--broker-port", *ports[1:])
    _, told = children.server("serve", *arguments)
    return told


def send(name_server: str, kind: bytes, count: int) -> set[bytes]:
    bodies = {(b"%b %d" % (kind, number)).ljust(BODY_BYTES) for number in range(count)}
    queue = MessageQueue("T", "broker-a", 0)
    with Producer(name_server, group="filling", retries=20) as producer:
        for body in sorted(bodies):
            producer.send("T", body, queue=queue)
    return bodies


def rows(reader: TopicStreamReader, start: Any, end: Any) -> set[bytes]:
    batches = (batch for part in reader.partitions(start, end) for batch in reader.read(part))
    return {value for batch in batches for value in batch.column(0).to_pylist()}


@pytest.mark.parametrize("more", [2 * LOST, 1], ids=["long again", "still shorter"])
@pytest.mark.parametrize("policy", ["skip", "earliest", "fail"])
def test_new_messages_are_read_or_the_loss_is_an_error(tmp_path: Path, more: int, policy: str) -> None:
    with processes(tmp_path) as children:
        told = serve(children, tmp_path, 0, 0)
        name_server, address = told["name_server"], told["brokers"][0]["address"]
        with Admin(name_server) as admin:
            admin.topics.create("T", queues=1)
        send(name_server, b"old", KEPT + LOST)
        reader = open_reader(name_server, policy)
        first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        assert len(rows(reader, reader.initialOffset(), first)) == KEPT + LOST
        children.all[0].kill()
        cut_log(tmp_path / "data" / "broker-a" / "commitlog", (LOST - 1) * BODY_BYTES)
        serve(children, tmp_path, *(one.rpartition(":")[2] for one in (name_server, address)))
        new = send(name_server, b"new", more)

        if policy == "fail":
            with pytest.raises(DataLost, match="truncation"):
                _next(reader, first)
        else:
            second = _next(reader, first)
            assert rows(reader, first, second) >= new
            newest = send(name_server, b"newest", 1)
            assert rows(reader, second, _next(reader, second)) == newest
        reader.stop()


def _next(reader: TopicStreamReader, before: Any) -> Any:
    """The end of the next batch. While the broker is away, there is none."""
    for _ in range(100):
        after = reader.latestOffset(before, reader.getDefaultReadLimit())
        if after is not before:
            return after
    raise AssertionError("there is no next batch")
