"""Transactions: the interface for the rest of the broker."""

from collections.abc import Callable

from pocketmq.broker.state import BrokerState
from pocketmq.broker.transactions.checks import Checks, FindProducer
from pocketmq.broker.transactions.decisions import Decisions
from pocketmq.broker.transactions.half import Copies, message_at, resumed
from pocketmq.broker.transactions.ledger import Ledger
from pocketmq.errors import ImpossibleRequest, ProtocolError
from pocketmq.model import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OffsetId, StoredMessage, Undecided, describe
from pocketmq.model import properties as names
from pocketmq.protocol.api.messages import EndTransaction


class Transactions:
    """Create it after the tables are restored; call `load` when the store is open, and `checks.run` and
    `ledger.try_write_ops` regularly, also before the store is closed.
    """

    def __init__(self, state: BrokerState, find_producer: FindProducer, announce: Callable[[], None]) -> None:
        self._state = state
        self.ledger = Ledger(state)
        self._copies = copies = Copies(state.store)
        self.decisions = Decisions(state, self.ledger, copies)
        self.checks = Checks(state, self.ledger, copies, self.decisions, find_producer, announce)

    def load(self) -> None:
        self._copies.load()
        self.ledger.load()
        self.decisions.load()

    def is_unreadable_yet(self, decision: EndTransaction) -> bool:
        """Whether the half message is acknowledged but not readable yet, because of the transient pool."""
        unread = decision.tran_state_table_offset >= self._state.store.max_offset(HALF_TOPIC, 0)
        return unread and decision.commit_log_offset < self._state.store.end

    async def settle(self) -> None:
        """Wait until the offsets may be saved. Call this before saving."""
        if not self.ledger.is_settled:
            await self._state.appender.synced()

    def undecided(self, limit: int) -> list[Undecided]:
        """The undecided transactions, oldest first, at most `limit`."""
        found: list[Undecided] = []
        at, end = self.ledger.start, self.ledger.end
        while len(found) < limit and (at := self.ledger.next_open(at, end)) < end:
            if half := message_at(self._state.store, HALF_TOPIC, at):
                found.append(describe(half))
            at += 1
        return found

    def resume(self, message_id: str) -> None:
        """Check a transaction again that was given up. `message_id` is its offset id or its unique key."""
        message = self._find_given_up(message_id)
        if message is None:
            raise ImpossibleRequest(f"there is no message {message_id} in {CHECK_MAX_TIME_TOPIC}")
        key = message.properties.get(names.UNIQ_KEY, "")
        newest = self._state.store.find_by_key(HALF_TOPIC, key, 1, unique=True)
        if newest and newest[0].log_offset > message.log_offset:
            raise ImpossibleRequest(f"transaction {key} was resumed before")
        self._state.appender.append(resumed(message))

    def _find_given_up(self, message_id: str) -> StoredMessage | None:
        try:
            message = self._state.message(OffsetId.parse(message_id).offset)
        except ProtocolError:
            message = None
        if message and message.topic == CHECK_MAX_TIME_TOPIC:
            return message
        found = self._state.store.find_by_key(CHECK_MAX_TIME_TOPIC, message_id, 1, unique=True)
        return found[0] if found else None
