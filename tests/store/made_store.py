"""A small store on a disk in memory, intact or damaged by the test: a log written by hand, the rest derived from it.

00000000000000000000   Orders/0 Orders/1 Bills/0 … with tags, keys, a delayed message and a half message
00000000000000004096   …
"""

from pathlib import Path

import msgspec

from pocketmq.protocol.record import encode_blank, encode_record
from pocketmq.store.layout import KnownSizes, StoreLayout, find_layout
from pocketmq.store.tools.findings import Finding
from pocketmq.store.tools.rebuild import Rebuild
from pocketmq.store.tools.verify import Verification
from pocketmq.testing import FakeClock, FaultyFiles

ROOT = Path("/store")
LOG_FILE_BYTES = 4096
QUEUE_FILE_ENTRIES = 4
INDEX_SLOTS = 50
INDEX_ENTRIES = 30
SIZES = KnownSizes(
    log_file_bytes=LOG_FILE_BYTES,
    queue_file_entries=QUEUE_FILE_ENTRIES,
    index_slots=INDEX_SLOTS,
    index_entries=INDEX_ENTRIES,
)
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
START_MS = 1_700_000_000_000


class MadeStore:
    """Messages are appended, then `derive` creates everything else. After that, damage it."""

    def __init__(self, log_start: int = 0) -> None:
        self.files = FaultyFiles()
        self.clock = FakeClock()
        self.log_start = self.end = log_start
        self.store_ms = START_MS
        self.records: dict[int, bytes] = {}
        self.next_offsets: dict[tuple[str, int], int] = {}
        for folder in ("commitlog", "consumequeue", "index", "config"):
            self.files.make_dir(ROOT / folder)

    # filling

    def append(
        self,
        topic: str = "Orders",
        queue_id: int = 0,
        *,
        body: bytes = b"a body that is long enough to be flipped",
        tag: str = "",
        keys: str = "",
        sys_flag: int = 0,
        queue_offset: int | None = None,
        properties: str = "",
        store_ms: int | None = None,
    ) -> int:
        """Put a message at the end of the log; its log offset."""
        self.store_ms = self.store_ms + 7 if store_ms is None else store_ms
        in_queue = not sys_flag & 0x4
        offset = self.next_offsets.get((topic, queue_id), 0) if queue_offset is None else queue_offset
        text = properties + (f"TAGS\x01{tag}\x02" if tag else "") + (f"KEYS\x01{keys}\x02" if keys else "")
        for _ in range(2):
            record = encode_record(
                topic.encode(),
                queue_id,
                offset if in_queue else 0,
                self.end,
                body,
                f"UNIQ_KEY\x017F000001{self.end:024X}\x02{text}".encode(),
                0,
                sys_flag,
                self.store_ms - 1,
                HOST,
                self.store_ms,
                HOST,
            )
            room = LOG_FILE_BYTES - self.end % LOG_FILE_BYTES
            if len(record) + 8 <= room:
                break
            self.write_log(self.end, encode_blank(room))
            self.end += room
        at = self.end
        self.write_log(at, record)
        self.records[at] = record
        self.end += len(record)
        if in_queue:
            self.next_offsets[topic, queue_id] = offset + 1
        return at

    def fill(self, messages: int = 30) -> "MadeStore":
        """Some messages of several queues, over several log files, and everything that is derived from them."""
        for number in range(messages):
            self.append("Orders", number % 2, tag=f"tag{number % 3}", keys=f"k{number} all")
            if number % 3 == 0:
                self.append("Bills", 0, body=b"")
            if number % 10 == 4:
                self.append("SCHEDULE_TOPIC_XXXX", 2, properties="DELAY\x013\x02")
                self.append("Orders", 0, sys_flag=0x4, keys="half")
        return self.derive()

    def derive(self) -> "MadeStore":
        """Make queues, index, checkpoint and a table of topics; the stop was clean."""
        self.write(self.log_path(self.end), b"", size=LOG_FILE_BYTES)
        topics = {topic: {"topicName": topic} for topic, _ in self.next_offsets}
        self.write("config/topics.json", msgspec.json.encode({"topicConfigTable": topics}))
        self.rebuild()
        checkpoint = bytearray(self.read("checkpoint"))
        checkpoint[:8] = checkpoint[8:16]
        self.write("checkpoint", bytes(checkpoint))
        return self

    def write_log(self, at: int, data: bytes) -> None:
        """Write bytes at a log offset; a missing file is created."""
        with self.files.open(ROOT / self.log_path(at), create=True) as file:
            file.truncate(LOG_FILE_BYTES)
            file.write_at(at % LOG_FILE_BYTES, data)

    # looking

    def layout(self, sizes: KnownSizes = SIZES) -> StoreLayout:
        return find_layout(self.files, ROOT, sizes)

    def findings(self, sizes: KnownSizes = SIZES) -> list[Finding]:
        """Everything that a verification finds."""
        return [event for event in Verification(self.files, self.layout(sizes)).run() if isinstance(event, Finding)]

    def told(self) -> list[tuple[str, str, int | None, int | None]]:
        """Kind, path and byte range of everything that a verification finds."""
        return [(finding.kind.value, finding.path, finding.begin, finding.end) for finding in self.findings()]

    def rebuild(self) -> Rebuild:
        rebuild = Rebuild(self.files, self.clock, self.layout())
        for _ in rebuild.run():
            pass
        return rebuild

    def log_path(self, at: int) -> str:
        return f"commitlog/{at // LOG_FILE_BYTES * LOG_FILE_BYTES:020d}"

    def queue_path(self, topic: str, queue_id: int, offset: int) -> tuple[str, int]:
        """The file of an entry, and its position in the file."""
        number, index = divmod(offset, QUEUE_FILE_ENTRIES)
        return f"consumequeue/{topic}/{queue_id}/{number * QUEUE_FILE_ENTRIES * 20:020d}", index * 20

    @property
    def index_paths(self) -> list[str]:
        return [f"index/{name}" for name in self.files.list(ROOT / "index")]

    # damaging

    def read(self, name: str) -> bytes:
        return self.files.read(ROOT / name)

    def write(self, name: str, data: bytes, at: int = 0, size: int | None = None) -> None:
        """Write bytes into a file; a missing file is created; `size` is its size afterwards."""
        path = ROOT / name
        self.files.make_dir(path.parent)
        with self.files.open(path, create=True) as file:
            file.write_at(at, data)
            if size is not None:
                file.truncate(size)

    def truncate(self, name: str, size: int) -> None:
        with self.files.open(ROOT / name) as file:
            file.truncate(size)

    def flip(self, name: str, at: int, bit: int = 0) -> None:
        data = self.read(name)
        self.write(name, bytes([data[at] ^ 1 << bit]), at)

    def unlink(self, name: str) -> None:
        self.files.unlink(ROOT / name)

    def remove_tree(self, name: str) -> None:
        for child in self.files.list(ROOT / name):
            status = self.files.status(ROOT / name / child)
            if status is not None and status.is_dir:
                self.remove_tree(f"{name}/{child}")
            else:
                self.unlink(f"{name}/{child}")
        self.files.remove_dir(ROOT / name)

    def crash(self) -> None:
        """Make the last stop a crash, with no safe part of the last messages."""
        self.write("abort", b"4711")
        self.write("checkpoint", bytes(24))
