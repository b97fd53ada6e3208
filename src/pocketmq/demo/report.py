"""What a demo came to, to be shown, to be kept, and to decide how it ends."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from pocketmq.demo import reconciliation
from pocketmq.demo.plot import Window, sparkline
from pocketmq.demo.reconciliation import Check, as_rows


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Whether every message is accounted for, and where to look."""

    checks: tuple[Check, ...]
    reasons: dict[str, int]
    """Why orders are dead, and how many."""
    windows: tuple[Window, ...]
    folder: Path
    lake: Path
    plot: Path
    took_ms: int
    seed: int

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "holds": self.holds,
            "took_ms": self.took_ms,
            "seed": self.seed,
            "checks": as_rows(self.checks),
            "dead_reasons": self.reasons,
            "lake": str(self.lake),
            "plot": str(self.plot),
        }

    def next_steps(self, program: str = "pocketmq") -> str:
        """What to try now, with the program as the user calls it."""
        return f"""
What to try next
  {program} demo --messages 1_000_000
      More of the same. Kill it in the middle, and go on: {program} demo --resume
  {program} serve --console --data {self.folder}/broker
      Look around in a browser, or beside it: {program} topic ls, {program} dlq ls
  {program} pipeline --help
      Ready pipelines: topics to a lake and back, checked, mirrored, measured.
  {program} pipeline new my-shop
      A pipeline of your own, with a test."""

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [reconciliation.table(self.checks), Text()]
        if self.reasons:
            told = ", ".join(f"{reason}: {many:,}" for reason, many in sorted(self.reasons.items()))
            parts.append(Text(f"Why orders are dead: {told}"))
        parts += [Text("\nRevenue by hour and city"), sparkline(self.windows), Text(), *_places(self), Text()]
        verdict = (
            "Every message is accounted for" if self.holds else "Messages are missing, or too many: see WRONG above"
        )
        parts.append(
            Text(f"{verdict}. It took {self.took_ms / 1000:.0f} s.", style="bold green" if self.holds else "bold red")
        )
        return Group(*parts)


def _places(report: Report) -> Sequence[Text]:
    return [Text(f"lake  {report.lake}"), Text(f"plot  {report.plot}")]
