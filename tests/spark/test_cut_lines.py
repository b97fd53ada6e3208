"""A broker closes the connection of a task that does not read its answers; the task continues, and returns each row once."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, new_topic, options, queue

from pocketmq import Message, Producer, Server
from pocketmq.model.queue import QueueRange
from pocketmq.net.connection import Connection
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.read.planning import ReadPartition, plan_partitions
from pocketmq.spark.read.range_reading import read_partition
from pocketmq.spark.schema import Name

ANSWER_BYTES = 4 * 1024 * 1024
BODY_BYTES = 512 * 1024
MESSAGES = 32
LITTLE_BYTES = 64 * 1024
PATIENCE_S = 30.0


@pytest.fixture
def large_answers(tmp_path: Path) -> Iterator[Broker]:
    kinds = ("InMemory", "InDisk")
    settings = {f"maxTransferBytesOnMessage{kind}": ANSWER_BYTES for kind in kinds}
    with Server(
        data=tmp_path, settings={**settings, **{f"maxTransferCountOnMessage{kind}": 64 for kind in kinds}}
    ) as server:
        yield Broker.of(server)


@pytest.fixture
def stuck_lines(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """Lines whose peer did not read at some time. The system's buffers are little, so that they do not hide it."""
    stuck: list[Connection] = []
    made, pause, connect = Connection.connection_made, Connection.pause_writing, socket.create_connection

    def narrow(line: Connection, transport: Any) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LITTLE_BYTES)
        made(line, transport)

    def noted(line: Connection) -> None:
        pause(line)
        stuck.append(line)

    def narrow_line(*given: Any) -> socket.socket:
        connection = connect(*given)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE_BYTES)
        return connection

    monkeypatch.setattr(Connection, "connection_made", narrow)
    monkeypatch.setattr(Connection, "pause_writing", noted)
    monkeypatch.setattr(socket, "create_connection", narrow_line)
    return stuck


def filled(broker: Broker) -> ReadPartition:
    topic = new_topic(broker, queues=1)
    place = queue(broker, topic, 0)
    with Producer(broker.name_server, group="filling") as producer:
        for number in range(MESSAGES):
            producer.send(Message(topic, body(number)), queue=place)
    read = parse_read_options(
        options(broker, subscribe=topic, rocketmqConsumer_idleTimeoutMs=1), streaming=False, environ={}
    )
    (partition,) = plan_partitions([QueueRange(place, 0, MESSAGES)], (Name.QUEUE_OFFSET, Name.VALUE), read, cores=1)
    return partition


def body(number: int) -> bytes:
    """One that no producer can compress."""
    return Random(number).randbytes(BODY_BYTES)


def cut_when_stuck(stuck: list[Connection]) -> None:
    """What the broker does when its time is up: see `Connection`."""
    deadline = monotonic() + PATIENCE_S
    while not (held := [line for line in stuck if line.ending is None and not line.writable]):
        assert monotonic() < deadline, "the broker could send everything"
        sleep(0.001)
    for line in held:
        line.loop.call_soon_threadsafe(line._drop_slow_peer)
    while not all(line.ending is not None for line in held):
        assert monotonic() < deadline, "a line was not cut"
        sleep(0.001)


@pytest.mark.parametrize("before", [1, 2])
def test_a_task_with_a_lost_connection_has_each_row_once(
    stuck_lines: list[Connection], large_answers: Broker, caplog: pytest.LogCaptureFixture, before: int
) -> None:
    caplog.set_level(logging.INFO)
    batches = read_partition(filled(large_answers))

    found = [next(batches) for _ in range(before)]
    cut_when_stuck(stuck_lines)
    found += batches

    rows = [row for batch in found for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in rows] == list(range(MESSAGES))
    assert all(row["value"] == body(number) for number, row in enumerate(rows))
    assert "slow peer" in caplog.text
    assert "by the event loop from offset" in caplog.text
