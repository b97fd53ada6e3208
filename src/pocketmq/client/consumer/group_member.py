"""A member of a consumer group: what consumers that share queues have in common, whoever handles their messages.

    rebalance ──► assignment ──► pull loops ──► process queues ──► somebody who handles messages
        ▲             └── first offsets, locks                        └──► offsets ── every 5 s ──► brokers, or a file
    members and routes

It lives on one loop: the one on which it is started. What brokers ask of its group comes here, see `members.ConsumerMember`.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.consumer.assignment import FIRST_RENEWAL_S, RENEW_S, Assignment, OwnedQueues, QueueLocks
from pocketmq.client.consumer.consume_events import PullEvents
from pocketmq.client.consumer.consume_stats import SAMPLE_S, ConsumeStats, running_info
from pocketmq.client.consumer.first_offsets import FirstOffsets
from pocketmq.client.consumer.offsets import LocalFolder, Offsets, offset_store
from pocketmq.client.consumer.process_queue import QueueObserver
from pocketmq.client.consumer.pull_loop import PullLoops, PullLoopSettings
from pocketmq.client.consumer.pulling import Pulling
from pocketmq.client.consumer.rebalance import All, ByStrategy, OnShared, Rebalance, Shares
from pocketmq.client.consumer.settings import RebalanceSettings, SubscriptionTable
from pocketmq.client.hooks import HookList
from pocketmq.errors import InvalidExpression, PocketMQError, RemoteError, ServerFailed, TopicNotFound
from pocketmq.files import Files
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import TopicName
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.net.loops import Repeating
from pocketmq.protocol.bodies.clients import ConsumerData, ConsumeType
from pocketmq.protocol.bodies.groups import CheckClientConfig
from pocketmq.protocol.bodies.offsets import ResetOffsets
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo, DirectConsumption

log = logging.getLogger("pocketmq.client")

FIRST_PERSIST_S = 10.0
FIRST_ROUND_S = 3.0
"""A start or a subscription waits so long at most for the first offsets of its queues. Brokers may be away."""


class MemberParts:
    """What a member is built on, whoever handles its messages. To be made on its loop."""

    def __init__(
        self,
        settings: RebalanceSettings,
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
    """Base of the members that push and lite pull consumers are made of. `observer` handles the messages of its queues.

    `on_shared` hears when queues were shared out anew. `notes_first`: brokers are told again and again where the group is, also while
    nothing more of a queue is done.
    """

    def __init__(
        self,
        parts: MemberParts,
        observer: QueueObserver,
        pulling: Pulling,
        pull_settings: PullLoopSettings,
        consume_type: ConsumeType,
        *,
        shares: Shares | None = None,
        locks: QueueLocks | None = None,
        on_shared: OnShared | None = None,
        notes_first: bool = True,
    ) -> None:
        settings, instance = parts.settings, parts.instance
        self._settings = settings
        self._instance = instance
        self._clock = parts.clock
        self._group = parts.group
        self._subscriptions = parts.subscriptions
        self._offsets = parts.offsets
        self._owned = parts.owned
        self._stats = parts.stats
        self._on_shared = on_shared
        self.consume_type = consume_type
        self._started_ms = 0
        self._is_running = False
        start_ms = settings.start_time_ms(self._clock.now_ms())
        self._first = FirstOffsets(instance.brokers.offsets, self._offsets, settings.from_where, start_ms)
        self._pulls = PullLoops(
            instance,
            pulling,
            self._offsets,
            self._stats,
            pull_settings,
            self._subscription_of,
            self._owned,
            PullEvents(parts.hooks, settings.group, settings.namespace),
        )
        self._assignment = Assignment(
            self._clock, self._owned, observer, self._offsets, self._first, self._pulls, locks, notes_first=notes_first
        )
        self._rebalance = Rebalance(
            instance.routes,
            self.topics,
            shares or usual_shares(parts),
            self._assignment,
            on_shared=self._shared,
            interval_s=settings.rebalance_ms / 1000,
        )
        persist_s = settings.persist_ms / 1000
        self._rounds = [
            Repeating("keeping offsets", persist_s, self._assignment.persist, log, first_s=FIRST_PERSIST_S),
            Repeating("sampling of consumption", SAMPLE_S, self._sample, log),
        ]
        if locks is not None:
            renew = partial(self._renew, locks)
            self._rounds.append(Repeating("renewing of locks", RENEW_S, renew, log, first_s=FIRST_RENEWAL_S))

    # its life

    async def start(self) -> None:
        """Join the group. InvalidExpression when a broker cannot read a filter, StoreDamaged when a broadcasting member cannot read
        how far it was; then nothing is left running.
        """
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._instance.leave)
            undo.push_async_callback(self._instance.remove_consumer, self)
            await self._offsets.require_readable()
            await self._learn_routes()
            for subscription in self._filters():
                await self._check(subscription)
            self._instance.add_consumer(self)
            await self._instance.heartbeats.say_to_all(self._instance.brokers)
            undo.pop_all()
        self._is_running = True
        self._started_ms = self._clock.now_ms()
        for each in self._rounds:
            each.start()
        self._rebalance.start()
        async with AsyncExitStack() as undo:  # when the start is given up, listeners may be at work already
            undo.push_async_callback(self.stop, self._settings.stop_timeout_ms / 1000)
            await self._first_round()
            undo.pop_all()

    async def _first_round(self) -> None:
        """Wait until the queues of new topics are begun: what is sent from now on is not older than a group that reads from the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_ROUND_S):
                await self._rebalance.done()

    async def stop(self, drain_s: float) -> None:
        """Take no more messages, wait for those in work, keep the offsets, leave: the queues move to others at once."""
        self._is_running = False
        await self._rebalance.stop()
        for each in self._rounds:
            await each.stop()
        await self._assignment.clear(drain_s)
        await self._instance.remove_consumer(self)
        await self._instance.leave()

    @property
    def client_id(self) -> str:
        return self._instance.client_id

    async def owned(self) -> list[MessageQueue]:
        """The queues that it reads now, as they are called on the wire."""
        return [owned.queue for owned in self._owned.all()]

    async def info(self, *, stacks: bool) -> ConsumerRunningInfo:
        return self.running_info(stacks=stacks)

    # subscriptions

    async def subscribe(self, topic: TopicName, expression: str | None, kind: str) -> None:
        """Subscribe while running; brokers hear of it at once. InvalidExpression: all stays as it was."""
        before = self._subscriptions.get(topic)
        subscription = self._subscriptions.subscribe(topic, expression, kind, now_ms=self._clock.now_ms())
        if subscription is before:
            return
        try:
            await self._learn_routes()
            await self._check(subscription)
        except BaseException:  # also when nobody waits for it any more
            self._subscriptions.unsubscribe(topic)
            if before is not None:
                self._subscriptions.subscribe(
                    topic, before.sub_string, before.expression_type, now_ms=self._clock.now_ms()
                )
            raise
        self._greet()
        await self._first_round()

    async def unsubscribe(self, topic: TopicName) -> None:
        """Want nothing of `topic` any more: nothing more of it is begun, and the next rebalance, which comes soon, leaves its queues."""
        if self._subscriptions.unsubscribe(topic):
            self._assignment.leave_topic(topic)
            self._stats.forget(topic)
            self._greet()
            self._rebalance.soon()

    def _filters(self) -> Iterable[Subscription]:
        """What pulls ask for, by topic."""
        return self._subscriptions

    def _subscription_of(self, queue: MessageQueue) -> Subscription | None:
        return self._subscriptions.get(queue.topic)

    async def _learn_routes(self) -> None:
        """Where the topics are, so that their brokers are greeted. One that is missing is looked for by each rebalance."""
        for topic in self.topics():
            try:
                await self._instance.routes.find(topic)
            except TopicNotFound:
                log.debug("topic %s does not exist yet", topic)
                self._first.missing(topic)
            except PocketMQError as error:
                log.warning("nobody tells where topic %s is, it is looked for again: %s", topic, error)
                return

    async def _check(self, subscription: Subscription) -> None:
        """Let a broker of the topic read the filter, unless it is by tags, which all of them can."""
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
                await self._instance.heartbeats.wait_heard(address)
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
                log.warning("broker %s could not be asked about a filter: %s", data.broker_name, error)
                continue
            return

    def _shared(self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        """Queues were shared out anew: brokers are to take this member's subscription for the latest."""
        log.info("%s: %d of %d queues are of this member: %s", topic, len(mine), len(all_queues), [*map(str, mine)])
        self._subscriptions.touch(topic, self._clock.now_ms())
        self._greet()
        if self._on_shared is not None:
            self._on_shared(topic, all_queues, mine)

    def _greet(self) -> None:
        """A heartbeat on every line, before anything else is said on it."""
        brokers = self._instance.brokers
        for address in brokers.all_addresses():
            peer = brokers.live(address)
            if peer is not None:
                self._instance.heartbeats.say(address, peer)

    async def _sample(self) -> None:
        self._stats.sample(self._clock.monotonic())

    async def _renew(self, locks: QueueLocks) -> None:
        await locks.renew(self._owned.all())

    # as a member of its client; see `members.ConsumerMember`

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

    def rebalance_soon(self) -> None:
        self._rebalance.soon()

    def route_changed(self, topic: str) -> None:
        if self._is_running:
            self._rebalance.soon()

    async def reset_offsets(self, topic: str, offsets: ResetOffsets) -> None:
        moved = [(queue, offset) for queue, offset in offsets.offset_table.items() if queue.topic == topic]
        log.info("an administrator moves the group in %s: %s", topic, {str(queue): offset for queue, offset in moved})
        await self._assignment.restart(moved)

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return self._offsets.of_topic(topic)

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> DirectConsumption:
        raise ServerFailed("this consumer has no listener: its messages are polled")

    @property
    def core_workers(self) -> int:
        """Java's core pool size; -1 where nothing is called."""
        return -1

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        return running_info(
            self._settings,
            self.core_workers,
            str(self._instance.name_servers),
            self.consume_type,
            self._subscriptions,
            self._owned.all(),
            self._offsets,
            self._stats,
            self._pulls.pauses,
            self._clock,
            started_ms=self._started_ms,
            stacks=stacks,
        )


def usual_shares(parts: MemberParts) -> Shares:
    """All queues when broadcasting, else those that the strategy gives this member."""
    return All() if parts.settings.broadcast else ByStrategy(parts.instance, parts.group, parts.settings.strategy)
