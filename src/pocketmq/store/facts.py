"""What a store tells about itself: for statistics and for administrators. Reading them changes nothing."""

from pathlib import Path

from pocketmq.files import DiskUsage
from pocketmq.model.durations import Durations
from pocketmq.store.commit_log import LOG_FOLDER
from pocketmq.store.parts import StoreParts


class StoreFacts:
    """Facts of a store that is open. Asked on its thread, like everything else of it."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts

    # the log

    @property
    def log_folder(self) -> Path:
        return self._parts.settings.folder / LOG_FOLDER

    @property
    def log_start(self) -> int:
        """The first log offset that is kept."""
        return self._parts.log.start

    @property
    def log_end(self) -> int:
        """The log offset after everything acknowledged so far."""
        return self._parts.log.end

    @property
    def indexed_to(self) -> int:
        """The keys of all messages before this log offset can be looked up."""
        return self._parts.index_builder.indexed_to

    @property
    def earliest_ms(self) -> int | None:
        """When the oldest message of the log was stored; None when there is none."""
        log = self._parts.log
        return log.store_ms_at(log.start) if log.written > log.start else None

    @property
    def unsynced_bytes(self) -> int:
        """Acknowledged, and not safe on the disk yet."""
        return self._parts.log.end - self._parts.log.synced

    @property
    def log_files(self) -> int:
        return len(self._parts.log.segments.files)

    @property
    def sync_times(self) -> Durations:
        """How long it took to make the log safe, each time."""
        return self._parts.flusher.sync_times

    # what came since it was opened

    @property
    def messages_taken(self) -> int:
        return self._parts.messages_taken

    @property
    def bytes_taken(self) -> int:
        """How far the log grew, with the filler at the end of its files."""
        return self._parts.log.end - self._parts.opened_at

    # what is made from the log

    @property
    def behind_bytes(self) -> int:
        """How far what is made from the log is behind it: entries of queues, and keys if they are indexed."""
        parts = self._parts
        made_to = parts.log.written
        if parts.settings.index_enabled:
            made_to = min(made_to, max(parts.index_builder.indexed_to, parts.log.start))
        return parts.log.end - made_to

    @property
    def unreadable_bytes(self) -> int:
        """How far queues are behind the log: acknowledged, and in the transient pool yet."""
        return self._parts.log.end - self._parts.log.written

    @property
    def last_indexed(self) -> tuple[int, int]:
        """Store time and log offset of the message that was indexed last; zeros when there is none."""
        log, offset = self._parts.log, self._parts.index.indexed_to
        return (log.store_ms_at(offset), offset) if log.start <= offset < log.written else (0, 0)

    @property
    def unindexed_bytes(self) -> int:
        """How far the key index is behind what is written."""
        parts = self._parts
        return max(0, parts.log.written - max(parts.index_builder.indexed_to, parts.log.start))

    @property
    def queues(self) -> int:
        return len(self._parts.queues)

    @property
    def damaged_ranges(self) -> int:
        """How often entries of a consume queue were found that do not match the log."""
        return self._parts.damaged_ranges

    @property
    def repaired_entries(self) -> int:
        """Entries of consume queues that were made again from the log."""
        return self._parts.repaired_entries

    @property
    def unsaved_queues(self) -> int:
        """Queues with entries that are in memory only; they can be made from the log again."""
        return self._parts.queues.dirty_count

    # the disk

    @property
    def disk(self) -> DiskUsage:
        return self._parts.files.usage(self._parts.settings.folder)

    @property
    def dropped_held_files(self) -> int:
        """Log files that the full disk took though messages in them still waited for their time."""
        return self._parts.dropped_held_files

    @property
    def free_pool_buffers(self) -> int | None:
        """Buffers of the transient pool that are free; None when there is no pool."""
        return None if self._parts.pool is None else self._parts.pool.free_buffers
