"""The shell commands and Python code of the documentation, each with its line number."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    "README.md": ROOT / "README.md",
    **{page.relative_to(DOCS).as_posix(): page for page in sorted(DOCS.rglob("*.md"))},
}
"""By their path below docs, as in `guides/metrics.md`."""
SHELL = ("bash", "sh", "shell", "console")
PROGRAMS = (
    "pocketmq",
    "pip",
    "make",
    "cd",
    "python",
    "python3",
    ".venv/bin/python",
    "docker",
    "podman",
    "helm",
    "uv",
    "uvx",
    "pipx",
    "kubectl",
    "curl",
    "git",
    "export",
)
"""By which a block without a language is taken for one of a shell."""
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SYNOPSIS = re.compile(r"\s\[-")
"""What may stand in a command, and not one to type: `pocketmq serve [--json]`."""
_IN_AN_ENVIRONMENT = re.compile(r"^(\.\./)?\.venv/bin/(?=(pocketmq|pip) )", re.MULTILINE)
"""Where a program is that was installed as the README says."""
_TYPED = re.compile(r"^    \$ (.+)$", re.MULTILINE)


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.words)


def blocks(page: str) -> list[Block]:
    text = PAGES[page].read_text("utf-8")
    return [Block(page, text.count("\n", 0, found.start(2)) + 1, found[1], found[2]) for found in _BLOCK.finditer(text)]


def commands(page: str) -> list[Command]:
    """The commands that a reader would type, without comments."""
    lines = [line for block in blocks(page) for line in _typed(block)]
    lines += _TYPED.findall(PAGES[page].read_text("utf-8"))
    typed = [line for line in lines if not _SYNOPSIS.search(line)]
    return [Command(page, tuple(words)) for line in typed if (words := shlex.split(line, comments=True))]


def _typed(block: Block) -> Iterator[str]:
    lines = _IN_AN_ENVIRONMENT.sub("", block.text.replace("\\\n", " ")).splitlines()
    if block.language == "console":  # with what the program answers
        yield from (line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    elif block.language in SHELL:
        yield from lines
    elif not block.language and lines and lines[0].split(" ")[0] in PROGRAMS:  # with a remark behind many blanks
        yield from (re.split(r"\s{2,}", line)[0] for line in lines)
