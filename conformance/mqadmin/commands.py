"""The commands that were captured with Apache's servers, with gaps for what has another name in each run.

index.json        the commands, in their order: what one makes, a later one looks at or removes
SUBCOMMAND.txt    $ mqadmin …, what was printed, [exit code]; one after the other
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple

import msgspec

from conformance import apache
from conformance.printed import Printed

BROKER: Final = "<broker>"
OFFSET_ID: Final = "<offset id>"
UNIQUE_ID: Final = "<unique id>"
CLIENT: Final = "<client>"
_GAPS: Final = (
    (re.compile(r"127\.0\.0\.1:\d+"), BROKER),
    (re.compile(r"127\.0\.0\.1@\S+"), CLIENT),
    (re.compile(r"\b7F00000100004A42[0-9A-F]{16}\b"), OFFSET_ID),
    (re.compile(r"\b7F000001(?!0{24})[0-9A-F]{24}\b"), UNIQUE_ID),
)
_BLOCK: Final = re.compile(r"^\$ mqadmin (.*)\n((?:.*\n)*?)(.*)\[exit (\w+)\]$", re.MULTILINE)


class Command(NamedTuple):
    """A command line with gaps, and what it printed with Apache."""

    line: str
    printed: Printed

    @property
    def name(self) -> str:
        return self.line.split()[0]

    def filled(self, facts: Mapping[str, str]) -> list[str]:
        line = self.line
        for gap, fact in facts.items():
            line = line.replace(gap, fact)
        return line.split()


@cache
def captured(version: str) -> list[Command]:
    """All commands of a version, in the order to run them in; none where nothing was captured."""
    folder = apache.GOLDEN / "mqadmin" / version
    if not (folder / "index.json").exists():
        return []
    lines = [entry["command"] for entry in msgspec.json.decode((folder / "index.json").read_bytes())]
    printed = {
        found[1]: Printed(found[2] + found[3], int(found[4]) if found[4].isdecimal() else None)
        for path in sorted(folder.glob("*.txt"))
        for found in _BLOCK.finditer(path.read_text("utf-8"))
    }
    return _in_order(Command(_with_gaps(line), printed[line]) for line in lines)


def _with_gaps(line: str) -> str:
    for pattern, gap in _GAPS:
        line = pattern.sub(gap, line)
    return line


def _in_order(commands: Iterable[Command]) -> list[Command]:
    """As they were run; but printMsg had been captured in a run of its own, before any message was sent again."""
    ordered = list(commands)
    names = [command.name for command in ordered]
    behind = len(names) - names[::-1].index("printMsg") if "printMsg" in names else 0
    before, after = ordered[:behind], ordered[behind:]
    again = [command for command in before if command.name == "queryMsgById" and " -s true" in command.line]
    return [*(command for command in before if command not in again), *again, *after]


def first_queue(version: str) -> int:
    """The queue that the first message of the live producer was in: commands ask for the messages of queue 0."""
    asked = next(one for one in captured(version) if one.line.startswith("queryMsgByOffset") and " -o 0" in one.line)
    return 0 if "stay0" in asked.printed.text else 1
