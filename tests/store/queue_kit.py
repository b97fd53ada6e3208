"""What tests of queues and reads share: queues on a disk in memory, and a log that they point into."""

from pathlib import Path

import msgspec
from tests.store.kit import HOST, ROOT, LogOnDisk

from pocketmq import compiled
from pocketmq.model.java_hash import java_hash
from pocketmq.protocol.record import encode_record
from pocketmq.store.queues.consume_queue import ENTRY, ConsumeQueue, Entry
from pocketmq.store.queues.queues import QueueKey, Queues
from pocketmq.store.queues.sound_entries import SoundEntries
from pocketmq.store.settings import GIB, StoreSettings
from pocketmq.testing import FaultyFiles

FILE_ENTRIES = 10
FILE_BYTES = FILE_ENTRIES * 20
NOTHING_HERE = (0, 0x7FFFFFFF, 0)


def queues_on(files: FaultyFiles, **changes: object) -> Queues:
    """The queues of a store with files of ten entries."""
    settings = StoreSettings(folder=ROOT, queue_file_entries=FILE_ENTRIES)
    return Queues(msgspec.structs.replace(settings, **changes), files)


def fill(queue: ConsumeQueue, count: int, *, start: int = 1000, size: int = 100) -> list[Entry]:
    """Append entries whose messages are adjacent in the log, from `start` on."""
    entries = [(start + index * size, size, queue.next_offset + index) for index in range(count)]
    for entry in entries:
        queue.append(*entry)
    queue.next_offset += count
    return entries


def file_name(queue: ConsumeQueue, number: int) -> str:
    return f"{queue.folder}/{number * FILE_BYTES:020d}"


def entries_of(files: FaultyFiles, queue: ConsumeQueue, number: int = 0) -> list[Entry]:
    """All entries of one file of a queue, used or not."""
    path = queue.file_of(number * FILE_ENTRIES)
    return list(ENTRY.iter_unpack(files.read(path)))


def code_of(tag: int) -> int:
    """The tags code of messages that were put with this tag."""
    return java_hash(str(tag)) if tag else 0


class Store:
    """A log with queues: `put` stages a message, `end_turn` makes the staged messages readable."""

    def __init__(self) -> None:
        self.disk = LogOnDisk(None, queue_file_entries=FILE_ENTRIES, prepared_files=8).begin()
        self.files, self.clock, self.log = self.disk.files, self.disk.clock, self.disk.log
        self.queues = Queues(self.disk.settings, self.files)
        self.sound = SoundEntries(self.log, self.disk.settings.delay_levels, GIB, compiled.twin())
        self._staged: list[tuple[ConsumeQueue, int, int, int]] = []

    def put(
        self, queue: ConsumeQueue, size: int = 200, tag: int = 0, store_ms: int | None = None, body: bytes = b""
    ) -> int:
        """Store a message of `size` bytes, or with `body`; its log offset. Tag 0 means no tag."""
        properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
        body = body or bytes(size - queue.record_overhead - len(properties))
        size = queue.record_overhead + len(body) + len(properties)
        at = self.log.reserve(size)
        now_ms = self.clock.now_ms() if store_ms is None else store_ms
        record = encode_record(
            queue.topic_bytes, queue.queue_id, queue.next_offset, at, body, properties, 0, 0, now_ms, HOST, now_ms, HOST
        )
        self.log.put((record,))
        queue.next_offset += 1
        self._staged.append((queue, at, size, code_of(tag)))
        return at

    def end_turn(self) -> None:
        self.log.write()
        for queue, at, size, tags_code in self._staged:
            queue.append(at, size, tags_code)
            self.queues.mark_dirty(queue)
        self._staged.clear()

    def drop_first_log_file(self) -> None:
        """What retention does; the queues do not know of it yet."""
        self.log.synced = self.log.written
        self.log.drop_first()
        self.disk.making.run()


def loaded(disk: FaultyFiles) -> Queues:
    """The queues as the next start finds them."""
    queues = queues_on(disk)
    queues.load()
    return queues


def bounds(queues: Queues) -> dict[QueueKey, tuple[int, int]]:
    return {queue.key: (queue.min_offset, queue.max_offset) for queue in queues}


def filled(queues: Queues, topic: str, queue_id: int, count: int) -> ConsumeQueue:
    """A queue with `count` entries in files."""
    queue = queues.get(topic, queue_id)
    fill(queue, count)
    queues.mark_dirty(queue)
    queues.flush()
    return queue


def put_file(disk: FaultyFiles, path: Path, data: bytes = b"") -> Path:
    disk.make_dir(path.parent)
    with disk.open(path, create=True) as file:
        file.write_at(0, data)
    return path
