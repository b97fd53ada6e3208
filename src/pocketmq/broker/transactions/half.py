"""Half messages: drafts of the records that a transaction's message becomes.

    sent ── as_half ──► half ── committed ──► its own topic and queue, with the commit bit
                         │ ▲
                         ├─┴ renewed, before its producer is checked: another copy at the end of the half topic
                         └─ given_up ──► TRANS_CHECK_MAX_TIME_TOPIC ── resumed ──► half

A committed message still has TRAN_MSG, REAL_TOPIC and REAL_QID among its properties, as from Apache RocketMQ.
TRAN_PREPARED_QUEUE_OFFSET never leaves the half topic: it identifies the copies of a transaction (`origin_of`).

`Copies` finds the messages of one transaction by its unique key, so nothing is kept in memory:

    half topic    o ────► copy ────► copy         `of`: the same key, the same origin
                                       ╎
    its topic                      committed      `committed`: the same key, and prepared by one of them

It is needed only if the ledger cannot decide: for a decision about a closed copy, and for half messages from before the
last start, which may have been decided without an op message. If the key index is off or behind, less is found. Then a
transaction is checked once more, or a message that was committed just before a crash is committed again; none is lost.
"""

import logging

from pocketmq.broker.messages import Draft, StoredPosition
from pocketmq.codes import RequestCode, SysFlag
from pocketmq.errors import ImpossibleRequest, InvalidMessage, StoreDamaged
from pocketmq.model import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    StoredMessage,
    checks_of,
    offset_id,
    origin_of,
)
from pocketmq.model import properties as names
from pocketmq.model.properties import format_properties
from pocketmq.protocol.api.messages import CheckTransactionState
from pocketmq.protocol.command import Command
from pocketmq.protocol.record import encode_record, host_flags
from pocketmq.store.message_store import MessageStore
from pocketmq.store.readable_store import MAX_KEY_RESULTS

GROWTH_BYTES = 128
"""Space that properties added later need; it is reserved from the start."""


def as_half(draft: Draft) -> Draft:
    """Turn the draft of a message with TRAN_MSG=true into a half message."""
    properties = draft.properties
    if not properties.get(names.PRODUCER_GROUP):
        raise InvalidMessage("a message of a transaction needs its producer group (PGROUP), which decides it")
    for ours in (names.TRANSACTION_CHECK_TIMES, names.TRANSACTION_PREPARED_QUEUE_OFFSET):
        properties.pop(ours, None)
    properties[names.REAL_TOPIC] = draft.topic
    properties[names.REAL_QUEUE_ID] = str(draft.queue_id)
    properties[names.TRANSACTION_ID] = properties.get(names.UNIQ_KEY, "")
    most = names.MAX_BYTES - GROWTH_BYTES
    if (size := len(draft.packed_properties())) > most:
        raise InvalidMessage(f"the properties of a half message have {size} bytes; at most {most} are allowed")
    draft.topic, draft.queue_id = HALF_TOPIC, 0
    draft.sys_flag &= ~SysFlag.TRANSACTION_MASK
    return draft


