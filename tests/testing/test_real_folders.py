"""From memory to a real folder and back."""

from pathlib import Path
from random import Random

import pytest

from pocketmq.errors import UsageError
from pocketmq.files import DiskFiles
from pocketmq.testing import FaultyFiles


def test_a_disk_is_written_to_a_real_folder(tmp_path: Path) -> None:
    disk = FaultyFiles()
    disk.make_dir(Path("/store/empty"))
    with disk.open(Path("/store/log"), create=True) as file:
        file.write_at(0, b"safe")
        file.sync()
        file.write_at(5000, b"unsafe")

    disk.materialise(tmp_path / "new")

    assert (tmp_path / "new/store/log").read_bytes() == b"safe" + bytes(4996) + b"unsafe"
    assert (tmp_path / "new/store/empty").is_dir()


def test_holes_stay_holes(tmp_path: Path) -> None:
    disk = FaultyFiles()
    with disk.open(Path("/log"), create=True) as file:
        file.truncate(64 << 20)
        file.write_at(32 << 20, b"x")

    disk.materialise(tmp_path / "a")
    loaded = FaultyFiles.load(tmp_path / "a")

    assert (tmp_path / "a/log").stat().st_size == 64 << 20
    assert (tmp_path / "a/log").stat().st_blocks * 512 < 1 << 20
    assert loaded.usage(Path("/")).total - loaded.usage(Path("/")).free == 4096


def test_a_folder_with_content_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")

    with pytest.raises(UsageError, match="not empty"):
        FaultyFiles().materialise(tmp_path)


def test_a_real_folder_is_loaded_and_counts_as_safe(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "commitlog" / "0").write_bytes(b"record" * 3000)
    (tmp_path / "commitlog" / "0").chmod(0o700)  # a disk in memory has no other modes

    disk = FaultyFiles.load(tmp_path, Path("/data/store"))
    found = disk.crash(Random(0), survives="nothing")

    assert found.list(Path("/data/store")) == ["commitlog", "empty"]
    assert found.read(Path("/data/store/commitlog/0")) == b"record" * 3000
    inside, outside = disk.status(Path("/data/store/commitlog/0")), DiskFiles().status(tmp_path / "commitlog" / "0")
    assert inside is not None
    assert outside is not None
    assert inside._replace(mode=outside.mode) == outside  # a disk in memory knows no permissions
    assert disk.position == 0


def test_saving_and_loading_a_disk_keeps_it_equal(tmp_path: Path) -> None:
    disk = FaultyFiles()
    for number in range(3):
        disk.make_dir(Path(f"/{number}"))
        with disk.open(Path(f"/{number}/file"), create=True) as file:
            file.write_at(number * 4000, Random(number).randbytes(5000))
            file.truncate(9000)

    disk.materialise(tmp_path / "a")
    FaultyFiles.load(tmp_path / "a").materialise(tmp_path / "b")

    for number in range(3):
        expected = disk.read(Path(f"/{number}/file"))
        assert (tmp_path / f"b/{number}/file").read_bytes() == expected
