"""A member of a group that pulls what its user asks for, and nothing by itself: what pull consumers are made of.

It owns no queues. Who wants to know which ones would be its share registers for a topic, and is told with every change.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from pocketmq.client.allocation import AVERAGE
from pocketmq.client.consume_result import Verdict
from pocketmq.client.consumer_settings import PullSettings
from pocketmq.client.hooks import HookList, Hooks
from pocketmq.client.instance import Instance, Surroundings
from pocketmq.client.listener import as_seen
from pocketmq.client.offsets import LocalFolder, Offsets, offset_store
from pocketmq.client.pull_events import PullEvents
from pocketmq.client.pulling import Pulling, PullResult
from pocketmq.client.rebalance import OnShared, Rebalance
from pocketmq.client.sending_back import SendBacks
from pocketmq.client.shares import All, ByStrategy
from pocketmq.client.subscriptions import SubscriptionTable
from pocketmq.errors import PocketMQError, ServerFailed, UsageError
from pocketmq.model.delay import delay_level_fault
from pocketmq.model.flags import PullFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import wrap
from pocketmq.model.queue import MessageQueue
from pocketmq.model.reconsume import DEAD_LETTER_LEVEL
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.heartbeat import ConsumerData, ConsumeType
from pocketmq.protocol.bodies.offsets import ResetOffsets
from pocketmq.protocol.bodies.running_info import (
    CONSUME_TYPE,
    CONSUMER_START_TIMESTAMP,
    NAMESERVER_ADDR,
    ConsumerRunningInfo,
    DirectConsumption,
)

REBALANCE_S = 20.0


class PullMember:
    """`namespace` is known here, but topics and queues have the names of the wire; messages have those of users."""

    def __init__(self, settings: PullSettings, hooks: Iterable[Hooks], around: Surroundings) -> None:
        self._settings = settings
        self._events = PullEvents(HookList(hooks), settings.group, settings.namespace)
        self._around = around
        self._group = settings.wire_group
        self._topics = SubscriptionTable(self._group, 0, with_retries=False)
        self._watched = _Watched()
        self._listeners: dict[str, OnShared] = {}
        self._started_ms = 0
        self._instance: Instance
        self._offsets: Offsets
        self._pulls: Pulling
        self._holds: Pulling
        self._send_backs: SendBacks
        self._rebalance: Rebalance

    # its life

    async def start(self) -> None:
        self._instance = instance = Instance.join(self._settings, self._around, stream=True)
        try:
            self._make_parts(instance)
            instance.add_consumer(self)
        except BaseException:
            await instance.leave()
            raise
        self._rebalance.start()

    def _make_parts(self, instance: Instance) -> None:
        settings = self._settings
        self._started_ms = instance.clock.now_ms()
        folder = LocalFolder(self._around.files, settings.local_offsets, instance.client_id)
        local = folder if settings.broadcast else None
        store = offset_store(instance.brokers.offsets, self._group, local, settings.own_offsets)
        self._offsets = Offsets(store)
        self._pulls = self._pulling(PullFlag.SUBSCRIPTION)
        self._holds = self._pulling(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)
        self._send_backs = SendBacks(instance, settings, self._group, settings.max_reconsume_times, is_orderly=False)
        self._rebalance = Rebalance(
            instance.routes,
            self.topics,
            All() if settings.broadcast else ByStrategy(instance, self._group, AVERAGE),
            self._watched,
            on_shared=self._shared,
            interval_s=REBALANCE_S,
        )

    async def stop(self, drain_s: float) -> None:
        await self._rebalance.stop()
        await self._instance.remove_consumer(self)
        await self._instance.leave()

    def _pulling(self, flags: int) -> Pulling:
        return Pulling(self._instance, self._group, flags=flags, wait_ms=self._settings.pull_wait_ms)

    # messages

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        limit: int,
        filtered: tuple[str | None, str],
        *,
        may_wait: bool,
        timeout_s: float | None,
    ) -> PullResult:
        """One pull; with `may_wait`, the broker holds it while there is nothing. Failures are PocketMQErrors."""
        if offset < 0 or limit < 1:
            raise UsageError(
                f"{limit} messages from offset {offset} cannot be pulled: neither may be negative, nor 0 messages"
            )
        expression, kind = filtered
        subscription = Subscription.parse(queue.topic, expression, kind, sub_version=self._around.clock.now_ms())
        await self._instance.routes.find(queue.topic)
        settings = self._settings
        if timeout_s is None:
            timeout_s = (settings.block_timeout_ms if may_wait else settings.pull_timeout_ms) / 1000
        pulling = self._holds if may_wait else self._pulls
        result = await pulling.pull(queue, offset, subscription, limit, timeout_s=timeout_s)
        return self._seen(self._events.filtered(queue, result), queue)

    def _seen(self, result: PullResult, queue: MessageQueue) -> PullResult:
        """What was pulled as the user sees it, up to the first message whose body cannot be read; the next pull begins there.

        UnreadableMessage when that is the first one.
        """
        seen: list[StoredMessage] = []
        for message in result.messages:
            try:
                seen.append(as_seen(message, self._settings.namespace))
            except PocketMQError as error:
                if seen:
                    return replace(result, messages=seen, next_offset=message.queue_offset)
                error.add_note(
                    f"this is offset {message.queue_offset} of {queue}; pull from {message.queue_offset + 1} to go on without it"
                )
                raise
        return replace(result, messages=seen)

    async def send_back(self, message: StoredMessage, broker_name: str, delay_level: int) -> None:
        """ServerFailed when neither the message's broker nor the retry topic takes it."""
        if fault := delay_level_fault(delay_level, least=DEAD_LETTER_LEVEL):
            raise UsageError(f"{fault}; 0 lets the broker choose, -1 makes it a dead letter")
        message = replace(message, topic=wrap(self._settings.namespace, message.topic))
        if not await self._send_backs.send(message, broker_name, Verdict(False, delay_level)):
            raise ServerFailed(f"message {message.message_id} could not be sent back to {broker_name}")

    # queues and offsets

    async def readable(self, topic: str) -> list[MessageQueue]:
        return list((await self._instance.routes.find(topic)).readable)

    async def smallest(self, queue: MessageQueue) -> int:
        await self._instance.routes.find(queue.topic)
        return await self._instance.brokers.offsets.smallest(queue)

    async def largest(self, queue: MessageQueue) -> int:
        await self._instance.routes.find(queue.topic)
        return await self._instance.brokers.offsets.largest(queue)

    async def at_time(self, queue: MessageQueue, time_ms: int) -> int:
        await self._instance.routes.find(queue.topic)
        return await self._instance.brokers.offsets.at_time(queue, time_ms)

    async def earliest_ms(self, queue: MessageQueue) -> int:
        await self._instance.routes.find(queue.topic)
        return await self._instance.brokers.offsets.earliest_store_ms(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        await self._instance.routes.find(queue.topic)
        return await self._offsets.load(queue)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue in offsets:
            await self._instance.routes.find(queue.topic)
        await self._offsets.keep(offsets)

    async def watch(self, topic: str, listener: OnShared) -> None:
        """Be told of this member's share of `topic`, now and with every change."""
        self._topics.subscribe(topic, now_ms=self._around.clock.now_ms())
        self._listeners[topic] = listener
        await self._watched.drop_topic(topic)  # who comes later is told, too
        self._instance.heartbeat_soon()
        self._rebalance.soon()

    def _shared(self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        self._listeners[topic](topic, all_queues, mine)

    # as a member of its client; see `members.ConsumerMember`

    @property
    def client_id(self) -> str:
        return self._instance.client_id

    @property
    def wire_group(self) -> str:
        return self._group

    def topics(self) -> Iterable[str]:
        return [subscription.topic for subscription in self._topics]

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            self._group,
            ConsumeType.CONSUME_ACTIVELY,
            self._settings.model,
            subscription_data_set=tuple(self._topics),
            unit_mode=self._settings.unit_mode,
        )

    def rebalance_soon(self) -> None:
        self._rebalance.soon()

    def route_changed(self, topic: str) -> None:
        self._rebalance.soon()

    async def reset_offsets(self, topic: str, offsets: ResetOffsets) -> None:
        """Nothing is under way here that could be moved; whoever pulls asks where to begin."""

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return self._offsets.of_topic(topic)

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties={
                NAMESERVER_ADDR: f"{self._instance.name_servers};",
                CONSUME_TYPE: ConsumeType.CONSUME_ACTIVELY.value,
                CONSUMER_START_TIMESTAMP: str(self._started_ms),
            },
            subscription_set=tuple(self._topics),
        )

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> DirectConsumption:
        raise ServerFailed("this consumer has no listener: its messages are pulled")


class _Watched:
    """Shares that somebody only wants to know of; a `rebalance.Sharing`."""

    def __init__(self) -> None:
        self._mine: dict[str, Sequence[MessageQueue]] = {}

    def topics(self) -> set[str]:
        return set(self._mine)

    async def apply(
        self, topic: str, all_queues: Sequence[MessageQueue], wanted: Sequence[MessageQueue], *, is_shared: bool
    ) -> tuple[bool, bool]:
        changed = self._mine.get(topic) != wanted
        self._mine[topic] = wanted
        return changed, True

    async def drop_topic(self, topic: str) -> None:
        self._mine.pop(topic, None)
