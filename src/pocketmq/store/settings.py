"""Every limit and interval of the store, with RocketMQ's defaults."""

from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.errors import InvalidMessage, InvalidSetting
from pocketmq.model import DELAY_LEVELS, DelayLevels
from pocketmq.model.properties import MAX_BYTES as MAX_PROPERTIES_BYTES
from pocketmq.protocol.frames import DEFAULT_LIMITS

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
PAGE_BYTES = 4 * KIB
LOG_FOLDER: Final = "commitlog"
MAX_ANSWER_BYTES: Final = DEFAULT_LIMITS.frame_bytes - 64 * KIB
"""The fixed limit on bodies in a pull response: clients close the connection at a larger frame, and pull again. The
rest of a frame is for the header and the other fields of a record.
"""

LARGEST_FILE_BYTES: Final = 2**31 - 1
"""The largest file that Java can map. A RocketMQ broker could not open a store with larger files."""


class FlushMode(StrEnum):
    """When a send is answered: once written (a sync follows within moments), or once it is safely on the disk."""

    ASYNC = "async"
    SYNC = "sync"


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """File sizes, limits and intervals of a store. Intervals in ms, sizes in bytes, unless the name says otherwise."""

    folder: Path
    """The folder of the store. `storePathCommitLog` must name its subfolder `commitlog`."""

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
    """A log write that takes this long is slow: a thread writes the log until the disk is fast again. 0: a thread
    always writes it."""
    retry_ms: int = 500
    """Pause before a retry, if creating a log file or a delayed write failed."""
    close_timeout_ms: int = 30_000
    """How long closing waits for the disk. After that, it stops without the rest, and the next start recovers."""

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
    """A consume queue is synced when this many pages are unsynced …"""
    queue_thorough_ms: int = 10_000
    """… and after this time in any case, in ms. With 10,000 active queues, it takes half a minute."""
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
    """Memory of the machine, which decides whether a read is recent; 0 means ask the operating system."""
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
    """The delay levels: the delay of each."""

    @property
    def max_body_bytes(self) -> int:
        """The largest body that can be stored, and returned."""
        return min(self.max_message_bytes, MAX_ANSWER_BYTES)

    def too_large(self, body_bytes: int, properties_bytes: int) -> InvalidMessage:
        """Why a message of this size is rejected."""
        if properties_bytes > MAX_PROPERTIES_BYTES:
            return InvalidMessage(
                f"properties take {properties_bytes} bytes; at most {MAX_PROPERTIES_BYTES} fit into a record"
            )
        most, why = self.max_message_bytes, "max_message_bytes"
        if body_bytes <= most:
            most, why = self.max_body_bytes, "the size of a pull response"
        return InvalidMessage(f"the body has {body_bytes} bytes; the limit is {why} = {most}")

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
            raise InvalidSetting(
                "disk ratios must be in ascending order: 0 < disk_clean_ratio ≤ disk_force_ratio ≤ disk_full_ratio ≤ 1"
            )
        if not self.delete_hours or not all(0 <= hour < 24 for hour in self.delete_hours):
            raise InvalidSetting(f"delete_hours = {self.delete_hours} must be hours of the day, 0 to 23")


_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "log_file_bytes": (PAGE_BYTES, LARGEST_FILE_BYTES),
    "prepared_files": (1, 1_000),  # with 0, the first message of every log file would be rejected
    "max_message_bytes": (1, 2**63 - 1),
    "max_unsynced_bytes": (1, 2**63 - 1),
    "pool_buffers": (1, 100_000),
    "pool_buffer_bytes": (1, LARGEST_FILE_BYTES),
    "queue_file_entries": (1, LARGEST_FILE_BYTES // 20),  # bytes of an entry
    "max_read_entries": (1, 2**63 - 1),
}
"""The minimum for a working store, and a maximum above any real disk or memory."""

EMBEDDED_LOG_FILE_BYTES = 64 * MIB
"""Size of log files for a store inside another program or on a laptop."""
