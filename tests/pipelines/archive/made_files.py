"""Files, spans and ranges for tests, in few words."""

from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.pipelines.archive.manifest import Commit, DataFile, Span
from pocketmq.spark.read.offsets import Lost

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)


def stretch(start: int, end: int, queue: MessageQueue = QUEUE) -> QueueRange:
    return QueueRange(queue, start, end)


def data_file(
    name: str,
    *ranges: QueueRange,
    size: int = 10,
    first_ms: int = 0,
    last_ms: int = 0,
    folder: str = "topic=orders/day=d",
) -> DataFile:
    return DataFile(
        path=f"{folder}/{name}",
        topic="orders",
        spans=tuple(Span(one, len(one)) for one in ranges),
        bytes=size,
        first_store_ms=first_ms,
        last_store_ms=last_ms,
    )


def commit(
    number: int,
    *added: DataFile,
    removed: tuple[str, ...] = (),
    lost: tuple[Lost, ...] = (),
    ends: tuple[QueueRange, ...] = (),
) -> Commit:
    return Commit(
        number=number, made_ms=1, query="q", batch=number - 1, added=added, removed=removed, lost=lost, ends=ends
    )
