"""Words for who may do what: every request acts on a resource. The words are those of RocketMQ's own access rules.

Each server has one table, request code → `Access`. A code that is not in the table is refused: nothing is open by accident.
"""

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


class Access(NamedTuple):
    """What a request does, and to what. `named_by` is the field of its header that names the one resource it is about."""

    resource: Resource
    action: Action
    named_by: str | None = None
