"""When the checkpoint may speak of queues: not before the keys of the same messages are in the index.

    queues synced     10:00:10   10:00:20   10:00:30          each with how far the log was written then
    index told        10:00:21
    checkpoint says   10:00:20 of the queues

After a crash a RocketMQ broker reads the log again from where the checkpoint puts the queues, and enters no keys of what lies
before. So a checkpoint that ran ahead of the index would cost it keys.
"""


class QueueTimes:
    """Store times up to which queues are safe, until they may be told."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int]] = []

    def synced(self, log_offset: int, store_ms: int) -> None:
        """Queues are safe up to `store_ms`; the messages up to that time lie before `log_offset`."""
        # The oldest must not wait for ever, and those between it and the newest would tell little.
        del self._waiting[1:]
        self._waiting.append((log_offset, store_ms))

    def take_told(self, indexed_to: float, keys_ms: float) -> int | None:
        """The newest time that may be told, when messages before `indexed_to` were entered and their keys are safe up to
        `keys_ms`; None when there is no new one.
        """
        told = None
        while self._waiting and self._waiting[0][0] <= indexed_to and self._waiting[0][1] <= keys_ms:
            told = self._waiting.pop(0)[1]
        return told
