"""Producers: which connections speak for a producer group. Asked when a transaction is checked, or a reply is delivered."""

from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet

from pocketmq.broker.client_info import ClientInfo
from pocketmq.errors import ImpossibleRequest
from pocketmq.protocol.bodies.connections import ProducerConnection, ProducerInfo, ProducerTable


class _Producer:
    """A connection. `groups` has for each group when it was last heard of: monotonic, and as the wall time to show."""

    __slots__ = ("client", "groups")

    def __init__(self, client: ClientInfo) -> None:
        self.client = client
        self.groups: dict[str, tuple[float, int]] = {}


class Producers:
    """Producers by connection, by group and by client id. In a group, those that were asked last stand last."""

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
        """Forget that a connection speaks for a group; harmless when it does not."""
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
        """Forget a connection altogether."""
        for group in list(self.groups_of(connection)):
            self.leave(group, connection)

    def expire(self, since: float) -> dict[Hashable, None]:
        """Forget what was not heard of since then; the connections that spoke for it."""
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

    # who is there

    def __contains__(self, connection: Hashable) -> bool:
        return connection in self._producers

    def __len__(self) -> int:
        """How many groups have a producer."""
        return len(self._groups)

    def groups_of(self, connection: Hashable) -> AbstractSet[str]:
        producer = self._producers.get(connection)
        return producer.groups.keys() if producer else frozenset()

    def next_connection(self, group: str, usable: Callable[[Hashable], bool]) -> Hashable | None:
        """A connection of the group that can be asked something now, each in its turn; None when there is none."""
        members = self._groups.get(group, {})
        for connection in members:
            if usable(connection):
                members[connection] = members.pop(connection)
                return connection
        return None

    def find_client(self, client_id: str) -> Hashable | None:
        """The connection of the client with this id, when it speaks for any producer group."""
        return self._by_client.get(client_id)

    def connections(self, group: str) -> ProducerConnection:
        """The producers of a group for an administrator (code 204)."""
        members = self._groups.get(group)
        if not members:
            raise ImpossibleRequest(f"no producer of group {group} is connected to this broker")
        return ProducerConnection(tuple(producer.client.described() for producer in members.values()))

    def table(self) -> ProducerTable:
        """All producers for an administrator (code 328). Addresses have a slash in front, as Java prints them."""
        return ProducerTable(
            {group: tuple(_shown(one, group) for one in members.values()) for group, members in self._groups.items()}
        )


def _shown(producer: _Producer, group: str) -> ProducerInfo:
    client, (_, seen_ms) = producer.client, producer.groups[group]
    return ProducerInfo(client.client_id, f"/{client.address}", client.language, client.version, seen_ms)
