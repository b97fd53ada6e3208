"""Message queues, offsets in them, and ranges of offsets."""

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel", gc=False, cache_hash=True):
    """One queue of a topic on one broker. Sorted as in Java: by topic, broker name, then queue id as a number."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"

    def java_text(self) -> str:
        """Java's `toString`, the input of consistent hashing."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"


class QueueOffset(msgspec.Struct, frozen=True, order=True, gc=False):
    """A position in a queue: the next message to read."""

    queue: MessageQueue
    offset: int


class QueueRange(msgspec.Struct, frozen=True, order=True, gc=False):
    """The messages of a queue from `start` (included) to `end` (excluded)."""

    queue: MessageQueue
    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    def split(self, at: int) -> "tuple[QueueRange, QueueRange | None]":
        """The part before the offset `at`, and the rest, if any."""
        if at >= self.end:
            return self, None
        return QueueRange(self.queue, self.start, at), QueueRange(self.queue, at, self.end)


def java_sorted(texts: list[str]) -> list[str]:
    """Sorted as in Java, by UTF-16 units, which differs from Python only for characters beyond the basic plane."""
    if "".join(texts).isascii():
        return sorted(texts)
    return sorted(texts, key=lambda text: text.encode("utf-16-be", "surrogatepass"))
