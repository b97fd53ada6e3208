"""Stored messages for tests of the consumer's rules."""

from pocketmq.client.consumer.process_queue import ProcessQueue, QueueObserver
from pocketmq.client.consumer.pull_position import PullPosition
from pocketmq.model.message import StoredMessage
from pocketmq.model.properties import format_properties
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.record import decode_record, encode_record


def stored(
    offset: int = 0,
    body: bytes = b"body",
    *,
    topic: str = "Orders",
    times: int = 0,
    properties: dict[str, str] | None = None,
    sys_flag: int = 0,
) -> StoredMessage:
    """A message of queue 0 as a pull returns it."""
    record = encode_record(
        topic.encode(),
        0,
        offset,
        1000 + offset,
        body,
        format_properties(properties or {}).encode(),
        7,
        sys_flag,
        1,
        bytes(8),
        2,
        bytes(8),
        times,
    )
    return decode_record(record)


def run_of(start: int, end: int) -> list[StoredMessage]:
    """Messages with the offsets from `start` to before `end`."""
    return [stored(offset) for offset in range(start, end)]


class Unobserved:
    """For process queues whose messages the test takes itself. Pulls wait when more than `enough` are in flight."""

    def __init__(self, enough: int | None = None) -> None:
        self.enough = enough

    def arrived(self, owned: ProcessQueue) -> int | None:
        return self.enough

    def deactivated(self, owned: ProcessQueue) -> None: ...


def process_queue(
    now: float = 0.0, *, queue_id: int = 0, observer: QueueObserver | None = None, is_orderly: bool = False
) -> ProcessQueue:
    """A queue of topic T, from its beginning."""
    pulls = PullPosition(MessageQueue("T", "b", queue_id), 0)
    return ProcessQueue(pulls, observer or Unobserved(), now, is_orderly=is_orderly)
