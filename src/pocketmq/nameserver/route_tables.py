"""Tables of the name server, and their limits. Pure.

Brokers: clusters, broker names, the addresses of each name, and their last registration.

    cluster ──► broker names          broker name ──► id ──► member       id 0 is the master, others are its slaves
    (cluster, address) ──► member          connection ──► members that last registered on it

Every member is in all four tables or in none: one address is one broker. Times are seconds of the monotonic clock.

Topics: the broker names of each topic, with queues and permissions.

    topic ──► broker name ──► QueueData           an entry: one topic on one broker name
        └───► broker name ──► QueueMappingInfo    static topics only, and only with an entry

A topic is removed with its last entry. Limits on registrations protect the memory of the name server.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Final, NamedTuple

import msgspec

from pocketmq.errors import ServerFailed
from pocketmq.model import is_group_topic
from pocketmq.protocol.bodies.registration import RegisterBrokerBody
from pocketmq.protocol.bodies.topics import (
    BrokerData,
    BrokerMembers,
    ClusterInfo,
    DataVersion,
    QueueData,
    QueueMappingInfo,
)

MASTER_ID: Final = 0


class Registration(NamedTuple):
    """A broker's registration. Losing `connection` removes the broker."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    body: RegisterBrokerBody
    connection: Hashable = None
    timeout_s: float | None = None
    """How long it may be silent; None: the name server's default."""
    acting_master: bool | None = None
    """Whether a slave may act for a lost master. None: a broker before 5.0."""
    zone: str | None = None

    @property
    def version(self) -> DataVersion:
        return self.body.topics.data_version


class Member:
    """One address of a broker name."""

    __slots__ = (
        "address",
        "broker_id",
        "broker_name",
        "cluster",
        "connection",
        "filter_servers",
        "ha_address",
        "last_seen",
        "timeout_s",
        "version",
    )

    def __init__(self, registration: Registration, timeout_s: float, now: float) -> None:
        self.cluster = registration.cluster
        self.broker_name = registration.broker_name
        self.broker_id = registration.broker_id
        self.address = registration.address
        self.ha_address = registration.ha_address
        self.connection = registration.connection
        self.version = registration.version
        self.filter_servers = registration.body.filter_server_list
        self.timeout_s = timeout_s if registration.timeout_s is None else registration.timeout_s
        self.last_seen = now

    def __str__(self) -> str:
        return f"broker {self.broker_name} {self.broker_id} at {self.address} of {self.cluster}"


class Broker:
    """A broker name. It belongs to the cluster of its first registration."""

    __slots__ = ("acting_master", "cluster", "members", "name", "zone")

    def __init__(self, name: str, cluster: str) -> None:
        self.name = name
        self.cluster = cluster
        self.members: dict[int, Member] = {}
        self.acting_master = False
        self.zone: str | None = None

    @property
    def addresses(self) -> dict[int, str]:
        return {number: member.address for number, member in self.members.items()}

    @property
    def data(self) -> BrokerData:
        return BrokerData(self.cluster, self.name, self.addresses, self.acting_master, self.zone)


