"""Which small files become one: a plan, made of the manifest alone.

    folder    ▂ ▂ ▂ █ ▂ ▂            small files of one folder, in the order in which they came
    groups   [▂ ▂ ▂   ▂ ▂]           as many as make about one file of the size aimed at; a large one stays as it is

A file is rewritten at most a few times: what has half the size that is aimed at is no small one any more.
"""

from collections.abc import Iterable
from typing import Final

from pocketmq.pipelines.archive.manifest import DataFile

SMALL_PART: Final = 2
"""A file is small below so many parts of the size aimed at."""


def groups_to_merge(files: Iterable[DataFile], *, aim_bytes: int, at_least: int) -> list[list[DataFile]]:
    """Files to be made one, by groups of at least `at_least`, each of about `aim_bytes` together."""
    by_folder: dict[str, list[DataFile]] = {}
    for file in sorted(files, key=lambda file: (file.folder, file.path)):
        if file.bytes * SMALL_PART < aim_bytes:
            by_folder.setdefault(file.folder, []).append(file)
    return [group for small in by_folder.values() for group in _cut(small, aim_bytes) if len(group) >= at_least]


def _cut(small: list[DataFile], aim_bytes: int) -> list[list[DataFile]]:
    groups: list[list[DataFile]] = []
    room = 0
    for file in small:
        if file.bytes > room:
            groups.append([])
            room = aim_bytes
        groups[-1].append(file)
        room -= file.bytes
    return groups
