"""The parts of a store: created together, started and closed in one order. It contains no rules."""

from collections.abc import Callable

from pocketmq import system
from pocketmq.clock import Clock
from pocketmq.files import Files
from pocketmq.store.checkpoint import Checkpoint
from pocketmq.store.index.index_builder import IndexBuilder
from pocketmq.store.index.key_index import KeyIndex
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.flushing import Flusher
from pocketmq.store.log.log_writer import LogWriter
from pocketmq.store.log.preparing import FilePreparer
from pocketmq.store.log.transient_pool import TransientPool
from pocketmq.store.owner import Owner
from pocketmq.store.queues.queue_writer import QueueWriter
from pocketmq.store.queues.queues import Queues
from pocketmq.store.resume import ResumeFile
from pocketmq.store.settings import StoreSettings
from pocketmq.store.tables import Tables
from pocketmq.store.worker import Post, Worker


class StoreParts:
    """The parts, and the few numbers that several of them need."""

    def __init__(
        self,
        settings: StoreSettings,
        files: Files,
        clock: Clock,
        post: Post,
        on_written: Callable[[int], None],
        make_worker: Callable[[str, Post], Worker] = Worker,
    ) -> None:
        self.settings = settings
        self.files = files
        self.clock = clock
        self.owner = Owner(files, settings.folder)
        self.log = CommitLog(settings, files, on_written=on_written)
        self.preparer = FilePreparer(settings, files, clock, self.log.segments, make_worker("pocketmq-files", post))
        self.pool = None
        if settings.transient_pool:
            worker = make_worker("pocketmq-pool", post)
            self.pool = TransientPool(settings, clock, post, self.log.written_behind, worker)
        self.writer = LogWriter(settings, clock, self.log, post, make_worker("pocketmq-log", post))
        self.flusher = Flusher(settings, clock, post, files, self.log, make_worker("pocketmq-sync", post))
        self.queues = Queues(settings, files)
        self.queue_writer = QueueWriter(settings, files, clock, self.queues, make_worker("pocketmq-queues", post))
        self.index = KeyIndex(settings, files, clock)
        self.checkpoint = Checkpoint(files, settings.folder)
        self.resume = ResumeFile(files, settings.folder)
        self.tables = Tables(files, settings.folder / "config")
        self.memory_bytes = settings.memory_bytes or system.memory_bytes()
        self.last_store_ms = 0
        """Store time of the newest record. The next one is not older, even if the clock goes back."""
        self.last_record = -1
        """Log offset of the newest record; -1 if there is none."""
        self.messages_accepted = 0
        """Messages that became readable since the store was opened."""
        self.damaged_ranges = 0
        """How often entries of a consume queue did not match the log."""
        self.repaired_entries = 0
        """Entries of consume queues that were rebuilt from the log."""
        self.deleted_topics: dict[str, int] = {}
        """Deleted topics that still have messages in the log, with the end of the log at the deletion."""
        self.opened_at = 0
        """The end of the log when the store was opened."""
        self.disk_full = False
        """The disk is too full: messages are rejected."""
        self.dropped_needed_files = 0
        """Log files that were deleted with undelivered delayed messages."""

    def start(self) -> None:
        """After recovery: open the log for writing, and start the threads."""
        self.index_builder = IndexBuilder(self.index, self._read_log, self.settings.log_file_bytes)
        self.opened_at = self.log.end
        self.log.begin(self.preparer, self.pool)
        self.flusher.begin(self.last_store_ms)

    def _read_log(self, offset: int, size: int) -> memoryview:
        return self.log.view(offset, size)

    def close(self, *, clean: bool) -> None:
        """Close everything. Only a clean close removes the abort file, which shows the next start whether there was a
        crash.
        """
        self.log.close()
        self.queue_writer.close(0)
        self.queues.close()
        self.index.close()
        self.owner.release(clean=clean)
