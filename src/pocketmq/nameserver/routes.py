"""Routes: applies registrations, answers routes, and expires silent brokers. Pure: no I/O; callers pass the time.

    register ──► a member, and its topics ─┬─ registers again in time ──────────────► stays
                                           ├─ unregister, connection lost, expire ──► removed at once
                                           └─ last of its name ─────────────────────► the name is removed from all topics

A rejected registration changes nothing. If a registration has too many topics, those are accepted that fit. Times are
seconds of the monotonic clock.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple

import msgspec

from pocketmq.codes import Perm
from pocketmq.errors import ServerFailed
from pocketmq.nameserver.route_tables import (
    MASTER_ID,
    Admitted,
    Broker,
    BrokerTable,
    Member,
    Registration,
    RouteLimits,
    TopicTable,
)
from pocketmq.protocol.bodies.topics import (
    BrokerData,
    BrokerMembers,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicList,
    TopicRouteData,
)

BROKER_TIMEOUT_S: Final = 120.0
"""How long a broker may be silent, unless it registers another time."""
MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Topics with which the members of a broker name find each other: their routes have no acting master."""


class Registered(NamedTuple):
    """The result of a registration."""

    member: Member | None = None
    """None if it was ignored, because `rival` has the same id and a newer state."""
    is_new: bool = False
    master: Member | None = None
    """Reported to slaves."""
    rival: Member | None = None
    rejected: int = 0
    """Rejected topics; the reason is `why`."""
    why: str = ""


