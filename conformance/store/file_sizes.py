"""The sizes of the files of a store, as settings of both sides."""

from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.store.queues.consume_queue import ENTRY_BYTES
from pocketmq.store.settings import GIB, KIB, StoreSettings

MAX_LOG_FILES: Final = 10_000
"""More than any scenario makes."""


class FileSizes(NamedTuple):
    log_file_bytes: int
    queue_file_entries: int
    index_slots: int
    index_entries: int
    largest_body: int
    """Bodies of the sample go up to this many bytes."""

    def settings(self, folder: Path) -> StoreSettings:
        """For PocketMQ."""
        return StoreSettings(
            folder=folder,
            log_file_bytes=self.log_file_bytes,
            queue_file_entries=self.queue_file_entries,
            index_slots=self.index_slots,
            index_entries=self.index_entries,
        )

    def apache_settings(self) -> dict[str, object]:
        """For broker.conf."""
        return {
            "mappedFileSizeCommitLog": self.log_file_bytes,
            "mappedFileSizeConsumeQueue": self.queue_file_entries * ENTRY_BYTES,
            "maxHashSlotNum": self.index_slots,
            "maxIndexNum": self.index_entries,
            # After a crash 5.5 looks at the newest ten log files only, whatever their size.
            "commitLogRecoverMaxNum": MAX_LOG_FILES,
        }

    def store_options(self) -> list[str]:
        """For `pocketmq store`."""
        return [
            f"--log-file-bytes={self.log_file_bytes}",
            f"--queue-file-entries={self.queue_file_entries}",
            f"--index-slots={self.index_slots}",
            f"--index-entries={self.index_entries}",
        ]


SMALL: Final = FileSizes(32 * KIB, 20, 100, 400, largest_body=24_000)
"""Everything rolls over several times."""
CRASHING: Final = FileSizes(32 * KIB, 20, 500, 20_000, largest_body=24_000)
"""The same, but an index file lasts long, so that a crash comes in its midst."""
DEFAULT: Final = FileSizes(GIB, 300_000, 5_000_000, 20_000_000, largest_body=100_000)
"""The default of both sides."""
