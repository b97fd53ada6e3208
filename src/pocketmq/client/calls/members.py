"""Members: saying who is here and who leaves, who else is in a group, locks on queues, and asking clients through a broker."""

from collections.abc import Iterable

from pocketmq.client.calls.asking import Calls, Target
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import ServerFailed
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.api.clients import (
    ConsumeMessageDirectly,
    GetConsumerConnections,
    GetConsumerList,
    GetConsumerRunningInfo,
    GetProducerConnections,
    UnregisterClient,
)
from pocketmq.protocol.bodies.connections import ConsumerConnection, ProducerConnection, ProducerTable
from pocketmq.protocol.bodies.groups import CheckClientConfig, ConsumerIdList
from pocketmq.protocol.bodies.locks import LockedQueues, QueueLocks
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo, DirectConsumption
from pocketmq.protocol.java_json import read_body, write_body


class MemberCalls(Calls):
    __slots__ = ()

    async def leave(
        self,
        target: Target,
        client_id: str,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """This client does not speak for the group any more."""
        header = UnregisterClient(client_id, producer_group, consumer_group)
        await self._brokers.ask(target, RequestCode.UNREGISTER_CLIENT, header, timeout_s=timeout_s)

    async def of_group(self, target: Target, group: str) -> list[str]:
        """The client ids of all members; none when the broker knows of none."""
        try:
            found = await self._read(
                target, RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerIdList, GetConsumerList(group)
            )
        except ServerFailed as error:
            if error.response_code != ResponseCode.SYSTEM_ERROR:
                raise
            return []  # RocketMQ has no other word for an empty list
        return list(found.consumer_id_list)

    async def lock(
        self, target: Target, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> frozenset[MessageQueue]:
        """Those of `queues` that this client holds now."""
        body = write_body(QueueLocks(group, client_id, tuple(queues)))
        answer = await self._brokers.ask(target, RequestCode.LOCK_BATCH_MQ, body=body)
        return frozenset(read_body(LockedQueues, answer.body).locked)

    async def unlock(
        self, target: Target, group: str, client_id: str, queues: Iterable[MessageQueue], *, wait: bool
    ) -> None:
        """Let go of queues; with `wait`, hear that it happened."""
        body = write_body(QueueLocks(group, client_id, tuple(queues)))
        if wait:
            await self._brokers.ask(target, RequestCode.UNLOCK_BATCH_MQ, body=body)
        else:
            await self._brokers.tell(target, RequestCode.UNLOCK_BATCH_MQ, body=body)

    async def check_config(self, target: Target, config: CheckClientConfig) -> None:
        """Whether the broker can serve this subscription; SubscriptionUnparsable when it cannot read its expression."""
        await self._brokers.ask(target, RequestCode.CHECK_CLIENT_CONFIG, body=write_body(config))

    async def consumers(self, target: Target, group: str) -> ConsumerConnection:
        """Who is connected for a consumer group; ConsumerNotOnline when nobody is."""
        header = GetConsumerConnections(group)
        return await self._read(target, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection, header)

    async def producers(self, target: Target, group: str) -> ProducerConnection:
        header = GetProducerConnections(group)
        return await self._read(target, RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerConnection, header)

    async def all_producers(self, target: Target) -> ProducerTable:
        return await self._read(target, RequestCode.GET_ALL_PRODUCER_INFO, ProducerTable)

    async def running_info(
        self, target: Target, group: str, client_id: str, *, stacks: bool = False, timeout_s: float | None = None
    ) -> ConsumerRunningInfo:
        """What a member tells about itself; the broker asks it, and gives it 10 s."""
        header, code = GetConsumerRunningInfo(group, client_id, stacks), RequestCode.GET_CONSUMER_RUNNING_INFO
        return read_body(ConsumerRunningInfo, (await self._brokers.ask(target, code, header, timeout_s=timeout_s)).body)

    async def consume_directly(
        self, target: Target, header: ConsumeMessageDirectly, *, timeout_s: float | None = None
    ) -> DirectConsumption:
        """Let a member consume one message now; the broker asks it, and gives it 10 s."""
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        return read_body(DirectConsumption, (await self._brokers.ask(target, code, header, timeout_s=timeout_s)).body)
