"""Whether the consume queues say what the log says. Records come in the order of the log; each queue is read along with them.

Of a queue only its place, a block of entries and what was wrong are kept, so memory does not grow with messages. What is wrong
with a queue is told at the end: a topic that was deleted and made again leaves two series of messages in the log, and the files
hold the later one alone.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pocketmq.errors import InvalidName
from pocketmq.files import Files
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import LMQ_PREFIX, parse_topic
from pocketmq.store.checks.checked_queue import CheckedQueue, Flaw, Surroundings
from pocketmq.store.checks.condition import Condition
from pocketmq.store.checks.findings import Finding, Kind
from pocketmq.store.checks.log_facts import LogFacts
from pocketmq.store.checks.runs import Run, RunBudget
from pocketmq.store.consume_queue import ENTRY
from pocketmq.store.dispatch import enters_queue, tags_code_of
from pocketmq.store.layout import QUEUES, StoreLayout
from pocketmq.store.queue_entries import list_queue_files, list_queue_ids

MAX_UNPLACED: Final = 1000
"""Topics without a possible queue that are named; those beyond are passed over."""

_pack = ENTRY.pack

_SENTENCES: Final = {
    Kind.QUEUE_MISSING: "{entries} of {queue}: the file is missing",
    Kind.QUEUE_ENTRY_MISSING: "{entries} of {queue}: nothing was entered; {detail}",
    Kind.QUEUE_ENTRY_WRONG: "{entries} of {queue}: {detail}",
    Kind.QUEUE_ENTRY_STALE: "{entries} of {queue}: the log has no such message; {detail}",
    Kind.QUEUE_BEHIND: "{entries} of {queue}: not written yet; the next start does it",
    Kind.QUEUE_AHEAD: "{entries} of {queue}: behind the end of the log; the next start removes this",
}


class QueueCheck:
    """All queues of a store."""

    def __init__(
        self, files: Files, layout: StoreLayout, condition: Condition, facts: LogFacts, topics: frozenset[str] | None
    ) -> None:
        """`topics` are those that exist by the store's table; None when it cannot be told."""
        self._files = files
        self._layout = layout
        self._topics = topics
        self._around = Surroundings(files, facts, condition, layout.queue_file_entries, RunBudget())
        self._table: dict[tuple[str, int], CheckedQueue] = {}
        self._unplaced: set[str] = set()
        self.foreign: list[Path] = []
        self._find_queues()
        self._has_files = bool(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def _find_queues(self) -> None:
        for topic in self._files.list(self._layout.queue_folder):
            folder = self._layout.queue_folder / topic
            if not (_is_topic(topic) and self._is_dir(folder)):
                self.foreign.append(folder)
                continue
            ids = [id_ for id_ in list_queue_ids(self._files, folder) if self._is_dir(folder / str(id_))]
            for queue_id in ids:
                self._open_queue(topic, queue_id, folder / str(queue_id))
            self.foreign += [folder / name for name in self._files.list(folder) if name not in map(str, ids)]

    def _open_queue(self, topic: str, queue_id: int, folder: Path) -> None:
        found = list_queue_files(self._files, folder)
        known = {file.path.name for file in found}
        self.foreign += [folder / name for name in self._files.list(folder) if name not in known]
        queue = CheckedQueue(self._around, topic, queue_id, folder, found)
        queue.is_checked = not topic.startswith(LMQ_PREFIX)
        self._table[topic, queue_id] = queue

    def _is_dir(self, path: Path) -> bool:
        status = self._files.status(path)
        return status is not None and status.is_dir

    def see(self, message: StoredMessage) -> Flaw | None:
        """The next record of the log; what is wrong with it, by its place in its queue."""
        if not enters_queue(message.sys_flag):
            return None
        queue = self._table.get((message.topic, message.queue_id)) or self._new_queue(message)
        if queue is None:
            return self._no_place(message.topic)
        if message.sys_flag & SysFlag.INNER_BATCH:
            queue.is_checked = False
        if not queue.is_checked:
            return None
        code = tags_code_of(
            message.raw_properties,
            is_delay=queue.is_delay,
            store_ms=message.store_ms,
            levels=self._layout.delay_levels,
        )
        return queue.see(message, _pack(message.log_offset, message.size, code))

    def _new_queue(self, message: StoredMessage) -> CheckedQueue | None:
        if message.queue_id < 0 or not _is_topic(message.topic):
            return None
        folder = self._layout.queue_folder / message.topic / str(message.queue_id)
        queue = CheckedQueue(self._around, message.topic, message.queue_id, folder, [])
        self._table[message.topic, message.queue_id] = queue
        return queue

    def _no_place(self, topic: str) -> Flaw | None:
        if topic in self._unplaced or len(self._unplaced) >= MAX_UNPLACED:
            return None
        self._unplaced.add(topic)
        return Kind.LOG_TOPIC, f"its topic {topic[:80]!r} can have no queue; messages of it are in the log alone"

    # at the end

    def finish(self) -> Iterator[Finding]:
        """What is wrong with the queues; call it when the log is known to its end."""
        in_order = [queue for _, queue in sorted(self._table.items())]
        absent = [queue for queue in in_order if queue.absent]
        if absent and not self._has_files:
            text = f"there are no consume queues; the log has messages of {len(absent)}, such as {absent[0].label}"
            yield Finding(Kind.QUEUE_MISSING, QUEUES, text)
        for queue in in_order:
            if queue.is_checked:
                queue.check_ends()
                yield from self._findings_of(queue)
            elif queue.files:
                text = f"{queue.label} has entries of a kind that is not checked: batches, or light queues"
                yield Finding(Kind.QUEUE_UNCHECKED, self._layout.name_of(queue.entries.folder), text)

    def _findings_of(self, queue: CheckedQueue) -> Iterator[Finding]:
        name = self._layout.name_of(queue.entries.folder)
        if queue.absent and self._has_files:
            yield self._absent(queue, name)
        if queue.restarts:
            text = f"{queue.label} began anew: its topic was deleted and made again, and older messages are in no queue"
            yield Finding(Kind.QUEUE_DELETED, name, text)
        for file in queue.files:
            if file.size not in (0, self._layout.queue_file_bytes) or file.first % self._layout.queue_file_bytes:
                text = f"the file has {file.size} bytes; queue files of this store have {self._layout.queue_file_bytes}"
                yield Finding(Kind.QUEUE_FILE_SIZE, self._layout.name_of(file.path), text, 0, file.size)
        for run in queue.runs:
            yield self._finding(run, queue)
        if queue.runs.unlisted:
            text = f"{queue.runs.unlisted} more entries of {queue.label} are missing, wrong or stale"
            yield Finding(Kind.QUEUE_ENTRY_WRONG, name, text)

    def _absent(self, queue: CheckedQueue, name: str) -> Finding:
        if self._topics is not None and queue.topic not in self._topics:
            text = (
                f"{queue.label} has no files, and its topic is in no table: it was deleted; the log still has messages"
            )
            return Finding(Kind.QUEUE_DELETED, name, text)
        text = f"{queue.label} has no files; the log has its messages {queue.first} to {queue.next - 1}"
        return Finding(Kind.QUEUE_MISSING, name, text)

    def _finding(self, run: Run, queue: CheckedQueue) -> Finding:
        entries = run.named("entry", "entries")
        detail = run.detail if run.count == 1 else f"of the first, {run.detail}"
        text = _SENTENCES[run.kind].format(entries=entries, queue=queue.label, detail=detail)
        return Finding(run.kind, self._layout.name_of(run.path), text, run.begin, run.end)


def _is_topic(name: str) -> bool:
    try:
        parse_topic(name)
    except InvalidName:
        return False
    return True
