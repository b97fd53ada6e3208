"""The cluster: its brokers, what each says about itself, and its settings while it runs.

What name servers remember by themselves: keys and values by namespace, the fixed queues of ordered topics, their settings.

Each of them is told, because they share nothing. One is asked: all of them should know the same.
"""

from collections.abc import Mapping

import msgspec

from pocketmq.client.admin.targets import BrokerAddress, Targets
from pocketmq.client.admin.topics import ORDER_NAMESPACE
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import NotFound, ServerFailed, UsageError
from pocketmq.protocol.api.routes import (
    AddWritePerm,
    AddWritePermReply,
    DeleteKvConfig,
    GetKvConfig,
    GetKvList,
    KvConfigReply,
    PutKvConfig,
    WipeWritePerm,
    WipeWritePermReply,
)
from pocketmq.protocol.bodies.body import KVTable
from pocketmq.protocol.bodies.clients import ClientConnection, ProducerInfo
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.bodies.stats import BrokerStatsData
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import read_fields
from pocketmq.protocol.java_json import read_body

GOT_TPS_OF_4_9 = "getTransferedTps"
"""As it was spelled until 5.0."""
COUNTED = ("member", "topic", "group")


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """A broker and what it says about itself. What it does not say is None; `problem` is why it said nothing at all."""

    place: BrokerAddress
    problem: str = ""
    version: str | None = None
    put_per_s: float | None = None
    """Messages stored and read a second, over the last ten."""
    got_per_s: float | None = None
    put_today: int | None = None
    got_today: int | None = None
    disk_used: float | None = None
    """How full the disk of the log is, from 0 to 1."""
    earliest_store_ms: int | None = None
    booted_ms: int | None = None
    not_dispatched_bytes: int | None = None
    """What is in the log, and in no queue yet."""
    changes: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How often members of groups, topics and groups changed, by `COUNTED`: what is the same since it booted needs no new
    question. Apache's brokers do not count it."""
    runtime: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Everything, in RocketMQ's words."""


class ClusterAdmin:
    """Brokers of a cluster; `broker` is always the name of one, and means its master."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    async def brokers(self, cluster: str | None = None) -> list[BrokerAddress]:
        """All brokers that are registered, slaves too."""
        return await self._targets.places(cluster)

    async def clusters(self) -> dict[str, list[str]]:
        """The names of brokers by cluster."""
        info = await self._targets.cluster_info()
        return {cluster: sorted(names) for cluster, names in sorted(info.cluster_addr_table.items())}

    async def describe(self, cluster: str | None = None) -> list[BrokerState]:
        """Every broker; one that cannot be asked says so in its `problem`."""
        places = await self._targets.places(cluster)
        found, failed = await self._targets.gather_what_goes(places, self._runtime_info)
        return [
            read_state(place, found[place])
            if place in found
            else BrokerState(place=place, problem=f"{type(failed[place]).__name__}: {failed[place]}")
            for place in places
        ]

    async def runtime_info(self, broker: str) -> Mapping[str, str]:
        """The numbers that `mqadmin brokerStatus` shows."""
        return await self._runtime_info(await self._targets.master(broker))

    async def settings(self, broker: str) -> dict[str, str]:
        """All settings as they are now, by RocketMQ's names."""
        return await self._targets.brokers.state.settings((await self._targets.master(broker)).address)

    async def change_settings(self, broker: str, changes: Mapping[str, str | int | bool]) -> None:
        """Change settings while the broker runs; it refuses those that it can only take at its start."""
        texts = {name: _text(value) for name, value in changes.items()}
        await self._targets.brokers.state.change_settings((await self._targets.master(broker)).address, texts)

    async def statistic(self, broker: str, name: str, key: str) -> BrokerStatsData | None:
        """One statistic, such as TOPIC_PUT_NUMS of a topic; None when the broker has counted nothing of that kind."""
        try:
            return await self._targets.brokers.state.stats((await self._targets.master(broker)).address, name, key)
        except ServerFailed as error:
            if error.response_code == ResponseCode.SYSTEM_ERROR and "not exist" in (error.remark or ""):
                return None
            raise

    async def producers(self, group: str) -> list[ClientConnection]:
        """Who is connected for a producer group, at any broker."""
        name = self._targets.group(group)

        async def ask(place: BrokerAddress) -> tuple[ClientConnection, ...]:
            try:
                return (await self._targets.brokers.members.producers(place.address, name)).connection_set
            except ServerFailed as error:
                if error.response_code != ResponseCode.SYSTEM_ERROR:
                    raise
                return ()  # RocketMQ has no other word for nobody

        answers = await self._targets.gather(await self._targets.masters(), ask)
        return list({client.client_id: client for clients in answers for client in clients}.values())

    async def all_producers(self) -> dict[str, list[ProducerInfo]]:
        """All producers by group, as brokers know them; RequestNotSupported at RocketMQ 4.9."""
        calls = self._targets.brokers.members
        tables = await self._targets.gather(
            await self._targets.masters(), lambda place: calls.all_producers(place.address)
        )
        found: dict[str, dict[str, ProducerInfo]] = {}
        for table in tables:
            for group, clients in table.data.items():
                found.setdefault(self._targets.shown(group), {}).update({one.client_id: one for one in clients})
        return {group: list(clients.values()) for group, clients in sorted(found.items())}

    async def stop_writes(self, broker: str) -> int:
        """Let producers keep away from a broker before it is stopped; how many topics that concerns.

        Name servers say so until the broker registers its topics anew, or `allow_writes`.
        """
        counts = await self._targets.gather(
            self._targets.instance.name_servers.addresses,
            lambda address: self._targets.instance.rpc.ask(
                address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePerm(broker)
            ),
        )
        return max(read_fields(WipeWritePermReply, answer.ext).wipe_topic_count for answer in counts)

    async def allow_writes(self, broker: str) -> int:
        """Undo `stop_writes`; how many topics that concerns."""
        counts = await self._targets.gather(
            self._targets.instance.name_servers.addresses,
            lambda address: self._targets.instance.rpc.ask(
                address, RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePerm(broker)
            ),
        )
        return max(read_fields(AddWritePermReply, answer.ext).add_topic_count for answer in counts)

    async def clean_up(self, broker: str) -> None:
        """Let a broker drop files that may go: expired log files, queues of which nothing is left, queues of deleted topics."""
        address = (await self._targets.master(broker)).address
        await self._targets.brokers.state.delete_expired_log(address)
        await self._targets.brokers.state.clean_queues(address)
        await self._targets.brokers.topics.clean_unused(address)

    async def _runtime_info(self, place: BrokerAddress) -> Mapping[str, str]:
        return await self._targets.brokers.state.runtime_info(place.address)


