"""What each request does, for access rules to decide about: one row for every code that a name server serves.

A code that has a handler and no row here is refused, whoever asks.
"""

from typing import Final

from pocketmq.codes import RequestCode
from pocketmq.model.access import Access, Action, Resource

_READ = Access(Resource.CLUSTER, Action.GET)
_CHANGE = Access(Resource.CLUSTER, Action.UPDATE)
_OWN_CLUSTER = Access(Resource.CLUSTER, Action.UPDATE, named_by="cluster_name")
_LIST_TOPICS = Access(Resource.TOPIC, Action.LIST)

ACCESS: Final[dict[RequestCode, Access]] = {
    # brokers
    RequestCode.REGISTER_BROKER: _OWN_CLUSTER,
    RequestCode.UNREGISTER_BROKER: _OWN_CLUSTER,
    RequestCode.BROKER_HEARTBEAT: _OWN_CLUSTER,
    RequestCode.QUERY_DATA_VERSION: _OWN_CLUSTER,
    RequestCode.GET_BROKER_MEMBER_GROUP: Access(Resource.CLUSTER, Action.GET, named_by="cluster_name"),
    RequestCode.GET_BROKER_CLUSTER_INFO: _READ,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _CHANGE,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _CHANGE,
    # topics
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Access(Resource.TOPIC, Action.GET, named_by="topic"),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: Access(Resource.TOPIC, Action.CREATE, named_by="topic"),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: Access(Resource.TOPIC, Action.DELETE, named_by="topic"),
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
