"""The brokers and name servers of a cluster: their state, statistics and settings.

Name servers do not replicate. A change goes to each of them; a query goes to one, because all of them should have the same data.
"""

from collections.abc import Mapping

import msgspec

from pocketmq.client.admin.targets import BrokerAddress, Operations
from pocketmq.client.admin.topics import ORDER_NAMESPACE
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import NotFound, ServerFailed, UsageError
from pocketmq.protocol.api.administration import (
    AddWritePermReply,
    ForBrokerName,
    KvKey,
    PutKvConfig,
    WipeWritePermReply,
)
from pocketmq.protocol.bodies.clients import ClientConnection, ProducerInfo
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.bodies.topics import BrokerStatsData

GOT_TPS_OF_4_9 = "getTransferedTps"
"""The name of `getTransferredTps` before RocketMQ 5.0."""
COUNTED = ("member", "topic", "group")


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """A broker and its runtime information. Unreported values have the value None; `problem` says why all are missing."""

    broker: BrokerAddress
    problem: str = ""
    version: str | None = None
    put_per_s: float | None = None
    """Messages stored per second, over the last 10 seconds; `got_per_s`: messages delivered."""
    got_per_s: float | None = None
    put_today: int | None = None
    got_today: int | None = None
    disk_used: float | None = None
    """The used part of the disk of the commit log, from 0 to 1."""
    earliest_store_ms: int | None = None
    booted_ms: int | None = None
    not_dispatched_bytes: int | None = None
    """Bytes of the commit log that are not in the consume queues yet."""
    changes: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How often group members, topics and groups changed, by the names of `COUNTED`. With the same count and `booted_ms`,
    earlier answers are still valid. Brokers of Apache RocketMQ do not report it."""
    runtime: Mapping[str, str] = msgspec.field(default_factory=dict)
    """All values by RocketMQ's names."""


class ClusterAdmin(Operations):
    """Brokers of a cluster. The argument `broker` is a broker name, and stands for its master."""

    async def brokers(self, cluster: str | None = None) -> list[BrokerAddress]:
        """All registered brokers, including slaves."""
        return await self._targets.all_brokers(cluster)

    async def clusters(self) -> dict[str, list[str]]:
        """Broker names by cluster."""
        info = await self._targets.cluster_info()
        return {cluster: sorted(names) for cluster, names in sorted(info.cluster_addr_table.items())}

    async def describe(self, cluster: str | None = None) -> list[BrokerState]:
        """The state of every broker. An unreachable one has a `problem`."""
        brokers = await self._targets.all_brokers(cluster)
        found, failed = await self._targets.gather_with_errors(brokers, self._runtime_info)
        return [
            read_state(broker, found[broker])
            if broker in found
            else BrokerState(broker=broker, problem=f"{type(failed[broker]).__name__}: {failed[broker]}")
            for broker in brokers
        ]

    async def runtime_info(self, broker: str) -> Mapping[str, str]:
        """The numbers that `mqadmin brokerStatus` shows."""
        return await self._runtime_info(await self._targets.master(broker))

    async def settings(self, broker: str) -> dict[str, str]:
        """The current settings by RocketMQ's names."""
        return await self._targets.brokers.state.settings((await self._targets.master(broker)).address)

    async def change_settings(self, broker: str, changes: Mapping[str, str | int | bool]) -> None:
        """Change settings at run time. The broker refuses those that it reads only at its start."""
        texts = {name: _text(value) for name, value in changes.items()}
        await self._targets.brokers.state.change_settings((await self._targets.master(broker)).address, texts)

    async def statistic(self, broker: str, name: str, key: str) -> BrokerStatsData | None:
        """One statistic, such as TOPIC_PUT_NUMS of a topic; None if the broker has no such statistic yet."""
        try:
            return await self._targets.brokers.state.stats((await self._targets.master(broker)).address, name, key)
        except ServerFailed as error:
            if error.response_code == ResponseCode.SYSTEM_ERROR and "not exist" in (error.remark or ""):
                return None
            raise

    async def producers(self, group: str) -> list[ClientConnection]:
        """The producers of a group that are connected to a broker."""
        name = self._targets.group(group)

        async def ask(broker: BrokerAddress) -> tuple[ClientConnection, ...]:
            try:
                return (await self._targets.brokers.members.producers(broker.address, name)).connection_set
            except ServerFailed as error:
                if error.response_code != ResponseCode.SYSTEM_ERROR:
                    raise
                return ()  # RocketMQ reports a group without producers as a system error

        answers = await self._targets.gather(await self._targets.masters(), ask)
        return list({client.client_id: client for clients in answers for client in clients}.values())

    async def all_producers(self) -> dict[str, list[ProducerInfo]]:
        """All connected producers by group. Raises RequestNotSupported for RocketMQ 4.9."""
        tables = await self._targets.ask_masters(self._targets.brokers.members.all_producers)
        found: dict[str, dict[str, ProducerInfo]] = {}
        for table in tables.values():
            for group, clients in table.data.items():
                found.setdefault(self._targets.shown(group), {}).update({one.client_id: one for one in clients})
        return {group: list(clients.values()) for group, clients in sorted(found.items())}

    async def stop_writes(self, broker: str) -> int:
        """Remove the write permission of a broker from all routes, before you stop it. Returns the number of topics.

        The name servers restore it when the broker registers its topics again, or by `allow_writes`.
        """
        answers = await self._targets.ask_name_servers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, ForBrokerName(broker))
        return max(WipeWritePermReply.decode(answer.ext).wipe_topic_count for answer in answers)

    async def allow_writes(self, broker: str) -> int:
        """Undo `stop_writes`. Returns the number of topics."""
        answers = await self._targets.ask_name_servers(RequestCode.ADD_WRITE_PERM_OF_BROKER, ForBrokerName(broker))
        return max(AddWritePermReply.decode(answer.ext).add_topic_count for answer in answers)

    async def clean_up(self, broker: str) -> None:
        """Make a broker delete expired log files, empty queue files, and queues of deleted topics."""
        address = (await self._targets.master(broker)).address
        await self._targets.brokers.state.delete_expired_log(address)
        await self._targets.brokers.state.clean_queues(address)
        await self._targets.brokers.topics.clean_unused(address)

    async def export_leases(self, broker: str) -> None:
        """Make a broker move leases (POP) that it keeps outside of its log into the log, before another one takes its files.

        Only Apache's brokers with `popConsumerKVServiceEnable` keep any there.
        """
        address = (await self._targets.master(broker)).address
        await self._targets.brokers.state.export_leases(address)

    async def _runtime_info(self, broker: BrokerAddress) -> Mapping[str, str]:
        return await self._targets.brokers.state.runtime_info(broker.address)


