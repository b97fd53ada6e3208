"""What a producer decides about its transactions (code 37).

    commit ──► half message found ──► a copy is open? ── yes ──► stored in its own topic ──► closed
                                            └─ no ──► decided before: nothing happens again

A decision may name any copy of its message: the producer's own word often comes after the broker has asked, and then the check
brings a second answer. Only the first of them counts, as long as the broker runs and after a restart.

What is guaranteed: a committed message is stored once or, when the broker crashes within moments after it and the key index is
off or incomplete, perhaps twice. A decision that is lost with a crash leaves the transaction open: its producer is asked.
"""

from pocketmq.broker.messages.appending import Appender
from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.topics import TopicTable
from pocketmq.broker.transactions.half import Copies, committed, real_queue
from pocketmq.broker.transactions.ledger import Ledger
from pocketmq.clock import Clock
from pocketmq.errors import IllegalOperation, ImpossibleRequest, InvalidParameter, StoreDamaged
from pocketmq.model import properties as names
from pocketmq.model.flags import TransactionState
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import HALF_TOPIC
from pocketmq.protocol.api.sending import EndTransaction
from pocketmq.store.message_store import MessageStore

MAX_IMMUNITY_S = 365 * 24 * 3600


def immunity_ms(half: StoredMessage) -> int | None:
    """How long a message asks to be left alone before its producer is asked; None for as long as all others."""
    text = half.properties.get(names.CHECK_IMMUNITY_SECONDS, "")
    return min(int(text), MAX_IMMUNITY_S) * 1000 if text.isdecimal() and len(text) < 10 else None


class Decisions:
    """Carries decisions out. Counts them, and those that came again."""

    def __init__(
        self,
        store: MessageStore,
        appender: Appender,
        topics: TopicTable,
        ledger: Ledger,
        copies: Copies,
        settings: SettingsInUse,
        clock: Clock,
    ) -> None:
        self._store = store
        self._appender = appender
        self._topics = topics
        self._ledger = ledger
        self._copies = copies
        self._settings = settings
        self._clock = clock
        self._started_at = 0
        self.committed = 0
        self.rolled_back = 0
        self.repeated = 0

    def load(self) -> None:
        """What lies in the log now is from before the start: its notes may be missing."""
        self._started_at = self._store.end

    def end(self, decision: EndTransaction) -> None:
        """Carry a decision out. It stands when this returns; an error says why it does not."""
        state = _state_of(decision)
        if state is TransactionState.UNKNOWN:
            return
        half = self._half(decision)
        self._refuse_late(half, decision)
        open_copies = self.open_copies(half)
        if not open_copies:
            self.repeated += 1
            self._refuse_other(half, state)
            return
        if state is TransactionState.COMMIT:
            self._commit(half)
            self.committed += 1
        else:
            self.rolled_back += 1
        self._ledger.close(copy.queue_offset for copy in open_copies)

    def open_copies(self, half: StoredMessage) -> list[StoredMessage]:
        """The copies of a transaction by which it is undecided; none when it is decided.

        One that was committed before the last start, and not noted any more, is found here and noted.
        """
        if half.log_offset >= self._started_at and self._ledger.is_open(half.queue_offset):
            return [half]
        copies = self._copies.of(half)
        still_open = [copy for copy in copies if self._ledger.is_open(copy.queue_offset)]
        if still_open and self._copies.committed(copies):
            self._ledger.close(copy.queue_offset for copy in still_open)
            return []
        return still_open

    def is_from_before(self, half: StoredMessage) -> bool:
        """Whether the half message was stored before the last start."""
        return half.log_offset < self._started_at

    def _half(self, decision: EndTransaction) -> StoredMessage:
        """The half message that a producer means, if it is one of its own."""
        at = decision.commit_log_offset
        try:
            half = self._store.message(at)
        except StoreDamaged:
            half = None
        if half is None or half.log_offset != at or half.topic != HALF_TOPIC:
            raise ImpossibleRequest(f"there is no half message at log offset {at}")
        if half.properties.get(names.PRODUCER_GROUP) != decision.producer_group:
            raise ImpossibleRequest(f"the transaction at {at} is not one of producer group {decision.producer_group}")
        if half.queue_offset != decision.tran_state_table_offset:
            raise ImpossibleRequest(
                f"the half message at {at} has queue offset {half.queue_offset}, not {decision.tran_state_table_offset}"
            )
        _refuse_stranger(half, decision)
        return half

    def _refuse_late(self, half: StoredMessage, decision: EndTransaction) -> None:
        """Who asks to be left alone for a time has to decide within it, or to wait until it is asked."""
        patience_ms = immunity_ms(half)
        if decision.from_transaction_check or patience_ms is None:
            return
        if (age_ms := self._clock.now_ms() - half.store_ms) > patience_ms:
            raise IllegalOperation(
                f"transaction {half.message_id} is {age_ms} ms old, and was to be decided within {patience_ms} ms: "
                "its producer will be asked"
            )

    def _refuse_other(self, half: StoredMessage, state: TransactionState) -> None:
        """A decision that comes again is as good as the first, another one is not. Without an index nobody can tell."""
        if not self._store.settings.index_enabled:
            return
        was_committed = self._copies.committed(self._copies.of(half)) is not None
        if was_committed != (state is TransactionState.COMMIT):
            how = "was committed" if was_committed else "was rolled back, or given up after too many checks"
            raise IllegalOperation(f"transaction {half.message_id} {how} before")

    def _commit(self, half: StoredMessage) -> None:
        topic, _ = real_queue(half)
        self._topics.require(topic)
        self._appender.append(committed(half))


def _refuse_stranger(half: StoredMessage, decision: EndTransaction) -> None:
    """After a crash that lost the end of the log, another message may lie where the one was that a producer means."""
    named = {name for name in (decision.msg_id, decision.transaction_id) if name}
    if named and not named & {half.message_id, half.offset_id}:
        raise ImpossibleRequest(f"the half message at {half.log_offset} is {half.message_id}, not {' or '.join(named)}")


def _state_of(decision: EndTransaction) -> TransactionState:
    try:
        return TransactionState(decision.commit_or_rollback)
    except ValueError:
        raise InvalidParameter(
            f"{decision.commit_or_rollback} is no decision: 8 commits, 12 rolls back, 0 leaves it open"
        ) from None