class RouteTable:
    def __init__(self, limits: RouteLimits | None = None, *, timeout_s: float = BROKER_TIMEOUT_S) -> None:
        self._limits = limits or RouteLimits()
        self._brokers = BrokerTable(timeout_s)
        self.topics = TopicTable()
        self.rejected_topics = 0
        """Rejected topics of all registrations; a topic counts each time."""

    def register(self, registration: Registration, now: float, *, drop_absent: bool = False) -> Registered:
        """Apply a registration of all topics or of a single one. ServerFailed if it is rejected.

        With `drop_absent`, topics of the broker that a full registration does not contain are removed.
        """
        broker = self._brokers.named(registration.broker_name)
        known_member = broker.members.get(registration.broker_id) if broker else None
        if (
            known_member
            and known_member.address != registration.address
            and known_member.version.state_version > registration.version.state_version
        ):
            self.unregister(registration.cluster, registration.broker_name, registration.address)
            return Registered(rival=known_member)
        # A single topic is an addition, and this broker is not registered yet.
        if known_member is None and len(registration.body.topics.topic_config_table) == 1:
            raise ServerFailed("register broker failed")
        known = self._brokers.at(registration.cluster, registration.address)
        registers_topics = _registers_topics(registration, broker)
        self._limits.check_broker(registration, int(known is None), len(self._brokers))
        changed = known_member is None or known is None or known.version != registration.version
        if known and known.broker_name != registration.broker_name:
            self._withdraw(known)
        member = self._brokers.enter(registration, now)
        registered = Registered(member, known is None, self._master_of(member))
        if registers_topics:
            admitted = self._update_topics(registration, changed=changed, drop_absent=drop_absent)
            self.rejected_topics += admitted.rejected
            registered = registered._replace(rejected=admitted.rejected, why=admitted.why)
        return registered

    def unregister(self, cluster: str, broker_name: str, address: str) -> Member | None:
        """Remove a broker; None if it was not registered."""
        member = self._brokers.at(cluster, address)
        if member is None or member.broker_name != broker_name:
            return None
        self._withdraw(member)
        return member

    def touch(self, cluster: str, address: str, now: float) -> None:
        """A broker sent a heartbeat; ignored if it is not registered."""
        member = self._brokers.at(cluster, address)
        if member is not None:
            member.last_seen = now

    def lose(self, connection: Hashable) -> list[Member]:
        """A connection was lost: remove the brokers that last registered on it."""
        lost = self._brokers.of_connection(connection)
        for member in lost:
            self._withdraw(member)
        return lost

    def expire(self, now: float) -> list[Member]:
        """Remove brokers without a registration in time; the caller closes their connections."""
        expired = self._brokers.overdue(now)
        for member in expired:
            self._withdraw(member)
        return expired

    def register_topic(self, topic: str, queues: tuple[QueueData, ...]) -> str | None:
        """Add a topic for an administrator. Return an unknown broker name, if any: then nothing was added."""
        names = [data.broker_name for data in queues]
        unknown = next((name for name in names if self._brokers.named(name) is None), None)
        if unknown is None:
            self._limits.check_topics(self.topics, [topic], set(names))
            for data in queues:
                self.topics.put(topic, data)
        return unknown

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, everywhere or in one cluster. A broker that still has it registers it again after a change."""
        if cluster:
            self.topics.remove(topic, self._brokers.names_of(cluster))
        else:
            self.topics.delete(topic)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission of a broker. Return its number of topics. Lasts until the broker changes a topic."""
        return self.topics.change_perm(broker_name, _without_write)

    def add_write_perm(self, broker_name: str) -> int:
        """Set read and write permission for all its topics, whatever it was before, as in RocketMQ."""
        return self.topics.change_perm(broker_name, lambda _: Perm.READ_WRITE)

    def route(self, topic: str, *, acting_master: bool = False) -> TopicRouteData | None:
        """The route of a topic; None if no broker has it. With `acting_master`, a slave may replace a lost master."""
        queues = self.topics.queues(topic)
        brokers = [broker for name in queues if (broker := self._brokers.named(name))]
        if not brokers:
            return None
        datas = [broker.data for broker in brokers]
        if acting_master and not topic.startswith(MEMBER_TOPIC_PREFIX):
            datas = [_with_acting_master(data, queues) for data in datas]
        members = [member for broker in brokers for member in broker.members.values()]
        mappings = self.topics.mappings(topic)
        return TopicRouteData(
            queue_datas=tuple(queues.values()),
            broker_datas=tuple(datas),
            filter_server_table={one.address: one.filter_servers for one in members if one.filter_servers},
            topic_queue_mapping_by_broker=None if mappings is None else dict(mappings),
        )

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The registered version of a broker's topics."""
        member = self._brokers.at(cluster, address)
        return member.version if member else None

    def cluster_info(self) -> ClusterInfo:
        return self._brokers.info()

    def members(self, cluster: str, broker_name: str) -> BrokerMembers:
        return self._brokers.members(cluster, broker_name)

    @property
    def topic_count(self) -> int:
        return len(self.topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        return self.topics.of_brokers(self._brokers.names_of(cluster))

    def system_topics(self) -> TopicList:
        """Cluster names and broker names, which are also topics; and the address of one broker."""
        clusters = self._brokers.info().cluster_addr_table
        names = dict.fromkeys(name for cluster, brokers in clusters.items() for name in (cluster, *brokers))
        return TopicList(tuple(names), self._brokers.first_address())

    def _withdraw(self, member: Member) -> None:
        broker = self._brokers.remove(member)
        if broker is None:
            self.topics.remove_broker(member.broker_name)
        elif broker.acting_master and MASTER_ID not in broker.members:
            self.topics.change_perm(broker.name, _without_write)

    def _update_topics(self, registration: Registration, *, changed: bool, drop_absent: bool) -> Admitted:
        name, table = registration.broker_name, registration.body.topics
        configs = table.topic_config_table.values()
        # A single topic is never the whole table. RocketMQ does not define the removal of static topics.
        if drop_absent and len(configs) > 1 and not table.topic_queue_mapping_info_map:
            named = {config.topic_name for config in configs}
            for topic in self.topics.of_broker(name):
                if topic not in named:
                    self.topics.remove(topic, (name,))
        is_acting = bool(registration.acting_master) and registration.broker_id != MASTER_ID
        admitted = self._limits.admitted(self.topics, {config.topic_name: None for config in configs}, name)
        for config in configs:
            if config.topic_name not in admitted.topics:
                continue
            if changed or name not in self.topics.queues(config.topic_name):
                self.topics.put(config.topic_name, _queue_data(name, config, writable=not is_acting))
        if changed:
            for topic, mapping in table.topic_queue_mapping_info_map.items():
                self.topics.put_mapping(topic, mapping.bname or name, mapping)
        return admitted

    def _master_of(self, member: Member) -> Member | None:
        broker = self._brokers.named(member.broker_name)
        return broker.members.get(MASTER_ID) if broker and member.broker_id != MASTER_ID else None


def in_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """The part of a route in `zone`. Brokers without a master stay, so that they can be read."""
    near = {
        data.broker_name: data
        for data in route.broker_datas
        if MASTER_ID not in data.broker_addrs or (data.zone_name or "").lower() == zone.lower()
    }
    addresses = {address for data in near.values() for address in data.broker_addrs.values()}
    filters = {address: servers for address, servers in route.filter_server_table.items() if address in addresses}
    return msgspec.structs.replace(
        route,
        broker_datas=tuple(near.values()),
        queue_datas=tuple(data for data in route.queue_datas if data.broker_name in near),
        filter_server_table=filters,
    )


def _registers_topics(registration: Registration, broker: Broker | None) -> bool:
    """Whether a registration may change topics: the master's, or that of the slave with the lowest id without one."""
    if registration.broker_id == MASTER_ID:
        return True
    others = (
        [member.broker_id for member in broker.members.values() if member.address != registration.address]
        if broker
        else []
    )
    return registration.acting_master is not None and registration.broker_id <= min(
        others, default=registration.broker_id
    )


def _without_write(perm: int) -> int:
    return perm & ~Perm.WRITE


def _queue_data(broker_name: str, config: TopicConfig, *, writable: bool) -> QueueData:
    perm = config.perm if writable else _without_write(config.perm)
    return QueueData(broker_name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag)


def _with_acting_master(data: BrokerData, queues: dict[str, QueueData]) -> BrokerData:
    """Use the slave with the lowest id as master, if there is none, this is allowed, and no client can write."""
    addresses = data.broker_addrs
    writable = queues[data.broker_name or ""].perm & Perm.WRITE
    if MASTER_ID in addresses or not data.enable_acting_master or writable:
        return data
    lowest = min(addresses)
    rest = {number: address for number, address in addresses.items() if number != lowest}
    return msgspec.structs.replace(data, broker_addrs={MASTER_ID: addresses[lowest], **rest})
