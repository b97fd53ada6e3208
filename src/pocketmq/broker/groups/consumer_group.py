"""One consumer group with connected members: their subscriptions, and the group's subscriptions.

    heartbeat of a member ──► its own subscriptions, kept as it sent them
                         └──► the group's subscriptions, one for each topic:
                                a topic that is new to the group is added
                                a larger version replaces the known subscription
                                a topic that this member does not subscribe to is removed

Pulls are served by the group's subscriptions. Members with different subscriptions therefore overwrite one another, as
in RocketMQ: the last heartbeat decides on the topics, the largest version on each filter, and the other members lose
messages. Unlike RocketMQ, this broker reports it: each member's subscriptions are kept, and a `Conflict` names the
differences. It is reported when it begins, changes and ends, not with every heartbeat.

Calls to clients use the connection that the client has opened, in the other direction. The tables accept any token for
a connection; here it is the peer.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from pocketmq.codes import RequestCode, Version
from pocketmq.errors import ImpossibleRequest, SubscriptionStale, SubscriptionUnknown
from pocketmq.model import Subscription, is_retry
from pocketmq.model.subscription import ALL, union_expression
from pocketmq.net import Peer
from pocketmq.protocol.bodies.clients import ClientConnection, ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields


class ClientInfo(NamedTuple):
    """A client of a connection, as its last heartbeat described it. `language` is the name of a `codes.Language`."""

    connection: Hashable
    client_id: str
    address: str
    language: str
    version: int

    def described(self) -> ClientConnection:
        return ClientConnection(self.client_id, self.address, self.language, self.version)


def peer_of(connection: Hashable) -> Peer:
    """The peer of a connection in the tables."""
    assert isinstance(connection, Peer), "connections of a broker are peers"
    return connection


async def call_client(connection: Hashable, code: RequestCode, header: Fields, body: bytes, timeout_ms: int) -> Command:
    """The client's answer, whatever its code. CallTimedOut or another NetworkError if there is none."""
    return await peer_of(connection).call(Command(code, header.encode(), body), timeout_ms / 1000)


def require_version(client: ClientInfo, oldest: Version) -> None:
    """ImpossibleRequest if the client is too old for a request."""
    if client.version < oldest:
        raise ImpossibleRequest(
            f"The Consumer <{client.client_id}> Version <{client.version}> too low to finish, "
            f"please upgrade it to {oldest.name}"
        )


_NAMED = 3
"""Limit on topics, filters and clients in one log message; the rest is counted."""

FilterSet = frozenset[tuple[str, str]]
"""Topics and filters without versions: equal for members with the same subscriptions. Without retry topics, which depend on
how a member gets its messages."""

ClientsByFilter = dict[str | None, tuple[str, ...]]
"""Filter → ids of the clients that use it; None for those that do not subscribe to the topic."""


class Conflict(NamedTuple):
    """Different subscriptions of members of one group. Empty if they agree again."""

    group: str
    wanted: dict[str, ClientsByFilter]

    def __str__(self) -> str:
        if not self.wanted:
            return f"All members of group {self.group} have the same subscriptions again"
        topics = _few([f"{topic}: {_listed(clients)}" for topic, clients in sorted(self.wanted.items())], "; ")
        return (
            f"Members of group {self.group} have different subscriptions, so that some of them lose messages: "
            f"{topics}. Use the same subscriptions in all members of a group"
        )


def _listed(clients_by_filter: ClientsByFilter) -> str:
    return _few([f"{wanted or 'nothing'} ({_few(clients)})" for wanted, clients in clients_by_filter.items()])


def _few(texts: Sequence[str], separator: str = ", ") -> str:
    more = len(texts) - _NAMED
    return separator.join(texts[:_NAMED]) + (f" and {more} more" if more > 0 else "")


class Member:
    """A client in a group. `filters` stays None until it has sent its subscriptions; `seen` is monotonic."""

    __slots__ = ("client", "filters", "fingerprint", "seen", "subscriptions")

    def __init__(self, client: ClientInfo) -> None:
        self.client = client
        self.seen = 0.0
        self.fingerprint = 0
        self.subscriptions: dict[str, Subscription] = {}
        self.filters: FilterSet | None = None


