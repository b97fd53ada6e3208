"""Keeps the resume point current while the store runs, and decides when the checkpoint covers queues.

    thorough flush begins ── bounds recorded ── flush synced, log synced as far ── written ── synced ── published
                             └ when the file is due: queues were added since, and its interval is over

A bound in the file must be true after any crash. So it is recorded first, and written after everything that it covers
is synced. A disk error is only logged. Only the deletion of a topic waits for the file: its messages stay in the log,
and the next recovery would restore the topic.

The checkpoint covers queue entries only after the keys of the same messages are in the index:

    queues synced            10:00:10   10:00:20   10:00:30          each with the end of the log at that time
    index covers             10:00:21
    checkpoint of queues     10:00:20

After a crash a RocketMQ broker reads the log again from the checkpoint of the queues, and adds no keys of earlier
messages. A checkpoint that is ahead of the index would lose their keys.
"""

import logging
from typing import NamedTuple

import msgspec

from pocketmq.store.parts import StoreParts
from pocketmq.store.resume import Bounds, QueueKey, ResumePoint

log = logging.getLogger("pocketmq.store")


class RecordedBounds(NamedTuple):
    """The bounds of all queues at one time, and the end of the log at that time."""

    log_end: int
    queues: dict[QueueKey, Bounds]
    deletions: int


class ResumeUpkeep:
    """Writes the resume point. Owned by the store's thread."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._interval_s = parts.settings.resume_interval_ms / 1000
        self._due_at = 0.0
        self._known_queues = 0
        self._recorded: RecordedBounds | None = None
        self._deletions = 0

    def start(self) -> None:
        self._due_at = self._parts.clock.monotonic() + self._interval_s
        self._known_queues = len(self._parts.queues)

    def due_bounds(self) -> RecordedBounds | None:
        """Record the current bounds, if the file is due; all entries are in their files now, and will be synced next."""
        parts = self._parts
        if parts.clock.monotonic() < self._due_at or len(parts.queues) == self._known_queues:
            return None
        return RecordedBounds(parts.log.written, self._bounds(), self._deletions)

    def flushed(self, bounds: RecordedBounds | None) -> None:
        """The recorded bounds are synced."""
        if bounds is not None:
            self._recorded = bounds

    def tick(self) -> None:
        """Write the recorded bounds, once the log is synced up to their end."""
        bounds, parts = self._recorded, self._parts
        if bounds is None or parts.log.synced < bounds.log_end:
            return
        self._recorded = None
        if bounds.deletions != self._deletions:
            return
        self._due_at = parts.clock.monotonic() + self._interval_s
        self._known_queues = len(bounds.queues)
        try:
            path = parts.resume.write(ResumePoint(clean=False, queues=bounds.queues, deleted=parts.deleted_topics))
        except OSError as error:
            self._give_up(error)
            return
        parts.flusher.sync_files([path], lambda: self._publish(bounds))

    def _publish(self, bounds: RecordedBounds) -> None:
        if bounds.deletions != self._deletions:
            return
        try:
            folder = self._parts.resume.publish()
        except OSError as error:
            self._give_up(error)
            return
        self._parts.flusher.sync_files([folder], lambda: None)

    def _give_up(self, error: OSError) -> None:
        log.warning("cannot update the resume file %s: %s; the next start takes longer", self._parts.resume.path, error)
        self._known_queues = -1

    def forget_topic(self, topic: str) -> None:
        """Record in the file that a topic is deleted, and wait for the disk: only then may its queue files be deleted."""
        parts = self._parts
        self._deletions += 1
        self._known_queues = -1
        point = parts.resume.load() or ResumePoint(clean=False)
        queues = {key: bounds for key, bounds in point.queues.items() if key[0] != topic}
        # Deletions before the start of the log are dropped, once this start is final.
        oldest = 0 if parts.preparer.removing else parts.log.start
        deleted = {name: end for name, end in parts.deleted_topics.items() if end > oldest} | {topic: parts.log.end}
        parts.resume.save(msgspec.structs.replace(point, clean=False, queues=queues, deleted=deleted))
        parts.deleted_topics = deleted

    def lower_deletions(self) -> None:
        """A write failed, so the log may end before the deletion of a topic: later messages at these offsets are not
        deleted.
        """
        parts = self._parts
        end = parts.log.end
        if any(mark > end for mark in parts.deleted_topics.values()):
            deleted = {topic: min(mark, end) for topic, mark in parts.deleted_topics.items()}
            point = parts.resume.load() or ResumePoint(clean=False)
            self._deletions += 1
            parts.resume.save(msgspec.structs.replace(point, clean=False, deleted=deleted))
            parts.deleted_topics = deleted

    def save_clean(self) -> None:
        """At a clean stop, when everything is synced: the exact bounds, so that the next start opens no queue."""
        parts = self._parts
        point = ResumePoint(
            clean=True,
            checkpoint=parts.checkpoint.raw,
            log_end=parts.log.end,
            last_record=parts.last_record,
            queues=self._bounds(),
            deleted=parts.deleted_topics,
        )
        parts.resume.save(point)

    def _bounds(self) -> dict[QueueKey, Bounds]:
        return {queue.key: (queue.min_offset, queue.flushed_offset) for queue in self._parts.queues if queue.max_offset}


class QueueTimes:
    """Store times up to which queues are safe, until the checkpoint may cover them."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int]] = []

    def synced(self, log_offset: int, store_ms: int) -> None:
        """Queues are safe up to `store_ms`; the messages up to that time are before `log_offset`."""
        # Keep the oldest, so that it does not wait forever, and the newest.
        del self._waiting[1:]
        self._waiting.append((log_offset, store_ms))

    def take_covered(self, indexed_to: float, keys_ms: float) -> int | None:
        """The newest time for the checkpoint, if messages before `indexed_to` are indexed and their keys are safe up
        to `keys_ms`; None if there is no new one.
        """
        newest = None
        while self._waiting and self._waiting[0][0] <= indexed_to and self._waiting[0][1] <= keys_ms:
            newest = self._waiting.pop(0)[1]
        return newest
