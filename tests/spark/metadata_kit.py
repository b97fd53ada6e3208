"""Brokers as far as the driver queries them: queues of messages with increasing times."""

from collections.abc import Mapping, Sequence

from pocketmq.model.queue import MessageQueue
from pocketmq.spark.broker_facts import Bounds


class FakeMetadata:
    """`held` gives the range of each queue; message n was stored at 1000 * n milliseconds."""

    def __init__(
        self, held: Mapping[MessageQueue, tuple[int, int]], committed: Mapping[MessageQueue, int] | None = None
    ) -> None:
        self._held = {queue: Bounds(*bounds) for queue, bounds in held.items()}
        self._committed = dict(committed or {})
        self.sql_brokers: set[str] = set()

    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in self._held})

    def queues(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in self._held if queue.topic == topic]

    def bounds(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, Bounds]:
        return {queue: self._held[queue] for queue in queues}

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        return {
            queue: min(max(-(-ms // 1000), self._held[queue].min), self._held[queue].max)
            for queue, ms in times_ms.items()
        }

    def committed(self, group: str, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        return {queue: self._committed[queue] for queue in queues if queue in self._committed}

    def earliest_store_ms(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        return {queue: self._held[queue].min * 1000 for queue in queues}

    def brokers_without_sql(self, queues: Sequence[MessageQueue]) -> list[str]:
        return sorted({queue.broker_name for queue in queues} - self.sql_brokers)