class ConsumerGroup:
    """The members by connection, and the subscriptions of the group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[Hashable, Member] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.message_model = MessageModel.CLUSTERING
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        self.notifies = True
        """Whether members are notified of changes; an administrator can switch it off."""
        self._filter_sets: Counter[FilterSet] = Counter()
        self._reported: frozenset[FilterSet] = frozenset()

    def join(self, client: ClientInfo, data: ConsumerData, fingerprint: int, *, without_sub: bool, now: float) -> bool:
        """Process a member's heartbeat. Return whether members or topics of the group changed."""
        member = self.members.get(client.connection)
        is_new = member is None or member.client.client_id != client.client_id
        if member is None:
            member = self.members[client.connection] = Member(client)
        member.client = client
        member.seen = now
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        if not without_sub:
            self._keep(member, data.subscription_data_set)
            member.fingerprint = fingerprint
        return self._adopt(member) or is_new

    def knows(self, connection: Hashable, fingerprint: int) -> bool:
        """Whether the member's last subscriptions had this fingerprint, so that it need not send them again."""
        member = self.members.get(connection)
        return member is not None and member.filters is not None and member.fingerprint == fingerprint

    def leave(self, connection: Hashable) -> None:
        """Remove a member. The group's subscriptions stay until the next heartbeat."""
        self._forget_filters(self.members.pop(connection))

    def _keep(self, member: Member, subscriptions: Iterable[Subscription]) -> None:
        member.subscriptions = {wanted.topic: wanted for wanted in subscriptions}
        filters = frozenset(
            (topic, _filter_text(wanted)) for topic, wanted in member.subscriptions.items() if not is_retry(topic)
        )
        if filters != member.filters:
            self._forget_filters(member)
            self._filter_sets[filters] += 1
            member.filters = filters

    def _forget_filters(self, member: Member) -> None:
        if member.filters is not None:
            self._filter_sets[member.filters] -= 1
            if not self._filter_sets[member.filters]:
                del self._filter_sets[member.filters]

    def _adopt(self, member: Member) -> bool:
        """Update the group's subscriptions from this member's. Return whether the topics changed."""
        if member.filters is None:
            return False
        changed = self.subscriptions.keys() != member.subscriptions.keys()
        self.subscriptions = {
            topic: _newer(wanted, self.subscriptions.get(topic)) for topic, wanted in member.subscriptions.items()
        }
        return changed

    @property
    def served_by(self) -> tuple[MessageModel, dict[str, Subscription]]:
        """What pulls are served by. A heartbeat replaces it and never changes it in place."""
        return self.message_model, self.subscriptions

    def subscription(self, topic: str, sub_version: int) -> Subscription:
        """The subscription that serves a pull. An error if the broker has none, or only an older one."""
        found = self.subscriptions.get(topic)
        if found is None:
            raise SubscriptionUnknown(
                f"group {self.name} has no subscription of topic {topic}: no heartbeat has sent it yet, "
                f"or another member of the group subscribes to other topics"
            )
        if found.sub_version < sub_version:
            raise SubscriptionStale(
                f"group {self.name} in topic {topic}: this broker knows version {found.sub_version} of the subscription, "
                f"the pull has version {sub_version}; its heartbeat will follow"
            )
        return found

    def client_ids(self) -> tuple[str, ...]:
        """Each member once, in the order of joining. A client that reconnects may have two connections for a while."""
        return tuple(dict.fromkeys(member.client.client_id for member in self.members.values()))

    def find(self, client_id: str) -> ClientInfo | None:
        """The client with this id; its newest connection, if it has two."""
        for member in reversed(self.members.values()):
            if member.client.client_id == client_id:
                return member.client
        return None

    # conflicts

    @property
    def in_conflict(self) -> bool:
        return len(self._filter_sets) > 1

    def conflict(self) -> Conflict:
        """The topics for which members have different subscriptions, and which client has which."""
        known_members = [member for member in self.members.values() if member.filters is not None]
        topics = dict.fromkeys(
            topic for member in known_members for topic in member.subscriptions if not is_retry(topic)
        )
        wanted = {topic: _clients_by_filter(topic, known_members) for topic in topics} if self.in_conflict else {}
        return Conflict(self.name, {topic: parties for topic, parties in wanted.items() if len(parties) > 1})

    def pop_report(self) -> Conflict | None:
        """The current conflict if it differs from the last report; else None."""
        now = frozenset(self._filter_sets) if self.in_conflict else frozenset[FilterSet]()
        if now == self._reported:
            return None
        self._reported = now
        return self.conflict()


def _newer(wanted: Subscription, known: Subscription | None) -> Subscription:
    return wanted if known is None or wanted.sub_version > known.sub_version else known


def _filter_text(subscription: Subscription) -> str:
    """The filter as a text that is equal for filters that match the same messages."""
    if subscription.matches_all:
        return ALL
    if not subscription.is_tag:
        return f"{subscription.expression_type}: {subscription.sub_string}"
    return union_expression(sorted(subscription.tags_set)) if subscription.tags_set else subscription.sub_string


def _clients_by_filter(topic: str, members: Iterable[Member]) -> ClientsByFilter:
    parties: dict[str | None, list[str]] = {}
    for member in members:
        wanted = member.subscriptions.get(topic)
        parties.setdefault(_filter_text(wanted) if wanted else None, []).append(member.client.client_id)
    return {wanted: tuple(clients) for wanted, clients in parties.items()}
