"""Names survive or not, but a file that was only moved is never lost and never there twice."""

from collections import Counter
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.files import files_below
from pocketmq.testing import FaultyFiles

FOLDERS = [Path("/"), Path("/d"), Path("/d/e"), Path("/f")]
NAMES = ["a", "b", "c"]


@given(st.integers(0, 1_000_000))
def test_moved_files_exist_exactly_once_after_any_crash(seed: int) -> None:
    random = Random(seed)
    disk = FaultyFiles()
    for name in NAMES:
        with disk.open(Path("/") / name, create=True) as file:
            file.write_at(0, name.encode())
            file.sync()
    disk.sync_dir(Path("/"))

    for _ in range(random.randrange(15)):
        move_at_random(disk, random)

    for fate in range(10):
        found = disk.crash(Random(fate))
        assert Counter(found.read(path) for path in files_below(found, Path("/"))) == Counter([b"a", b"b", b"c"])


def move_at_random(disk: FaultyFiles, random: Random) -> None:
    folder = random.choice(FOLDERS)
    match random.choice(("move", "move", "move", "sync", "remove", "fail")):
        case "move":
            source = random.choice(list(files_below(disk, Path("/"))))
            target = folder / random.choice("uvwxyz")
            if disk.status(target) is None:
                disk.make_dir(folder)
                disk.replace(source, target)
        case "sync" if disk.status(folder):
            disk.sync_dir(folder)
        case "fail" if disk.status(folder):
            disk.fail("sync_dir")
            try:
                disk.sync_dir(folder)
            except OSError:
                return
        case "remove" if disk.status(folder) and not disk.list(folder) and folder != Path("/"):
            disk.remove_dir(folder)


def test_a_recreated_name_is_any_of_its_earlier_states_after_a_crash() -> None:
    disk = FaultyFiles()
    path = Path("/a")
    for text in (b"1", b"2"):
        with disk.open(path, create=True) as file:
            file.write_at(0, text)
            file.sync()
        if text == b"1":
            disk.unlink(path)

    found = {disk.crash(Random(seed)).list(Path("/")) != [] for seed in range(50)}
    texts = {disk.crash(Random(seed)).read(path) for seed in range(50) if disk.crash(Random(seed)).status(path)}

    assert found == {True, False}
    assert texts == {b"1", b"2"}


def test_a_file_moved_out_of_a_replaced_folder_is_not_lost() -> None:
    disk = FaultyFiles()
    disk.make_dir(Path("/old"))
    disk.make_dir(Path("/new"))
    with disk.open(Path("/old/log"), create=True) as file:
        file.write_at(0, b"data")
        file.sync()
    disk.sync_dir(Path("/"))
    disk.sync_dir(Path("/old"))

    disk.replace(Path("/old/log"), Path("/log"))
    disk.replace(Path("/new"), Path("/old"))

    for seed in range(100):
        found = disk.crash(Random(seed))
        assert [found.read(path) for path in files_below(found, Path("/"))] == [b"data"]


def test_a_folder_of_the_root_needs_no_slash() -> None:
    disk = FaultyFiles()

    disk.make_dir(Path("store/log"))

    assert disk.list(Path("/store")) == disk.list(Path("./store")) == ["log"]
