"""Reads the messages of a store one after the other. Changes nothing.

    log order      the log from its start: everything in it, also messages that no queue contains
    queue order    queue by queue, as a consumer gets them; needs the consume queues

A dump continues after damage: an unreadable part becomes a `Skipped`, and the next message follows.
"""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Self

import msgspec

from pocketmq.errors import ProtocolError, StoreError
from pocketmq.files import File, Files
from pocketmq.model import StoredMessage, parse_topic
from pocketmq.model import properties as names
from pocketmq.protocol.record import decode_record
from pocketmq.store.layout import StoreLayout
from pocketmq.store.log.log_scan import LogScan, Unreadable, nonzero_range
from pocketmq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, Entry, is_entry, is_message
from pocketmq.store.queues.queue_entries import QueueEntries, QueueFile, list_queue_files, list_queue_ids


class Order(StrEnum):
    LOG = "log"
    QUEUE = "queue"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Selects messages. Offsets are of the log or of the queue, depending on the order; `end` is excluded."""

    topic: str | None = None
    queue_id: int | None = None
    begin: int = 0
    end: int | None = None
    key: str | None = None
    tag: str | None = None

    def takes(self, message: StoredMessage) -> bool:
        """Whether topic, queue, key and tag match."""
        return (
            (self.topic is None or message.topic == self.topic)
            and (self.queue_id is None or message.queue_id == self.queue_id)
            and (self.tag is None or message.tags == self.tag)
            and (self.key is None or self.key in message.keys or message.properties.get(names.UNIQ_KEY) == self.key)
        )


class Skipped(msgspec.Struct, frozen=True):
    """The description of an unreadable part."""

    text: str


def dump(files: Files, layout: StoreLayout, order: Order, selection: Selection) -> Iterator[StoredMessage | Skipped]:
    """The selected messages of a store. Raises StoreError if they need queue files that do not exist."""
    if order is Order.LOG:
        return _in_log_order(files, layout, selection)
    return _in_queue_order(files, layout, selection)


def _in_log_order(files: Files, layout: StoreLayout, selection: Selection) -> Iterator[StoredMessage | Skipped]:
    wanted = [log_file for log_file in layout.log_files if log_file.first + layout.log_file_bytes > selection.begin]
    for found in LogScan(files, wanted, layout.log_file_bytes):
        if isinstance(found, Unreadable):
            if found.end > selection.begin:
                yield Skipped(f"no valid record from log offset {found.begin} to {found.end}: {found.reason}")
            continue
        if selection.end is not None and found.log_offset >= selection.end:
            return
        if found.log_offset >= selection.begin and selection.takes(found):
            yield found


def _in_queue_order(files: Files, layout: StoreLayout, selection: Selection) -> Iterator[StoredMessage | Skipped]:
    queues = _find_queues(files, layout, selection)
    if not queues:
        which = selection.topic or "any topic"
        which = which if selection.queue_id is None else f"{which}/{selection.queue_id}"
        raise StoreError(
            f"there are no queue files of {which} in {layout.queue_folder}. Its messages may be in the log: dump "
            "in log order, or rebuild the queues"
        )
    with _LogReader(files, layout) as log:
        for queue in queues:
            for found in queue.messages(log, selection):
                if isinstance(found, Skipped) or selection.takes(found):
                    yield found


def _find_queues(files: Files, layout: StoreLayout, selection: Selection) -> list["_QueueReader"]:
    topics = files.list(layout.queue_folder) if selection.topic is None else [parse_topic(selection.topic)]
    found = [
        (topic, queue_id, list_queue_files(files, layout.queue_folder / topic / str(queue_id)))
        for topic in topics
        for queue_id in list_queue_ids(files, layout.queue_folder / topic)
        if selection.queue_id in (None, queue_id)
    ]
    return [_QueueReader(files, layout, topic, queue_id, ours) for topic, queue_id, ours in found if ours]


class _LogReader:
    """Single records of the log. The last file stays open."""

    def __init__(self, files: Files, layout: StoreLayout) -> None:
        self._files = files
        self._layout = layout
        self._path: Path | None = None
        self._file: File | None = None

    def record(self, log_offset: int, size: int) -> bytes:
        for log_file in self._layout.log_files:
            if 0 <= log_offset - log_file.first < log_file.size:
                return self._open(log_file.path).read_at(log_offset - log_file.first, size)
        return b""

    def _open(self, path: Path) -> File:
        if self._file is None or path != self._path:
            self.close()
            self._path, self._file = path, self._files.open(path, write=False)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _QueueReader:
    """One queue: its entries in order, and their messages."""

    def __init__(self, files: Files, layout: StoreLayout, topic: str, queue_id: int, ours: list[QueueFile]) -> None:
        self._files = files
        self._layout = layout
        self._key = (topic, queue_id)
        self._label = f"{topic}/{queue_id}"
        self._queue_files = ours
        folder = layout.queue_folder / topic / str(queue_id)
        self._entries = QueueEntries(files, folder, layout.queue_file_entries)

    def messages(self, log: _LogReader, selection: Selection) -> Iterator[StoredMessage | Skipped]:
        offset = max(selection.begin, self._queue_files[0].first // ENTRY_BYTES)
        while selection.end is None or offset < selection.end:
            raw = self._entries.raw(offset)
            entry = ENTRY.unpack(raw) if len(raw) == ENTRY_BYTES else (0, 0, 0)
            if not is_entry(entry):
                following = self._next_used(offset)
                if following is None:
                    return
                yield Skipped(f"entries {offset} to {following - 1} of {self._label} are missing")
                offset = following
                continue
            if is_message(entry) and entry[0] >= self._layout.log_start:
                yield self._message(log, offset, entry)
            offset += 1

    def _message(self, log: _LogReader, offset: int, entry: Entry) -> StoredMessage | Skipped:
        log_offset, size, _ = entry
        where = f"message {offset} of {self._label}, at log offset {log_offset}"
        try:
            message = decode_record(log.record(log_offset, min(size, self._layout.log_file_bytes)))
        except ProtocolError as error:
            return Skipped(f"{where}, cannot be read: it has {str(error).partition(' has ')[2] or error}")
        if (message.topic, message.queue_id, message.queue_offset) != (*self._key, offset):
            return Skipped(f"{where}, is missing: the record there is of another message")
        return message

    def _next_used(self, offset: int) -> int | None:
        """The next entry that is not empty; None at the end of the queue."""
        begin = offset * ENTRY_BYTES
        for queue_file in self._queue_files:
            if queue_file.first + queue_file.size > begin:
                with self._files.open(queue_file.path, write=False) as file:
                    found = nonzero_range(file, max(0, begin - queue_file.first), queue_file.size)
                if found is not None:
                    return max(offset + 1, (queue_file.first + found[0]) // ENTRY_BYTES)
        return None
