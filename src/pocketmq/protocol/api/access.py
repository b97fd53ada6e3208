"""Users and access rules, as `mqadmin` manages them. The user or rule itself is in the body.

Java marks no field as mandatory.
"""

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.row import Api
from pocketmq.protocol.fields import Fields


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
