"""The sizes of a store's files. RocketMQ reads them from its settings; PocketMQ can also read them from the files.

    arguments of the caller  >  broker.conf in the store's folder, if a file agrees  >  the files

For log and queue files, the most frequent size counts. For index files see `index_file.find_shape`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.errors import InvalidSetting, StoreError
from pocketmq.files import Files
from pocketmq.model import DELAY_LEVELS, DelayLevels
from pocketmq.store.index.index_file import IndexShape, find_shape, list_index_files
from pocketmq.store.log.log_scan import LogFile, list_log_files
from pocketmq.store.queues.consume_queue import ENTRY_BYTES
from pocketmq.store.queues.queue_entries import QueueFile, list_queue_files, list_queue_ids
from pocketmq.store.settings import StoreSettings

LOG, QUEUES, INDEX, CONFIG = "commitlog", "consumequeue", "index", "config"
"""Names of the folders."""

_SIGNS_OF_A_STORE: Final = (LOG, QUEUES, "checkpoint")
_DEFAULTS: Final = StoreSettings(folder=Path())
_CONF_LINE: Final = re.compile(r"^[ \t]*(\w+)[ \t]*[=:][ \t]*(.*?)[ \t\r]*$", re.MULTILINE)


class KnownSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The known sizes of a store, before its files are read; None for unknown sizes."""

    log_file_bytes: int | None = None
    queue_file_entries: int | None = None
    index_slots: int | None = None
    index_entries: int | None = None
    delay_levels: DelayLevels | None = None


class StoreLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of a store, and the sizes of its files."""

    folder: Path
    log_files: list[LogFile]
    log_file_bytes: int
    queue_file_entries: int
    index_shape: IndexShape | None
    """None if it cannot be determined."""
    delay_levels: DelayLevels

    @property
    def log_start(self) -> int:
        return self.log_files[0].first if self.log_files else 0

    @property
    def queue_folder(self) -> Path:
        return self.folder / QUEUES

    @property
    def index_folder(self) -> Path:
        return self.folder / INDEX

    @property
    def queue_file_bytes(self) -> int:
        return self.queue_file_entries * ENTRY_BYTES

    def name_of(self, path: Path) -> str:
        """`path` for people: relative to the store's folder."""
        return path.relative_to(self.folder).as_posix()


def find_layout(files: Files, folder: Path, known: KnownSizes) -> StoreLayout:
    """The layout of the store in `folder`. Raises StoreError if there is no store, InvalidSetting if `known` is
    impossible.
    """
    _check_is_store(files, folder)
    conf = _read_conf(files, folder / "broker.conf")
    log_files = list_log_files(files, folder / LOG)
    hinted = IndexShape(conf.index_slots or _DEFAULTS.index_slots, conf.index_entries or _DEFAULTS.index_entries)
    return StoreLayout(
        folder=folder,
        log_files=log_files,
        log_file_bytes=_log_file_bytes(log_files, known.log_file_bytes, conf.log_file_bytes),
        queue_file_entries=_queue_file_entries(
            files, folder / QUEUES, known.queue_file_entries, conf.queue_file_entries
        ),
        index_shape=find_shape(
            files,
            list_index_files(files, folder / INDEX),
            log_files,
            slots=known.index_slots,
            entries=known.index_entries,
            hinted=hinted,
        ),
        delay_levels=known.delay_levels or conf.delay_levels or DELAY_LEVELS,
    )


def find_log_file_bytes(files: Files, folder: Path) -> int | None:
    """The size of the log files in a store's folder; None if there are none. Raises StoreError if it is not a folder."""
    try:
        log_files = list_log_files(files, folder / LOG)
    except NotADirectoryError as error:
        raise StoreError(
            f"the store folder {folder} cannot be used: it, or a folder above it, is a file. Choose another folder"
        ) from error
    sizes = Counter(log_file.size for log_file in log_files if log_file.size)
    return _most_frequent_size(sizes, [log_file.first for log_file in log_files])


