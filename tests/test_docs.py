"""What the documents point to is there: files, and commands of make."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text("utf-8"))

    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_make_command_exists(document: Path) -> None:
    commands = re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text("utf-8"), re.MULTILINE)

    assert set(commands) <= set(TARGETS)


def test_every_page_of_the_docs_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")} - {"index.md"}

    assert {page for page in pages if f"({page})" not in index} == set()


def test_every_make_command_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")

    assert {"help", "check", "test", "bench"} <= set(TARGETS)
    assert re.findall(r"^([a-z-]+):.*## .+$", makefile, re.MULTILINE) == TARGETS
