"""Where messages of one cluster are on another, as runs: so many messages, one after the other, here and there.

source   500 501 502 503 │ 504 505 506         a run ends where somebody else wrote in between, or a message was skipped
target     0   1   2   3 │   9  10  11
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from pocketmq.errors import WrongState
from pocketmq.model.queue import MessageQueue, QueueOffset

VERSION: Final = 1
MAX_RUNS: Final = 1_000
"""Of each queue. When there are more, the oldest are forgotten: no group is that far behind."""


class MirroredRun(msgspec.Struct, frozen=True, order=True):
    """`count` messages from `source_start` on, and where the first of them is."""

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
    """What was mirrored. Runs of a queue are in the order of its offsets."""

    runs: dict[str, list[MirroredRun]] = {}
    """By the text of the source queue: JSON knows no keys that are queues."""
    pairs: list[tuple[MessageQueue, MessageQueue]] = []
    """Which queue goes to which; once said, it stays."""
    ends: list[QueueOffset] = []
    """Where target queues ended when a batch was done: copies of a later one are behind it."""
    batch: int = -1
    version: int = VERSION

    def add(self, runs: Iterable[MirroredRun]) -> None:
        """Note runs; those that touch become one, and what was noted before is left out."""
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
        """The next message of each source queue that is to be mirrored."""
        return {known[-1].source: known[-1].source_end for known in self.runs.values() if known}

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Topics that were made anew begin again."""
        for queue in queues:
            self.runs.pop(str(queue), None)

    def translate(self, queue: MessageQueue, offset: int) -> QueueOffset | None:
        """Where a group that is to read `offset` next goes on; None where nothing of the queue was mirrored.

        A message that is not there is skipped; behind the last one it is the end of what was mirrored.
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
        """The target of each source queue of one topic: the first to the first, and so on; new queues take what is free."""
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
    """The map as it was noted; an empty one for none."""
    if text is None:
        return OffsetMap()
    try:
        found = msgspec.json.decode(text, type=OffsetMap)
    except msgspec.MsgspecError as error:
        raise WrongState(f"the note of mirrored offsets is damaged: {error}; give another --checkpoint") from None
    if found.version != VERSION:
        raise WrongState(
            f"the note of mirrored offsets is of version {found.version}, not {VERSION}; give another --checkpoint"
        )
    return found
