"""A broker's own affairs: its settings, its numbers, cleaning up."""

from collections.abc import Mapping

from pocketmq.client.calls.asking import Calls, Target
from pocketmq.codes import RequestCode
from pocketmq.protocol.api.brokers import GetBrokerConsumeStats, ViewBrokerStats
from pocketmq.protocol.bodies.key_values import KVTable
from pocketmq.protocol.bodies.offsets import ConsumerOffsets, DelayOffsets
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.bodies.replication import ReplicationStatus
from pocketmq.protocol.bodies.stats import BrokerStatsData, ConsumeStatsList


class StateCalls(Calls):
    __slots__ = ()

    async def runtime_info(self, target: Target) -> Mapping[str, str]:
        """The numbers that `mqadmin brokerStatus` shows."""
        return (await self._read(target, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table

    async def settings(self, target: Target) -> dict[str, str]:
        return read_properties((await self._brokers.ask(target, RequestCode.GET_BROKER_CONFIG)).body)

    async def change_settings(self, target: Target, changes: Mapping[str, str]) -> None:
        await self._brokers.ask(target, RequestCode.UPDATE_BROKER_CONFIG, body=write_properties(changes))

    async def stats(self, target: Target, name: str, key: str) -> BrokerStatsData:
        """One statistic, such as TOPIC_PUT_NUMS of a topic, over a minute, an hour and a day."""
        code = RequestCode.VIEW_BROKER_STATS_DATA
        return await self._read(target, code, BrokerStatsData, ViewBrokerStats(name, key))

    async def consume_stats(self, target: Target, *, orderly: bool = False) -> ConsumeStatsList:
        """How far behind all groups are."""
        code = RequestCode.GET_BROKER_CONSUME_STATS
        return await self._read(target, code, ConsumeStatsList, GetBrokerConsumeStats(orderly))

    async def consumer_offsets(self, target: Target) -> ConsumerOffsets:
        return await self._read(target, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets)

    async def delay_offsets(self, target: Target) -> DelayOffsets:
        return await self._read(target, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsets)

    async def replication(self, target: Target) -> ReplicationStatus:
        return await self._read(target, RequestCode.GET_BROKER_HA_STATUS, ReplicationStatus)

    async def clean_queues(self, target: Target) -> None:
        """Drop queue files whose messages are gone."""
        await self._brokers.ask(target, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def delete_expired_log(self, target: Target) -> None:
        """Drop log files that may go, now."""
        await self._brokers.ask(target, RequestCode.DELETE_EXPIRED_COMMITLOG)
