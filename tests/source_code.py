"""The source as tests look at it: every module as a syntax tree, with its imports and names spelled in full."""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

SRC = Path(__file__).parents[1] / "src"


class Source(NamedTuple):
    """A module: its dotted name and its syntax tree."""

    module: str
    tree: ast.Module
    is_package: bool = False

    @property
    def package(self) -> str:
        """The first word after `pocketmq`; of a module outside of it, the first word."""
        top, _, rest = self.module.partition(".")
        return rest.partition(".")[0] if top == "pocketmq" else top

    def at(self, node: ast.AST) -> str:
        return f"{self.module}:{getattr(node, 'lineno', 0)}"


@cache
def sources() -> list[Source]:
    return [
        Source(
            ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"),
            ast.parse(path.read_text("utf-8")),
            path.name == "__init__.py",
        )
        for path in sorted(SRC.rglob("*.py"))
    ]


def imports(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Every import as a full dotted name; `from a import b` is `a.b`, as b may be a module."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = absolute(source, node)
            for alias in node.names:
                yield node, f"{base}.{alias.name}"


def absolute(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    steps_up = node.level - source.is_package
    parts = source.module.split(".")
    return ".".join([*parts[: len(parts) - steps_up], *([node.module] if node.module else [])])


def used_names(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Every name that is imported or read, spelled in full: `t.time` after `import time as t` is `time.time`."""
    spelled = spellings(source)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node, f"{absolute(source, node)}.{alias.name}"
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node, in_full(node, spelled)


def spellings(source: Source) -> dict[str, str]:
    """What each imported name stands for."""
    spelled: dict[str, str] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                spelled[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                spelled[alias.asname or alias.name] = f"{absolute(source, node)}.{alias.name}"
    return spelled


def in_full(node: ast.expr, spelled: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return spelled.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (head := in_full(node.value, spelled)):
        return f"{head}.{node.attr}"
    return ""


def verdict(guard: Callable[[Source], Iterator[str]], module: str, text: str) -> list[str]:
    """The findings of a rule about a source that a test invented."""
    return list(guard(Source(module, ast.parse(text))))