def committed(half: StoredMessage) -> Draft:
    """The message that consumers get."""
    draft = Draft.of(half)
    draft.topic, draft.queue_id = real_queue(half)
    draft.sys_flag = draft.sys_flag & ~SysFlag.TRANSACTION_MASK | SysFlag.TRANSACTION_COMMIT
    draft.prepared_offset = half.log_offset
    draft.properties.pop(names.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    return draft


def renewed(half: StoredMessage, *, is_check: bool) -> Draft:
    """The next copy of a half message. `is_check`: its producer is about to be checked."""
    draft = Draft.of(half)
    draft.properties[names.TRANSACTION_PREPARED_QUEUE_OFFSET] = str(origin_of(half))
    if is_check:
        draft.properties[names.TRANSACTION_CHECK_TIMES] = str(checks_of(half) + 1)
    return draft


def given_up(half: StoredMessage) -> Draft:
    """The half message of a transaction that is no longer checked, stored for an administrator."""
    draft = Draft.of(half)
    draft.topic, draft.queue_id = CHECK_MAX_TIME_TOPIC, 0
    draft.properties.pop(names.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    return draft


def resumed(message: StoredMessage) -> Draft:
    """A message that was given up, as a half message without checks."""
    draft = Draft.of(message)
    draft.topic, draft.queue_id = HALF_TOPIC, 0
    draft.properties[names.TRANSACTION_CHECK_TIMES] = "0"
    return draft


def real_queue(half: StoredMessage) -> tuple[str, int]:
    """The destination topic and queue of a half message."""
    topic, queue_id = half.properties.get(names.REAL_TOPIC), half.properties.get(names.REAL_QUEUE_ID, "")
    if not topic or not queue_id.isdecimal():
        raise ImpossibleRequest(f"the half message at {half.log_offset} has no destination queue")
    return topic, int(queue_id)


def check_request(half: StoredMessage, position: StoredPosition, broker_name: str) -> Command:
    """The check-back to a producer (code 39): the message as it will be, with the position of the newest copy of `half`.

    WAIT is false and the store time is that of the copy before, as Apache RocketMQ sends them.
    """
    topic, queue_id = real_queue(half)
    properties = half.properties | {
        names.TRANSACTION_CHECK_TIMES: str(checks_of(half) + 1),
        names.WAIT: "false",
    }
    properties.pop(names.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    body = encode_record(
        topic.encode(),
        queue_id,
        position.queue_offset,
        position.log_offset,
        half.body,
        format_properties(properties).encode(),
        half.flag,
        half.sys_flag | host_flags(half.packed_born_host, half.packed_store_host),
        half.born_ms,
        half.packed_born_host,
        half.store_ms,
        half.packed_store_host,
        half.reconsume_times,
    )
    header = CheckTransactionState(
        tran_state_table_offset=position.queue_offset,
        commit_log_offset=position.log_offset,
        topic=HALF_TOPIC,
        msg_id=half.message_id,
        transaction_id=half.message_id,
        offset_msg_id=offset_id(half.packed_store_host, position.log_offset),
    )
    return Command(RequestCode.CHECK_TRANSACTION_STATE, header.encode() | {"bname": broker_name}, body)


log = logging.getLogger("pocketmq.broker")


def message_at(store: MessageStore, topic: str, offset: int, *, waits: bool = False) -> StoredMessage | None:
    """The message at an offset of queue 0; None if it no longer exists or cannot be read.

    QueueDamaged while the queue is repaired, unless the caller `waits`.
    """
    queue = store.find_queue(topic, 0)
    for log_offset, _, _ in () if queue is None else store.entries(queue, offset, 1, waits=waits):
        try:
            found = store.message(log_offset)
        except StoreDamaged as damage:
            log.error("Cannot read message %d of %s, which is lost: %s", offset, topic, damage)
            return None
        return found if found and found.topic == topic and found.queue_offset == offset else None
    return None


class Copies:
    """Finds transactions in the key index."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._past_end = 0

    def load(self) -> None:
        """Save the end of the log at the start of the broker: messages to find are before it."""
        self._past_end = self._store.facts.log_end

    @property
    def are_all_known(self) -> bool:
        """Whether the index contains everything from before the start; it may be rebuilding."""
        return not self._store.settings.index_enabled or self._store.facts.indexed_to >= self._past_end

    def of(self, half: StoredMessage) -> list[StoredMessage]:
        """All copies of the transaction that still exist, this one included, newest first."""
        copies = [copy for copy in self._find(HALF_TOPIC, half) if origin_of(copy) == origin_of(half)]
        return copies if half in copies else [*copies, half]

    def committed(self, copies: list[StoredMessage]) -> StoredMessage | None:
        """The committed message of the transaction; None if it is not known to be committed."""
        prepared = {copy.log_offset for copy in copies}
        half = copies[0]
        topics = [half.properties.get(names.REAL_TOPIC, "")]
        if any(name in half.properties for name in names.DELAYING_PROPERTIES):
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
