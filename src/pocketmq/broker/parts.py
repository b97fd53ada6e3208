"""The parts of a broker, built and connected. No rules here: each part gets what it uses, and no part gets the broker.

tables    topics · groups · offsets · members · locks · subscriptions in pull requests
store     messages · appender: messages of the broker itself · arrivals: held pulls
workers   delays · timers · transactions · snapshots · registration
requests  turns (the hot ones) · dispatcher (all others, by families of handlers)
"""

import asyncio
import logging
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final

from msgspec.structs import replace

from pocketmq.access.authentication import authentication_by
from pocketmq.broker.access import ACCESS, by_log_offset
from pocketmq.broker.delivery.delays import Delays
from pocketmq.broker.delivery.timer_progress import TimerCheck, TimerProgress
from pocketmq.broker.delivery.timers import Timers
from pocketmq.broker.groups.groups import GroupTable
from pocketmq.broker.groups.members import Members
from pocketmq.broker.groups.notices import Notices
from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.groups.queue_locks import QueueLockTable
from pocketmq.broker.handlers.administration import MaintenanceHandlers, SettingHandlers, StatisticsHandlers
from pocketmq.broker.handlers.clients import ClientHandlers
from pocketmq.broker.handlers.groups import GroupHandlers
from pocketmq.broker.handlers.message_queries import MessageQueryHandlers
from pocketmq.broker.handlers.offsets import Consuming, OffsetHandlers, ResetHandlers
from pocketmq.broker.handlers.pulling import Pulling
from pocketmq.broker.handlers.recalling import RecallHandlers
from pocketmq.broker.handlers.relays import RelayHandlers
from pocketmq.broker.handlers.replying import ReplyHandlers
from pocketmq.broker.handlers.retries import Retries, RetryHandlers
from pocketmq.broker.handlers.sending import Redirects, Sending
from pocketmq.broker.handlers.topics import TopicHandlers
from pocketmq.broker.handlers.transactions import TransactionHandlers
from pocketmq.broker.messages.appending import Appender
from pocketmq.broker.messages.destinations import Destinations
from pocketmq.broker.reads.arrivals import Arrivals
from pocketmq.broker.reads.checked_pulls import CheckedPulls
from pocketmq.broker.reads.filters import Filters, RequestSubscriptions
from pocketmq.broker.registration import Registration
from pocketmq.broker.requests.turns import Serve, Turns
from pocketmq.broker.settings import BrokerSettings, SettingsInUse
from pocketmq.broker.snapshots import OFFSETS_FILE, Snapshots, adopt_topics, lower_offsets
from pocketmq.broker.stats import BrokerStats
from pocketmq.broker.stats.group_progress import GroupProgress, UnreadDrops
from pocketmq.broker.stats.runtime_info import Addition, RuntimeInfo, delay_info, flow_info
from pocketmq.broker.topics import TopicTable
from pocketmq.broker.transactions.transactions import Transactions, producer_finder
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError, StoreDamaged
from pocketmq.files import Files
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import UniqueIds, pack_ip
from pocketmq.net.address import Address
from pocketmq.net.dispatcher import Dispatcher, Handler
from pocketmq.net.network import Network
from pocketmq.net.peer import Peer
from pocketmq.protocol.bodies.topics import DelayOffsets
from pocketmq.protocol.hot_headers import (
    HEARTBEAT_REPLIES,
    HEARTBEAT_REPLIES_UNCHANGED,
    HeartbeatHead,
    LitePullHead,
    PullHead,
    QueryOffsetHead,
    UpdateOffsetHead,
)
from pocketmq.protocol.java_json import read_body
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.dispatch import Arrival
from pocketmq.store.recovery.recovery import RecoveryReport
from pocketmq.store.tables import Tables
from pocketmq.store.worker import Post

log = logging.getLogger("pocketmq.broker")

DELAYS_FILE: Final = "delayOffset.json"
TIMERS_FILE: Final = "timers.json"
TIMER_CHECK_FILE: Final = "timercheck"
_NOWHERE: Final = bytes(8)


