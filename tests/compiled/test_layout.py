"""Both languages have one layout of a record and of a queue entry: compared field by field."""

import ast
import re
import struct
from pathlib import Path

import pytest
from tests.source_code import sources
from tests.twins import compiled_or_skip

from pocketmq import compiled
from pocketmq.protocol.record import FIELD_AT, HEAD_FIELDS, MAGIC_V1, SMALLEST_RECORD, crc_of, encode_record
from pocketmq.store.queues.consume_queue import ENTRY


@pytest.fixture(scope="module")
def turn() -> compiled.Twin:
    return compiled_or_skip()


def test_the_head_of_a_record_has_the_same_fields_in_both_languages(turn: compiled.Twin) -> None:
    in_python = [(name, FIELD_AT[name], struct.calcsize(f">{each}")) for name, each in HEAD_FIELDS.items()]

    assert in_python == turn.RECORD_FIELDS
    assert sum(size for _, _, size in in_python) == SMALLEST_RECORD - 3


def test_a_queue_entry_has_the_same_fields_in_both_languages(turn: compiled.Twin) -> None:
    entry = ENTRY.pack(0x0102030405060708, 0x090A0B0C, 0x0D0E0F1011121314)

    assert [name for name, _, _ in turn.ENTRY_FIELDS] == ["log_offset", "size", "tags_code"]
    assert [entry[at : at + size].hex() for _, at, size in turn.ENTRY_FIELDS] == [
        "0102030405060708",
        "090a0b0c",
        "0d0e0f1011121314",
    ]


def test_each_field_is_written_at_its_layout_position() -> None:
    born_host, store_host = bytes(range(8)), bytes(range(8, 16))

    record = encode_record(b"T", 3, 4, 5, b"body", b"properties", 6, 0, 7, born_host, 8, store_host, 9, 10)

    size = {name: struct.calcsize(f">{each}") for name, each in HEAD_FIELDS.items()}
    found = {name: record[at : at + size[name]] for name, at in FIELD_AT.items()}
    assert (found.pop("born_host"), found.pop("store_host")) == (born_host, store_host)
    assert {name: int.from_bytes(raw, "big") for name, raw in found.items()} == {
        "size": len(record),
        "magic": MAGIC_V1,
        "body_crc": crc_of(b"body"),
        "queue_id": 3,
        "queue_offset": 4,
        "log_offset": 5,
        "flag": 6,
        "sys_flag": 0,
        "born_ms": 7,
        "store_ms": 8,
        "reconsume_times": 9,
        "prepared_offset": 10,
        "body_size": 4,
    }


def test_the_comments_of_the_twins_name_code_that_exists() -> None:
    named = {
        name
        for path in (Path(compiled.__file__), *Path(compiled.__file__).parent.glob("*.[ch]"))
        for name in re.findall(r"`((?:broker|compiled|protocol|spark|store)\.[\w.]+)`", path.read_text())
    }

    assert {"store.reading", "protocol.frames.split_whole", "compiled.CheckedPull"} <= named
    assert {name for name in named if not _is_in_the_source(name)} == set()


def _is_in_the_source(name: str) -> bool:
    """Whether `package.module`, perhaps with a class or function and what it contains, is in the source."""
    modules = [source for source in sources() if f"pocketmq.{name}.".startswith(f"{source.module}.")]
    found = max(modules, key=lambda source: len(source.module), default=None)
    if found is None or found.module == "pocketmq":
        return False
    inside = f"pocketmq.{name}".removeprefix(found.module).split(".")[1:]
    text = ast.unparse(found.tree)
    return all(re.search(rf"\b{part}\b", text) for part in inside)
