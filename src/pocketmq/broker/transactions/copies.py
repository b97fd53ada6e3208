"""Finding on the disk what belongs to one transaction, by its unique key: nothing of it has to be kept in memory.

    half topic    o ────► copy ────► copy         `of`: the same key, the same origin
                                       ╎
    its topic                      committed      `committed`: the same key, and prepared by one of them

Needed only where the ledger alone cannot tell: a decision about a copy that is closed, and half messages from before the last
start, which may have been decided without a note. Where the key index is off or behind, less is found; then a transaction
is asked about once more, or a message that was committed just before a crash is committed again, but none is lost.
"""

import logging

from pocketmq.errors import StoreDamaged
from pocketmq.model import properties as names
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.model.transactions import origin_of
from pocketmq.store.message_store import MessageStore
from pocketmq.store.readable_store import MAX_KEY_RESULTS

log = logging.getLogger("pocketmq.broker")

_POSTPONING = (names.DELAY, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)


def message_at(store: MessageStore, topic: str, offset: int, *, waits: bool = False) -> StoredMessage | None:
    """The message at an offset of queue 0; None when it is not there any more, or cannot be read.

    QueueDamaged while the queue is repaired, unless the caller `waits`.
    """
    queue = store.find_queue(topic, 0)
    for log_offset, _, _ in () if queue is None else store.entries(queue, offset, 1, waits=waits):
        try:
            found = store.message(log_offset)
        except StoreDamaged as damage:
            log.error("message %d of %s is lost: %s", offset, topic, damage)
            return None
        return found if found and found.topic == topic and found.queue_offset == offset else None
    return None


class Copies:
    """Looks up transactions in the key index."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._past_end = 0

    def load(self) -> None:
        """Note where the log ended when the broker started: what is looked up lies before it."""
        self._past_end = self._store.facts.log_end

    @property
    def are_all_known(self) -> bool:
        """Whether all from before the start is in the index, which may be rebuilding."""
        return not self._store.settings.index_enabled or self._store.facts.indexed_to >= self._past_end

    def of(self, half: StoredMessage) -> list[StoredMessage]:
        """All copies of the transaction that are still there, this one among them, newest first."""
        copies = [copy for copy in self._find(HALF_TOPIC, half) if origin_of(copy) == origin_of(half)]
        return copies if half in copies else [*copies, half]

    def committed(self, copies: list[StoredMessage]) -> StoredMessage | None:
        """The message that came of the transaction; None when it was not committed, as far as is known."""
        prepared = {copy.log_offset for copy in copies}
        half = copies[0]
        topics = [half.properties.get(names.REAL_TOPIC, "")]
        if any(name in half.properties for name in _POSTPONING):
            topics += (SCHEDULE_TOPIC, TIMER_TOPIC)
        for topic in topics:
            for message in self._find(topic, half):
                is_commit = message.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT
                if is_commit and message.prepared_offset in prepared:
                    return message
        return None

    def _find(self, topic: str, half: StoredMessage) -> list[StoredMessage]:
        key = half.properties.get(names.UNIQ_KEY)
        return self._store.find_by_key(topic, key, MAX_KEY_RESULTS, unique=True) if key else []
