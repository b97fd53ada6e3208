"""Members: connected clients, their groups, and the connections to notify of changes.

    heartbeat ───────┐                       ┌─► notices: members of a group changed; notify these connections (code 40)
    unregister ──────┤                       ├─► conflicts: members of a group with different subscriptions
    connection lost ─┼─► Members ─► Changes ─┼─► silent: connections without a heartbeat for too long, to be closed
    time ────────────┘                       └─► resend: the client must send its subscriptions in full

A member is a connection in a group; other members see its client id. Nothing here sends, logs or reads a clock: the
results of a change are returned, and the broker applies them. A broadcasting group gets no notices, because its members
do not divide queues.

Consumers and producers expire alike. A connection is closed when it has no group left. Apache RocketMQ closes it as
soon as one of its groups has expired; a client may have left that one only.

Producers: the connections of each producer group, for transaction checks and for replies.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from pocketmq.broker.groups.consumer_group import ClientInfo, Conflict, ConsumerGroup
from pocketmq.errors import ConsumerNotOnline, ImpossibleRequest, InvalidParameter, SubscriptionUnknown
from pocketmq.model import Subscription
from pocketmq.protocol.bodies.clients import (
    ConsumerConnection,
    ConsumerData,
    HeartbeatData,
    MessageModel,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)


class _Producer:
    """A connection. `groups` has the monotonic and the wall time of the last heartbeat of each group."""

    __slots__ = ("client", "groups")

    def __init__(self, client: ClientInfo) -> None:
        self.client = client
        self.groups: dict[str, tuple[float, int]] = {}


class Producers:
    """Producers by connection, by group and by client id. In a group, the ones used last are last."""

    def __init__(self) -> None:
        self._producers: dict[Hashable, _Producer] = {}
        self._groups: dict[str, dict[Hashable, _Producer]] = {}
        self._by_client: dict[str, Hashable] = {}

    def join(self, group: str, client: ClientInfo, now: float, now_ms: int) -> None:
        producer = self._producers.get(client.connection)
        if producer is None:
            producer = self._producers[client.connection] = _Producer(client)
        if producer.client.client_id != client.client_id:
            self._forget_client(producer.client)
        producer.client = client
        producer.groups[group] = now, now_ms
        self._by_client[client.client_id] = (
            client.connection
        )  # the newest, if the client has two connections for a while
        self._groups.setdefault(group, {}).setdefault(client.connection, producer)

    def leave(self, group: str, connection: Hashable) -> None:
        """Remove a connection from a group; harmless if it is not in it."""
        producer = self._producers.get(connection)
        if producer is None or producer.groups.pop(group, None) is None:
            return
        members = self._groups[group]
        del members[connection]
        if not members:
            del self._groups[group]
        if not producer.groups:
            del self._producers[connection]
            self._forget_client(producer.client)

    def lost(self, connection: Hashable) -> None:
        for group in list(self.groups_of(connection)):
            self.leave(group, connection)

    def expire(self, since: float) -> dict[Hashable, None]:
        """Remove entries without a heartbeat since then. Return their connections."""
        silent = [
            (group, connection)
            for connection, producer in self._producers.items()
            for group, (seen, _) in producer.groups.items()
            if seen < since
        ]
        for group, connection in silent:
            self.leave(group, connection)
        return dict.fromkeys(connection for _, connection in silent)

    def _forget_client(self, client: ClientInfo) -> None:
        if self._by_client.get(client.client_id) == client.connection:
            del self._by_client[client.client_id]

    # queries

    def __contains__(self, connection: Hashable) -> bool:
        return connection in self._producers

    def __len__(self) -> int:
        """The number of groups with a producer."""
        return len(self._groups)

    def groups_of(self, connection: Hashable) -> AbstractSet[str]:
        producer = self._producers.get(connection)
        return producer.groups.keys() if producer else frozenset()

    def next_connection(self, group: str, usable: Callable[[Hashable], bool]) -> Hashable | None:
        """A usable connection of the group, each in turn; None if there is none."""
        members = self._groups.get(group, {})
        for connection in members:
            if usable(connection):
                members[connection] = members.pop(connection)
                return connection
        return None

    def find_client(self, client_id: str) -> Hashable | None:
        """The connection of the client with this id, if it is in any producer group."""
        return self._by_client.get(client_id)

    def connections(self, group: str) -> ProducerConnection:
        """The producers of a group (code 204)."""
        members = self._groups.get(group)
        if not members:
            raise ImpossibleRequest(f"no producer of group {group} is connected to this broker")
        return ProducerConnection(tuple(producer.client.described() for producer in members.values()))

    def table(self) -> ProducerTable:
        """All producers (code 328). Addresses begin with a slash, as Java prints them."""
        return ProducerTable(
            {group: tuple(_shown(one, group) for one in members.values()) for group, members in self._groups.items()}
        )


def _shown(producer: _Producer, group: str) -> ProducerInfo:
    client, (_, seen_ms) = producer.client, producer.groups[group]
    return ProducerInfo(client.client_id, f"/{client.address}", client.language, client.version, seen_ms)


EXPIRY_SECONDS = 120.0
"""A member without a heartbeat for this long is removed."""
MAX_GROUPS_PER_CONNECTION = 10_000
MAX_SUBSCRIPTIONS = 10_000
"""Limit on topics of one member. A heartbeat above one of the two limits is rejected as a whole."""


class Notice(NamedTuple):
    """Members or topics of a group changed: the members on these connections should rebalance."""

    group: str
    connections: tuple[Hashable, ...]


class Changes(NamedTuple):
    notices: tuple[Notice, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    silent: tuple[Hashable, ...] = ()
    resend: bool = False


class Members:
    """All connections with their groups. Callers pass the monotonic time, and the wall time where people see it."""

    def __init__(
        self,
        *,
        expiry: float = EXPIRY_SECONDS,
        max_groups: int = MAX_GROUPS_PER_CONNECTION,
        max_subscriptions: int = MAX_SUBSCRIPTIONS,
    ) -> None:
        self.producers = Producers()
        self._groups: dict[str, ConsumerGroup] = {}
        self._consuming: dict[Hashable, dict[str, None]] = {}
        self.expiry = expiry
        self._max_groups = max_groups
        self._max_subscriptions = max_subscriptions
        self.version = 0
        """Increases when a subscription or message model changes, or a group loses its last member."""
        self.changes = 0
        """Increases when a client joins a group, changes or leaves. While it stays, the members are the same."""

    # events

    def heartbeat(
        self, client: ClientInfo, heartbeat: HeartbeatData, now: float, now_ms: int, *, quiet: Collection[str] = ()
    ) -> Changes:
        """Process a heartbeat. The caller has removed groups that may not exist.

        `quiet` are the groups whose members are not notified of changes.
        """
        self.check(client, heartbeat)
        groups, changed = [], []
        for data in heartbeat.consumer_data_set:
            group = self._groups.get(data.group_name)
            if group is None:
                group = self._groups[data.group_name] = ConsumerGroup(data.group_name)
            group.notifies = data.group_name not in quiet
            groups.append(group)
            if self._join(group, client, data, heartbeat, now):
                changed.append(group)
        for producer in heartbeat.producer_data_set:
            self.producers.join(producer.group_name, client, now, now_ms)
        fingerprint = heartbeat.heartbeat_fingerprint
        resend = not fingerprint or not all(group.knows(client.connection, fingerprint) for group in groups)
        return Changes(_notices(changed), _reports(groups), resend=resend)

    def unregister(self, connection: Hashable, *, consumer_group: str | None, producer_group: str | None) -> Changes:
        """A client leaves a consumer group, a producer group, or both."""
        if producer_group is not None:
            self.producers.leave(producer_group, connection)
        group = self._groups.get(consumer_group or "")
        return self._leave([group] if group and connection in group.members else [], connection)

    def lost(self, connection: Hashable) -> Changes:
        """A connection was lost, with all its groups."""
        self.producers.lost(connection)
        return self._leave([self._groups[name] for name in self._consuming.get(connection, ())], connection)

    def expire(self, now: float) -> Changes:
        """Remove the members without a heartbeat for too long."""
        since = now - self.expiry
        expired = self.producers.expire(since)
        groups = []
        for group in list(self._groups.values()):
            silent = [connection for connection, member in group.members.items() if member.seen < since]
            for connection in silent:
                self._remove(group, connection)
                expired[connection] = None
            if silent:
                groups.append(group)
        return Changes(_notices(groups), _reports(groups), tuple(one for one in expired if one not in self))

    def check(self, client: ClientInfo, heartbeat: HeartbeatData) -> None:
        """InvalidParameter for a heartbeat that is rejected as a whole. Changes nothing."""
        consumers, producers = heartbeat.consumer_data_set, heartbeat.producer_data_set
        if not client.client_id and (consumers or producers):
            raise InvalidParameter("the heartbeat has no client id, which identifies a member of a group")
        for data in consumers:
            if len(data.subscription_data_set) > self._max_subscriptions:
                raise InvalidParameter(
                    f"client {client.client_id} subscribes to {len(data.subscription_data_set)} topics in group {data.group_name}; "
                    f"at most {self._max_subscriptions} are allowed"
                )
        consuming = self._consuming.get(client.connection, {}).keys() | {data.group_name for data in consumers}
        producing = self.producers.groups_of(client.connection) | {data.group_name for data in producers}
        if max(len(consuming), len(producing)) > self._max_groups:
            raise InvalidParameter(
                f"client {client.client_id} has {len(consuming)} consumer and {len(producing)} producer groups; "
                f"at most {self._max_groups} of each are allowed on one connection"
            )

    def _join(
        self, group: ConsumerGroup, client: ClientInfo, data: ConsumerData, heartbeat: HeartbeatData, now: float
    ) -> bool:
        self._consuming.setdefault(client.connection, {})[group.name] = None
        known = group.members.get(client.connection)
        if known is None or known.client != client:
            self.changes += 1
        without_sub = heartbeat.without_sub and heartbeat.heartbeat_fingerprint != 0
        before = group.served_by
        changed = group.join(client, data, heartbeat.heartbeat_fingerprint, without_sub=without_sub, now=now)
        if group.served_by != before:
            self.version += 1
        return changed

    def _leave(self, groups: list[ConsumerGroup], connection: Hashable) -> Changes:
        for group in groups:
            self._remove(group, connection)
        return Changes(_notices(groups), _reports(groups))

    def _remove(self, group: ConsumerGroup, connection: Hashable) -> None:
        group.leave(connection)
        self.changes += 1
        if not group.members:
            del self._groups[group.name]
            self.version += 1
        consuming = self._consuming[connection]
        del consuming[group.name]
        if not consuming:
            del self._consuming[connection]

    # queries

    def __contains__(self, connection: Hashable) -> bool:
        """Whether the connection has any group."""
        return connection in self._consuming or connection in self.producers

    def __len__(self) -> int:
        """The number of consumer groups with members."""
        return len(self._groups)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        """The groups with members."""
        return iter(self._groups.values())

    def group(self, name: str) -> ConsumerGroup | None:
        """The group with its members; None if it has none."""
        return self._groups.get(name)

    def subscription(self, group: str, topic: str, sub_version: int) -> Subscription:
        """The subscription that serves a pull: see `ConsumerGroup.subscription`."""
        found = self._groups.get(group)
        if found is None:
            raise SubscriptionUnknown(
                f"group {group} has no member on this broker: its heartbeat must arrive before its pulls"
            )
        return found.subscription(topic, sub_version)

    def client_ids(self, group: str) -> tuple[str, ...]:
        """The client ids of a group; none for a group without members."""
        found = self._groups.get(group)
        return found.client_ids() if found else ()

    def find_consumer(self, group: str, client_id: str) -> ClientInfo | None:
        found = self._groups.get(group)
        return found.find(client_id) if found else None

    def groups_of_topic(self, topic: str) -> list[str]:
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def conflicts(self) -> list[Conflict]:
        return [group.conflict() for group in self._groups.values() if group.in_conflict]

    def consumer_connections(self, group: str) -> ConsumerConnection:
        """The members of a group (code 203)."""
        found = self._groups.get(group)
        if found is None:
            raise ConsumerNotOnline(f"no member of consumer group {group} is connected to this broker")
        return ConsumerConnection(
            tuple(member.client.described() for member in found.members.values()),
            dict(found.subscriptions),
            found.consume_type,
            found.message_model,
            found.consume_from_where,
        )


def _notices(groups: Iterable[ConsumerGroup]) -> tuple[Notice, ...]:
    return tuple(
        Notice(group.name, tuple(group.members))
        for group in groups
        if group.members and group.notifies and group.message_model is not MessageModel.BROADCASTING
    )


def _reports(groups: Iterable[ConsumerGroup]) -> tuple[Conflict, ...]:
    return tuple(report for group in groups if (report := group.pop_report()))