def _check_is_store(files: Files, folder: Path) -> None:
    status = files.status(folder)
    if status is None:
        raise StoreError(f"there is no folder {folder}")
    if not status.is_dir:
        raise StoreError(f"{folder} is a file; give the folder that contains {LOG}/ and {QUEUES}/")
    names = files.list(folder)
    if not set(names).isdisjoint(_SIGNS_OF_A_STORE):
        return
    inside = [name for name in names if files.status(folder / name / LOG) is not None]
    hint = f". There is one in {folder / inside[0]}" if inside else ""
    raise StoreError(f"{folder} is not a store: it has none of {', '.join(_SIGNS_OF_A_STORE)}{hint}")


def _read_conf(files: Files, path: Path) -> KnownSizes:
    """The sizes in the configuration of a RocketMQ broker; empty if there is no configuration."""
    if files.status(path) is None:
        return KnownSizes()
    found = dict(_CONF_LINE.findall(files.read(path).decode("utf-8", "replace")))

    def number(name: str) -> int | None:
        text = found.get(name, "")
        return int(text) if text.isdecimal() and int(text) else None

    queue_file_bytes = number("mappedFileSizeConsumeQueue")
    levels = found.get("messageDelayLevel")
    return KnownSizes(
        log_file_bytes=number("mappedFileSizeCommitLog"),
        # RocketMQ rounds up to whole entries as well.
        queue_file_entries=queue_file_bytes and -(-queue_file_bytes // ENTRY_BYTES),
        index_slots=number("maxHashSlotNum"),
        index_entries=number("maxIndexNum"),
        delay_levels=DelayLevels(levels) if levels else None,
    )


def _log_file_bytes(log_files: list[LogFile], known: int | None, conf: int | None) -> int:
    sizes = Counter(log_file.size for log_file in log_files if log_file.size)
    if known is not None and sizes and known not in sizes:
        raise _no_such_size("log file", known, log_files[0].path, log_files[0].size, "log_file_bytes")
    found = _most_frequent_size(sizes, [log_file.first for log_file in log_files])
    return known or _fitting(conf, sizes) or found or _DEFAULTS.log_file_bytes


def _fitting(size: int | None, sizes: Counter[int]) -> int | None:
    """The sizes of a configuration, if any file matches: it may be another broker's configuration."""
    return size if size in sizes or not sizes else None


def _most_frequent_size(sizes: Counter[int], firsts: list[int]) -> int | None:
    """The most frequent size; of equally frequent ones, the size whose multiples are the names."""
    if not sizes:
        return None
    most = max(sizes.values())
    common = [size for size, count in sizes.items() if count == most]
    return max(common, key=lambda size: (sum(first % size == 0 for first in firsts), size))


def _queue_file_entries(files: Files, folder: Path, known: int | None, conf: int | None) -> int:
    sizes: Counter[int] = Counter()
    firsts = []
    example = folder
    for queue_file in _queue_files(files, folder):
        if queue_file.size and queue_file.size % ENTRY_BYTES == 0:
            sizes[queue_file.size // ENTRY_BYTES] += 1
            firsts.append(queue_file.first // ENTRY_BYTES)
            example = queue_file.path
    found = _most_frequent_size(sizes, firsts)
    if known is not None and found and known not in sizes:
        raise _no_such_size("queue file", known * ENTRY_BYTES, example, found * ENTRY_BYTES, "queue_file_entries")
    return known or _fitting(conf, sizes) or found or _DEFAULTS.queue_file_entries


def _queue_files(files: Files, folder: Path) -> Iterator[QueueFile]:
    for topic in files.list(folder):
        for queue_id in list_queue_ids(files, folder / topic):
            yield from list_queue_files(files, folder / topic / str(queue_id))


def _no_such_size(what: str, known: int, example: Path, size: int, setting: str) -> InvalidSetting:
    return InvalidSetting(
        f"no {what} of this store has {known} bytes; {example} has {size}. Set {setting} to the value of the "
        "broker, or omit it to use the sizes of the files"
    )
