"""The folder of a demo: created, resumed, and never used if it belongs to another program."""

from pathlib import Path

import pytest

from pocketmq.demo.day import DemoSettings, run
from pocketmq.demo.servers import DemoFolder
from pocketmq.demo.shop import Day
from pocketmq.errors import UsageError, WrongState

DAY = Day(seed=3, begin_ms=5, orders=1_000)


def test_an_interrupted_day_can_be_resumed(tmp_path: Path) -> None:
    DemoFolder(tmp_path / "demo").start_over(DAY)

    assert DemoFolder(tmp_path / "demo").resume() == DAY


def test_a_new_start_removes_an_earlier_demo(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path)
    folder.start_over(DAY)
    left = folder.lake / "orders" / "part.parquet"
    left.parent.mkdir(parents=True)
    left.write_text("rows")

    folder.start_over(DAY._replace(seed=4))

    assert not folder.lake.exists()
    assert folder.resume().seed == 4


def test_a_new_start_removes_links_and_not_their_targets(tmp_path: Path) -> None:
    outside, thesis = tmp_path / "outside", tmp_path / "outside" / "thesis.txt"
    outside.mkdir()
    thesis.write_text("years of work")
    folder = DemoFolder(tmp_path / "demo")
    folder.start_over(DAY)
    (folder.path / "broker").symlink_to(outside)
    folder.lake.mkdir()
    (folder.lake / "orders").symlink_to(outside)
    (folder.lake / "part.parquet").symlink_to(thesis)
    folder.report.symlink_to(tmp_path / "nowhere")

    folder.start_over(DAY._replace(seed=4))

    assert thesis.read_text() == "years of work"
    assert [path.name for path in folder.path.iterdir()] == ["demo.json"]


def test_a_folder_with_other_files_is_not_changed(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")

    with pytest.raises(
        WrongState, match=r"thesis\.txt, which does not belong to a demo; use another folder with --dir"
    ):
        DemoFolder(tmp_path).start_over(DAY)

    assert thesis.read_text() == "years of work"


def test_a_folder_with_a_running_demo_is_refused(tmp_path: Path) -> None:
    folder = DemoFolder(tmp_path / "demo")

    with folder.locked():
        folder.start_over(DAY)
        for resume in (False, True):
            with pytest.raises(WrongState, match=r"another demo runs in .*demo; stop it"):
                run(DemoSettings(folder.path, orders=200, seed=9, resume=resume), print)
        assert folder.resume() == DAY
        folder.start_over(DAY._replace(seed=4))
        with pytest.raises(WrongState, match="another demo runs"), DemoFolder(folder.path).locked():
            pass

    with DemoFolder(folder.path).locked():
        assert folder.resume().seed == 4


def test_nothing_is_created_in_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    nowhere = tmp_path / "nowhere"

    with pytest.raises(WrongState, match="does not belong to a demo"):
        run(DemoSettings(tmp_path, orders=200, seed=9), print)
    with pytest.raises(UsageError, match="has no demo"):
        run(DemoSettings(nowhere, orders=200, seed=9, resume=True), print)

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_empty_folder_has_no_demo_to_resume(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no demo to continue; start one without --resume"):
        DemoFolder(tmp_path).resume()


@pytest.mark.parametrize("text", ["", "[]", '{"seed": 1}', '{"seed": "x"}'])
def test_a_damaged_state_file_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "demo.json").write_text(text)

    with pytest.raises(WrongState, match=r"demo\.json is damaged"):
        DemoFolder(tmp_path).resume()
