"""A transaction's message on its way, as drafts of what is stored next.

    sent ── as_half ──► half ── committed ──► its own topic and queue, with the commit bit
                         │ ▲
                         ├─┴ renewed, before its producer is asked: another copy at the end of the half topic
                         └─ given_up ──► TRANS_CHECK_MAX_TIME_TOPIC ── resumed ──► half

A consumer gets a committed message with TRAN_MSG, REAL_TOPIC and REAL_QID still among its properties, as from Apache.
TRAN_PREPARED_QUEUE_OFFSET never leaves the half topic: it ties the copies of a transaction together (`origin_of`).

Finding on the disk what belongs to one transaction, by its unique key: nothing of it has to be kept in memory.

    half topic    o ────► copy ────► copy         `of`: the same key, the same origin
                                       ╎
    its topic                      committed      `committed`: the same key, and prepared by one of them

Needed only where the ledger alone cannot tell: a decision about a copy that is closed, and half messages from before the last
start, which may have been decided without a note. Where the key index is off or behind, less is found; then a transaction
is asked about once more, or a message that was committed just before a crash is committed again, but none is lost.
"""

import logging

from pocketmq.broker.messages.appending import Draft, StoredPosition
from pocketmq.codes import RequestCode
from pocketmq.errors import ImpossibleRequest, InvalidMessage, StoreDamaged
from pocketmq.model import properties as names
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import offset_id
from pocketmq.model.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.model.properties import format_properties
from pocketmq.model.transactions import checks_of, origin_of
from pocketmq.protocol.api.sending import CheckTransactionState
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import write_fields
from pocketmq.protocol.record import encode_record, host_flags
from pocketmq.store.message_store import MessageStore
from pocketmq.store.readable_store import MAX_KEY_RESULTS

GROWTH_BYTES = 128
"""What may be added to the properties of a half message later on; room for it must be there from the start."""


def as_half(draft: Draft) -> Draft:
    """The draft of a message that is sent in a transaction (TRAN_MSG=true), turned into a half message."""
    properties = draft.properties
    if not properties.get(names.PRODUCER_GROUP):
        raise InvalidMessage(
            "a message of a transaction must name its producer group (PGROUP): nobody else can decide it"
        )
    for ours in (names.TRANSACTION_CHECK_TIMES, names.TRANSACTION_PREPARED_QUEUE_OFFSET):
        properties.pop(ours, None)
    properties[names.REAL_TOPIC] = draft.topic
    properties[names.REAL_QUEUE_ID] = str(draft.queue_id)
    properties[names.TRANSACTION_ID] = properties.get(names.UNIQ_KEY, "")
    most = names.MAX_BYTES - GROWTH_BYTES
    if (size := len(draft.packed_properties())) > most:
        raise InvalidMessage(f"the properties of a half message take {size} bytes; at most {most} are allowed")
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


def renewed(half: StoredMessage, *, asked: bool) -> Draft:
    """The next copy of a half message, whose producer is about to be asked, or not."""
    draft = Draft.of(half)
    draft.properties[names.TRANSACTION_PREPARED_QUEUE_OFFSET] = str(origin_of(half))
    if asked:
        draft.properties[names.TRANSACTION_CHECK_TIMES] = str(checks_of(half) + 1)
    return draft


def given_up(half: StoredMessage) -> Draft:
    """A half message that nobody will be asked about any more, for an administrator to find."""
    draft = Draft.of(half)
    draft.topic, draft.queue_id = CHECK_MAX_TIME_TOPIC, 0
    draft.properties.pop(names.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    return draft


def resumed(message: StoredMessage) -> Draft:
    """A message that was given up, as a half message about which nobody has been asked yet."""
    draft = Draft.of(message)
    draft.topic, draft.queue_id = HALF_TOPIC, 0
    draft.properties[names.TRANSACTION_CHECK_TIMES] = "0"
    return draft


def real_queue(half: StoredMessage) -> tuple[str, int]:
    """The topic and queue that a half message is meant for."""
    topic, queue_id = half.properties.get(names.REAL_TOPIC), half.properties.get(names.REAL_QUEUE_ID, "")
    if not topic or not queue_id.isdecimal():
        raise ImpossibleRequest(f"the half message at {half.log_offset} does not say which queue it is meant for")
    return topic, int(queue_id)


def question(half: StoredMessage, place: StoredPosition, broker_name: str) -> Command:
    """What a producer is asked (code 39): the message as it will be, at the place of the newest copy of `half`.

    WAIT is false and the store time is that of the copy before, as Apache sends them.
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
        place.queue_offset,
        place.log_offset,
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
        tran_state_table_offset=place.queue_offset,
        commit_log_offset=place.log_offset,
        topic=HALF_TOPIC,
        msg_id=half.message_id,
        transaction_id=half.message_id,
        offset_msg_id=offset_id(half.packed_store_host, place.log_offset),
    )
    return Command(RequestCode.CHECK_TRANSACTION_STATE, write_fields(header) | {"bname": broker_name}, body)


log = logging.getLogger("pocketmq.broker")


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
