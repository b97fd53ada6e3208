"""The store: the log, what of it is not safe yet, what is made from it, and the disk."""

from pocketmq.broker.unread import UnreadDrops
from pocketmq.clock import Clock
from pocketmq.metrics.families import Family, Labels, counter, gauge, histogram
from pocketmq.store.facts import StoreFacts


class StorageMetrics:
    """Reads the store's facts."""

    def __init__(self, facts: StoreFacts, unread: UnreadDrops, clock: Clock) -> None:
        self._facts = facts
        self._unread = unread
        self._clock = clock

    def families(self) -> list[Family]:
        return [*self._log(), *self._derived(), *self._disk()]

    def _log(self) -> list[Family]:
        facts = self._facts
        earliest_ms = facts.earliest_ms
        reserved: dict[Labels, float] = (
            {} if earliest_ms is None else {(): max(0.0, self._clock.now_ms() - earliest_ms)}
        )
        return [
            gauge("rocketmq_storage_size", "Bytes of the log from its first to its last message", _size(facts)),
            gauge("rocketmq_storage_log_files", "Files of the log", facts.log_files),
            gauge("rocketmq_storage_message_reserve_time", "Milliseconds since the oldest message came", reserved),
            gauge("rocketmq_storage_flush_behind_bytes", "Bytes that are not safe on the disk", facts.unsynced_bytes),
            histogram(
                "rocketmq_flush_latency", "Milliseconds to make the log safe on the disk", facts.sync_times.all_time()
            ),
        ]

    def _derived(self) -> list[Family]:
        facts = self._facts
        return [
            gauge("rocketmq_storage_dispatch_behind_bytes", "Bytes that queues and index lack", facts.behind_bytes),
            gauge("rocketmq_storage_index_behind_bytes", "Bytes whose keys are not indexed", facts.unindexed_bytes),
            gauge("rocketmq_storage_queues", "Queues with messages", facts.queues),
            gauge("rocketmq_storage_unsaved_queues", "Queues with entries in memory only", facts.unsaved_queues),
            counter(
                "rocketmq_storage_queue_damages",
                "How often entries of a consume queue did not match the log",
                facts.damaged_ranges,
            ),
            counter(
                "rocketmq_storage_repaired_queue_entries",
                "Entries of consume queues that were rebuilt from the log",
                facts.repaired_entries,
            ),
        ]

    def _disk(self) -> list[Family]:
        disk, buffers = self._facts.disk, self._facts.free_pool_buffers
        return [
            gauge("rocketmq_storage_disk_bytes", "Size of the disk", disk.total),
            gauge("rocketmq_storage_disk_free_bytes", "What of it is free", disk.free),
            gauge("rocketmq_storage_disk_ratio", "Part of the disk that is used, 0 to 1", disk.used_ratio),
            counter(
                "rocketmq_storage_dropped_held_files",
                "Log files that the full disk took though messages in them still waited for their time",
                self._facts.dropped_held_files,
            ),
            counter(
                "rocketmq_storage_dropped_unread_messages",
                "Messages that retention deleted before a group had consumed them",
                self._unread.messages,
            ),
            gauge(
                "rocketmq_storage_pool_buffers", "Free buffers of the pool", {} if buffers is None else {(): buffers}
            ),
        ]


def _size(facts: StoreFacts) -> int:
    return facts.log_end - facts.log_start