def read_state(place: BrokerAddress, runtime: Mapping[str, str]) -> BrokerState:
    """A broker, by the table that it tells about itself."""
    put_now, put_before = _whole(runtime, "msgPutTotalTodayNow"), _whole(runtime, "msgPutTotalTodayMorning")
    got_now, got_before = _whole(runtime, "msgGetTotalTodayNow"), _whole(runtime, "msgGetTotalTodayMorning")
    return BrokerState(
        place=place,
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
    """The first of `10s 60s 600s` averages; None when there is none, or it is below 0, as RocketMQ says unknown."""
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


class NameServerAdmin:
    """Name servers of the cluster."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    async def values(self, namespace: str) -> dict[str, str]:
        """All keys and values of a namespace."""
        try:
            answer = await self._ask(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKvList(namespace))
        except NotFound:
            return {}
        return dict(read_body(KVTable, answer.body).table)

    async def value(self, namespace: str, key: str) -> str | None:
        try:
            answer = await self._ask(RequestCode.GET_KV_CONFIG, GetKvConfig(namespace, key))
        except NotFound:
            return None
        return read_fields(KvConfigReply, answer.ext).value

    async def put(self, namespace: str, key: str, value: str) -> None:
        await self._targets.tell_name_servers(RequestCode.PUT_KV_CONFIG, PutKvConfig(namespace, key, value))

    async def delete(self, namespace: str, key: str) -> None:
        await self._targets.tell_name_servers(RequestCode.DELETE_KV_CONFIG, DeleteKvConfig(namespace, key))

    async def order(self, topic: str) -> dict[str, int]:
        """The fixed number of queues of an ordered topic, by broker; empty when none is fixed."""
        text = await self.value(ORDER_NAMESPACE, self._targets.topic(topic)) or ""
        pairs = (word.partition(":") for word in text.split(";"))
        return {broker: int(count) for broker, _, count in pairs if broker and count.isdecimal()}

    async def put_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """Fix the queues of an ordered topic, by broker, so that they stay the same while a broker is away.

        Name servers tell it to clients only when they are set to: orderMessageEnable.
        """
        if not queues or any(count < 1 for count in queues.values()):
            raise UsageError(f"an order needs brokers with at least one queue each, not {dict(queues)}")
        text = ";".join(f"{broker}:{count}" for broker, count in queues.items())
        await self.put(ORDER_NAMESPACE, self._targets.topic(topic), text)

    async def delete_order(self, topic: str) -> None:
        await self.delete(ORDER_NAMESPACE, self._targets.topic(topic))

    async def settings(self) -> dict[str, dict[str, str]]:
        """The settings of each name server, by its address."""
        addresses = self._targets.instance.name_servers.addresses
        answers = await self._targets.gather(
            addresses, lambda address: self._targets.instance.rpc.ask(address, RequestCode.GET_NAMESRV_CONFIG)
        )
        return {str(at): read_properties(answer.body) for at, answer in zip(addresses, answers, strict=True)}

    async def change_settings(self, changes: Mapping[str, str]) -> None:
        """Change settings of all name servers while they run; they refuse those that they can only take at their start."""
        await self._targets.tell_name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, body=write_properties(changes))

    async def _ask(self, code: RequestCode, header: GetKvList | GetKvConfig) -> Command:
        return await self._targets.instance.name_servers.ask(code, header)
