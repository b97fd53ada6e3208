"""The offsets of mirrored messages on both clusters, as runs of consecutive offsets.

source   500 501 502 503 │ 504 505 506         a run ends if another producer wrote in between, or a message was skipped
target     0   1   2   3 │   9  10  11
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from pocketmq.errors import WrongState
from pocketmq.model import MessageQueue, QueueOffset

VERSION: Final = 1
MAX_RUNS: Final = 1_000
"""Runs of each queue. Beyond that, the oldest are dropped: no group is that far behind."""


class MirroredRun(msgspec.Struct, frozen=True, order=True):
    """`count` messages from `source_start` on, and the offset of the first one at the target."""

    source: MessageQueue
    source_start: int
    target: MessageQueue
    target_start: int
    count: int

    @property
    def source_end(self) -> int:
        return self.source_start + self.count

    @property
    def target_end(self) -> int:
        return self.target_start + self.count

    def is_followed_by(self, other: "MirroredRun") -> bool:
        same = (self.source, self.target) == (other.source, other.target)
        return same and (self.source_end, self.target_end) == (other.source_start, other.target_start)


class OffsetMap(msgspec.Struct, kw_only=True):
    """All mirrored messages. Runs of a queue are in the order of its offsets."""

    runs: dict[str, list[MirroredRun]] = {}
    """By the text of the source queue, because JSON cannot have queues as keys."""
    pairs: list[tuple[MessageQueue, MessageQueue]] = []
    """The target of each source queue, which never changes."""
    ends: list[QueueOffset] = []
    """The ends of target queues after the last batch: copies of a later batch follow them."""
    batch: int = -1
    version: int = VERSION

    def add(self, runs: Iterable[MirroredRun]) -> None:
        """Add runs, joining adjacent ones and skipping known ones."""
        for run in sorted(runs):
            known = self.runs.setdefault(str(run.source), [])
            if known and run.source_start < known[-1].source_end:
                continue
            if known and known[-1].is_followed_by(run):
                known[-1] = msgspec.structs.replace(known[-1], count=known[-1].count + run.count)
            else:
                known.append(run)
            del known[:-MAX_RUNS]

    def next_offsets(self) -> dict[MessageQueue, int]:
        """The next offset of each source queue to mirror."""
        return {known[-1].source: known[-1].source_end for known in self.runs.values() if known}

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Remove re-created queues, which start again."""
        for queue in queues:
            self.runs.pop(str(queue), None)

    def translate(self, queue: MessageQueue, offset: int) -> QueueOffset | None:
        """The target offset for a group whose next message is at `offset`; None if no message of the queue was mirrored.

        A missing message is skipped. Beyond the last run, it is the end of the mirrored messages.
        """
        known = self.runs.get(str(queue))
        if not known:
            return None
        for run in known:
            if offset < run.source_end:
                return QueueOffset(run.target, run.target_start + max(0, offset - run.source_start))
        return QueueOffset(known[-1].target, known[-1].target_end)

    def pair(
        self, sources: Iterable[MessageQueue], targets: Sequence[MessageQueue]
    ) -> dict[MessageQueue, MessageQueue]:
        """Pair the queues of one topic: the first with the first, and so on; new queues get the least used target."""
        known = dict(self.pairs)
        for number, source in enumerate(sorted(sources)):
            if source not in known:
                used = [target for target in known.values() if target in targets]
                by_use = sorted(
                    targets, key=lambda target: (used.count(target), target != targets[number % len(targets)])
                )
                known[source] = by_use[0]
        self.pairs = sorted(known.items())
        return known


def read_map(text: str | None) -> OffsetMap:
    """The saved map, or an empty one."""
    if text is None:
        return OffsetMap()
    try:
        found = msgspec.json.decode(text, type=OffsetMap)
    except msgspec.MsgspecError as error:
        raise WrongState(f"the saved map of offsets is damaged: {error}; use another --checkpoint") from None
    if found.version != VERSION:
        raise WrongState(
            f"the saved map of offsets has version {found.version}, not {VERSION}; use another --checkpoint"
        )
    return found