class BrokerTable:
    """All brokers, by name, cluster, address and connection."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._brokers: dict[str, Broker] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._members: dict[tuple[str, str], Member] = {}
        self._by_connection: dict[Hashable, dict[Member, None]] = {}

    def __len__(self) -> int:
        """The number of addresses."""
        return len(self._members)

    def named(self, name: str) -> Broker | None:
        return self._brokers.get(name)

    def at(self, cluster: str, address: str) -> Member | None:
        return self._members.get((cluster, address))

    def of_connection(self, connection: Hashable) -> list[Member]:
        return list(self._by_connection.get(connection, ()))

    def overdue(self, now: float) -> list[Member]:
        return [member for member in self._members.values() if member.last_seen + member.timeout_s < now]

    def enter(self, registration: Registration, now: float) -> Member:
        """Add a member. It replaces the member with its id, and its address's previous entry under this name."""
        broker = self._brokers.setdefault(
            registration.broker_name, Broker(registration.broker_name, registration.cluster)
        )
        broker.acting_master = bool(registration.acting_master)
        broker.zone = registration.zone
        self._clusters.setdefault(registration.cluster, {})[registration.broker_name] = None
        for old in list(broker.members.values()):
            if old.broker_id == registration.broker_id or old.address == registration.address:
                self._unlink(old)
        member = Member(registration, self._timeout_s, now)
        broker.members[member.broker_id] = member
        self._members[member.cluster, member.address] = member
        self._by_connection.setdefault(member.connection, {})[member] = None
        return member

    def remove(self, member: Member) -> Broker | None:
        """Remove a member. Return its broker name while it has other members; None if the name was removed too."""
        self._unlink(member)
        name = member.broker_name
        if self._brokers[name].members:
            return self._brokers[name]
        del self._brokers[name]
        for cluster in [cluster for cluster, names in self._clusters.items() if name in names]:
            del self._clusters[cluster][name]
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        return None

    def names_of(self, cluster: str) -> tuple[str, ...]:
        return tuple(self._clusters.get(cluster, ()))

    def info(self) -> ClusterInfo:
        return ClusterInfo(
            {name: broker.data for name, broker in self._brokers.items()},
            {cluster: tuple(names) for cluster, names in self._clusters.items()},
        )

    def members(self, cluster: str, name: str) -> BrokerMembers:
        """The addresses of a broker name; empty if it is unknown."""
        broker = self._brokers.get(name)
        return BrokerMembers(cluster, name, broker.addresses if broker else {})

    def first_address(self) -> str | None:
        return next((member.address for member in self._members.values()), None)

    def _unlink(self, member: Member) -> None:
        """Remove a member from all tables but those of names."""
        del self._brokers[member.broker_name].members[member.broker_id]
        del self._members[member.cluster, member.address]
        connection = self._by_connection[member.connection]
        del connection[member]
        if not connection:
            del self._by_connection[member.connection]


class TopicTable:
    """All topics. `entries` counts every topic on every broker name."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, QueueMappingInfo]] = {}
        self.entries = 0

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues

    def names(self) -> tuple[str, ...]:
        return tuple(self._queues)

    def queues(self, topic: str) -> dict[str, QueueData]:
        """Broker name → queues; empty for an unknown topic. Must not be changed."""
        return self._queues.get(topic, {})

    def mappings(self, topic: str) -> dict[str, QueueMappingInfo] | None:
        """Broker name → queue mapping of a static topic; None for any other."""
        return self._mappings.get(topic)

    def put(self, topic: str, queues: QueueData) -> None:
        entries = self._queues.setdefault(topic, {})
        self.entries += queues.broker_name not in entries
        entries[queues.broker_name] = queues

    def put_mapping(self, topic: str, broker_name: str, mapping: QueueMappingInfo) -> None:
        """Ignored without an entry, because it would never be removed."""
        if broker_name in self.queues(topic):
            self._mappings.setdefault(topic, {})[broker_name] = mapping

    def remove(self, topic: str, broker_names: Iterable[str]) -> None:
        entries = self._queues.get(topic, {})
        mappings = self._mappings.get(topic, {})
        for name in broker_names:
            self.entries -= entries.pop(name, None) is not None
            mappings.pop(name, None)
        if not entries:
            self._queues.pop(topic, None)
        if not mappings:
            self._mappings.pop(topic, None)

    def delete(self, topic: str) -> None:
        self.remove(topic, list(self.queues(topic)))

    def remove_broker(self, broker_name: str) -> None:
        for topic in self.of_broker(broker_name):
            self.remove(topic, (broker_name,))

    def of_broker(self, broker_name: str) -> list[str]:
        return [topic for topic, entries in self._queues.items() if broker_name in entries]

    def of_brokers(self, broker_names: Iterable[str]) -> list[str]:
        """Topics that at least one of these has."""
        wanted = frozenset(broker_names)
        return [topic for topic, entries in self._queues.items() if not wanted.isdisjoint(entries)]

    def with_flag(self, fits: Callable[[int], bool]) -> list[str]:
        """Topics whose topicSysFlag fits; it is the same on every broker, so the first one is checked."""
        return [topic for topic, entries in self._queues.items() if fits(next(iter(entries.values())).topic_sys_flag)]

    def change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Change the permission of all topics of a broker name. Return their number."""
        topics = self.of_broker(broker_name)
        for topic in topics:
            entries = self._queues[topic]
            queues = entries[broker_name]
            entries[broker_name] = msgspec.structs.replace(queues, perm=change(queues.perm))
        return len(topics)


