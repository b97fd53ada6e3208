"""The documentation and the source keep to the language of tests/prose.py and docs/glossary.md."""

import ast
import re
from pathlib import Path

import pytest
from tests.prose import (
    ALLOWED_NAMES,
    ALLOWED_TEXTS,
    GLOSSARY,
    ROOT,
    comment_faults,
    idioms_of_tests,
    local_faults,
    name_faults,
    page_faults,
    pages,
    phrases,
    retired_words,
    source_faults,
    text_faults,
)
from tests.source_code import SRC, Source, sources

PACKAGES = sorted({source.package for source in sources()})


@pytest.mark.parametrize("page", pages())
def test_a_page_is_written_in_plain_words(page: str) -> None:
    assert list(page_faults(page)) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_uses_no_retired_word(package: str) -> None:
    assert [fault for source in sources() if source.package == package for fault in source_faults(source)] == []


@pytest.mark.parametrize("package", sorted(path.name for path in (SRC / "pocketmq").iterdir() if path.is_dir()))
def test_comments_are_written_in_plain_words(package: str) -> None:
    files = [path for path in sorted((SRC / "pocketmq" / package).rglob("*")) if path.suffix in {".py", ".c", ".h"}]

    assert [fault for path in files for fault in comment_faults(path)] == []


def test_names_of_tests_are_plain() -> None:
    assert [fault for path in sorted((ROOT / "tests").rglob("test_*.py")) for fault in idioms_of_tests(path)] == []


@pytest.mark.parametrize(("name", "faults"), [("a_failure_is_told", 1), ("who_waits", 1), ("a_failure_is_logged", 0)])
def test_idioms_in_names_of_tests_are_found(tmp_path: Path, name: str, faults: int) -> None:
    (tmp_path / "test_made.py").write_text(f"def test_{name}(): ...")

    assert len(list(idioms_of_tests(tmp_path / "test_made.py"))) == faults


def test_every_owner_of_the_glossary_exists() -> None:
    owners = re.findall(r"^\| [^|]+ \| [^|]+ \| `([\w/.]+)` \|", GLOSSARY.read_text("utf-8"), re.MULTILINE)

    assert len(owners) > 50
    assert [owner for owner in owners if not (SRC / "pocketmq" / owner).exists()] == []


def test_the_glossary_has_each_word_once() -> None:
    words = re.findall(r"^\| ([^|]+) \| [^|]+ \| `", GLOSSARY.read_text("utf-8"), re.MULTILINE)

    assert sorted(set(words)) == sorted(words)
    assert {"line", "room", "place", "told", "asked"} <= retired_words()


def test_every_exception_is_needed() -> None:
    source = "\n".join(path.read_text("utf-8") for path in SRC.rglob("*.py"))
    texts = source + "\n".join((ROOT / page).read_text("utf-8") for page in pages())

    assert [name for name in ALLOWED_NAMES if not re.search(rf"\b_?{name}\b", source)] == []
    assert [text for text in ALLOWED_TEXTS if text not in texts] == []


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("go " * 35, 0),
        ("go " * 36, 1),
        ("One sentence. Go " + "go " * 34, 0),
        ("`a b` " * 18, 0),
        ("| a | " + "go " * 36 + " |", 1),
        ("- " + "go " * 20 + "\n- " + "go " * 20, 0),
        ("x" * 120, 0),
        ("x" * 121, 1),
        ("[text](" + "x" * 121 + ")", 0),
        ("```\n" + "x" * 121 + "\n```", 0),
        ("A pull waits until the broker is told.", 1),
        ("Nobody knows.", 1),
        ("There is room for it.", 1),
        ("The strategy *machine room* of RocketMQ.", 0),
        ("Who sends alone has to wait.", 1),
        ("What does it cost?", 0),
        ("It waits in place.", 0),
    ],
)
def test_faults_of_a_text_are_found(text: str, faults: int) -> None:
    assert len(list(text_faults(text))) == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("class Line: ...", 1),
        ("class AskingLine: ...", 2),
        ("def timeline_of(online): ...", 0),
        ("def command_lines(): ...", 0),
        ("def is_told(asked): ...", 1),
        ("self.max_held_pulls = 1", 0),
        ("self.given_up_at = 1", 0),
        ("local = taken = 1", 0),
    ],
)
def test_retired_words_in_names_are_found(text: str, faults: int) -> None:
    assert len(list(name_faults(Source("pocketmq.net.made", ast.parse(text))))) == faults


def test_a_line_of_text_may_be_called_a_line() -> None:
    assert list(name_faults(Source("pocketmq.cli.made", ast.parse("def line_of(lines): ...")))) == []


def test_retired_nouns_are_found_in_variables_and_parameters() -> None:
    source = Source("pocketmq.net.made", ast.parse("def read(place): room_of = odd_flags = place"))

    assert len(list(local_faults(source))) == 3


def test_retired_phrases_are_found_in_comments(tmp_path: Path) -> None:
    (tmp_path / "made.c").write_text("/* To be called\n * every tick. */\nint place; // for good\n")
    (tmp_path / "made.py").write_text("x = 'told'  # a write is under way\n")

    assert len(list(comment_faults(tmp_path / "made.c"))) == 2
    assert len(list(comment_faults(tmp_path / "made.py"))) == 1


def test_a_clause_as_the_subject_is_found_in_a_docstring() -> None:
    source = Source("pocketmq.net.made", ast.parse('"""Sends. Who sends alone has to wait."""'))

    assert len(list(source_faults(source))) == 1


def test_retired_phrases_in_texts_are_found() -> None:
    source = Source("pocketmq.net.made", ast.parse('log.info("the peer was told %s", 1)\nlog.info("told %s")'))

    assert len(list(source_faults(source))) == 1
    assert list(phrases("no place for this room")) != []
