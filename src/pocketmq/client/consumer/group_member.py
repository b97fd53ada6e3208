"""The group members of consumers: what brokers ask of each, and its assigned queues with their pulls and offsets.

    rebalance ──► assignment ──► pull loops ──► process queues ──► listening, or polls
        ▲             └── first offsets, locks                        └──► offsets ── every 5 s ──► brokers, or a file
    members and routes

It runs on the event loop on which it is started. Requests of brokers to the group arrive here, see `cluster.serving`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from pocketmq.client.cluster.calls import OffsetCalls
from pocketmq.client.cluster.instance import Instance
from pocketmq.client.consumer.assignment import FIRST_RENEWAL_S, RENEW_S, Assignment, OwnedQueues, QueueLocks
from pocketmq.client.consumer.consume_stats import SAMPLE_S, ConsumeStats, shown, shown_settings, thread_stacks
from pocketmq.client.consumer.first_offsets import FirstOffsets
from pocketmq.client.consumer.offsets import LocalFolder, Offsets, offset_store
from pocketmq.client.consumer.pop_loop import PopAssignment, PopLoops
from pocketmq.client.consumer.popping import require_pop
from pocketmq.client.consumer.process_queue import QueueObserver
from pocketmq.client.consumer.pull_loop import PullLoops, PullLoopSettings
from pocketmq.client.consumer.pulling import PullEvents, Pulling
from pocketmq.client.consumer.rebalance import Allocator, AllQueues, OnRebalanced, Rebalance, StrategyAllocator
from pocketmq.client.consumer.settings import GroupSettings, RebalanceSettings
from pocketmq.client.consumer.subscriptions import SubscriptionTable
from pocketmq.client.hooks import HookList
from pocketmq.codes import VERSION
from pocketmq.errors import InvalidExpression, InvalidSetting, PocketMQError, RemoteError, ServerFailed, TopicNotFound
from pocketmq.files import Files
from pocketmq.model import MessageQueue, StoredMessage, Subscription, TopicName
from pocketmq.net import Repeating
from pocketmq.protocol.bodies.clients import (
    CLIENT_VERSION,
    CONSUME_ORDERLY,
    CONSUME_TYPE,
    CONSUMER_START_TIMESTAMP,
    NAMESERVER_ADDR,
    THREADPOOL_CORE_SIZE,
    CheckClientConfig,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    DirectConsumption,
)
from pocketmq.protocol.bodies.topics import ResetOffsets

log = logging.getLogger("pocketmq.client")

FIRST_PERSIST_S = 10.0
FIRST_ROUND_S = 3.0
"""A start or a subscription waits at most this long for the first offsets of its queues: brokers may be away."""


S_co = TypeVar("S_co", bound=GroupSettings, covariant=True)


class MemberParts(Generic[S_co]):
    """The parts of a member that do not depend on the kind of consumer. Make it on the member's event loop."""

    def __init__(
        self,
        settings: S_co,
        instance: Instance,
        files: Files,
        subscriptions: SubscriptionTable,
        hooks: HookList,
    ) -> None:
        self.settings = settings
        self.instance = instance
        self.clock = instance.clock
        self.group = settings.wire_group
        self.subscriptions = subscriptions
        self.hooks = hooks
        folder = LocalFolder(files, settings.local_offsets, instance.client_id)
        local = folder if settings.broadcast else None
        self.offsets = Offsets(offset_store(instance.brokers.offsets, self.group, local, settings.own_offsets))
        self.owned = OwnedQueues()
        self.stats = ConsumeStats(self.clock.monotonic())


