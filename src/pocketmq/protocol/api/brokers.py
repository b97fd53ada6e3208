"""Settings, statistics, clean-up and replication of a broker, users and access rules.

The user or rule itself is in the body. Java marks no field of these as mandatory.
"""

from msgspec import field

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.row import Api
from pocketmq.protocol.fields import Fields, Int32, Int64


class BrokerConfigReply(Fields):
    """`version` is the JSON text of a data version."""

    version: str


class ViewBrokerStats(Fields):
    stats_name: str
    stats_key: str


class GetBrokerConsumeStats(Fields):
    is_order: bool


class ResetMasterFlushOffset(Fields):
    master_flush_offset: Int64


class SetReadAheadMode(Fields):
    """The advice given to the kernel about the commit log: 0 normal, 1 random."""

    mode: Int32 = field(name="READ_AHEAD_MODE")


class UserName(Fields):
    username: str | None = None


class ListUsers(Fields):
    filter: str | None = None


class AclSubject(Fields):
    """A subject is `User:name`."""

    subject: str | None = None


class DeleteAcl(Fields):
    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAcls(Fields):
    subject_filter: str | None = None
    resource_filter: str | None = None


ROWS = (
    Api(RequestCode.UPDATE_BROKER_CONFIG),
    Api(RequestCode.GET_BROKER_CONFIG, response=BrokerConfigReply),
    Api(RequestCode.GET_BROKER_RUNTIME_INFO),
    Api(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStats),
    Api(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStats),
    Api(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE),
    Api(RequestCode.DELETE_EXPIRED_COMMITLOG),
    Api(RequestCode.GET_BROKER_HA_STATUS),
    Api(RequestCode.GET_BROKER_EPOCH_CACHE),
    Api(RequestCode.RESET_MASTER_FLUSH_OFFSET, ResetMasterFlushOffset),
    Api(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG),
    Api(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG),
    Api(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO),
    Api(RequestCode.SET_COMMITLOG_READ_MODE, SetReadAheadMode),
    Api(RequestCode.AUTH_CREATE_USER, UserName),
    Api(RequestCode.AUTH_UPDATE_USER, UserName),
    Api(RequestCode.AUTH_DELETE_USER, UserName),
    Api(RequestCode.AUTH_GET_USER, UserName),
    Api(RequestCode.AUTH_LIST_USER, ListUsers),
    Api(RequestCode.AUTH_CREATE_ACL, AclSubject),
    Api(RequestCode.AUTH_UPDATE_ACL, AclSubject),
    Api(RequestCode.AUTH_DELETE_ACL, DeleteAcl),
    Api(RequestCode.AUTH_GET_ACL, AclSubject),
    Api(RequestCode.AUTH_LIST_ACL, ListAcls),
    Api(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG),
)
