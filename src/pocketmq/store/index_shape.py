"""How many slots and entries the index files of a store have, when nobody says so.

| header 40 | slots × 4 | entries × 20 |      the size of the file is one equation for two unknowns
            ▲           ▲
            │           └ entry 0, never used, then entry 1: its bytes follow from the record that the header names first
            └ so where those bytes are found, the number of slots is known
"""

import re
from collections import Counter
from pathlib import Path
from typing import Final

from pocketmq.errors import InvalidSetting, ProtocolError
from pocketmq.files import File, Files
from pocketmq.model.properties import UNIQ_KEY
from pocketmq.protocol.record import SMALLEST_RECORD, decode_record
from pocketmq.store.index_file import ENTRY, ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES, IndexHeader, IndexShape
from pocketmq.store.key_hash import key_hash
from pocketmq.store.log_scan import LogFile

_NAME: Final = re.compile(r"[0-9]{17}")
_CHUNK_BYTES: Final = 1024 * 1024


def list_index_files(files: Files, folder: Path) -> list[Path]:
    """The files in `folder` that are named as index files are, oldest first."""
    paths = [folder / name for name in files.list(folder) if _NAME.fullmatch(name)]
    return [path for path in paths if (status := files.status(path)) is not None and not status.is_dir]


def find_shape(
    files: Files,
    paths: list[Path],
    log_files: list[LogFile],
    *,
    slots: int | None,
    entries: int | None,
    hinted: IndexShape,
) -> IndexShape | None:
    """The shape of the index files at `paths`, None when it cannot be told.

    `slots` and `entries` are what is known for sure, as far as it is; `hinted` is true if the files have its size.
    """
    sizes = Counter(status.size for path in paths if (status := files.status(path)) is not None and status.size)
    if not sizes:
        return IndexShape(slots or hinted.slots, entries or hinted.entries)
    [(size, _)] = sizes.most_common(1)
    if slots is not None or entries is not None:
        return _shape_of_size(size, slots, entries, paths[0].parent)
    if size == hinted.file_bytes:
        return hinted
    for path in paths:
        shape = _shape_by_first_entry(files, path, size, log_files)
        if shape is not None:
            return shape
    return None


def _shape_of_size(size: int, slots: int | None, entries: int | None, folder: Path) -> IndexShape:
    if slots is None:
        assert entries is not None, "one of them is known"
        slots = (size - HEADER_BYTES - entries * ENTRY_BYTES) // SLOT_BYTES
    if entries is None:
        entries = (size - HEADER_BYTES - slots * SLOT_BYTES) // ENTRY_BYTES
    shape = IndexShape(slots, entries)
    if slots < 1 or entries < 2 or shape.file_bytes != size:
        raise InvalidSetting(
            f"files in {folder} have {size} bytes, which {slots} slots and {entries} entries do not make "
            f"({HEADER_BYTES} + {SLOT_BYTES} × slots + {ENTRY_BYTES} × entries). Give both as the broker had them "
            "(maxHashSlotNum, maxIndexNum), or neither"
        )
    return shape


def _shape_by_first_entry(files: Files, path: Path, size: int, log_files: list[LogFile]) -> IndexShape | None:
    with files.open(path, write=False) as file:
        if file.size() != size or size < HEADER_BYTES:
            return None
        header = IndexHeader.parse(file.read_at(0, HEADER_BYTES))
        wanted = [] if header.is_empty else _first_entries(files, header, log_files)
        places = sorted(at for entry in wanted for at in _places(file, entry))
    # Further keys of the record follow the first at once, and would fit to a shape of their own.
    return next((shape for at in places if (shape := _shape_for_place(at, size)) is not None), None)


def _first_entries(files: Files, header: IndexHeader, log_files: list[LogFile]) -> list[bytes]:
    """What entry 1 may be: a key of the first record that the file speaks of, whose other keys the file before may have."""
    for log_file in log_files:
        if 0 <= header.begin_offset - log_file.first < log_file.size:
            with files.open(log_file.path, write=False) as file:
                at = header.begin_offset - log_file.first
                size = int.from_bytes(file.read_at(at, 4), "big")
                raw = file.read_at(at, size) if SMALLEST_RECORD <= size <= log_file.size - at else b""
            try:
                message = decode_record(raw)
            except ProtocolError:
                return []
            keys = [*message.keys, *filter(None, [message.properties.get(UNIQ_KEY)])]
            return [ENTRY.pack(key_hash(message.topic, key), header.begin_offset, 0, 0) for key in keys]
    return []


def _places(file: File, wanted: bytes) -> list[int]:
    """Where in `file` these bytes are."""
    places = []
    at = file.next_data(HEADER_BYTES)
    while at is not None:
        chunk = file.read_at(at, _CHUNK_BYTES)
        found = chunk.find(wanted)
        while found >= 0:
            places.append(at + found)
            found = chunk.find(wanted, found + 1)
        if len(chunk) < _CHUNK_BYTES:
            break
        at = file.next_data(at + len(chunk) - len(wanted) + 1)
    return places


def _shape_for_place(at: int, size: int) -> IndexShape | None:
    """The shape of a file whose entry 1 is at this place; None when none has it there."""
    slots, rest = divmod(at - ENTRY_BYTES - HEADER_BYTES, SLOT_BYTES)
    shape = IndexShape(slots, (size - HEADER_BYTES - slots * SLOT_BYTES) // ENTRY_BYTES)
    return shape if not rest and slots > 0 and shape.entries > 1 and shape.file_bytes == size else None