class Admitted(NamedTuple):
    """The topics of a registration that fit, the number of the others, and the first reason."""

    topics: set[str]
    rejected: int = 0
    why: str = ""


class RouteLimits(msgspec.Struct, frozen=True):
    """A broker above one of these limits is rejected as a whole. Of its topics, those are accepted that fit."""

    max_brokers: int = 10_000
    """Limit on addresses of brokers, slaves included. A registration above it is refused."""
    max_topics: int = 200_000
    """Limit on topics. Set it to at least `maxTopics` plus `maxRetryTopics` of a broker. A registration above it gets
    routes for the topics that fit, retry and dead-letter topics last; the answer, the log and the metrics report the
    rest."""
    max_topic_entries: int = 1_000_000
    """Limit on topics counted per broker name: a topic on three broker names counts three times."""
    max_name_chars: int = 255
    """Limit on the length of names: clusters, brokers, addresses, zones and topics."""
    max_filter_servers: int = 16
    """Limit on filter servers of a broker. Brokers since 4.9.6 have none."""

    def check_broker(self, registration: Registration, newcomers: int, brokers: int) -> None:
        """ServerFailed if `newcomers` would exceed the limit of brokers, or the registration has invalid names."""
        for word, text in (
            ("cluster", registration.cluster),
            ("broker", registration.broker_name),
            ("address", registration.address),
        ):
            if not text:
                raise _refused(f"it has no {word}")
        names = (
            registration.cluster,
            registration.broker_name,
            registration.address,
            registration.ha_address,
            registration.zone or "",
        )
        if not all(map(str.isprintable, names)):
            raise _refused("one of its names has a control character")
        longest = max(map(len, names))
        if longest > self.max_name_chars:
            raise _refused(f"one of its names has {longest} characters; at most {self.max_name_chars} are allowed")
        if newcomers and brokers + newcomers > self.max_brokers:
            raise _refused(f"{brokers} brokers are registered, the limit of this name server (maxBrokers)")
        if len(registration.body.filter_server_list) > self.max_filter_servers:
            raise _refused(f"it has more than {self.max_filter_servers} filter servers")

    def admitted(self, table: TopicTable, topics: Iterable[str], broker_name: str) -> Admitted:
        """The topics that the table can accept: known ones first, then others, retry and DLQ topics last."""
        accepted: set[str] = set()
        others = []
        for topic in topics:
            if broker_name in table.queues(topic):
                accepted.add(topic)
            else:
                others.append(topic)
        rejected, why = 0, ""
        names, entries = len(table), table.entries
        for topic in sorted(others, key=is_group_topic):
            is_new = topic not in table
            if not 0 < len(topic) <= self.max_name_chars:
                reason = f"the name of a topic is empty, or has more than {self.max_name_chars} characters"
            elif is_new and names >= self.max_topics:
                reason = f"there are {names} topics, the limit of this name server (maxTopics)"
            elif entries >= self.max_topic_entries:
                reason = f"there are {entries} topic entries, the limit of this name server (maxTopicEntries)"
            else:
                accepted.add(topic)
                names, entries = names + is_new, entries + 1
                continue
            rejected, why = rejected + 1, why or reason
        return Admitted(accepted, rejected, why)

    def check_topics(self, table: TopicTable, topics: Collection[str], broker_names: Collection[str]) -> None:
        """ServerFailed if the table cannot accept `topics` on `broker_names`."""
        if any(not 0 < len(topic) <= self.max_name_chars for topic in topics):
            raise _refused(f"the name of a topic is empty, or has more than {self.max_name_chars} characters")
        newcomers = sum(topic not in table for topic in topics)
        if newcomers and len(table) + newcomers > self.max_topics:
            raise _refused(
                f"there would be more than {self.max_topics} topics, the limit of this name server (maxTopics)"
            )
        entries = sum(name not in table.queues(topic) for topic in topics for name in broker_names)
        if entries and table.entries + entries > self.max_topic_entries:
            raise _refused(
                f"there would be more than {self.max_topic_entries} topic entries, the limit (maxTopicEntries)"
            )


def _refused(why: str) -> ServerFailed:
    return ServerFailed(f"registration refused: {why}")
