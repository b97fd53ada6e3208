"""What the documents point to is there: files, commands of make, and commands of the program with their options."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pocketmq.cli import main

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MANUAL = [document for document in DOCUMENTS if document.name != "CHANGELOG.md"]
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_link_to_a_file_has_a_target(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text("utf-8"))

    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_make_command_exists(document: Path) -> None:
    commands = re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text("utf-8"), re.MULTILINE)

    assert set(commands) <= set(TARGETS)


@pytest.mark.parametrize("document", MANUAL, ids=lambda document: document.name)
def test_every_command_of_the_program_exists_with_its_options(document: Path) -> None:
    text = document.read_text("utf-8").replace("\\\n", " ")
    lines = re.findall(r"(?:`|^\s*(?:\$ )?|&& )pocketmq ([a-z][^`&#\n]*)", text, re.MULTILINE)

    assert [fault for line in lines for fault in faults_of(line)] == []


def faults_of(line: str) -> Iterator[str]:
    """Words of a command line that the program does not know. Placeholders and prose after the command are ignored."""
    command: click.Command = main
    for word in re.split(r"[\s|\[\]]+", line):
        if word == "--" or command.context_settings.get("ignore_unknown_options"):
            return  # what follows is for another program
        if word.startswith("--"):
            known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            if word.partition("=")[0] not in {*known, "--help"}:
                yield f"pocketmq {line}: {command.name} has no {word}"
        elif isinstance(command, click.Group) and re.fullmatch(r"[a-z-]+", word):
            found = command.get_command(click.Context(command), word)
            if found is None:
                yield f"pocketmq {line}: {command.name} has no {word}"
                return
            command = found


def test_every_page_of_the_docs_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")} - {"index.md"}
    pages = {
        page for page in pages if not page.startswith("generated/")
    }  # docs/explanation/performance.md links to them

    assert {page for page in pages if f"({page})" not in index} == set()


def test_every_page_of_the_docs_is_in_the_navigation_of_the_website() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}

    assert set(re.findall(r"[\w/-]+\.md", navigation)) == {page for page in pages if not page.startswith("generated/")}


def test_every_make_command_has_a_description() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")

    assert {"help", "check", "test", "bench"} <= set(TARGETS)
    assert re.findall(r"^([a-z-]+):.*## .+$", makefile, re.MULTILINE) == TARGETS
