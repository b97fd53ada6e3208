"""The calls that a client makes to brokers, grouped: `brokers.offsets.largest(queue)`, `brokers.topics.create("broker-a", …)`.

    OffsetCalls   smallest, largest and committed offsets; commits and resets of group offsets
    MessageCalls  pull, query by key or log offset, send back, end a transaction, recall
    LeaseCalls    pop messages, acknowledge them, change their invisible time
    MemberCalls   connected clients, queue locks, and requests that a broker forwards to a client
    GroupCalls    settings and lag of consumer groups
    TopicCalls    create, change, list and delete topics
    StateCalls    settings and statistics of the broker, and its cleanup

Each call sends one request and decodes the response. Most are declared by request code, response body and request header; their arguments
are the target and the fields of the header. Producers send messages by another way, see `producer.outbox`.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from pocketmq.client.cluster.brokers import BrokerConnections, OnConnected, Target
from pocketmq.client.cluster.rpc import RpcClient
from pocketmq.client.received import Pulled, pulled_of
from pocketmq.codes import BoundaryType, RequestCode, ResponseCode
from pocketmq.errors import ConnectFailed, ConnectionLost, NotFound, PocketMQError, ServerFailed
from pocketmq.model import MessageQueue, StoredMessage
from pocketmq.net import Address
from pocketmq.protocol.api import administration, messages
from pocketmq.protocol.bodies import clients, topics
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.java_json import Body
from pocketmq.protocol.pop import BatchAck
from pocketmq.protocol.record import decode_records

B = TypeVar("B", bound=Body)
P = ParamSpec("P")
T = TypeVar("T")


class Calls:
    """Base class of the calls."""

    __slots__ = ("_brokers",)

    def __init__(self, brokers: BrokerConnections) -> None:
        self._brokers = brokers

    async def _ask(
        self,
        target: Target,
        code: RequestCode,
        header: Fields | None = None,
        body: bytes = b"",
        *,
        extra: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Command:
        """The response of a successful call; other response codes raise their error."""
        return await self._brokers.ask(target, self._brokers.command(code, header, body, extra), timeout_s)

    async def _send(
        self, target: Target, code: RequestCode, header: Fields | None = None, body: bytes = b"", broker_name: str = ""
    ) -> None:
        """Send a one-way request."""
        extra = named(broker_name) if broker_name else None
        await self._brokers.send_one_way(target, self._brokers.command(code, header, body, extra))


def no_fields() -> None:
    """The header of a request without fields."""


def query(
    code: RequestCode, kind: type[B], header: Callable[P, Fields | None]
) -> Callable[Concatenate[Calls, Target, P], Coroutine[Any, Any, B]]:
    """A call that returns the body of the response."""

    async def call(self: Calls, target: Target, /, *args: P.args, **kwargs: P.kwargs) -> B:
        return kind.decode((await self._ask(target, code, header(*args, **kwargs))).body)

    return call


def request(
    code: RequestCode, header: Callable[P, Fields | None]
) -> Callable[Concatenate[Calls, Target, P], Coroutine[Any, Any, None]]:
    """A call whose response has no content."""

    async def call(self: Calls, target: Target, /, *args: P.args, **kwargs: P.kwargs) -> None:
        await self._ask(target, code, header(*args, **kwargs))

    return call


def post(code: RequestCode, kind: type[B]) -> Callable[[Calls, Target, B], Coroutine[Any, Any, None]]:
    """A call with a body of this kind, whose response has no content."""

    async def call(self: Calls, target: Target, body: B, /) -> None:
        await self._ask(target, code, body=body.encode())

    return call


def named(broker_name: str) -> dict[str, str]:
    """The ext field with the broker name, which Java sends with requests about a queue."""
    return {"bname": broker_name}


def first_of_topics(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """One queue of each topic on each broker. Commit its offset before the others if the group may be new to the topic: when two first
    offsets arrive at once, Apache's brokers lose one.
    """
    return list({(queue.broker_name, queue.topic): queue for queue in queues}.values())


class OffsetCalls(Calls):
    """Calls about one queue go to the master of its broker.

    Slaves also know group offsets and the smallest offset of a queue. While the master cannot be connected, these calls use a slave, so that
    a consumer that reads from a slave continues and keeps its offsets. Only the master knows the largest offset.
    """

    __slots__ = ()

    of_members = query(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topics.ConsumerStatus, messages.GetConsumerStatus
    )
    """The consume offsets that the members of a group report."""

    async def largest(self, queue: MessageQueue, *, committed: bool = True) -> int:
        """The offset that the next message of `queue` will get."""
        return await self._offset(
            queue, RequestCode.GET_MAX_OFFSET, messages.GetMaxOffset(queue.topic, queue.queue_id, committed)
        )

    async def smallest(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that `queue` still has."""
        header = messages.ForQueue(queue.topic, queue.queue_id)
        return _offset_in(await self._ask_any(queue, RequestCode.GET_MIN_OFFSET, header))

    async def at_time(self, queue: MessageQueue, timestamp_ms: int, boundary: BoundaryType = BoundaryType.LOWER) -> int:
        """The offset of the first message stored at that time or later; the largest offset when there is none."""
        header = messages.SearchOffset(queue.topic, queue.queue_id, timestamp_ms, boundary)
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def earliest_store_ms(self, queue: MessageQueue) -> int:
        """When the oldest message of `queue` was stored; -1 when it is empty."""
        header = messages.ForQueue(queue.topic, queue.queue_id)
        answer = await self._ask_master(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return messages.StoreTimeReply.decode(answer.ext).timestamp

    async def of_group(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that `group` has committed in `queue`; None when it has committed none.

        By default, brokers answer 0 for a group that is new to a queue whose first message is in memory, and the group would read all
        messages. `set_zero_if_not_found` prevents that. RocketMQ 4.9 ignores it: there, 0 may also mean that no offset is committed.
        """
        header = messages.QueryConsumerOffset(group, queue.topic, queue.queue_id, set_zero_if_not_found=False)
        try:
            return _offset_in(await self._ask_any(queue, RequestCode.QUERY_CONSUMER_OFFSET, header))
        except NotFound:
            return None

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset of `group`, and wait for the response."""
        await self._ask_any(queue, RequestCode.UPDATE_CONSUMER_OFFSET, _update(group, queue, offset))

    async def commit_one_way(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset of `group` one-way, for periodic commits."""
        code, header = RequestCode.UPDATE_CONSUMER_OFFSET, _update(group, queue, offset)
        await self._first_connected(
            queue, lambda address: self._send(address, code, header, broker_name=queue.broker_name)
        )

    async def reset(self, target: Target, header: messages.ResetOffset) -> topics.ResetOffsets:
        """Reset the offsets of a group; returns the new offset of each queue."""
        answer = await self._ask(target, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return topics.ResetOffsets.decode(answer.body) if answer.body else topics.ResetOffsets()

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: Fields) -> int:
        return _offset_in(await self._ask_master(queue, code, header))

    async def _ask_master(self, queue: MessageQueue, code: RequestCode, header: Fields) -> Command:
        return await self._ask(queue.broker_name, code, header, extra=named(queue.broker_name))

    async def _ask_any(self, queue: MessageQueue, code: RequestCode, header: Fields) -> Command:
        extra = named(queue.broker_name)
        return await self._first_connected(queue, lambda address: self._ask(address, code, header, extra=extra))

    async def _first_connected(self, queue: MessageQueue, ask: Callable[[Address], Awaitable[T]]) -> T:
        """The result of `ask` with the master, or else with the first slave that can be connected."""
        failure: PocketMQError | None = None
        for address in self._brokers.addresses_of(queue.broker_name):
            try:
                return await ask(address)
            except (ConnectFailed, ConnectionLost) as error:
                failure = failure or error
        assert failure is not None  # `addresses_of` returns at least one address
        raise failure


def _offset_in(answer: Command) -> int:
    return messages.OffsetReply.decode(answer.ext).offset


def _update(group: str, queue: MessageQueue, offset: int) -> messages.UpdateConsumerOffset:
    return messages.UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset)


class MessageCalls(Calls):
    __slots__ = ()

    async def pull(
        self,
        address: Address,
        broker_name: str,
        header: messages.PullMessage,
        *,
        timeout_s: float,
        code: RequestCode = RequestCode.PULL_MESSAGE,
    ) -> Pulled:
        """Pull from `address`, a master or slave of `broker_name`. `code` may be LITE_PULL_MESSAGE."""
        command = self._brokers.command(code, header, extra=named(broker_name))
        return pulled_of(await self._brokers.call(address, command, timeout_s))

    async def by_key(
        self, target: Target, header: messages.QueryMessage
    ) -> tuple[list[StoredMessage], messages.QueryMessageReply]:
        """Messages with a key, and the last position of the index; NotFound when there are none."""
        answer = await self._ask(target, RequestCode.QUERY_MESSAGE, header)
        return decode_records(answer.body), messages.QueryMessageReply.decode(answer.ext)

    async def at_log_offset(self, target: Target, log_offset: int, topic: str | None = None) -> StoredMessage:
        """The message at this offset of the commit log, which is part of an offset id."""
        answer = await self._ask(target, RequestCode.VIEW_MESSAGE_BY_ID, messages.ViewMessage(log_offset, topic))
        return decode_records(answer.body)[0]

    async def send_back(
        self, broker_name: str, header: messages.SendMessageBack, *, timeout_s: float | None = None
    ) -> None:
        """Send a failed message back to the broker, for a retry or as a dead letter."""
        await self._ask(
            broker_name, RequestCode.CONSUMER_SEND_MSG_BACK, header, extra=named(broker_name), timeout_s=timeout_s
        )

    async def recall(self, broker_name: str, header: messages.RecallMessage, *, timeout_s: float | None = None) -> str:
        """Recall a timed message before it is delivered; returns its message id."""
        answer = await self._ask(
            broker_name, RequestCode.RECALL_MESSAGE, header, extra=named(broker_name), timeout_s=timeout_s
        )
        return messages.RecallReply.decode(answer.ext).msg_id

    async def end_transaction(self, target: Target, broker_name: str, header: messages.EndTransaction) -> None:
        """Commit or roll back a transaction, one-way as in RocketMQ. The broker checks a transaction whose decision was lost."""
        await self._send(target, RequestCode.END_TRANSACTION, header, broker_name=broker_name)

    async def decide(self, target: Target, broker_name: str, header: messages.EndTransaction) -> None:
        """Commit or roll back a transaction, and wait for the response."""
        await self._ask(target, RequestCode.END_TRANSACTION, header, extra=named(broker_name))

    async def check_again(self, target: Target, header: messages.ResumeCheckHalfMessage) -> None:
        """Resume the checks of a half message that reached the maximum number of checks."""
        await self._ask(target, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)


_NOTHING_POPPED: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT})


class LeaseCalls(Calls):
    """Leases of messages (POP). Only masters serve them."""

    __slots__ = ()

    batch_ack = post(RequestCode.BATCH_ACK_MESSAGE, BatchAck)
    """Acknowledge messages of several leases. The response does not say which leases were over."""

    async def pop(
        self, broker_name: str, header: messages.PopMessage, *, timeout_s: float
    ) -> tuple[messages.PopReply, bytes] | None:
        """The leases of the response and its records; None without messages. An error if too many pops wait at the broker."""
        command = self._brokers.command(RequestCode.POP_MESSAGE, header, extra=named(broker_name))
        answer = await self._brokers.call(broker_name, command, timeout_s)
        if answer.code in _NOTHING_POPPED:
            return None
        if (error := answer.error()) is not None:
            raise error
        return messages.PopReply.decode(answer.ext), answer.body

    async def wait(
        self, broker_name: str, header: messages.Notification, *, timeout_s: float
    ) -> messages.NotificationReply:
        """Wait for messages without a lease."""
        extra = named(broker_name)
        answer = await self._ask(broker_name, RequestCode.NOTIFICATION, header, extra=extra, timeout_s=timeout_s)
        return messages.NotificationReply.decode(answer.ext)

    async def ack(self, broker_name: str, header: messages.AckMessage) -> None:
        await self._ask(broker_name, RequestCode.ACK_MESSAGE, header, extra=named(broker_name))

    async def change(self, broker_name: str, header: messages.ChangeInvisibleTime) -> messages.ChangeInvisibleTimeReply:
        extra = named(broker_name)
        answer = await self._ask(broker_name, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header, extra=extra)
        return messages.ChangeInvisibleTimeReply.decode(answer.ext)


class MemberCalls(Calls):
    __slots__ = ()

    check_config = post(RequestCode.CHECK_CLIENT_CONFIG, clients.CheckClientConfig)
    """Check a subscription; SubscriptionUnparsable when the broker cannot parse its expression."""
    consumers = query(RequestCode.GET_CONSUMER_CONNECTION_LIST, clients.ConsumerConnection, messages.ForConsumerGroup)
    """The connected members of a consumer group; ConsumerNotOnline when it has none."""
    producers = query(
        RequestCode.GET_PRODUCER_CONNECTION_LIST, clients.ProducerConnection, administration.ForProducerGroup
    )
    all_producers = query(RequestCode.GET_ALL_PRODUCER_INFO, clients.ProducerTable, no_fields)

    async def assignment(self, target: Target, body: clients.QueryAssignment) -> clients.QueueAssignments:
        """Which queues of a topic a member consumes, and whether it pulls or pops them."""
        return clients.QueueAssignments.decode(
            (await self._ask(target, RequestCode.QUERY_ASSIGNMENT, body=body.encode())).body
        )

    async def leave(
        self,
        target: Target,
        client_id: str,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Unregister this client from the groups."""
        header = messages.UnregisterClient(client_id, producer_group, consumer_group)
        await self._ask(target, RequestCode.UNREGISTER_CLIENT, header, timeout_s=timeout_s)

    async def of_group(self, target: Target, group: str) -> list[str]:
        """The client ids of all members; empty when the broker knows none."""
        try:
            answer = await self._ask(target, RequestCode.GET_CONSUMER_LIST_BY_GROUP, messages.ForConsumerGroup(group))
        except ServerFailed as error:
            if error.response_code != ResponseCode.SYSTEM_ERROR:
                raise
            return []  # RocketMQ answers SYSTEM_ERROR for a group without members
        return list(clients.ConsumerIdList.decode(answer.body).consumer_id_list)

    async def lock(
        self, target: Target, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> frozenset[MessageQueue]:
        """Lock queues for this client; returns those that are locked."""
        body = clients.QueueLocks(group, client_id, tuple(queues)).encode()
        answer = await self._ask(target, RequestCode.LOCK_BATCH_MQ, body=body)
        return frozenset(clients.LockedQueues.decode(answer.body).locked)

    async def unlock(
        self, target: Target, group: str, client_id: str, queues: Iterable[MessageQueue], *, wait: bool
    ) -> None:
        """Unlock queues; `wait` waits for the response."""
        body = clients.QueueLocks(group, client_id, tuple(queues)).encode()
        if wait:
            await self._ask(target, RequestCode.UNLOCK_BATCH_MQ, body=body)
        else:
            await self._send(target, RequestCode.UNLOCK_BATCH_MQ, body=body)

    async def running_info(
        self, target: Target, group: str, client_id: str, *, stacks: bool = False, timeout_s: float | None = None
    ) -> clients.ConsumerRunningInfo:
        """The running info of a member. The broker forwards the request and waits 10 s."""
        header, code = messages.GetConsumerRunningInfo(group, client_id, stacks), RequestCode.GET_CONSUMER_RUNNING_INFO
        return clients.ConsumerRunningInfo.decode((await self._ask(target, code, header, timeout_s=timeout_s)).body)

    async def consume_directly(
        self, target: Target, header: messages.ConsumeMessageDirectly, *, timeout_s: float | None = None
    ) -> clients.DirectConsumption:
        """Let a member consume one message now. The broker forwards the request and waits 10 s."""
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        return clients.DirectConsumption.decode((await self._ask(target, code, header, timeout_s=timeout_s)).body)


class GroupCalls(Calls):
    __slots__ = ()

    create = post(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, clients.SubscriptionGroupConfig)
    """Create or change a group."""
    create_all = post(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, clients.GroupConfigList)
    all_configs = query(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, clients.GroupTable, no_fields)
    progress = query(RequestCode.GET_CONSUME_STATS, topics.ConsumeStats, administration.GetConsumeStats)
    """The committed offset of the group and the end of the queue, for each queue."""
    set_mode = post(RequestCode.SET_MESSAGE_REQUEST_MODE, clients.RequestMode)
    modes = query(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, clients.RequestModes, no_fields)
    reading = query(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, clients.GroupList, administration.ForTopic)
    """The groups that read a topic."""

    async def delete(self, target: Target, group: str, *, with_offsets: bool) -> None:
        header = administration.DeleteGroup(group, with_offsets, with_offsets)
        await self._ask(target, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)


class TopicCalls(Calls):
    __slots__ = ()

    create = request(RequestCode.UPDATE_AND_CREATE_TOPIC, administration.CreateTopic)
    """Create or change a topic."""
    create_all = post(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topics.TopicConfigList)
    delete = request(RequestCode.DELETE_TOPIC_IN_BROKER, administration.ForTopic)
    """Delete a topic with its messages and offsets."""
    config = query(RequestCode.GET_TOPIC_CONFIG, topics.MappedTopicConfig, administration.ForTopic)
    all_configs = query(RequestCode.GET_ALL_TOPIC_CONFIG, topics.MappedTopicTable, no_fields)
    stats = query(RequestCode.GET_TOPIC_STATS_INFO, topics.TopicStatsTable, administration.ForTopic)
    """The smallest and largest offset of each queue of the topic."""
    clean_unused = request(RequestCode.CLEAN_UNUSED_TOPIC, no_fields)
    """Delete the consume queues of deleted topics."""


class StateCalls(Calls):
    __slots__ = ()

    stats = query(RequestCode.VIEW_BROKER_STATS_DATA, topics.BrokerStatsData, administration.ViewBrokerStats)
    """One statistic, such as TOPIC_PUT_NUMS of a topic, over a minute, an hour and a day."""
    consume_stats = query(
        RequestCode.GET_BROKER_CONSUME_STATS, topics.ConsumeStatsList, administration.GetBrokerConsumeStats
    )
    """The lag of all groups."""
    consumer_offsets = query(RequestCode.GET_ALL_CONSUMER_OFFSET, topics.ConsumerOffsets, no_fields)
    delay_offsets = query(RequestCode.GET_ALL_DELAY_OFFSET, topics.DelayOffsets, no_fields)
    clean_queues = request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, no_fields)
    """Delete consume queue files whose messages are deleted."""
    export_leases = request(RequestCode.POP_ROLLBACK, no_fields)
    """Move leases that are kept outside of the log into the log."""
    delete_expired_log = request(RequestCode.DELETE_EXPIRED_COMMITLOG, no_fields)
    """Delete expired commit log files now."""

    async def runtime_info(self, target: Target) -> Mapping[str, str]:
        """The values that `mqadmin brokerStatus` shows."""
        return topics.KVTable.decode((await self._ask(target, RequestCode.GET_BROKER_RUNTIME_INFO)).body).table

    async def settings(self, target: Target) -> dict[str, str]:
        return read_properties((await self._ask(target, RequestCode.GET_BROKER_CONFIG)).body)

    async def change_settings(self, target: Target, changes: Mapping[str, str]) -> None:
        await self._ask(target, RequestCode.UPDATE_BROKER_CONFIG, body=write_properties(changes))


class Brokers(BrokerConnections):
    """All brokers in known routes, with the calls to them."""

    def __init__(self, rpc: RpcClient, on_connected: OnConnected) -> None:
        super().__init__(rpc, on_connected)
        self.offsets = OffsetCalls(self)
        self.messages = MessageCalls(self)
        self.leases = LeaseCalls(self)
        self.members = MemberCalls(self)
        self.topics = TopicCalls(self)
        self.groups = GroupCalls(self)
        self.state = StateCalls(self)
