"""Every limit and interval of the store, with RocketMQ's defaults."""

from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.model.delay import DELAY_LEVELS, DelayLevels
from pocketmq.protocol.frames import DEFAULT_LIMITS

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
PAGE_BYTES = 4 * KIB
MAX_ANSWER_BYTES: Final = DEFAULT_LIMITS.frame_bytes - 64 * KIB
"""What bodies may take in the answer to a pull, whatever is set: no client reads a larger frame. It would hang up, and pull again. The
rest is for the header, and for what else the record of one message holds."""

LARGEST_FILE_BYTES: Final = 2**31 - 1
"""What Java maps. Apache's brokers could not open a store with larger files."""


class FlushMode(StrEnum):
    """When a send is answered: once written (a sync follows within moments), or once it is safely on the disk."""

    ASYNC = "async"
    SYNC = "sync"


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is laid out and when it does what. Intervals in ms, sizes in bytes, unless the name says otherwise."""

    folder: Path

    # commit log
    log_file_bytes: int = GIB
    allocate_files: bool = False
    """Reserve real blocks for prepared log files, so that a full disk shows before it is needed; else they are sparse."""
    prepared_files: int = 2
    """How many log files are kept ready ahead of the one in use."""
    max_message_bytes: int = 4 * MIB
    """The largest body that is taken; no more than `MAX_ANSWER_BYTES` in any case."""

    # flush
    flush: FlushMode = FlushMode.ASYNC
    flush_interval_ms: int = 500
    flush_least_pages: int = 4
    flush_thorough_ms: int = 10_000
    sync_timeout_ms: int = 5_000
    """How long a send waits for its sync before it is answered as stored but not yet safe."""
    max_unsynced_bytes: int = 512 * MIB
    """Written but not synced beyond this: the store is busy."""
    slow_write_ms: int = 20
    """A write to the log that takes so long is slow: until the disk is calm again a thread writes the log. 0: it always does."""
    retry_ms: int = 500
    """Pause before a log file that could not be made, or a write behind that failed, is tried again."""
    close_timeout_ms: int = 30_000
    """How long closing waits for the disk before it gives up and leaves the rest to recovery."""

    # transient pool
    transient_pool: bool = False
    pool_buffers: int = 16
    pool_buffer_bytes: int = MIB

    # consume queues
    queue_file_entries: int = 300_000
    queue_least_pages: int = 2
    queue_thorough_ms: int = 10_000
    max_open_queue_files: int = 512

    # key index
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    index_backlog_bytes: int = 256 * MIB
    index_enabled: bool = True

    # reads
    max_read_entries: int = 800
    """Queue entries that one read looks at."""
    hot_read_bytes: int = 256 * KIB
    """Of one read of young messages, or one message that is larger; no more than `MAX_ANSWER_BYTES` in any case."""
    hot_read_count: int = 32
    cold_read_bytes: int = 64 * KIB
    cold_read_count: int = 8
    memory_bytes: int = 0
    """Memory of the machine, by which a read is hot or cold; 0 means ask the operating system."""
    memory_ratio: float = 0.4

    # retention
    retention_hours: int = 72
    delete_hours: tuple[int, ...] = (4,)
    """Hours of the day at which log files that are old enough go."""
    disk_clean_ratio: float = 0.75
    disk_force_ratio: float = 0.85
    disk_full_ratio: float = 0.90
    force_clean: bool = True
    """Above `disk_force_ratio` log files go whatever their age; else only those that are old enough."""
    max_deletes_per_run: int = 10

    checkpoint_interval_ms: int = 1_000
    resume_interval_ms: int = 60_000
    delay_levels: DelayLevels = DELAY_LEVELS

    @property
    def max_body_bytes(self) -> int:
        """The largest body that can be taken, and given back."""
        return min(self.max_message_bytes, MAX_ANSWER_BYTES)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
                raise InvalidSetting(f"store setting {name} = {value} is negative")
        if self.log_file_bytes < PAGE_BYTES:
            raise InvalidSetting(f"log_file_bytes = {self.log_file_bytes} is smaller than a page of {PAGE_BYTES}")
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise InvalidSetting(f"store setting {name} = {value} must be from {least} to {most}")
        if not 0 < self.disk_clean_ratio <= self.disk_force_ratio <= self.disk_full_ratio <= 1:
            raise InvalidSetting("disk ratios must rise: 0 < disk_clean_ratio ≤ disk_force_ratio ≤ disk_full_ratio ≤ 1")
        if not self.delete_hours or not all(0 <= hour < 24 for hour in self.delete_hours):
            raise InvalidSetting(f"delete_hours = {self.delete_hours} are not hours of the day, 0 to 23")


_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "log_file_bytes": (PAGE_BYTES, LARGEST_FILE_BYTES),
    "prepared_files": (1, 1_000),  # with none, the first message of every log file would be refused
    "max_message_bytes": (1, 2**63 - 1),
    "max_unsynced_bytes": (1, 2**63 - 1),
    "pool_buffers": (1, 100_000),
    "pool_buffer_bytes": (1, LARGEST_FILE_BYTES),
    "queue_file_entries": (1, LARGEST_FILE_BYTES // 20),  # bytes of an entry
    "max_read_entries": (1, 2**63 - 1),
}
"""What a store cannot do without, and more than any disk or memory has."""

EMBEDDED_LOG_FILE_BYTES = 64 * MIB
"""Log files of a store that lives inside another program or on a laptop."""
