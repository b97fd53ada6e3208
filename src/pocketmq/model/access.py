"""Access rules: each request performs actions on resources. The names are those of RocketMQ's ACL.

Each server has one table from request code to accesses; the sender needs the right to all of them. A code without a row is refused.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple


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
