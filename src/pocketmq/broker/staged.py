"""Sends between being staged and being answered: what a turn asks of the send handler, and what it says when all is written.

stage ──► staged, with the answer for success ──┬─ written, and no sync asked for ──► said at once
                                                ├─ written ── synced ───────────────► said after the sync; 10 when that takes too long
                                                └─ not written ─────────────────────► an error for each of them
"""

from typing import Any, Protocol

from pocketmq.codes import ResponseCode
from pocketmq.model.durations import Durations
from pocketmq.net.line import Line
from pocketmq.net.peer import Peer
from pocketmq.protocol.frames import Frame
from pocketmq.protocol.replies import with_code

StagedSend = tuple[int, bytes, int, int, str | None, str | None]
"""A send that is staged: opaque, message id, queue id, queue offset, transaction id, recall handle."""


class Sends(Protocol):
    """What a turn needs of the send handler."""

    takes_runs: bool
    """Whether there is a compiled twin, so that `stage_run` is worth a call."""

    def stage(self, peer: Peer, head: Any, body: bytes) -> tuple[StagedSend, bool]:
        """Put a send into the store's turn; its answer, and whether that waits for the disk."""
        ...

    def stage_batch(self, peer: Peer, head: Any, body: bytes) -> tuple[StagedSend, bool]: ...

    def stage_run(self, peer: Peer, frames: list[Frame], at: int) -> tuple[int, bytes, bool]:
        """Put usual sends from `at` on into the store's turn: how many, their answers, and whether those wait for the disk."""
        ...

    def stored(self, send: StagedSend) -> bytes:
        """The answer to a send that is stored."""
        ...

    def failed(self, opaque: int, error: Exception) -> bytes:
        """The answer to a send that is not."""
        ...


class Pulls(Protocol):
    """What a turn needs of pulls that were checked before."""

    in_use: bool

    def serve_run(self, frames: list[Frame], at: int, room: int) -> tuple[int, list[bytes | memoryview]]:
        """Answer usual pulls from `at` on until `room` bytes are full: how many, and the pieces of their answers."""
        ...


class PutStats(Protocol):
    """Counts how turns were stored."""

    put_times: Durations
    failed_puts: int


class Answers:
    """What one line is told when the store's turn has ended: at once, and after the sync."""

    __slots__ = ("at_once", "line", "staged", "synced")

    def __init__(self, line: Line) -> None:
        self.line = line
        self.staged = False
        self.at_once: list[bytes] = []
        self.synced: list[bytes] = []

    def take(self) -> "Group":
        """What is to be answered; a turn of the socket may be several of the store, and begins anew."""
        taken = self.line, self.at_once, self.synced
        self.staged, self.at_once, self.synced = False, [], []
        return taken


Group = tuple[Line, list[bytes], list[bytes]]
"""A line, what it is told at once, and what after the sync."""


def tell_synced(line: Line, replies: bytes, is_safe: bool) -> None:
    """The sync is done, or took too long."""
    line.write(replies if is_safe else with_code(replies, ResponseCode.FLUSH_DISK_TIMEOUT))