class GroupMember:
    """Base of the members of all consumers: what the client instance and brokers need of them, and queries about queues.

    See `cluster.heartbeats.ConsumerMember`. Topics and queues have their wire names.
    """

    def __init__(self, parts: MemberParts[GroupSettings], consume_type: ConsumeType) -> None:
        self._settings = parts.settings
        self._instance = parts.instance
        self._clock = parts.clock
        self._group = parts.group
        self._subscriptions = parts.subscriptions
        self._offsets = parts.offsets
        self.consume_type = consume_type
        self._started_ms = self._clock.now_ms()

    @property
    def client_id(self) -> str:
        return self._instance.client_id

    @property
    def wire_group(self) -> str:
        return self._group

    def topics(self) -> Iterable[str]:
        return [subscription.topic for subscription in self._subscriptions]

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            self._group,
            self.consume_type,
            self._settings.model,
            self._settings.from_where,
            tuple(self._subscriptions),
            self._settings.unit_mode,
        )

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return self._offsets.of_topic(topic)

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> DirectConsumption:
        raise ServerFailed("this consumer has no listener: its user reads the messages")

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        """With `stacks`, it includes the stacks of all threads of this process."""
        return ConsumerRunningInfo(
            properties={
                NAMESERVER_ADDR: f"{self._instance.name_servers};",
                CONSUME_TYPE: self.consume_type.value,
                CONSUMER_START_TIMESTAMP: str(self._started_ms),
            },
            subscription_set=tuple(self._subscriptions),
            jstack=thread_stacks() if stacks else None,
        )

    async def readable(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic."""
        return list((await self._instance.routes.find(topic)).readable)

    async def query(
        self, queue: MessageQueue, request: Callable[[OffsetCalls, MessageQueue], Coroutine[Any, Any, int]]
    ) -> int:
        """Send an offset request to the broker of a queue."""
        await self._instance.routes.find(queue.topic)
        return await request(self._instance.brokers.offsets, queue)

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        return await self.query(queue, lambda calls, wire: calls.at_time(wire, time_ms))

    async def committed(self, queue: MessageQueue) -> int | None:
        await self._instance.routes.find(queue.topic)
        return await self._offsets.store.load(queue)


class AssignedMember(GroupMember):
    """Base of the members of push and lite pull consumers. `observer` consumes the messages.

    `on_rebalanced` is called after each change of the assigned queues. For `commits_start` see `Assignment`. `pops` exist if
    brokers may let this member pop.
    """

    def __init__(
        self,
        parts: MemberParts[RebalanceSettings],
        observer: QueueObserver,
        pulling: Pulling,
        pull_settings: PullLoopSettings,
        consume_type: ConsumeType,
        *,
        allocator: Allocator | None = None,
        locks: QueueLocks | None = None,
        on_rebalanced: OnRebalanced | None = None,
        commits_start: bool = True,
        pops: PopLoops | None = None,
    ) -> None:
        super().__init__(parts, consume_type)
        settings, instance = parts.settings, parts.instance
        self._pops = pops
        self._owned = parts.owned
        self._stats = parts.stats
        self._on_rebalanced = on_rebalanced
        self._is_running = False
        start_ms = settings.start_time_ms(self._clock.now_ms())
        self._first = FirstOffsets(instance.brokers.offsets, self._offsets, settings.from_where, start_ms)
        events = PullEvents(parts.hooks, settings.group, settings.namespace)
        self._pulls = PullLoops(
            instance,
            pulling,
            self._offsets,
            self._stats,
            pull_settings,
            settings.limits_of_queue,
            self._subscription_of,
            self._owned,
            events,
        )
        self._assignment = Assignment(
            self._clock,
            self._owned,
            observer,
            self._offsets,
            self._first,
            self._pulls,
            locks,
            commits_start=commits_start,
        )
        self._target: Assignment | PopAssignment = self._assignment
        if pops is not None:
            self._target = PopAssignment(self._assignment, pops, self._subscriptions, self._clock)
        self._rebalance = Rebalance(
            instance.routes,
            self.topics,
            allocator or default_allocator(parts),
            self._target,
            on_rebalanced=self._rebalanced,
            interval_s=settings.rebalance_ms / 1000,
        )
        self._rounds = self._new_rounds(settings.persist_ms / 1000, locks)

    def _new_rounds(self, persist_s: float, locks: QueueLocks | None) -> list[Repeating]:
        rounds = [
            Repeating("commit of offsets", persist_s, self._assignment.persist, log, first_s=FIRST_PERSIST_S),
            Repeating("sampling of consumption", SAMPLE_S, self._sample, log),
        ]
        if locks is not None:
            renew = partial(self._renew, locks)
            rounds.append(Repeating("renewal of queue locks", RENEW_S, renew, log, first_s=FIRST_RENEWAL_S))
        return rounds

    # lifecycle

    async def start(self) -> None:
        """Join the group. Raises InvalidExpression if a broker rejects a filter, and StoreDamaged if the local offsets of a broadcasting
        consumer are unreadable.
        """
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._instance.leave)
            undo.push_async_callback(self._instance.remove_consumer, self)
            await self._offsets.store.require_readable()
            await self._find_routes()
            for subscription in self._filters():
                await self._check(subscription)
            self._instance.add_consumer(self)
            await self._instance.heartbeats.send_to_all(self._instance.brokers)
            if self._pops is not None:
                self._require_pops()
            undo.pop_all()
        self._is_running = True
        self._started_ms = self._clock.now_ms()
        for each in self._rounds:
            each.start()
        self._rebalance.start()
        async with AsyncExitStack() as undo:  # listeners may be running already when the start is cancelled
            undo.push_async_callback(self.stop, self._settings.stop_timeout_ms / 1000)
            await self._first_round()
            undo.pop_all()

    async def _first_round(self) -> None:
        """Wait until the queues of new topics have an offset: messages sent from now on must not be older than a start at the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_ROUND_S):
                await self._rebalance.done()

    async def stop(self, drain_s: float) -> None:
        """Stop pulling, wait for running listeners, commit offsets, leave the group. Other members get the queues at once."""
        self._is_running = False
        await self._rebalance.stop()
        for each in self._rounds:
            await each.stop()
        await self._target.release_all(drain_s)
        await self._instance.remove_consumer(self)
        await self._instance.leave()

    async def owned(self) -> list[MessageQueue]:
        """The assigned queues, with wire names."""
        return [*(owned.queue for owned in self._owned.all()), *(self._pops.queues() if self._pops is not None else ())]

    async def info(self, *, stacks: bool) -> ConsumerRunningInfo:
        return self.running_info(stacks=stacks)

    # subscriptions

    async def subscribe(self, topic: TopicName, expression: str | None, kind: str) -> None:
        """Subscribe while running, and report it to the brokers. Restores the old subscription on errors such as InvalidExpression."""
        before = self._subscriptions.get(topic)
        subscription = self._subscriptions.subscribe(topic, expression, kind, now_ms=self._clock.now_ms())
        if subscription is before:
            return
        try:
            await self._find_routes()
            await self._check(subscription)
        except BaseException:  # also a cancellation
            self._subscriptions.unsubscribe(topic)
            if before is not None:
                self._subscriptions.subscribe(
                    topic, before.sub_string, before.expression_type, now_ms=self._clock.now_ms()
                )
            raise
        self._send_heartbeats()
        await self._first_round()

    async def unsubscribe(self, topic: TopicName) -> None:
        """Stop consuming `topic`; a rebalance releases its queues soon."""
        if self._subscriptions.unsubscribe(topic):
            self._assignment.deactivate_topic(topic)
            if self._pops is not None:
                self._pops.drop_topic(topic)
            self._stats.forget(topic)
            self._send_heartbeats()
            self._rebalance.soon()

    def _filters(self) -> Iterable[Subscription]:
        """The subscriptions of all pulls."""
        return self._subscriptions

    def _subscription_of(self, queue: MessageQueue) -> Subscription | None:
        return self._subscriptions.get(queue.topic)

    async def _find_routes(self) -> None:
        """Fetch the routes of the topics, so that their brokers get heartbeats. A rebalance repeats it for missing topics."""
        for topic in self.topics():
            try:
                await self._instance.routes.find(topic)
            except TopicNotFound:
                log.debug("topic %s does not exist yet", topic)
                self._first.missing(topic)
            except InvalidSetting:
                raise  # the addresses are not those of name servers
            except PocketMQError as error:
                log.warning("no route for topic %s: %s; retrying", topic, error)
                return

    def _require_pops(self) -> None:
        """RequestNotSupported if a broker of the topics is known to be too old for them."""
        for topic in self.topics():
            route = self._instance.routes.get(topic)
            for data in () if route is None else route.data.broker_datas:
                require_pop(self._instance, data.broker_name or "")

    async def _check(self, subscription: Subscription) -> None:
        """Let a broker of the topic check the filter. All brokers support tags."""
        route = self._instance.routes.get(subscription.topic)
        if subscription.is_tag or route is None:
            return
        config = CheckClientConfig(self.client_id, self._group, subscription, self._settings.namespace)
        for data in route.data.broker_datas:
            if not data.broker_name:
                continue
            try:
                address = self._instance.brokers.reader(data.broker_name)
                await self._instance.brokers.peer(address)
                await self._instance.heartbeats.wait_answered(address)
                self._instance.heartbeats.require_sql(address, data.broker_name)
                await self._instance.brokers.members.check_config(address, config)
            except InvalidExpression:
                raise
            except RemoteError as error:
                raise InvalidExpression(
                    f"broker {data.broker_name} cannot filter topic {subscription.topic} by "
                    f"{subscription.expression_type} {subscription.sub_string!r}: {error.remark}"
                ) from error
            except PocketMQError as error:
                log.warning(
                    "broker %s could not check the filter of topic %s: %s; continuing without the check",
                    data.broker_name,
                    subscription.topic,
                    error,
                )
                continue
            return

    def _rebalanced(self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        """The queues of a topic changed: brokers have to use this member's subscription as the latest."""
        group = self._settings.group
        log.info(
            "rebalance: assigned %d of %d queues of %s to group %s: %s",
            len(mine),
            len(all_queues),
            topic,
            group,
            [*map(str, mine)],
        )
        self._subscriptions.touch(topic, self._clock.now_ms())
        self._send_heartbeats()
        if self._on_rebalanced is not None:
            self._on_rebalanced(topic, all_queues, mine)

    def _send_heartbeats(self) -> None:
        """Send a heartbeat on each connection, before any other request."""
        brokers = self._instance.brokers
        for address in brokers.all_addresses():
            peer = brokers.live(address)
            if peer is not None:
                self._instance.heartbeats.send(address, peer)

    async def _sample(self) -> None:
        self._stats.sample(self._clock.monotonic())

    async def _renew(self, locks: QueueLocks) -> None:
        await locks.renew(self._owned.all())

    # for the client instance; see `cluster.serving`

    def rebalance_soon(self) -> None:
        self._rebalance.soon()

    def route_changed(self, topic: str) -> None:
        if self._is_running:
            self._rebalance.soon()

    async def reset_offsets(self, topic: str, offsets: ResetOffsets) -> None:
        moved = [(queue, offset) for queue, offset in offsets.offset_table.items() if queue.topic == topic]
        log.info("an administrator reset offsets of %s: %s", topic, {str(queue): offset for queue, offset in moved})
        await self._assignment.restart(moved)

    @property
    def core_workers(self) -> int:
        """Java's core pool size; -1 without listeners."""
        return -1

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        settings, now, now_ms = self._settings, self._clock.monotonic(), self._clock.now_ms()
        info = super().running_info(stacks=stacks)
        return replace(
            info,
            properties={
                **info.properties,
                CONSUME_ORDERLY: shown(getattr(settings, "ordered", False)),
                THREADPOOL_CORE_SIZE: str(self.core_workers),
                CLIENT_VERSION: VERSION.name,
                **shown_settings(settings),
                **{f"pauses: {cause}": str(count) for cause, count in self._pulls.pauses.snapshot().items()},
            },
            mq_pop_table={} if self._pops is None else self._pops.info(now_ms),
            mq_table={one.queue: one.info(self._offsets.get(one.queue), now, now_ms) for one in self._owned.all()},
            status_table={one.topic: self._stats.status(one.topic, now) for one in self._subscriptions},
        )


def default_allocator(parts: MemberParts[RebalanceSettings]) -> Allocator:
    """All queues when broadcasting, else those that the strategy gives this member."""
    return (
        AllQueues()
        if parts.settings.broadcast
        else StrategyAllocator(parts.instance, parts.group, parts.settings.strategy)
    )
