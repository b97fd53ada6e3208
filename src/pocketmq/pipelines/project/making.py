"""A new project: the files of `template/`, with the name and the folder filled in."""

import re
from pathlib import Path
from typing import Final

from pocketmq.errors import InvalidSetting
from pocketmq.files import Files, walk, write_atomically

TEMPLATE: Final = Path(__file__).with_name("template")
SUFFIX: Final = ".template"
"""So that nobody takes the files of the template for code of ours."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def make_project(name: str, parent: Path, files: Files) -> list[Path]:
    """Make the folder `name` with a project in it; its files. InvalidSetting when there is something of that name."""
    if not _NAME.fullmatch(name):
        raise InvalidSetting(f"{name!r} is no name for a project: letters, digits, - and _, and a letter first")
    folder = parent / name
    if files.status(folder) is not None:
        raise InvalidSetting(f"{folder} is there already: choose another name, or remove it")
    made = []
    for source in walk(files, TEMPLATE):
        if source.suffix != SUFFIX:
            continue
        target = folder / source.relative_to(TEMPLATE).with_suffix("")
        text = files.read(source).decode().replace("{name}", name).replace("{folder}", str(folder))
        files.make_dir(target.parent)
        write_atomically(files, target, text.encode())
        made.append(target)
    return made
