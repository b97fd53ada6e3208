"""Accounts and their permissions: values and rules; `accounts_file` reads them.

Each server has one table from request code to `Accesses`: the actions of a request on resources, with the names of RocketMQ's ACL.
The sender needs all of these permissions. A code without a row is refused.

    orders-service ── topics   orders*          Pub, Sub
                   ├─ groups   orders-workers   Sub
                   └─ sources  10.1.0.0/16

A pattern is a name, or the beginning of names followed by `*`; `*` alone matches all names. Permissions add up, and no
rule denies anything. Requests about all resources of a kind need the permission for `*`.

A retry or dead-letter topic belongs to its group: an account that may consume as the group may read and write it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.model import group_of
from pocketmq.protocol.signing import Credentials


class Resource(StrEnum):
    """The resource of a request. A cluster stands for everything that belongs to no topic and no group."""

    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(StrEnum):
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


FindNames = Callable[..., Iterable[str]]
"""Finds the resources of a command that no single header field names."""


class Access(NamedTuple):
    """One action of a request on a resource. The right to `action`, or to one of `or_to`, is enough.

    `named_by` is the header field with the name of the resource, or a function that finds the names. Without it, the request
    affects all resources of this kind.
    """

    resource: Resource
    action: Action
    named_by: str | FindNames | None = None
    or_to: tuple[Action, ...] = ()


Accesses = tuple[Access, ...]
"""All accesses of one request."""


ANYTHING = "*"

Network = IPv4Network | IPv6Network
Actions = tuple[Action, ...]
_USING = frozenset({Action.PUB, Action.SUB})


class Rights:
    """Allowed actions on the resources of one kind, by name or by the beginning of the name."""

    __slots__ = ("_by_beginning", "_by_name")

    def __init__(self, patterns: Mapping[str, Iterable[Action]] | None = None) -> None:
        allowed = {pattern: frozenset(actions) for pattern, actions in (patterns or {}).items()}
        self._by_name = {pattern: actions for pattern, actions in allowed.items() if not pattern.endswith(ANYTHING)}
        self._by_beginning = [
            (pattern.removesuffix(ANYTHING), actions)
            for pattern, actions in allowed.items()
            if pattern.endswith(ANYTHING)
        ]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rights):
            return NotImplemented
        return (self._by_name, self._by_beginning) == (other._by_name, other._by_beginning)

    __hash__ = None  # type: ignore[assignment]

    def allow(self, actions: Actions, name: str | None) -> bool:
        """Whether one of `actions` is allowed on the resource with this name; on all resources if there is no name."""
        named = self._by_name.get(name) if name else None
        if named and not named.isdisjoint(actions):
            return True
        for beginning, allowed in self._by_beginning:
            if (name or "").startswith(beginning) and not allowed.isdisjoint(actions):
                return True
        return False


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An access key with its secret and permissions. An administrator may do everything."""

    credentials: Credentials
    is_admin: bool = False
    topics: Rights = Rights()
    groups: Rights = Rights()
    clusters: Rights = Rights()
    sources: tuple[Network, ...] = ()
    """Allowed client addresses; empty: all."""

    def __repr__(self) -> str:
        return f"Account({self.access_key!r})"

    @property
    def access_key(self) -> str:
        return self.credentials.access_key

    def may(self, resource: Resource, actions: Actions, name: str | None) -> bool:
        """Whether one of `actions` is allowed; without a name, on every resource of the kind."""
        if self.is_admin:
            return True
        if resource is Resource.TOPIC:
            if name and (group := group_of(name)):
                return self.groups.allow(_of_group(actions), group)
            return self.topics.allow(actions, name)
        return (self.groups if resource is Resource.GROUP else self.clusters).allow(actions, name)

    def may_come_from(self, host: str) -> bool:
        if not self.sources:
            return True
        try:
            address = ip_address(host)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self.sources)


def _of_group(actions: Actions) -> Actions:
    """The actions on a group that correspond to actions on its retry or dead-letter topic."""
    return tuple(Action.SUB if action in _USING else action for action in actions)


class Accounts:
    """All accounts of a server, by access key."""

    def __init__(self, accounts: Iterable[Account]) -> None:
        self._accounts: dict[str, Account] = {}
        for account in accounts:
            if account.access_key in self._accounts:
                raise InvalidSetting(f"two accounts have access key {account.access_key!r}")
            self._accounts[account.access_key] = account

    def __len__(self) -> int:
        return len(self._accounts)

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def get(self, access_key: str) -> Account | None:
        return self._accounts.get(access_key)

    def registrar(self, cluster: str) -> Account | None:
        """The first account that may register the brokers of a cluster."""
        for account in self:
            if account.may(Resource.CLUSTER, (Action.UPDATE,), cluster):
                return account
        return None
