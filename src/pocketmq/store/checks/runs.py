"""Things of one kind that follow each other in a file, told as one finding: a lost page is one thing, not two hundred.

There may be millions of runs; who looks at them wants the first few and the number.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pocketmq.store.checks.findings import Kind

MAX_RUNS: Final = 20_000
"""Runs that are kept for one store; those beyond are counted."""


class Run:
    """Entries from `first` to `last` of one file; `detail` is about the first of them."""

    __slots__ = ("begin", "detail", "end", "first", "kind", "last", "path")

    def __init__(self, kind: Kind, path: Path, begin: int, end: int, number: int, detail: str) -> None:
        self.kind = kind
        self.path = path
        self.begin = begin
        self.end = end
        self.first = self.last = number
        self.detail = detail

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def named(self, noun: str, plural: str) -> str:
        """`entry 5`, or `entries 5 to 9`."""
        return f"{noun} {self.first}" if self.count == 1 else f"{plural} {self.first} to {self.last}"


class RunBudget:
    """How many runs may still be kept."""

    def __init__(self) -> None:
        self.left = MAX_RUNS


class Runs:
    """The runs of one queue or one index file."""

    __slots__ = ("_budget", "_runs", "unlisted")

    def __init__(self, budget: RunBudget) -> None:
        self._budget = budget
        self._runs: list[Run] = []
        self.unlisted = 0
        """Entries that would have needed a run of their own when no more were kept."""

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, kind: Kind, path: Path, begin: int, size: int, number: int, detail: str) -> None:
        """Entry `number`, which takes `size` bytes of `path` from `begin` on."""
        last = self._runs[-1] if self._runs else None
        if last is not None and last.kind is kind and last.path == path and last.end == begin:
            last.end, last.last = begin + size, number
        elif self._budget.left > 0:
            self._budget.left -= 1
            self._runs.append(Run(kind, path, begin, begin + size, number, detail))
        else:
            self.unlisted += 1

    def clear(self) -> None:
        self._budget.left += len(self._runs)
        self._runs.clear()
        self.unlisted = 0
