"""All of transactions, as the rest of the broker sees them."""

from collections.abc import Callable, Hashable
from typing import Final

from pocketmq.broker.groups.members import Producers
from pocketmq.broker.groups.notices import peer_of
from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.messages.appending import Appender
from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.topics import TopicTable
from pocketmq.broker.transactions.checks import Asked, Checks, FindProducer
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
from pocketmq.protocol.api.sending import EndTransaction
from pocketmq.store.message_store import MessageStore

MAX_UNSENT_BYTES: Final = 1024 * 1024
"""A producer with more than this on its way to it is not asked anything more for now."""


class Transactions:
    """Made after the tables are restored; `load` when the store is open. `check` and `note` are to be repeated."""

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
        """Find out what is open."""
        self._copies.load()
        self._ledger.load()
        self.decisions.load()

    def end(self, decision: EndTransaction) -> None:
        """Carry out what a producer decided; see `Decisions.end`."""
        self.decisions.end(decision)

    def comes_too_soon(self, decision: EndTransaction) -> bool:
        """Whether the half message is acknowledged and not readable yet: the transient pool has still to write it."""
        unread = decision.tran_state_table_offset >= self._store.max_offset(HALF_TOPIC, 0)
        return unread and decision.commit_log_offset < self._store.end

    async def check(self) -> None:
        """Ask about what is undecided. Every `check_interval_ms`."""
        await self.checks.run()

    def note(self) -> None:
        """Write down what was decided since the last time. Every `op_batch_ms`."""
        self._ledger.note()

    def stop(self) -> None:
        """The last note, before the store is closed. When the disk does not take it, the next start finds out by itself."""
        self._ledger.note_if_possible()

    async def settle(self) -> None:
        """Wait until all progress may be saved; to be called before saving."""
        if not self._ledger.is_settled:
            await self._appender.synced()

    @property
    def open_count(self) -> int:
        """How many transactions wait for a decision."""
        return self._ledger.open_count

    def undecided(self, limit: int) -> list[Undecided]:
        """The transactions that wait for a decision, oldest first, at most `limit`."""
        found: list[Undecided] = []
        at, end = self._ledger.start, self._ledger.end
        while len(found) < limit and (at := self._ledger.next_open(at, end)) < end:
            if half := message_at(self._store, HALF_TOPIC, at):
                found.append(describe(half))
            at += 1
        return found

    def resume(self, message_id: str) -> None:
        """Have a transaction asked about again that was given up. `message_id` is its offset id, or its unique key."""
        message = self._given_up(message_id)
        if message is None:
            raise ImpossibleRequest(f"there is no message {message_id} in {CHECK_MAX_TIME_TOPIC}")
        key = message.properties.get(names.UNIQ_KEY, "")
        newest = self._store.find_by_key(HALF_TOPIC, key, 1, unique=True)
        if newest and newest[0].log_offset > message.log_offset:
            raise ImpossibleRequest(f"transaction {key} was resumed before")
        self._appender.append(resumed(message))

    def _given_up(self, message_id: str) -> StoredMessage | None:
        try:
            at = OffsetId.parse(message_id).offset
            message = self._store.message(at)
        except (ProtocolError, StoreDamaged):
            message = None
        if message and message.log_offset == at and message.topic == CHECK_MAX_TIME_TOPIC:
            return message
        found = self._store.find_by_key(CHECK_MAX_TIME_TOPIC, message_id, 1, unique=True)
        return found[0] if found else None


def next_of(producers: Producers, may_send_to: Callable[[Peer, str], bool] | None = None) -> FindProducer:
    """Who is asked: the producers of a group, each in its turn.

    A question holds the message. So where clients are known by their accounts, only those are asked that may send to its topic.
    """

    def find(group: str, topic: str) -> Asked | None:
        def usable(connection: Hashable) -> bool:
            return _can_be_asked(connection) and (may_send_to is None or may_send_to(peer_of(connection), topic))

        connection = producers.next_connection(group, usable)
        return None if connection is None else peer_of(connection)

    return find


def _can_be_asked(connection: Hashable) -> bool:
    peer = peer_of(connection)
    return peer.is_open and peer.connection.writable and peer.connection.unsent_bytes < MAX_UNSENT_BYTES