def read_state(broker: BrokerAddress, runtime: Mapping[str, str]) -> BrokerState:
    """The state of a broker from its runtime information."""
    put_now, put_before = _whole(runtime, "msgPutTotalTodayNow"), _whole(runtime, "msgPutTotalTodayMorning")
    got_now, got_before = _whole(runtime, "msgGetTotalTodayNow"), _whole(runtime, "msgGetTotalTodayMorning")
    return BrokerState(
        broker=broker,
        version=runtime.get("brokerVersionDesc"),
        put_per_s=_first_number(runtime, "putTps"),
        got_per_s=_first_number(runtime, "getTransferredTps" if "getTransferredTps" in runtime else GOT_TPS_OF_4_9),
        put_today=None if put_now is None or put_before is None else put_now - put_before,
        got_today=None if got_now is None or got_before is None else got_now - got_before,
        disk_used=_first_number(runtime, "commitLogDiskRatio"),
        earliest_store_ms=_whole(runtime, "earliestMessageTimeStamp"),
        booted_ms=_whole(runtime, "bootTimestamp"),
        not_dispatched_bytes=_whole(runtime, "dispatchBehindBytes"),
        changes={what: many for what in COUNTED if (many := _whole(runtime, f"{what}Changes")) is not None},
        runtime=runtime,
    )


def _first_number(runtime: Mapping[str, str], name: str) -> float | None:
    """The first of the averages over 10, 60 and 600 seconds; None without one. RocketMQ reports an unknown value as -1."""
    words = runtime.get(name, "").split()
    try:
        number = float(words[0]) if words else None
    except ValueError:
        return None
    return None if number is None or number < 0 else number


def _whole(runtime: Mapping[str, str], name: str) -> int | None:
    text = runtime.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class NameServerAdmin(Operations):
    """Name servers of the cluster."""

    async def values(self, namespace: str) -> dict[str, str]:
        """All keys and values of a namespace of the key-value configuration."""
        try:
            return await self._targets.instance.name_servers.key_values(namespace)
        except NotFound:
            return {}

    async def value(self, namespace: str, key: str) -> str | None:
        try:
            return await self._targets.instance.name_servers.value(namespace, key)
        except NotFound:
            return None

    async def put(self, namespace: str, key: str, value: str) -> None:
        await self._targets.ask_name_servers(RequestCode.PUT_KV_CONFIG, PutKvConfig(namespace, key, value))

    async def delete(self, namespace: str, key: str) -> None:
        await self._targets.ask_name_servers(RequestCode.DELETE_KV_CONFIG, KvKey(namespace, key))

    async def order(self, topic: str) -> dict[str, int]:
        """The number of queues of an ordered topic by broker; empty without an order configuration."""
        text = await self.value(ORDER_NAMESPACE, self._targets.topic(topic)) or ""
        pairs = (word.partition(":") for word in text.split(";"))
        return {broker: int(count) for broker, _, count in pairs if broker and count.isdecimal()}

    async def put_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """Set the number of queues of an ordered topic by broker. It stays the same while a broker is down.

        Name servers include it in routes only with the setting `orderMessageEnable`.
        """
        if not queues or any(count < 1 for count in queues.values()):
            raise UsageError(f"queues = {dict(queues)} must have at least one broker, and at least one queue for each")
        text = ";".join(f"{broker}:{count}" for broker, count in queues.items())
        await self.put(ORDER_NAMESPACE, self._targets.topic(topic), text)

    async def delete_order(self, topic: str) -> None:
        await self.delete(ORDER_NAMESPACE, self._targets.topic(topic))

    async def settings(self) -> dict[str, dict[str, str]]:
        """The settings of each name server by its address."""
        answers = await self._targets.ask_name_servers(RequestCode.GET_NAMESRV_CONFIG)
        addresses = map(str, self._targets.instance.name_servers.addresses)
        return {address: read_properties(answer.body) for address, answer in zip(addresses, answers, strict=True)}

    async def change_settings(self, changes: Mapping[str, str]) -> None:
        """Change settings of all name servers at run time. They refuse those that they read only at their start."""
        await self._targets.ask_name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, body=write_properties(changes))
