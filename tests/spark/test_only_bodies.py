"""Tasks that read only bodies, from a real broker: each row once and in order, for every kind of answer."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, new_topic, options, queue
from tests.twins import BOTH, using

from pocketmq import Admin, Message, Producer, Server
from pocketmq.model.queue import QueueRange
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.read.chunks import unpacked
from pocketmq.spark.read.planning import plan_partitions
from pocketmq.spark.read.range_reading import read_partition
from pocketmq.spark.schema import Name
from pocketmq.spark.shared_clients import ReadingCore

COUNT = 700
LARGE_ANSWERS = {"maxTransferCountOnMessageInMemory": 16_384, "maxTransferBytesOnMessageInMemory": 8 * 1024 * 1024}


@pytest.fixture(scope="module", params=[*product(BOTH, (False, True))], ids=str)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """With each twin, with few messages in an answer, with the default, and with many."""
    name, has_large_answers = request.param
    data: Path = tmp_path_factory.mktemp("broker")
    with using(name), Server(data=data, settings=LARGE_ANSWERS if has_large_answers else {}) as server:
        yield Broker.of(server)


@pytest.fixture
def packs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each chunk that was received as bodies alone."""
    seen: list[int] = []

    def noted(pulled: Any, schema: Any) -> Iterator[Any]:
        seen.append(len(pulled.records))
        return unpacked(pulled, schema)

    monkeypatch.setattr("pocketmq.spark.read.range_reading.unpacked", noted)
    return seen


def filled(broker: Broker, bodies: Sequence[bytes], properties: dict[str, str]) -> str:
    topic = new_topic(broker, queues=1)
    with Producer(broker.name_server, group="filling") as producer:
        producer.send_many(
            [Message(topic, body, properties=properties) for body in bodies], queue=queue(broker, topic, 0)
        )
    return topic


def read(
    broker: Broker, topic: str, columns: tuple[Name, ...], start: int, end: int, **given: str | int
) -> list[bytes]:
    wanted = QueueRange(queue(broker, topic, 0), start, end)
    told = parse_read_options(options(broker, subscribe=topic, **given), streaming=False, environ={})
    (partition,) = plan_partitions([wanted], columns, told, cores=1)
    return [body for batch in read_partition(partition) for body in batch.column("value").to_pylist()]


async def only_the_loop(*_: object) -> None:
    """As where lines are encrypted."""


def small(number: int) -> bytes:
    return b"%d" % number


def sometimes_compressed(number: int) -> bytes:
    return bytes(5000) if number in (3, 350) else small(number)


def large(number: int) -> bytes:
    return b"%0900d" % number


@pytest.mark.parametrize(
    ("body", "comes_as_bodies"),
    [(small, True), (sometimes_compressed, None), (large, False)],
    ids=["small", "sometimes compressed", "large"],
)
def test_bodies_alone_equal_those_of_the_records(
    broker: Broker, packs: list[int], body: Callable[[int], bytes], comes_as_bodies: bool | None
) -> None:
    bodies = [body(number) for number in range(COUNT)]
    topic = filled(broker, bodies, {"of": "so many bytes that a body is little beside them"})

    for start, end in ((0, COUNT), (1, 2), (123, 456)):
        assert read(broker, topic, (Name.VALUE,), start, end) == bodies[start:end]
        assert read(broker, topic, (Name.VALUE, Name.QUEUE_OFFSET), start, end) == bodies[start:end]

    assert comes_as_bodies is None or bool(packs) == comes_as_bodies


@pytest.mark.parametrize("columns", [(Name.VALUE,), (Name.VALUE, Name.QUEUE_OFFSET)], ids=len)
@pytest.mark.parametrize("by_loop", [False, True])
def test_a_reset_of_the_group_does_not_affect_a_task(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, columns: tuple[Name, ...], by_loop: bool
) -> None:
    bodies = [small(number) for number in range(COUNT)]
    topic = filled(broker, bodies, {"of": "so many bytes that a body is little beside them"})
    assert read(broker, topic, columns, 0, COUNT, groupId="etl") == bodies
    if by_loop:
        monkeypatch.setattr(ReadingCore, "direct_pulls", only_the_loop)

    with Admin(broker.name_server) as admin:
        admin.offsets.reset("etl", topic, {queue(broker, topic, 0): COUNT - 1})

    assert read(broker, topic, columns, 0, COUNT, groupId="etl") == bodies


def test_small_buffers_and_pulls_give_the_same_rows(broker: Broker, packs: list[int]) -> None:
    bodies = [small(number) for number in range(COUNT)]
    topic = filled(broker, bodies, {"of": "so many bytes that a body is little beside them"})

    assert read(broker, topic, (Name.VALUE,), 5, 600, decodeBufferBytes=1024) == bodies[5:600]
    assert read(broker, topic, (Name.VALUE,), 5, 600, pullBatchSize=7) == bodies[5:600]
    assert packs
