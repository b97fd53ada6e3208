"""Transactions: the interface for the rest of the broker."""

from collections.abc import Callable, Hashable
from typing import Final

from pocketmq.broker.groups.members import Producers
from pocketmq.broker.groups.notices import peer_of
from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.messages.appending import Appender
from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.topics import TopicTable
from pocketmq.broker.transactions.checks import Checks, FindProducer, ProducerPeer
from pocketmq.broker.transactions.decisions import Decisions
from pocketmq.broker.transactions.half import Copies, message_at, resumed
from pocketmq.broker.transactions.ledger import Ledger
from pocketmq.clock import Clock
from pocketmq.errors import ImpossibleRequest, ProtocolError, StoreDamaged
from pocketmq.model import properties as names
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import OffsetId
from pocketmq.model.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from pocketmq.model.transactions import Undecided, describe
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.messages import EndTransaction
from pocketmq.store.message_store import MessageStore

MAX_UNSENT_BYTES: Final = 1024 * 1024
"""A producer with more unsent bytes than this is not checked for now."""


class Transactions:
    """Create it after the tables are restored; call `load` when the store is open, and `check` and `write_ops`
    regularly.
    """

    def __init__(
        self,
        store: MessageStore,
        appender: Appender,
        topics: TopicTable,
        offsets: OffsetTable,
        find_producer: FindProducer,
        settings: SettingsInUse,
        clock: Clock,
        announce: Callable[[], None],
    ) -> None:
        self._store = store
        self._appender = appender
        self._ledger = Ledger(store, appender, offsets, settings, clock)
        self._copies = copies = Copies(store)
        self.decisions = Decisions(store, appender, topics, self._ledger, copies, settings, clock)
        self.checks = Checks(
            store, topics, self._ledger, copies, self.decisions, find_producer, settings, clock, announce
        )

    def load(self) -> None:
        self._copies.load()
        self._ledger.load()
        self.decisions.load()

    def end(self, decision: EndTransaction) -> None:
        self.decisions.end(decision)

    def is_unreadable_yet(self, decision: EndTransaction) -> bool:
        """Whether the half message is acknowledged but not readable yet, because of the transient pool."""
        unread = decision.tran_state_table_offset >= self._store.max_offset(HALF_TOPIC, 0)
        return unread and decision.commit_log_offset < self._store.end

    async def check(self) -> None:
        """Check undecided transactions. Every `check_interval_ms`."""
        await self.checks.run()

    def write_ops(self) -> None:
        """Write op messages of new decisions. Every `op_batch_ms`."""
        self._ledger.write_ops()

    def stop(self) -> None:
        """Write the last op messages before the store is closed. If that fails, the next start finds the decisions."""
        self._ledger.try_write_ops()

    async def settle(self) -> None:
        """Wait until the offsets may be saved. Call this before saving."""
        if not self._ledger.is_settled:
            await self._appender.synced()

    @property
    def open_count(self) -> int:
        return self._ledger.open_count

    def undecided(self, limit: int) -> list[Undecided]:
        """The undecided transactions, oldest first, at most `limit`."""
        found: list[Undecided] = []
        at, end = self._ledger.start, self._ledger.end
        while len(found) < limit and (at := self._ledger.next_open(at, end)) < end:
            if half := message_at(self._store, HALF_TOPIC, at):
                found.append(describe(half))
            at += 1
        return found

    def resume(self, message_id: str) -> None:
        """Check a transaction again that was given up. `message_id` is its offset id or its unique key."""
        message = self._find_given_up(message_id)
        if message is None:
            raise ImpossibleRequest(f"there is no message {message_id} in {CHECK_MAX_TIME_TOPIC}")
        key = message.properties.get(names.UNIQ_KEY, "")
        newest = self._store.find_by_key(HALF_TOPIC, key, 1, unique=True)
        if newest and newest[0].log_offset > message.log_offset:
            raise ImpossibleRequest(f"transaction {key} was resumed before")
        self._appender.append(resumed(message))

    def _find_given_up(self, message_id: str) -> StoredMessage | None:
        try:
            at = OffsetId.parse(message_id).offset
            message = self._store.message(at)
        except (ProtocolError, StoreDamaged):
            message = None
        if message and message.log_offset == at and message.topic == CHECK_MAX_TIME_TOPIC:
            return message
        found = self._store.find_by_key(CHECK_MAX_TIME_TOPIC, message_id, 1, unique=True)
        return found[0] if found else None


def producer_finder(producers: Producers, may_send_to: Callable[[Peer, str], bool] | None = None) -> FindProducer:
    """A function that returns the producers of a group in turn.

    A check-back contains the message. If clients have accounts, only producers that may send to its topic are checked.
    """

    def find(group: str, topic: str) -> ProducerPeer | None:
        def usable(connection: Hashable) -> bool:
            return _is_available(connection) and (may_send_to is None or may_send_to(peer_of(connection), topic))

        connection = producers.next_connection(group, usable)
        return None if connection is None else peer_of(connection)

    return find


def _is_available(connection: Hashable) -> bool:
    peer = peer_of(connection)
    return peer.is_open and peer.connection.writable and peer.connection.unsent_bytes < MAX_UNSENT_BYTES
