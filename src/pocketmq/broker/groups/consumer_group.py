"""One consumer group while it has members: who they are, what each wants, and what the group is taken to want.

    heartbeat of a member ──► its own wishes, kept as it sent them
                         └──► the group's subscriptions, one for each topic:
                                a topic that is new to the group is added
                                a larger version replaces what is there
                                a topic that this member does not want is dropped

Pulls are served by the group's subscriptions. So members that want different things overwrite one another, as they do in
RocketMQ: the last heartbeat decides on the topics, the largest version on each filter, and messages are lost to those who lost.
What is different here is that it shows: every member's wishes are kept, and a `Conflict` names who wants what. It is reported
when it comes, when it changes and when it is over, not with every heartbeat.

Who speaks over a connection, as its last heartbeat said.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from pocketmq.errors import SubscriptionStale, SubscriptionUnknown
from pocketmq.model.subscription import ALL, Subscription, union_expression
from pocketmq.protocol.bodies.clients import ClientConnection, ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel


class ClientInfo(NamedTuple):
    """`connection` is any token that stands for the connection; `language` is the name of a `codes.Language`."""

    connection: Hashable
    client_id: str
    address: str
    language: str
    version: int

    def described(self) -> ClientConnection:
        """The client as an administrator is shown it."""
        return ClientConnection(self.client_id, self.address, self.language, self.version)


_NAMED = 3
"""Topics, filters and clients that a line in the log names; the rest is counted."""

Wishes = frozenset[tuple[str, str]]
"""Topics and filters without their versions: equal for members that want the same."""

Parties = dict[str | None, tuple[str, ...]]
"""Filter → ids of the clients that want it; None for those that do not want the topic."""


class Conflict(NamedTuple):
    """Members of a group that want different things of some topics. Empty when they agree again."""

    group: str
    wanted: dict[str, Parties]

    def __str__(self) -> str:
        if not self.wanted:
            return f"the members of group {self.group} want the same again"
        topics = _few([f"of {topic} {_parties(parties)}" for topic, parties in sorted(self.wanted.items())], "; ")
        return (
            f"the members of group {self.group} want different things and overwrite one another, so that messages are lost "
            f"to some of them: {topics}. Give all members of a group the same subscriptions"
        )


def _parties(parties: Parties) -> str:
    return _few([f"{wanted or 'nothing'} ({_few(clients)})" for wanted, clients in parties.items()])


def _few(texts: Sequence[str], separator: str = ", ") -> str:
    more = len(texts) - _NAMED
    return separator.join(texts[:_NAMED]) + (f" and {more} more" if more > 0 else "")


class Member:
    """A client in a group. `wishes` is None until it has sent its subscriptions; `seen` is monotonic."""

    __slots__ = ("client", "fingerprint", "seen", "subscriptions", "wishes")

    def __init__(self, client: ClientInfo) -> None:
        self.client = client
        self.seen = 0.0
        self.fingerprint = 0
        self.subscriptions: dict[str, Subscription] = {}
        self.wishes: Wishes | None = None


class ConsumerGroup:
    """The members by connection, and what the last heartbeats made of the group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[Hashable, Member] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.message_model = MessageModel.CLUSTERING
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        self.notifies = True
        """Whether the group's members are to hear of changes; an administrator may not want it."""
        self._wishes: Counter[Wishes] = Counter()
        self._reported: frozenset[Wishes] = frozenset()

    def join(self, client: ClientInfo, data: ConsumerData, fingerprint: int, *, without_sub: bool, now: float) -> bool:
        """Take a member's heartbeat in; whether members or topics of the group changed by it."""
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
        return self._take_over(member) or is_new

    def knows(self, connection: Hashable, fingerprint: int) -> bool:
        """Whether a member need not send its subscriptions again, because these are the ones it sent last."""
        member = self.members.get(connection)
        return member is not None and member.wishes is not None and member.fingerprint == fingerprint

    def leave(self, connection: Hashable) -> None:
        """Forget a member. The group's subscriptions stay as they are until the next heartbeat."""
        self._forget_wishes(self.members.pop(connection))

    def _keep(self, member: Member, subscriptions: Iterable[Subscription]) -> None:
        member.subscriptions = {wanted.topic: wanted for wanted in subscriptions}
        wishes = frozenset((topic, _filter_text(wanted)) for topic, wanted in member.subscriptions.items())
        if wishes != member.wishes:
            self._forget_wishes(member)
            self._wishes[wishes] += 1
            member.wishes = wishes

    def _forget_wishes(self, member: Member) -> None:
        if member.wishes is not None:
            self._wishes[member.wishes] -= 1
            if not self._wishes[member.wishes]:
                del self._wishes[member.wishes]

    def _take_over(self, member: Member) -> bool:
        """Let the group want what this member wants; whether its topics changed."""
        if member.wishes is None:
            return False
        changed = self.subscriptions.keys() != member.subscriptions.keys()
        self.subscriptions = {
            topic: _newer(wanted, self.subscriptions.get(topic)) for topic, wanted in member.subscriptions.items()
        }
        return changed

    @property
    def served_by(self) -> tuple[MessageModel, dict[str, Subscription]]:
        """All that pulls are served by. A heartbeat replaces it, and never changes what was given out."""
        return self.message_model, self.subscriptions

    def subscription(self, topic: str, sub_version: int) -> Subscription:
        """What a pull is served by; an error when the broker knows nothing, or less than the one who pulls."""
        found = self.subscriptions.get(topic)
        if found is None:
            raise SubscriptionUnknown(
                f"group {self.name} is not known to subscribe to topic {topic}: no heartbeat has said so yet, "
                f"or another member of the group wants other topics"
            )
        if found.sub_version < sub_version:
            raise SubscriptionStale(
                f"group {self.name} in topic {topic}: this broker knows version {found.sub_version} of the subscription, "
                f"the pull is of version {sub_version}; its heartbeat will follow"
            )
        return found

    def client_ids(self) -> tuple[str, ...]:
        """Each member once, in the order in which they came: a client that reconnects may have two connections for a while."""
        return tuple(dict.fromkeys(member.client.client_id for member in self.members.values()))

    def find(self, client_id: str) -> ClientInfo | None:
        """The client of this id; its newest connection, if it has two."""
        for member in reversed(self.members.values()):
            if member.client.client_id == client_id:
                return member.client
        return None

    # conflicts

    @property
    def in_conflict(self) -> bool:
        return len(self._wishes) > 1

    def conflict(self) -> Conflict:
        """Who wants what, of the topics that not all want in the same way."""
        told = [member for member in self.members.values() if member.wishes is not None]
        topics = dict.fromkeys(topic for member in told for topic in member.subscriptions)
        wanted = {topic: _who_wants_what(topic, told) for topic in topics} if self.in_conflict else {}
        return Conflict(self.name, {topic: parties for topic, parties in wanted.items() if len(parties) > 1})

    def take_report(self) -> Conflict | None:
        """The conflict as it is now, if it differs from what was reported last; else None."""
        now = frozenset(self._wishes) if self.in_conflict else frozenset[Wishes]()
        if now == self._reported:
            return None
        self._reported = now
        return self.conflict()


def _newer(wanted: Subscription, known: Subscription | None) -> Subscription:
    return wanted if known is None or wanted.sub_version > known.sub_version else known


def _filter_text(subscription: Subscription) -> str:
    """The filter as a text that is equal for filters that take the same messages."""
    if subscription.takes_all:
        return ALL
    if not subscription.is_tag:
        return f"{subscription.expression_type}: {subscription.sub_string}"
    return union_expression(sorted(subscription.tags_set)) if subscription.tags_set else subscription.sub_string


def _who_wants_what(topic: str, members: Iterable[Member]) -> Parties:
    parties: dict[str | None, list[str]] = {}
    for member in members:
        wanted = member.subscriptions.get(topic)
        parties.setdefault(_filter_text(wanted) if wanted else None, []).append(member.client.client_id)
    return {wanted: tuple(clients) for wanted, clients in parties.items()}
