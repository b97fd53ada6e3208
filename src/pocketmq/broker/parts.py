"""The parts of a broker, built and connected. No rules here: each part gets what it uses, and no part gets the broker.

state     tables, store, settings, statistics: `state`
workers   delays · timers · transactions · revival (the end of leases) · registration
requests  turns (the hot ones) · dispatcher (all others, by families of handlers)
"""

import asyncio
import logging
import random
from contextlib import ExitStack
from functools import partial
from typing import Final, cast

from msgspec.structs import replace

from pocketmq import compiled
from pocketmq.access.authentication import authentication_by
from pocketmq.broker.access import ACCESS, by_log_offset
from pocketmq.broker.delivery.delays import Delays
from pocketmq.broker.delivery.timer_progress import TimerCheck, TimerProgress
from pocketmq.broker.delivery.timers import Timers
from pocketmq.broker.handlers.administration import MaintenanceHandlers, SettingHandlers, StatisticsHandlers
from pocketmq.broker.handlers.checked_pulls import CheckedPulls
from pocketmq.broker.handlers.clients import ClientHandlers
from pocketmq.broker.handlers.destinations import Destinations
from pocketmq.broker.handlers.groups import GroupHandlers
from pocketmq.broker.handlers.message_queries import MessageQueryHandlers
from pocketmq.broker.handlers.offsets import Consuming, OffsetHandlers
from pocketmq.broker.handlers.pulling import Pulling
from pocketmq.broker.handlers.recalling import RecallHandlers
from pocketmq.broker.handlers.relays import RelayHandlers
from pocketmq.broker.handlers.replying import ReplyHandlers
from pocketmq.broker.handlers.resets import ResetHandlers
from pocketmq.broker.handlers.retries import Retries, RetryHandlers
from pocketmq.broker.handlers.sending import Sending
from pocketmq.broker.handlers.topics import TopicHandlers
from pocketmq.broker.handlers.transactions import TransactionHandlers, producer_finder
from pocketmq.broker.pop.acks import AckHandlers
from pocketmq.broker.pop.assignment import MODES_FILE, AssignmentHandlers, RequestModeTable
from pocketmq.broker.pop.journal import Journal
from pocketmq.broker.pop.popping import PopHandlers
from pocketmq.broker.pop.reading import Reading
from pocketmq.broker.pop.revive import Revival
from pocketmq.broker.registration import Registration
from pocketmq.broker.replication.following import Following
from pocketmq.broker.replication.metadata import Metadata, MetadataHandlers
from pocketmq.broker.replication.refusals import only_reads, refused_stages
from pocketmq.broker.requests.log_turn import Stage
from pocketmq.broker.requests.turns import Serve, Turns
from pocketmq.broker.settings import BrokerSettings
from pocketmq.broker.snapshots import OFFSETS_FILE, adopt_topics, lower_offsets
from pocketmq.broker.state import NO_HOST, BrokerState
from pocketmq.broker.stats.runtime_info import Addition, RuntimeInfo, delay_info, flow_info
from pocketmq.broker.transactions.transactions import Transactions
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError, StoreDamaged
from pocketmq.files import Files
from pocketmq.net import Address, Dispatcher, Handler, Network, Peer
from pocketmq.protocol.bodies.clients import RequestModes
from pocketmq.protocol.bodies.topics import DelayOffsets
from pocketmq.protocol.hot_headers import (
    HEARTBEAT_REPLIES,
    HEARTBEAT_REPLIES_UNCHANGED,
    HeartbeatHead,
    LitePullHead,
    PopHead,
    PullHead,
    QueryOffsetHead,
    UpdateOffsetHead,
)
from pocketmq.store.message_store import MessageStore
from pocketmq.store.receiving import SlaveStore
from pocketmq.store.recovery.recovery import RecoveryReport
from pocketmq.store.tables import Tables
from pocketmq.store.worker import Post

log = logging.getLogger("pocketmq.broker")

DELAYS_FILE: Final = "delayOffset.json"
TIMERS_FILE: Final = "timers.json"
TIMER_CHECK_FILE: Final = "timercheck"
ORDERS_FILE: Final = "consumerOrderInfo.json"


