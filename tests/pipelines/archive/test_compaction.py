"""Which small files become one."""

from tests.pipelines.archive.made_files import data_file, stretch

from pocketmq.pipelines.archive.lake import groups_to_merge
from pocketmq.pipelines.archive.manifest import DataFile


def sized(*sizes: int, folder: str = "topic=orders/day=d") -> list[DataFile]:
    return [data_file(f"{number:02}", stretch(0, 1), size=size, folder=folder) for number, size in enumerate(sizes)]


def merged(files: list[DataFile], *, aim: int = 100, at_least: int = 2) -> list[list[int]]:
    return [[file.bytes for file in group] for group in groups_to_merge(files, aim_bytes=aim, at_least=at_least)]


def test_small_files_of_a_folder_are_merged_up_to_the_target_size() -> None:
    assert merged(sized(40, 40, 40, 10)) == [[40, 40], [40, 10]]


def test_large_files_are_not_merged() -> None:
    assert merged(sized(10, 50, 10, 200)) == [[10, 10]]


def test_a_few_files_are_not_merged() -> None:
    assert merged(sized(10, 10), at_least=3) == []
    assert merged(sized(10)) == []


def test_files_of_two_folders_are_never_merged() -> None:
    assert merged(sized(10, folder="topic=a/day=d") + sized(10, folder="topic=b/day=d")) == []
