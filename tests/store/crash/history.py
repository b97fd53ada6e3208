"""The calls to a store and its acknowledgements, moment by moment, so that any moment can be checked after a power
loss.

A moment is a position in the journal of the disk: how many operations it had seen.

    epoch ── opened, and the log was found to hold `base`
      ├─ attempt   begun ──── acknowledged          its records may be there from the one on; in order, without a hole
      ├─ promise   synced up to an offset           from then on they must be there
      └─ drop      files before an offset may go    the log may begin there
    epoch ── opened again …

A disk that lost power at a moment must hold a log that `Legal` allows: what was acknowledged, in order, perhaps without its end,
but never without what was promised; at most the attempt under way may follow.
"""

from typing import NamedTuple


class Sent(NamedTuple):
    """A message as it was passed to the store, with its offsets."""

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    body: bytes
    properties: bytes
    sys_flag: int
    born_ms: int
    size: int


class Attempt(NamedTuple):
    """One turn: the moment it was begun, the moment it was acknowledged (None: never) and its messages."""

    begun: int
    acknowledged: int | None
    records: list[Sent]


class Saved(NamedTuple):
    """A table whose save was acknowledged."""

    begun: int
    ended: int | None
    name: str
    value: int


class Deletion(NamedTuple):
    """A topic that was deleted when the log ended at `log_end`: messages before it are not in queues any more."""

    begun: int
    ended: int | None
    topic: str
    log_end: int
    openings: int
    """How often the store had been opened before."""


class Legal(NamedTuple):
    """What a log may hold: `records` in order, at least the first `required`, from one of `starts` on.

    Files before `kept_from` were dropped once; such a file may reappear, but derived files may have followed its drop.
    """

    records: list[Sent]
    required: int
    starts: set[int]
    kept_from: int

    def judge(self, start: int, found: list[Sent]) -> None:
        assert start in self.starts, f"the log starts at {start}, but {sorted(self.starts)} is possible"
        kept = [sent for sent in self.records if sent.log_offset >= start]
        required = self.required - (len(self.records) - len(kept))
        assert found == kept[: len(found)], _difference(found, kept)
        assert len(found) >= required, (
            f"{len(found)} messages are left, but {required} were promised: {kept[len(found)].log_offset} is missing"
        )


def end_of(start: int, records: list[Sent]) -> int:
    """The end of a log that begins at `start`."""
    return records[-1].log_offset + records[-1].size if records else start


def _difference(found: list[Sent], kept: list[Sent]) -> str:
    for index, sent in enumerate(found):
        if index >= len(kept) or sent != kept[index]:
            expected = _brief(kept[index]) if index < len(kept) else "nothing"
            if index < len(kept):
                differs = {
                    name: (found, told)
                    for name, found, told in zip(Sent._fields, sent, kept[index], strict=True)
                    if found != told
                }
                return f"record {index} of the log is {_brief(sent)}, but {expected} was sent; different: {differs}"
            return f"record {index} of the log is {_brief(sent)}, but nothing was sent"
    return "the same"


def _brief(sent: Sent) -> str:
    return f"{sent.topic}:{sent.queue_id}:{sent.queue_offset} at {sent.log_offset} ({sent.body[:16]!r})"


class Epoch:
    """The time from one opening of the store to the next."""

    def __init__(self, position: int, legal: Legal) -> None:
        self.position = position
        self._base = legal
        self.attempts: list[Attempt] = []
        self.promises: list[tuple[int, int]] = []
        self.drops: list[tuple[int, int]] = []

    def legal_at(self, position: int) -> Legal:
        """What the log may hold after a power loss at `position`."""
        begun = [attempt for attempt in self.attempts if attempt.begun <= position]
        records, required = list(self._base.records), self._base.required
        for attempt in begun:
            told = attempt.acknowledged is not None and attempt.acknowledged <= position
            # One that failed leaves no trace, unless it is the last: then part of it may be on the disk.
            if told or attempt is begun[-1]:
                records += attempt.records
        promised = max((upto for when, upto in self.promises if when <= position), default=0)
        required = max(required, sum(sent.log_offset < promised for sent in records))
        starts = self._base.starts | {start for when, start in self.drops if when <= position}
        return Legal(records, required, starts, max(self._base.kept_from, *starts))


class History:
    """All epochs of one disk, its tables, and the topics that were deleted."""

    def __init__(self, legal: Legal, tables: dict[str, set[int | None]], deleted: dict[str, set[int]]) -> None:
        self.epochs = [Epoch(0, legal)]
        self._tables = tables
        self.saves: list[Saved] = []
        self._deleted = deleted
        self.deletions: list[Deletion] = []
        self._ends: list[tuple[int, int]] = []

    @property
    def now(self) -> Epoch:
        return self.epochs[-1]

    def opened(self, position: int, start: int, found: list[Sent]) -> None:
        """The store was opened and found this log, which from now on is safe."""
        kept_from = max(self.legal_at(position).kept_from, start)
        self._ends.append((position, end_of(start, found)))
        self.epochs.append(Epoch(position, Legal(found, len(found), {start}, kept_from)))

    def delete(self, begun: int, ended: int | None, topic: str, log_end: int) -> None:
        self.deletions.append(Deletion(begun, ended, topic, log_end, len(self._ends)))

    def legal_at(self, position: int) -> Legal:
        return next(epoch for epoch in reversed(self.epochs) if epoch.position <= position).legal_at(position)

    def tables_at(self, position: int) -> dict[str, set[int | None]]:
        """The values that each table may have: the last one saved, or one that was on its way."""
        values = {name: set(possible) for name, possible in self._tables.items()}
        for save in self.saves:
            if save.begun <= position:
                possible = values.setdefault(save.name, {None})
                if save.ended is not None and save.ended <= position:
                    possible.clear()
                possible.add(save.value)
        return values

    def deleted_at(self, position: int) -> dict[str, set[int]]:
        """For each topic that was deleted, from which log offset on its messages are in queues; 0 if that failed."""
        ends = [end for when, end in self._ends if when <= position]
        found = {topic: {min([mark, *ends]) for mark in marks} for topic, marks in self._deleted.items()}
        for deletion in self.deletions:
            if deletion.begun <= position:
                marks = found.setdefault(deletion.topic, {0})
                if deletion.ended is not None and deletion.ended <= position:
                    marks.clear()
                # If the log has lost its end since, the records that replaced it were never deleted.
                marks.add(min([deletion.log_end, *ends[deletion.openings :]]))
        return found
