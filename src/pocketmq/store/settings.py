"""Every limit and interval of the store, with RocketMQ's defaults."""

from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.model import DelayLevels
from pocketmq.model.delay import DELAY_LEVELS
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
    """The folder of the store. `storePathCommitLog` may only name its subfolder `commitlog`."""

    # commit log
    log_file_bytes: int = GIB
    """Size of a log file. An existing store keeps the size of its files."""
    allocate_files: bool = False
    """Reserve the blocks of log files ahead, so that a full disk shows early. Otherwise log files are sparse."""
    prepared_files: int = 2
    """Number of log files that are prepared ahead."""
    max_message_bytes: int = 4 * MIB
    """Limit on the size of a body. The effective limit is at most 16711680, the largest answer to a pull."""

    # flush
    flush: FlushMode = FlushMode.ASYNC
    """`ASYNC_FLUSH` answers a send when it is written, `SYNC_FLUSH` when it is synced to disk."""
    flush_interval_ms: int = 500
    """Interval between syncs of the log, in ms …"""
    flush_least_pages: int = 4
    """… if this many pages of 4 KiB are unsynced …"""
    flush_thorough_ms: int = 10_000
    """… and after this time in any case, in ms."""
    sync_timeout_ms: int = 5_000
    """With SYNC_FLUSH: a send that waits longer for its sync is answered with FLUSH_DISK_TIMEOUT, in ms."""
    max_unsynced_bytes: int = 512 * MIB
    """Limit on bytes that are written and not synced. Above it, sends wait and are refused."""
    slow_write_ms: int = 20
    """A log write that takes this long is slow: a thread writes the log until the disk is calm again. 0: a thread
    always writes it."""
    retry_ms: int = 500
    """Pause before a log file that could not be made, or a write behind that failed, is tried again."""
    close_timeout_ms: int = 30_000
    """How long closing waits for the disk before it gives up and leaves the rest to recovery."""

    # transient pool
    transient_pool: bool = False
    """Answer sends from memory and write the log later (transient store pool)."""
    pool_buffers: int = 16
    """Number of buffers of the transient store pool."""
    pool_buffer_bytes: int = MIB
    """Size of each buffer of the transient store pool."""

    # consume queues
    queue_file_entries: int = 300_000
    """Size of a file of a consume queue, in bytes."""
    queue_least_pages: int = 2
    """Pages of a consume queue that must be unsynced before a sync …"""
    queue_thorough_ms: int = 10_000
    """… and the time after which it is synced in any case, in ms. With 10,000 queues in use, half a minute."""
    max_open_queue_files: int = 512
    """Limit on open files of consume queues."""

    # key index
    index_slots: int = 5_000_000
    """Hash slots of an index file."""
    index_entries: int = 20_000_000
    """Entries of an index file."""
    index_backlog_bytes: int = 256 * MIB
    index_enabled: bool = True
    """Write the key index, for queries by message key."""

    # reads
    max_read_entries: int = 800
    """Limit on the bytes of queue entries that one pull examines."""
    hot_read_bytes: int = 256 * KIB
    """Limit on the bytes of one pull of recent messages. A larger single message is still returned."""
    hot_read_count: int = 32
    """Limit on the messages of one pull of recent messages."""
    cold_read_bytes: int = 64 * KIB
    """Limit on the bytes of one pull of older messages."""
    cold_read_count: int = 8
    """Limit on the messages of one pull of older messages."""
    memory_bytes: int = 0
    """Memory of the machine, by which a read is hot or cold; 0 means ask the operating system."""
    memory_ratio: float = 0.4
    """Messages within this percentage of the machine's memory count as recent."""

    # retention
    retention_hours: int = 72
    """How long messages are kept, in hours."""
    delete_hours: tuple[int, ...] = (4,)
    """The hour of the day at which expired log files are deleted; several as `04;16`."""
    disk_clean_ratio: float = 0.75
    """Percentage of used disk space from which expired files are deleted at any hour."""
    disk_force_ratio: float = 0.85
    """Percentage of used disk space from which files are deleted before they expire."""
    disk_full_ratio: float = 0.90
    """Percentage of used disk space from which sends are refused."""
    force_clean: bool = True
    """Delete files before they expire above `diskSpaceCleanForciblyRatio`."""
    max_deletes_per_run: int = 10
    """Limit on files that one cleaning run deletes."""

    checkpoint_interval_ms: int = 1_000
    resume_interval_ms: int = 60_000
    delay_levels: DelayLevels = DELAY_LEVELS
    """The delay levels: how long each one waits."""

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
