"""In what state the last writer left a store: who owns it, how it was stopped, and how far its files were safe by then.

    lock taken                         in use: the ends of all files may move while they are looked at
    lock free, abort file there        crashed: what was not synced may be lost or torn, and the next start puts it right
    lock free, no abort file           clean: everything must be there

The checkpoint tells up to which store time each kind of file was safe. What it vouches for must be there in any state.
"""

import struct
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.files import Files
from pocketmq.store.checkpoint import FILE_BYTES
from pocketmq.store.checks.findings import Finding, Kind

_TIMES: Final = struct.Struct(">qqq")
_YEAR_MS: Final = 365 * 86_400_000


class Stop(Enum):
    CLEAN = "clean"
    CRASHED = "crashed"
    IN_USE = "in use"


class SafeTimes(NamedTuple):
    """Store times, in ms: what was stored up to them is safe in the log, the queues, the index."""

    log_ms: int = 0
    queue_ms: int = 0
    index_ms: int = 0


class Condition(NamedTuple):
    stop: Stop
    owner: str
    """The process that has, or had, the store, if the abort file tells."""
    safe: SafeTimes
    checkpoint_flaw: str
    """What is wrong with the checkpoint; empty when nothing is."""

    @property
    def is_clean(self) -> bool:
        return self.stop is Stop.CLEAN

    @property
    def is_in_use(self) -> bool:
        return self.stop is Stop.IN_USE

    def findings(self) -> Iterator[Finding]:
        owner = f"process {self.owner}" if self.owner else "a program"
        if self.is_in_use:
            text = f"the store is in use by {owner}: what was written last may not be in all files yet"
            yield Finding(Kind.IN_USE, "lock", text)
        elif not self.is_clean:
            text = (
                "the store was not stopped cleanly: the next start looks for the end of the log and makes the rest fit"
            )
            yield Finding(Kind.CRASHED, "abort", text)

    def knows_later(self, newest_ms: int) -> bool:
        """Whether the checkpoint vouches for a message that was stored after `newest_ms`, and can be believed."""
        return newest_ms < self.safe.log_ms and (not newest_ms or self.safe.log_ms < newest_ms + _YEAR_MS)

    def check_checkpoint(self, newest_ms: int) -> Iterator[Finding]:
        """Compare the checkpoint with a log whose newest record was stored at `newest_ms`; 0 when there is none."""
        flaw = self.checkpoint_flaw
        if not newest_ms or self.is_in_use:
            return
        if not flaw and self.is_clean and not any(self.safe):
            flaw = "holds nothing but zeros"
        if not flaw and max(self.safe) > newest_ms:
            flaw = f"says that files are safe up to {max(self.safe)} ms; the newest message is of {newest_ms} ms"
        if flaw:
            yield Finding(Kind.CHECKPOINT, "checkpoint", f"the checkpoint {flaw}", 0, _TIMES.size)


def look_at(files: Files, folder: Path) -> Condition:
    """The condition of the store in `folder`."""
    abort = folder / "abort"
    has_abort = files.status(abort) is not None
    owner = files.read(abort).decode("ascii", "replace").strip() if has_abort else ""
    stop = Stop.CRASHED if has_abort else Stop.CLEAN
    if files.status(folder / "lock") is not None:
        with files.open(folder / "lock", write=False) as lock:
            stop = Stop.IN_USE if lock.is_locked() else stop
    safe, flaw = _read_checkpoint(files, folder / "checkpoint", stop)
    return Condition(stop, owner if owner.isdigit() else "", safe, flaw)


def _read_checkpoint(files: Files, path: Path, stop: Stop) -> tuple[SafeTimes, str]:
    if files.status(path) is None:
        return SafeTimes(), "is missing"
    data = files.read(path)
    if len(data) < _TIMES.size:
        return SafeTimes(), f"has only {len(data)} bytes"
    safe = SafeTimes(*_TIMES.unpack_from(data))
    if min(safe) < 0:
        return SafeTimes(), "holds a time before 1970"
    return safe, "" if len(data) == FILE_BYTES else f"has {len(data)} bytes instead of {FILE_BYTES}"