class BrokerParts:
    """All parts of a broker. Create it on its event loop; call `recover` before anything is served."""

    def __init__(
        self, settings: BrokerSettings, clock: Clock, files: Files, network: Network | None, post: Post
    ) -> None:
        self.is_slave = settings.is_slave
        make_store = partial(
            SlaveStore if settings.is_slave else MessageStore,
            settings.store,
            store_host=NO_HOST,
            post=post,
            files=files,
            clock=clock,
        )
        self.state = state = BrokerState(settings, clock, make_store)
        self.authentication = authentication_by(
            settings.accounts, files, by_log_offset(state.message), clock, settings.authentication
        )
        may_send_to, check = None, None
        if self.authentication:
            may_send_to, check = self.authentication.may_send_to, self.authentication.check
        # workers
        self.registration = Registration(
            state.settings, state.topics, clock, network=network, on_address=self._set_address, master=state.master
        )
        self.delays = Delays(state.store, state.appender, state.topics, clock, started_ms=clock.now_ms())
        self.timers = Timers(state.store, state.appender, state.topics, state.settings, clock, settled=state.leases)
        self.transactions = Transactions(state, producer_finder(state.members.producers, may_send_to), self.announce)
        # requests
        self.chance = chance = random.Random()  # noqa: S311 the choice of a queue is no secret
        self._retries = Retries(state, self.announce, chance)
        journal = Journal(state, self._retries)
        self.revival = Revival(state, journal, self.timers)
        self.acks = AckHandlers(state, journal)
        self._pops = PopHandlers(state, journal, Reading(state, journal, chance))
        self.request_modes = RequestModeTable()
        self._destinations = Destinations(state.topics, state.settings, clock, self._announced)
        self.sending = Sending(state, self._destinations, self._retries)
        self.clients = ClientHandlers(state, self.announce)
        self.checked = CheckedPulls(state, signed=self.authentication is not None)
        self.metadata: Metadata | None = None
        stages: dict[type[object], Stage] = {PopHead: self._pops.stage, **self.acks.stages()}
        self.following: Following | None = None
        if settings.is_slave:
            stages = refused_stages(stages)
            self.metadata = Metadata(state, self.delays, self.timers, self.request_modes, network)
            self.following = Following(cast("SlaveStore", state.store), state.settings, clock, state.master, network)
        self.turns = Turns(state, self.sending, self._hot_handlers(), self.checked, stages, self.acks.stage_run, check)
        self.dispatcher = Dispatcher(only_reads(self._tables()) if settings.is_slave else self._tables(), ACCESS)

    def follow_accounts(self) -> None:
        """Reload the accounts. The broker registers with the current secret of its account."""
        if self.authentication is None:
            return
        self.authentication.follow()
        settings = self.state.settings
        used = settings.now.credentials
        current = None if used is None else self.authentication.credentials_of(used.access_key)
        if current is not None and current != used:
            settings.now = replace(settings.now, credentials=current)

    # connections between parts

    def announce(self) -> None:
        """Clients created topics or groups: register and save them."""
        self.registration.announce()
        self.state.snapshots.save_soon()

    def _announced(self) -> asyncio.Future[None] | None:
        """The same; done when the name servers know."""
        self.state.snapshots.save_soon()
        return self.registration.announced()

    def _set_address(self, address: Address) -> None:
        self.sending.set_address(address)

    def apply(self, settings: BrokerSettings) -> None:
        """Apply settings that changed at run time. Parts that read `settings.now` need no call."""
        self.state.apply(settings)
        self.checked.apply(settings.store)
        self.turns.apply(settings.flow)
        self.registration.announce()

    # requests

    def _hot_handlers(self) -> dict[type[object], Serve]:
        pulling, consuming = Pulling(self.state, self.checked), Consuming(self.state)
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
        state, registration = self.state, self.registration
        info = RuntimeInfo(state.store.facts, state.stats, state.clock, self._additions())
        return [
            self.clients.table(),
            RelayHandlers(state).table(),
            ResetHandlers(state).table(),
            ReplyHandlers(state, self._destinations).table(),
            RetryHandlers(state, self._retries).table(),
            TransactionHandlers(state, self.transactions).table(),
            RecallHandlers(state).table(),
            OffsetHandlers(state, self.delays.offsets_body).table(),
            MessageQueryHandlers(state).table(),
            TopicHandlers(state, registration.announced).table(),
            GroupHandlers(state, lambda: registration.address).table(),
            StatisticsHandlers(state, info, lambda: str(registration.address)).table(),
            MaintenanceHandlers(state).table(),
            SettingHandlers(state, self.apply).table(),
            self._pops.table(),
            AssignmentHandlers(state, self.request_modes).table(),
            MetadataHandlers(self.timers).table(),
        ]

    def _additions(self) -> list[Addition]:
        """Keys that parts add to the runtime info."""
        state, flow = self.state, self.state.settings.now.flow
        refusals = [self.authentication.refusals.runtime_info] if self.authentication else []
        return [
            lambda: flow_info(self.turns.waiting, self.turns.gate, flow, state.clock.monotonic()),
            lambda: delay_info(self.delays.progress()),
            self.timers.runtime_info,
            self.clients.runtime_info,
            self._changes,
            *refusals,
        ]

    def _changes(self) -> dict[str, str]:
        """How often tables changed: tools that poll them need to read them only if this number differs."""
        state = self.state
        counts = (state.members.changes, state.topics.version.counter, state.groups.version.counter)
        return dict(zip(("memberChanges", "topicChanges", "groupChanges"), map(str, counts), strict=True))

    # lifecycle

    def recover(self) -> RecoveryReport:
        """Recover the store and restore the tables of the last run. StoreLocked, StoreDamaged."""
        state = self.state
        store, tables, snapshots = state.store, state.store.tables, state.snapshots
        if why := compiled.why_pure():
            log.info("Using pure Python instead of the C twins, which is slower: %s", why)
        report = store.open()
        with ExitStack() as undo:
            undo.callback(store.close)
            snapshots.load()
            adopt_topics(state.topics, store, state.clock.now_ms())
            if not self.is_slave:
                lower_offsets(state.offsets, store, state.clock.now_ms(), clean=report.clean)
            self.delays.load(tables.load(DELAYS_FILE, DelayOffsets.decode))
            self.timers.load(tables.load(TIMERS_FILE, TimerProgress.parse), _timer_check(tables))
            self.request_modes.load(tables.load(MODES_FILE, RequestModes.decode))
            state.orders.load(tables.load(ORDERS_FILE, state.orders.decode))
            if not self.is_slave:
                self.revival.load(clean=report.clean)
            snapshots.add(MODES_FILE, self.request_modes)
            snapshots.add(ORDERS_FILE, state.orders)
            snapshots.add(DELAYS_FILE, self.delays)
            snapshots.add(TIMERS_FILE, self.timers)
            snapshots.save_repaired((OFFSETS_FILE, DELAYS_FILE, TIMERS_FILE))
            if not self.is_slave:
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
