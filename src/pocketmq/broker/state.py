"""The state of a broker: what its request handlers and workers share. No rules here.

    tables    topics · groups · offsets · members · locks · leases and positions of pops · subscriptions in requests
    store     messages · appender: messages of the broker itself · arrivals: held pulls · held pops · snapshots: saved tables
    settings, clock, statistics

The state knows none of its users. Handlers and workers change it, all of them on one event loop.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from pocketmq.broker.groups.groups import GroupTable
from pocketmq.broker.groups.leases import Leases, Positions
from pocketmq.broker.groups.members import Members
from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.groups.orders import Orders
from pocketmq.broker.groups.queue_locks import QueueLockTable
from pocketmq.broker.messages import Appender
from pocketmq.broker.reads.arrivals import Arrivals
from pocketmq.broker.reads.filters import Filters, RequestSubscriptions
from pocketmq.broker.reads.replicas import KnownMaster, Replicas
from pocketmq.broker.reads.waiting_pops import WaitingPops
from pocketmq.broker.settings import BrokerSettings, SettingsInUse
from pocketmq.broker.snapshots import Snapshots
from pocketmq.broker.stats import BrokerStats, UnreadDrops
from pocketmq.broker.topics import TopicTable
from pocketmq.clock import Clock
from pocketmq.errors import StoreDamaged
from pocketmq.model import StoredMessage
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.consume_queue import Arrival
from pocketmq.store.retention import Dropped

NO_HOST: Final = bytes(8)
"""The packed address of the broker until it is known."""


class MakeStore(Protocol):
    """Makes the store, which reports new messages and deleted ones."""

    def __call__(
        self, *, on_arrivals: Callable[[Iterator[Arrival]], None], on_dropped: Callable[[Dropped], None]
    ) -> MessageStore: ...


class BrokerState:
    """Create it on the broker's event loop."""

    def __init__(self, settings: BrokerSettings, clock: Clock, make_store: MakeStore) -> None:
        now_ms = clock.now_ms()
        self.settings = SettingsInUse(settings)
        self.clock = clock
        # tables
        self.topics = TopicTable(
            settings.cluster,
            settings.broker_name,
            auto_create=settings.auto_create_topic,
            default_queues=settings.default_queues,
            trace=settings.trace_topic,
            max_topics=settings.max_topics,
            max_retry_topics=settings.max_retry_topics,
            started_ms=now_ms,
        )
        self.groups = GroupTable(
            auto_create=settings.auto_create_group, max_groups=settings.max_groups, started_ms=now_ms
        )
        self.offsets = OffsetTable(started_ms=now_ms)
        self.members = Members(expiry=settings.client_expiry_ms / 1000)
        self.leases, self.positions = Leases(settings.pop.max_leases), Positions(self.offsets)
        self.orders = Orders()
        self.locks = QueueLockTable(lease=settings.lock_lease_ms / 1000)
        self.filters = Filters()
        self.subscriptions = RequestSubscriptions()
        # store
        self.replicas, self.master = Replicas(self.settings), KnownMaster()
        self.stats = BrokerStats(settings.cluster, clock.monotonic(), now_ms, is_system=self.topics.is_system)
        self.unread = UnreadDrops(self.offsets, self.topics.is_system)
        self.store = make_store(on_arrivals=lambda arrivals: self._arrived(arrivals), on_dropped=self.unread.record)
        self.waiting_pops, self.waiting_notifications = WaitingPops(), WaitingPops(wakes_newest=True)
        self.arrivals = Arrivals(
            self.store.record, max_waiting=settings.flow.max_held_pulls, skip_delay_s=settings.hold_check_ms / 1000
        )
        self.appender = Appender(self.store, self.settings, clock, self.replicas)
        self.snapshots = Snapshots(self.store.tables, clock, self.topics, self.groups, self.offsets)

    def _arrived(self, arrivals: Iterator[Arrival]) -> None:
        """Messages became readable: wake who waits for them. Called once per turn that stored any."""
        self.waiting_pops.wakes += 1
        if self.replicas.count:
            self.replicas.log_grew()
        pops = [held for held in (self.waiting_pops, self.waiting_notifications) if held.count]
        if pops:
            arrived = tuple(arrivals)
            for held in pops:
                held.notify(arrived, self.store)
            arrivals = iter(arrived)
        self.arrivals.notify(arrivals)

    def message(self, log_offset: int) -> StoredMessage | None:
        """The message that begins at a log offset of a client, which may be any number; None if there is none.

        Bytes inside a body may look like a message, but have another offset.
        """
        try:
            message = self.store.message(log_offset)
        except StoreDamaged:
            return None
        return message if message is not None and message.log_offset == log_offset else None

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: its held pulls wake, its leases and statistics end."""
        for table in (self.leases, self.positions, self.orders):
            table.forget(topic=topic)
        for held in (self.arrivals, self.waiting_pops, self.waiting_notifications):
            held.wake_topic(topic)
        self.stats.forget_topic(topic)

    def forget_group(self, group: str) -> None:
        """A group was deleted."""
        for table in (self.leases, self.positions, self.orders):
            table.forget(group=group)
        self.stats.forget_group(group)

    def apply(self, settings: BrokerSettings) -> None:
        """Apply settings that changed at run time. Code that reads `settings.now` needs no call."""
        topics_before = self.topics.version
        self.topics.apply(settings, self.clock.now_ms())
        self.groups.apply(settings)
        self.members.expiry = settings.client_expiry_ms / 1000
        self.locks.lease = settings.lock_lease_ms / 1000
        self.leases.max_leases = settings.pop.max_leases
        self.store.apply(settings.store)
        self.arrivals.max_waiting = settings.flow.max_held_pulls
        if self.topics.version != topics_before:
            self.snapshots.save_soon()
