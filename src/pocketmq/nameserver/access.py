"""What each request does, for access rules to decide about: one row for every code that a name server serves.

A code that has a handler and no row here is refused, whoever asks. Who asks must have the right to everything in its row.
"""

from collections.abc import Iterable
from typing import Final

from pocketmq.codes import RequestCode
from pocketmq.model.access import Access, Accesses, Action, Resource
from pocketmq.model.names import AUTO_CREATE_TOPIC
from pocketmq.protocol.api.routes import GetRoute
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import read_fields


def _routed_topic(command: Command) -> Iterable[str]:
    """None for the template of new topics: whoever sends to one asks for its route first, and learns only where brokers are."""
    topic = read_fields(GetRoute, command.ext).topic
    return [] if topic == AUTO_CREATE_TOPIC else [topic]


_READ = (Access(Resource.CLUSTER, Action.GET),)
_CHANGE = (Access(Resource.CLUSTER, Action.UPDATE),)
_OWN_CLUSTER = (Access(Resource.CLUSTER, Action.UPDATE, "cluster_name"),)
_LIST_TOPICS = (Access(Resource.TOPIC, Action.LIST),)

ACCESS: Final[dict[RequestCode, Accesses]] = {
    # brokers
    RequestCode.REGISTER_BROKER: _OWN_CLUSTER,
    RequestCode.UNREGISTER_BROKER: _OWN_CLUSTER,
    RequestCode.BROKER_HEARTBEAT: _OWN_CLUSTER,
    RequestCode.QUERY_DATA_VERSION: _OWN_CLUSTER,
    RequestCode.GET_BROKER_MEMBER_GROUP: (Access(Resource.CLUSTER, Action.GET, "cluster_name"),),
    RequestCode.GET_BROKER_CLUSTER_INFO: _READ,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _CHANGE,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _CHANGE,
    # topics
    RequestCode.GET_ROUTEINFO_BY_TOPIC: (
        Access(Resource.TOPIC, Action.GET, _routed_topic, or_to=(Action.PUB, Action.SUB)),
    ),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: (Access(Resource.TOPIC, Action.CREATE, "topic"),),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: (Access(Resource.TOPIC, Action.DELETE, "topic"),),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _LIST_TOPICS,
    RequestCode.GET_TOPICS_BY_CLUSTER: _LIST_TOPICS,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _LIST_TOPICS,
    RequestCode.GET_UNIT_TOPIC_LIST: _LIST_TOPICS,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _LIST_TOPICS,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _LIST_TOPICS,
    # what it is told to remember
    RequestCode.PUT_KV_CONFIG: _CHANGE,
    RequestCode.GET_KV_CONFIG: _READ,
    RequestCode.DELETE_KV_CONFIG: _CHANGE,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _READ,
    RequestCode.UPDATE_NAMESRV_CONFIG: _CHANGE,
    RequestCode.GET_NAMESRV_CONFIG: _READ,
}
