"""Decisions of producers about their transactions (code 37).

    commit ──► half message found ──► a copy is open? ── yes ──► stored in its own topic ──► closed
                                            └─ no ──► decided before: nothing happens again

A decision may name any copy of its message: it often arrives after a check-back, which then causes a second decision.
Only the first one counts, also after a restart.

Guarantee: a committed message is stored once. It may be stored twice if the broker crashes within moments after it and
the key index is off or incomplete. If a crash loses a decision, the transaction stays open and its producer is checked.
"""

from pocketmq.broker.state import BrokerState
from pocketmq.broker.transactions.half import Copies, committed, real_queue
from pocketmq.broker.transactions.ledger import Ledger
from pocketmq.codes import TransactionState
from pocketmq.errors import IllegalOperation, ImpossibleRequest, InvalidParameter
from pocketmq.model import HALF_TOPIC, StoredMessage
from pocketmq.model import properties as names
from pocketmq.protocol.api.messages import EndTransaction

MAX_IMMUNITY_S = 365 * 24 * 3600


def immunity_ms(half: StoredMessage) -> int | None:
    """How long a message requests not to be checked; None for the default."""
    text = half.properties.get(names.CHECK_IMMUNITY_SECONDS, "")
    return min(int(text), MAX_IMMUNITY_S) * 1000 if text.isdecimal() and len(text) < 10 else None


class Decisions:
    """Executes decisions. Counts them, and repeated ones."""

    def __init__(self, state: BrokerState, ledger: Ledger, copies: Copies) -> None:
        self._state = state
        self._ledger = ledger
        self._copies = copies
        self._started_at = 0
        self.committed = 0
        self.rolled_back = 0
        self.repeated = 0

    def load(self) -> None:
        """Everything in the log is from before the start: its op messages may be missing."""
        self._started_at = self._state.store.end

    def end(self, decision: EndTransaction) -> None:
        """Execute a decision. It is stored on return; an error says why it was not."""
        state = _state_of(decision)
        if state is TransactionState.UNKNOWN:
            return
        half = self._half(decision)
        self._reject_late(half, decision)
        open_copies = self.open_copies(half)
        if not open_copies:
            self.repeated += 1
            self._reject_contradiction(half, state)
            return
        if state is TransactionState.COMMIT:
            self._commit(half)
            self.committed += 1
        else:
            self.rolled_back += 1
        self._ledger.close(copy.queue_offset for copy in open_copies)

    def open_copies(self, half: StoredMessage) -> list[StoredMessage]:
        """The open copies of a transaction; none if it is decided.

        A transaction that was committed before the last start without an op message is found here, and closed.
        """
        if half.log_offset >= self._started_at and self._ledger.is_open(half.queue_offset):
            return [half]
        copies = self._copies.of(half)
        still_open = [copy for copy in copies if self._ledger.is_open(copy.queue_offset)]
        if still_open and self._copies.committed(copies):
            self._ledger.close(copy.queue_offset for copy in still_open)
            return []
        return still_open

    def is_from_before_start(self, half: StoredMessage) -> bool:
        """Whether the half message was stored before the last start."""
        return half.log_offset < self._started_at

    def _half(self, decision: EndTransaction) -> StoredMessage:
        """The half message that a producer names, if it belongs to its group."""
        at = decision.commit_log_offset
        half = self._state.message(at)
        if half is None or half.topic != HALF_TOPIC:
            raise ImpossibleRequest(f"there is no half message at log offset {at}")
        if half.properties.get(names.PRODUCER_GROUP) != decision.producer_group:
            raise ImpossibleRequest(
                f"the transaction at {at} does not belong to producer group {decision.producer_group}"
            )
        if half.queue_offset != decision.tran_state_table_offset:
            raise ImpossibleRequest(
                f"the half message at {at} has queue offset {half.queue_offset}, not {decision.tran_state_table_offset}"
            )
        _reject_wrong_id(half, decision)
        return half

    def _reject_late(self, half: StoredMessage, decision: EndTransaction) -> None:
        """A message with its own check time must be decided within it, or after a check-back."""
        patience_ms = immunity_ms(half)
        if decision.from_transaction_check or patience_ms is None:
            return
        if (age_ms := self._state.clock.now_ms() - half.store_ms) > patience_ms:
            raise IllegalOperation(
                f"transaction {half.message_id} is {age_ms} ms old, and its limit is {patience_ms} ms: "
                "its producer will be checked"
            )

    def _reject_contradiction(self, half: StoredMessage, state: TransactionState) -> None:
        """Accept a repeated decision, and reject a different one. Without an index, both are accepted."""
        if not self._state.store.settings.index_enabled:
            return
        was_committed = self._copies.committed(self._copies.of(half)) is not None
        if was_committed != (state is TransactionState.COMMIT):
            how = "was committed" if was_committed else "was rolled back, or given up after too many checks"
            raise IllegalOperation(f"transaction {half.message_id} {how} before")

    def _commit(self, half: StoredMessage) -> None:
        topic, _ = real_queue(half)
        self._state.topics.require(topic)
        self._state.appender.append(committed(half))


def _reject_wrong_id(half: StoredMessage, decision: EndTransaction) -> None:
    """After a crash that lost the end of the log, another message may be at the offset that a producer names."""
    named = {name for name in (decision.msg_id, decision.transaction_id) if name}
    if named and not named & {half.message_id, half.offset_id}:
        raise ImpossibleRequest(f"the half message at {half.log_offset} is {half.message_id}, not {' or '.join(named)}")


def _state_of(decision: EndTransaction) -> TransactionState:
    try:
        return TransactionState(decision.commit_or_rollback)
    except ValueError:
        raise InvalidParameter(
            f"{decision.commit_or_rollback} is not a decision: 8 commits, 12 rolls back, 0 leaves it open"
        ) from None
