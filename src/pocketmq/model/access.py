"""Words for who may do what: every request acts on a resource. The words are those of RocketMQ's own access rules.

Each server has one table, request code → what it does, all of which its sender must have the right to. A code that is not in the
table is refused: nothing is open by accident.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple


class Resource(StrEnum):
    """What a request is about. A cluster is everything that belongs to no topic and no group."""

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
"""Finds in a command what it is about, where no single field of its header says so."""


class Access(NamedTuple):
    """One thing that a request does, and to what. The right to `action`, or to one of `or_to`, is enough.

    `named_by` is the field of its header that names the one resource it is about, or finds all of them. Without it, the
    request is about every resource of this kind.
    """

    resource: Resource
    action: Action
    named_by: str | FindNames | None = None
    or_to: tuple[Action, ...] = ()


Accesses = tuple[Access, ...]
"""All that one request does."""
