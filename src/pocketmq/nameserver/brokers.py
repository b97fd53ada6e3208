"""Brokers: clusters, the names in them, the addresses behind each name, and when each was heard. Pure.

    cluster ──► broker names          broker name ──► id ──► member       id 0 is the master, others are its slaves
    (cluster, address) ──► member          line ──► members that registered by it last

Every member is in all four tables or in none: one address is one broker. Times are seconds of a clock that only grows.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple

from pocketmq.protocol.bodies.data_version import DataVersion
from pocketmq.protocol.bodies.registration import RegisterBrokerBody
from pocketmq.protocol.bodies.routes import BrokerData, BrokerMembers, ClusterInfo

MASTER_ID: Final = 0


class Registration(NamedTuple):
    """What a broker says about itself. `line` stands for the connection it came by; losing it removes the broker."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    body: RegisterBrokerBody
    line: Hashable = None
    timeout_s: float | None = None
    """How long it may be silent; None: as long as the name server allows everybody."""
    acting_master: bool | None = None
    """May a slave act for a lost master? None: a broker before 5.0, which does not know the question."""
    zone: str | None = None

    @property
    def version(self) -> DataVersion:
        return self.body.topics.data_version


class Member:
    """One address behind a broker name."""

    __slots__ = (
        "address",
        "broker_id",
        "broker_name",
        "cluster",
        "filter_servers",
        "ha_address",
        "heard_at",
        "line",
        "timeout_s",
        "version",
    )

    def __init__(self, told: Registration, timeout_s: float, now: float) -> None:
        self.cluster = told.cluster
        self.broker_name = told.broker_name
        self.broker_id = told.broker_id
        self.address = told.address
        self.ha_address = told.ha_address
        self.line = told.line
        self.version = told.version
        self.filter_servers = told.body.filter_server_list
        self.timeout_s = timeout_s if told.timeout_s is None else told.timeout_s
        self.heard_at = now

    def __str__(self) -> str:
        return f"broker {self.broker_name} {self.broker_id} at {self.address} of {self.cluster}"


class Broker:
    """A broker name. It belongs to the cluster that it was first registered in."""

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
    """All brokers, by name, cluster, address and line."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._brokers: dict[str, Broker] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._members: dict[tuple[str, str], Member] = {}
        self._by_line: dict[Hashable, dict[Member, None]] = {}

    def __len__(self) -> int:
        """How many addresses there are."""
        return len(self._members)

    def named(self, name: str) -> Broker | None:
        return self._brokers.get(name)

    def at(self, cluster: str, address: str) -> Member | None:
        return self._members.get((cluster, address))

    def of_line(self, line: Hashable) -> list[Member]:
        return list(self._by_line.get(line, ()))

    def overdue(self, now: float) -> list[Member]:
        """Those that were not heard within their time."""
        return [member for member in self._members.values() if member.heard_at + member.timeout_s < now]

    def enter(self, told: Registration, now: float) -> Member:
        """Put a member in its place; out goes who had its id before, and what its address was under this name before."""
        broker = self._brokers.setdefault(told.broker_name, Broker(told.broker_name, told.cluster))
        broker.acting_master = bool(told.acting_master)
        broker.zone = told.zone
        self._clusters.setdefault(told.cluster, {})[told.broker_name] = None
        for old in list(broker.members.values()):
            if old.broker_id == told.broker_id or old.address == told.address:
                self._unlink(old)
        member = Member(told, self._timeout_s, now)
        broker.members[member.broker_id] = member
        self._members[member.cluster, member.address] = member
        self._by_line.setdefault(member.line, {})[member] = None
        return member

    def remove(self, member: Member) -> Broker | None:
        """Take a member out. Its broker name while others are behind it; None when the name is gone with it."""
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
        """The broker names of a cluster."""
        return tuple(self._clusters.get(cluster, ()))

    def info(self) -> ClusterInfo:
        return ClusterInfo(
            {name: broker.data for name, broker in self._brokers.items()},
            {cluster: tuple(names) for cluster, names in self._clusters.items()},
        )

    def members(self, cluster: str, name: str) -> BrokerMembers:
        """The addresses behind a broker name, none when it is unknown."""
        broker = self._brokers.get(name)
        return BrokerMembers(cluster, name, broker.addresses if broker else {})

    def first_address(self) -> str | None:
        return next((member.address for member in self._members.values()), None)

    def _unlink(self, member: Member) -> None:
        """Out of all tables but those of names."""
        del self._brokers[member.broker_name].members[member.broker_id]
        del self._members[member.cluster, member.address]
        line = self._by_line[member.line]
        del line[member]
        if not line:
            del self._by_line[member.line]
