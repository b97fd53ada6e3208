"""A recorded commit is always published, after a kill at any time; unrecorded files are removed."""

from pathlib import Path

from tests.pipelines.archive.made_files import commit, data_file, stretch

from pocketmq.pipelines.archive.form import staged_path
from pocketmq.pipelines.archive.staging import clear_unfinished, publish, staged_files
from pocketmq.testing.faulty_files import FaultyFiles

LAKE = Path("/lake")
FOLDER = "topic=orders/day=d"


def put(files: FaultyFiles, path: Path) -> None:
    files.make_dir(path.parent)
    with files.open(path, create=True) as file:
        file.write_at(0, b"rows")


def test_after_an_interruption_at_any_step_new_files_replace_old_ones() -> None:
    new, old = data_file("0000000002-new", stretch(0, 2)), data_file("0000000001-old", stretch(0, 2))
    done = commit(2, new, removed=(old.path,))
    for steps in range(4):
        files = FaultyFiles()
        put(files, LAKE / staged_path(new.path, 2))
        put(files, LAKE / "_staging/0000000002/_SUCCESS")
        put(files, LAKE / old.path)
        if steps > 0:
            files.unlink(LAKE / old.path)
        if steps > 1:
            files.replace(LAKE / staged_path(new.path, 2), LAKE / new.path)
        if steps > 2:
            publish(LAKE, done, files)

        publish(LAKE, done, files)

        assert files.list(LAKE / FOLDER) == ["0000000002-new"]
        assert files.list(LAKE / "_staging") == []


def test_uncommitted_files_are_removed() -> None:
    files = FaultyFiles()
    put(files, LAKE / "_staging/0000000003" / FOLDER / "part-0.parquet")
    put(files, LAKE / "_staging/0000000003" / FOLDER / ".part-0.parquet.crc")
    put(files, LAKE / "_staging/0000000002" / FOLDER / "part-0.parquet")

    assert staged_files(LAKE / "_staging/0000000003", files) == [f"{FOLDER}/part-0.parquet"]
    assert clear_unfinished(LAKE, 2, files) == ["0000000003"]
    assert files.list(LAKE / "_staging") == ["0000000002"]
