"""docs/explanation/architecture.md against the source: every file that it names exists, and its table has every lock."""

import ast
import re
from pathlib import Path

import pytest
from tests.source_code import SRC, Source, in_full, sources, spellings

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
PATHS = ("A send", "A pull", "A consumed message", "A Spark read", "A delayed message", "A transaction")
LOCKS = ("threading.Lock", "threading.RLock", "threading.Condition")


def named_files(text: str) -> set[str]:
    """Files and folders below `src/pocketmq` that a text names."""
    return set(re.findall(r"(?<![\w./])(?:\w+/)+(?:\w+\.(?:py|c))?(?![\w/])", text))


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def makes_a_lock(source: Source) -> bool:
    spelled = spellings(source)
    return any(isinstance(node, ast.Call) and in_full(node.func, spelled) in LOCKS for node in ast.walk(source.tree))


def test_every_file_that_the_page_names_exists() -> None:
    named = named_files(re.sub(r"\[.*?\]\(.*?\)", "", PAGE))

    assert len(named) > 80
    assert {
        name for name in named if not (SRC / "pocketmq" / name).exists() and not list(SRC.glob(f"pocketmq/*/{name}"))
    } == set()


@pytest.mark.parametrize("title", PATHS)
def test_every_path_of_a_message_names_its_files(title: str) -> None:
    files = {name for name in named_files(section(title)) if not name.endswith("/")}

    assert len(files) >= 6


def test_the_list_of_packages_names_each_of_them() -> None:
    there = {path.parent.name for path in SRC.glob("pocketmq/*/__init__.py")}

    assert there - {name.rstrip("/") for name in named_files(section("The packages"))} == set()


def test_the_table_of_locks_has_every_module_that_creates_one() -> None:
    made = {
        source.module.replace(".", "/").removeprefix("pocketmq/") + ".py"
        for source in sources()
        if makes_a_lock(source)
    }

    assert set(re.findall(r"^\| [^|]+ \| `([\w/.]+)`", section("Threads and locks"), re.MULTILINE)) == made


@pytest.mark.parametrize(
    "text",
    [
        "import threading\nlock = threading.Lock()",
        "from threading import RLock\nlock = RLock()",
        "import threading as t\nchanged = t.Condition()",
    ],
)
def test_locks_in_a_source_are_found(text: str) -> None:
    assert makes_a_lock(Source("pocketmq.made", ast.parse(text)))
    assert not makes_a_lock(Source("pocketmq.made", ast.parse("import asyncio\nlock = asyncio.Lock()")))
