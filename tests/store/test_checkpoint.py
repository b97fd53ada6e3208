"""The checkpoint: times that survive, and zeros when they cannot be read."""

import logging
import struct
from pathlib import Path
from random import Random

import pytest
from tests.golden import GOLDEN, needs_golden
from tests.store.golden_store import STORES, restore

from pocketmq.files import DiskFiles
from pocketmq.store.checkpoint import FILE_BYTES, Checkpoint
from pocketmq.testing import FaultyFiles

ROOT = Path("/store")
PATH = ROOT / "checkpoint"


@pytest.fixture
def files() -> FaultyFiles:
    files = FaultyFiles()
    files.make_dir(ROOT)
    files.sync_dir(ROOT.parent)
    return files


def write(files: FaultyFiles, data: bytes) -> None:
    with files.open(PATH, create=True) as file:
        file.write_at(0, data)


def save(files: FaultyFiles, checkpoint: Checkpoint, **times: int) -> None:
    for name, value in times.items():
        setattr(checkpoint, name, value)
    for path in checkpoint.save():
        with files.open(path) as file:
            file.sync()
    checkpoint.saved()


def times_of(checkpoint: Checkpoint) -> tuple[int, int, int]:
    return checkpoint.physic_ms, checkpoint.logics_ms, checkpoint.index_ms


def test_times_are_restored_after_a_power_loss(files: FaultyFiles) -> None:
    save(files, Checkpoint(files, ROOT).load(), physic_ms=30, logics_ms=20, index_ms=10)

    found = Checkpoint(files.crash(Random(1), survives="nothing"), ROOT).load()

    assert times_of(found) == (30, 20, 10)
    assert found.saved_index_ms == 10
    assert found.flaw == ""


def test_the_file_has_the_form_of_rocketmq(files: FaultyFiles) -> None:
    save(files, Checkpoint(files, ROOT).load(), physic_ms=3, logics_ms=2, index_ms=1)

    data = files.read(PATH)

    assert len(data) == FILE_BYTES == 4096
    assert struct.unpack(">5q", data[:40]) == (3, 2, 1, 0, 0)
    assert not any(data[40:])


def test_fields_of_replication_are_kept(files: FaultyFiles) -> None:
    write(files, struct.pack(">5q", 3, 2, 1, 77, 88).ljust(FILE_BYTES, b"\x55"))

    save(files, Checkpoint(files, ROOT).load(), physic_ms=4)

    data = files.read(PATH)
    assert struct.unpack(">5q", data[:40]) == (4, 2, 1, 77, 88)
    assert data[40:] == b"\x55" * (FILE_BYTES - 40)


@pytest.mark.parametrize(
    ("data", "flaw"),
    [
        (None, "does not exist"),
        (b"", "has only 0 bytes"),
        (bytes(39), "has only 39 bytes"),
        (bytes(FILE_BYTES), "contains only zeros"),
        (struct.pack(">5q", 5, -1, 5, 0, 0), "holds a time before 1970"),
    ],
)
def test_an_unreadable_checkpoint_counts_as_zeros_and_is_logged(
    files: FaultyFiles, data: bytes | None, flaw: str, caplog: pytest.LogCaptureFixture
) -> None:
    if data is not None:
        write(files, data)

    with caplog.at_level(logging.INFO):
        checkpoint = Checkpoint(files, ROOT).load()

    assert times_of(checkpoint) == (0, 0, 0)
    assert checkpoint.flaw == f"{PATH} {flaw}"
    (told,) = caplog.records
    assert told.getMessage() == f"no usable checkpoint found ({PATH} {flaw}); recovering from the start of the log"
    assert told.levelno == (logging.INFO if data is None else logging.WARNING)
    save(files, checkpoint)
    assert len(files.read(PATH)) == FILE_BYTES


def test_an_unchanged_checkpoint_is_not_written(files: FaultyFiles) -> None:
    checkpoint = Checkpoint(files, ROOT).load()
    save(files, checkpoint, physic_ms=1)

    assert checkpoint.save() == []
    checkpoint.logics_ms = 5
    assert checkpoint.save() == [PATH]


def test_the_next_save_waits_for_the_sync_of_the_last(files: FaultyFiles) -> None:
    checkpoint = Checkpoint(files, ROOT).load()
    checkpoint.index_ms = 1
    first = checkpoint.save()
    checkpoint.index_ms = 2
    second = checkpoint.save()

    assert (first, second) == ([PATH], [])
    assert checkpoint.saved_index_ms == 0
    checkpoint.saved()
    assert checkpoint.saved_index_ms == 1
    assert checkpoint.save() == [PATH]


def test_after_any_power_loss_the_times_are_old_or_new(files: FaultyFiles) -> None:
    checkpoint = Checkpoint(files, ROOT).load()
    saved = [(0, 0, 0)]
    for number in range(1, 6):
        save(files, checkpoint, physic_ms=number * 1000, logics_ms=number * 999, index_ms=number)
        saved.append(times_of(checkpoint))

    seen = {times_of(Checkpoint(point.files, ROOT).load()) for point in files.crash_points(1, states=20)}

    assert seen == set(saved)


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
def test_captured_checkpoints_are_read(version: str, kind: str, tmp_path: Path) -> None:
    restore(version, kind, tmp_path)

    checkpoint = Checkpoint(DiskFiles(), tmp_path).load()

    assert checkpoint.flaw == ""
    captured = (GOLDEN / "store" / version / kind / "checkpoint").read_bytes().ljust(40, b"\0")
    assert checkpoint.raw == captured
    assert checkpoint.physic_ms > 1_794_000_000_000
    assert checkpoint.logics_ms >= checkpoint.physic_ms
    assert checkpoint.index_ms == 0
    assert checkpoint.save() == []