class BrokerParts:
    """All parts of a broker. Create it on its event loop; call `recover` before anything is served."""

    def __init__(
        self, settings: BrokerSettings, clock: Clock, files: Files, network: Network | None, post: Post
    ) -> None:
        self.settings = SettingsInUse(settings)
        self.clock = clock
        now_ms = clock.now_ms()
        # tables
        self.topics = _topic_table(settings, now_ms)
        self.groups = GroupTable(
            auto_create=settings.auto_create_group, max_groups=settings.max_groups, started_ms=now_ms
        )
        self.offsets = OffsetTable(started_ms=now_ms)
        self.members = Members(expiry=settings.client_expiry_ms / 1000)
        self.locks = QueueLockTable(lease=settings.lock_lease_ms / 1000)
        self.filters = Filters()
        self.subscriptions = RequestSubscriptions()
        # store
        self.unread = UnreadDrops(self.offsets, self.topics.is_system)
        self.store = MessageStore(
            settings.store,
            store_host=_NOWHERE,
            post=post,
            files=files,
            clock=clock,
            on_arrivals=self._arrived,
            on_dropped=self.unread.record,
        )
        self.arrivals = Arrivals(
            self.store.record, max_waiting=settings.flow.max_held_pulls, skip_delay_s=settings.hold_check_ms / 1000
        )
        self.appender = Appender(self.store, self.settings, clock)
        self.stats = BrokerStats(settings.cluster, clock.monotonic(), now_ms, is_system=self.topics.is_system)
        self.authentication = authentication_by(
            settings.accounts, files, by_log_offset(self._message_at), clock, settings.authentication
        )
        # workers
        self.snapshots = Snapshots(self.store.tables, clock, self.topics, self.groups, self.offsets)
        self.registration = Registration(
            self.settings, self.topics, clock, network=network, on_address=self._set_address
        )
        self.delays = Delays(self.store, self.appender, self.topics, clock, started_ms=now_ms)
        self.timers = Timers(self.store, self.appender, self.topics, self.settings, clock)
        may_send_to = self.authentication.may_send_to if self.authentication else None
        find_producer = producer_finder(self.members.producers, may_send_to)
        self.transactions = Transactions(
            self.store, self.appender, self.topics, self.offsets, find_producer, self.settings, clock, self.announce
        )
        # requests
        chance = random.Random()  # noqa: S311 the choice of a retry queue is no secret
        self.retries = Retries(self.topics, self.groups, self.locks, clock, self.announce, chance)
        self.destinations = Destinations(self.topics, self.settings, clock, self._announced)
        self.sending = self._sending()
        self.clients = self._clients()
        self.checked = self._checked_pulls()
        check = self.authentication.check if self.authentication else None
        self.turns = Turns(
            self.store, self.sending, self._hot_handlers(), settings.flow, clock, self.stats, check, self.checked
        )
        self.dispatcher = Dispatcher(self._tables(), ACCESS)

    def follow_accounts(self) -> None:
        """Reload the accounts. The broker registers with the current secret of its account."""
        if self.authentication is None:
            return
        self.authentication.follow()
        used = self.settings.now.credentials
        current = None if used is None else self.authentication.credentials_of(used.access_key)
        if current is not None and current != used:
            self.settings.now = replace(self.settings.now, credentials=current)

    # connections between parts

    def announce(self) -> None:
        """Clients created topics or groups: register and save them."""
        self.registration.announce()
        self.snapshots.save_soon()

    def _announced(self) -> asyncio.Future[None] | None:
        """The same; done when the name servers know."""
        self.snapshots.save_soon()
        return self.registration.announced()

    def _arrived(self, arrivals: Iterator[Arrival]) -> None:
        self.arrivals.notify(arrivals)

    def _topic_deleted(self, topic: str) -> None:
        self.arrivals.wake_topic(topic)
        self.stats.forget_topic(topic)

    def _message_at(self, log_offset: int) -> StoredMessage | None:
        """The message that begins at a log offset. Bytes inside a body may look like one, but have another offset."""
        try:
            message = self.store.message(log_offset)
        except StoreDamaged:
            return None
        return message if message is not None and message.log_offset == log_offset else None

    def _set_address(self, address: Address) -> None:
        self.sending.set_address(address)

    def apply(self, settings: BrokerSettings) -> None:
        """Apply settings that changed at run time. Parts that read `settings.now` need no call."""
        topics_before = self.topics.version
        self.topics.apply(settings, self.clock.now_ms())
        self.groups.apply(settings)
        self.members.expiry = settings.client_expiry_ms / 1000
        self.locks.lease = settings.lock_lease_ms / 1000
        self.store.apply(settings.store)
        self.checked.apply(settings.store)
        self.arrivals.max_waiting = settings.flow.max_held_pulls
        self.turns.apply(settings.flow)
        if self.topics.version != topics_before:
            self.snapshots.save_soon()
        self.registration.announce()

    # requests

    def _sending(self) -> Sending:
        salt = int.from_bytes(os.urandom(4), "big")
        return Sending(
            self.store,
            self.topics,
            self.destinations,
            self.appender,
            self.settings,
            self.clock,
            Redirects(self.retries, self.settings),
            UniqueIds(pack_ip("127.0.0.1"), os.getpid(), salt),
            self.stats.sent,
        )

    def _clients(self) -> ClientHandlers:
        return ClientHandlers(
            members=self.members,
            groups=self.groups,
            topics=self.topics,
            locks=self.locks,
            filters=self.filters,
            subscriptions=self.subscriptions,
            notices=Notices(self.settings),
            settings=self.settings,
            clock=self.clock,
            announce=self.announce,
        )

    def _checked_pulls(self) -> CheckedPulls:
        return CheckedPulls(
            self.store,
            self.topics,
            self.groups,
            self.offsets,
            self.members,
            self.subscriptions,
            self.settings,
            self.clock,
            self.stats,
            signed=self.authentication is not None,
        )

    def _hot_handlers(self) -> dict[type[object], Serve]:
        pulling = Pulling(
            self.store,
            self.topics,
            self.groups,
            self.offsets,
            self.members,
            self.filters,
            self.subscriptions,
            self.arrivals,
            self.settings,
            self.clock,
            self.stats,
            self.checked,
        )
        consuming = Consuming(self.store, self.topics, self.groups, self.offsets, self.members, self.clock)
        return {
            PullHead: pulling.pull,
            LitePullHead: pulling.pull,
            QueryOffsetHead: consuming.query,
            UpdateOffsetHead: consuming.update,
            HeartbeatHead: self._heartbeat,
        }

    def _heartbeat(self, peer: Peer, head: HeartbeatHead, body: bytes) -> bytes:
        changed = self.clients.process_heartbeat(peer, head.language.name, head.version, body)
        return (HEARTBEAT_REPLIES if changed else HEARTBEAT_REPLIES_UNCHANGED).encode(head.opaque)

    def _tables(self) -> list[dict[RequestCode, Handler]]:
        return [*self._client_tables(), *self._message_tables(), *self._administration_tables()]

    def _client_tables(self) -> list[dict[RequestCode, Handler]]:
        relays = RelayHandlers(self.members, self.topics, self.groups, self.settings, record=self.store.record)
        resets = ResetHandlers(
            offsets=self.offsets,
            topics=self.topics,
            groups=self.groups,
            members=self.members,
            store=self.store,
            settings=self.settings,
            clock=self.clock,
            wake=self.arrivals.wake,
            save=self.snapshots.save_offsets,
        )
        return [self.clients.table(), relays.table(), resets.table()]

    def _message_tables(self) -> list[dict[RequestCode, Handler]]:
        replies = ReplyHandlers(
            members=self.members,
            destinations=self.destinations,
            appender=self.appender,
            settings=self.settings,
            clock=self.clock,
            store_host=lambda: self.store.store_host,
            tally_of=self.stats.sent,
        )
        retries = RetryHandlers(
            self.store,
            self.appender,
            self.groups,
            self.retries,
            self.settings,
            self.clock,
            self.stats.sent_back,
        )
        return [
            replies.table(),
            retries.table(),
            TransactionHandlers(self.transactions, self.appender, self.clock).table(),
            RecallHandlers(self.topics, self.appender, self.settings, self.clock).table(),
            OffsetHandlers(self.store, self.offsets, self.delays.offsets_body).table(),
            MessageQueryHandlers(self.store, self.members, self.filters).table(),
        ]

    def _administration_tables(self) -> list[dict[RequestCode, Handler]]:
        topics = TopicHandlers(
            topics=self.topics,
            offsets=self.offsets,
            members=self.members,
            store=self.store,
            snapshots=self.snapshots,
            settings=self.settings,
            clock=self.clock,
            announced=self.registration.announced,
            deleted=self._topic_deleted,
            put_tps=self.stats.put_tps,
        )
        groups = GroupHandlers(
            groups=self.groups,
            offsets=self.offsets,
            members=self.members,
            subscriptions=self.subscriptions,
            snapshots=self.snapshots,
            clock=self.clock,
            address=lambda: self.registration.address,
            deleted=self.stats.forget_group,
        )
        progress = GroupProgress(
            self.settings.now.broker_name,
            self.store,
            self.topics,
            self.groups,
            self.offsets,
            self.members,
            self.stats,
        )
        info = RuntimeInfo(self.store.facts, self.stats, self.clock, self._additions())
        statistics = StatisticsHandlers(info, self.stats, progress, self.clock, lambda: str(self.registration.address))
        return [
            topics.table(),
            groups.table(),
            statistics.table(),
            MaintenanceHandlers(self.store).table(),
            SettingHandlers(self.settings, self.clock, self.apply).table(),
        ]

    def _additions(self) -> list[Addition]:
        """Keys that parts add to the runtime info."""
        flow = self.settings.now.flow
        refusals = [self.authentication.refusals.runtime_info] if self.authentication else []
        return [
            lambda: flow_info(self.turns.waiting, self.turns.gate, flow, self.clock.monotonic()),
            lambda: delay_info(self.delays.progress()),
            self.timers.runtime_info,
            self.clients.runtime_info,
            self._changes,
            *refusals,
        ]

    def _changes(self) -> dict[str, str]:
        """How often tables changed: tools that poll them need to read them only if this number differs."""
        counts = (self.members.changes, self.topics.version.counter, self.groups.version.counter)
        return dict(zip(("memberChanges", "topicChanges", "groupChanges"), map(str, counts), strict=True))

    # lifecycle

    def recover(self) -> RecoveryReport:
        """Recover the store and restore the tables of the last run. StoreLocked, StoreDamaged."""
        report = self.store.open()
        with ExitStack() as undo:
            undo.callback(self.store.close)
            self.snapshots.load()
            adopt_topics(self.topics, self.store, self.clock.now_ms())
            lower_offsets(self.offsets, self.store, clean=report.clean)
            tables = self.store.tables
            self.delays.load(tables.load(DELAYS_FILE, partial(read_body, DelayOffsets)))
            self.timers.load(tables.load(TIMERS_FILE, TimerProgress.parse), _timer_check(tables))
            self.snapshots.add(DELAYS_FILE, self.delays)
            self.snapshots.add(TIMERS_FILE, self.timers)
            self.snapshots.save_repaired((OFFSETS_FILE, DELAYS_FILE, TIMERS_FILE))
            self.transactions.load()
            undo.pop_all()
        return report

    def lost(self, peer: Peer, reason: PocketMQError) -> None:
        self.turns.lost(peer)
        self.sending.lost(peer)
        self.clients.lost(peer)


def _timer_check(tables: Tables) -> TimerCheck | None:
    """The progress of RocketMQ's own broker with timed messages, in a store that it used."""
    try:
        return tables.load(TIMER_CHECK_FILE, TimerCheck.parse)
    except StoreDamaged as damage:
        log.warning("Cannot read RocketMQ's timercheck: %s; reading timed messages from the first one", damage)
        return None


def _topic_table(settings: BrokerSettings, now_ms: int) -> TopicTable:
    return TopicTable(
        settings.cluster,
        settings.broker_name,
        auto_create=settings.auto_create_topic,
        default_queues=settings.default_queues,
        trace=settings.trace_topic,
        max_topics=settings.max_topics,
        max_retry_topics=settings.max_retry_topics,
        started_ms=now_ms,
    )
