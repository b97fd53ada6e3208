"""Captured traffic and files of Apache RocketMQ, to compare with; kept beside the repository.

Tests that need it carry the mark `needs_golden` and are skipped, with the reason, where the folder is missing.
"""

import base64
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from pocketmq.protocol.command import Command, decode_command
from pocketmq.protocol.frames import split_frames

GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden"

needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"no captured data at {GOLDEN}")


class Captured(NamedTuple):
    """One frame of a conversation, byte exact. `answers` is the request code that a response belongs to.

    `link` is the connection: `namesrv`, `broker` or `vip` with a client, `registration` of a broker with its name
    server; `conn` distinguishes the connections of a link; `forward` when it went from the side that connected to the side
    that listens; `at` is when, in seconds since the recording began.
    """

    name: str
    frame: bytes
    answers: int | None
    link: str
    forward: bool
    conn: str = ""
    at: float = 0.0

    @property
    def command(self) -> Command:
        (frame,) = split_frames(self.frame)
        return decode_command(frame)


def captured(pattern: str = "**/*.jsonl") -> list[Captured]:
    """The frames of all conversations whose path below the folder matches, in order."""
    return [frame for path in sorted(GOLDEN.glob(pattern)) for frame in _conversation(path)]


@cache
def _conversation(path: Path) -> tuple[Captured, ...]:
    return tuple(_frames(path))


def _frames(path: Path) -> Iterator[Captured]:
    name = str(path.relative_to(GOLDEN))
    for number, line in enumerate(path.read_text().splitlines(), 1):
        record = json.loads(line)
        if "frame" in record:
            yield Captured(
                name=f"{name}:{number}",
                frame=base64.b64decode(record["frame"]),
                answers=record.get("answers"),
                link=record["conn"].partition("#")[0],
                forward=record["dir"] == "->",
                conn=record["conn"],
                at=record["t"],
            )


def store_file(path: Path) -> bytes:
    """A file of a captured store at its true size: captured files end after their last byte that is not zero."""
    folder = next(folder for folder in path.parents if (folder / "manifest.json").is_file())
    sizes = json.loads((folder / "manifest.json").read_text())
    size: int = sizes[path.relative_to(folder).as_posix()]
    return path.read_bytes().ljust(size, b"\0")
