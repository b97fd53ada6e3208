"""Shared by the tests of access: accounts, a request of every kind, and signed requests."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from pocketmq.access.accounts import Accesses, Account, Accounts, Action, Resource, Rights
from pocketmq.access.authentication import Authentication
from pocketmq.access.settings import AuthenticationSettings
from pocketmq.codes import HeaderEncoding, RequestCode
from pocketmq.model.message_id import Host, OffsetId, pack_ip
from pocketmq.protocol.api import request_header
from pocketmq.protocol.command import Command
from pocketmq.protocol.signing import Credentials, signed_fields
from pocketmq.testing import FakeClock, FaultyFiles

TOPIC, GROUP, CLUSTER = "T", "G", "DefaultCluster"
ALL_ACTIONS = list(Action)
FILE = Path("/etc/accounts.toml")

ADMIN = Credentials("admin", "the secret of admin")
USER = Credentials("user", "the secret of user")
STRANGER = Credentials("stranger", "the secret of a stranger")

TEXT = """
[[account]]
access_key = "admin"
secret = "the secret of admin"
admin = true

[[account]]
access_key = "user"
secret = "the secret of user"
topics = { "T*" = ["Pub", "Sub"] }
groups = { "G" = ["Sub"] }
"""
"""A file with two accounts: an administrator, and a user of topic T and group G."""


def account(
    credentials: Credentials = USER,
    *,
    is_admin: bool = False,
    topics: dict[str, list[Action]] | None = None,
    groups: dict[str, list[Action]] | None = None,
    clusters: dict[str, list[Action]] | None = None,
    **more: Any,
) -> Account:
    return Account(
        credentials=credentials,
        is_admin=is_admin,
        topics=Rights(topics),
        groups=Rights(groups),
        clusters=Rights(clusters),
        **more,
    )


NAMES = {Resource.TOPIC: TOPIC, Resource.GROUP: GROUP, Resource.CLUSTER: CLUSTER}


def account_for(rows: Accesses) -> Account:
    """An account with exactly the permissions that these rows require, on topic T, group G and the default cluster."""
    rights: dict[Resource, dict[str, list[Action]]] = {resource: {} for resource in Resource}
    for row in rows:
        name = NAMES[row.resource] if row.named_by else "*"
        rights[row.resource].setdefault(name, []).append(row.action)
    return account(topics=rights[Resource.TOPIC], groups=rights[Resource.GROUP], clusters=rights[Resource.CLUSTER])


def authentication(
    access: dict[RequestCode, Accesses], *accounts: Account, clock: FakeClock | None = None, **settings: int
) -> Authentication:
    return Authentication(Accounts(accounts), access, clock or FakeClock(), AuthenticationSettings(**settings))


def put_file(disk: FaultyFiles, text: str = TEXT, path: Path = FILE) -> Path:
    disk.make_dir(path.parent)
    with disk.open(path, create=True) as file:
        file.write_at(0, text.encode())
    return path


def signed(command: Command, credentials: Credentials = USER) -> Command:
    return replace(command, ext=signed_fields(command.ext, command.body, credentials))


BODIES = {
    RequestCode.HEART_BEAT: {
        "clientID": "c",
        "consumerDataSet": [{"groupName": GROUP, "subscriptionDataSet": [{"topic": TOPIC, "subString": "*"}]}],
    },
    RequestCode.LOCK_BATCH_MQ: {
        "consumerGroup": GROUP,
        "clientId": "c",
        "mqSet": [{"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}],
    },
    RequestCode.CHECK_CLIENT_CONFIG: {"group": GROUP, "subscriptionData": {"topic": TOPIC, "subString": "*"}},
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [{"topicName": TOPIC}]},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": GROUP},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [{"groupName": GROUP}]},
    RequestCode.BATCH_ACK_MESSAGE: {
        "acks": [{"b": "AQ==", "c": GROUP, "it": 1, "pt": 1, "q": 0, "r": "1", "rq": 0, "so": 0, "t": TOPIC}]
    },
    RequestCode.QUERY_ASSIGNMENT: {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "c"},
    RequestCode.SET_MESSAGE_REQUEST_MODE: {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP"},
}
BODIES[RequestCode.UNLOCK_BATCH_MQ] = BODIES[RequestCode.LOCK_BATCH_MQ]

_TEXTS = {
    "topic": TOPIC,
    "cluster_name": CLUSTER,
    "msg_id": str(OffsetId(Host(pack_ip("127.0.0.1"), 10911), 0)),
    "boundary_type": "LOWER",
    **dict.fromkeys(
        ["consumer_group", "group", "group_name", "src_group", "dest_group", "compare_group"],
        GROUP,
    ),
}


def request_of(code: RequestCode, encoding: HeaderEncoding = HeaderEncoding.JSON) -> Command:
    """A request of this kind with all its fields, about topic T, group G and the default cluster."""
    header = request_header(code)
    ext = {}
    for field in msgspec.structs.fields(header):
        kinds = str(field.type)
        text = _TEXTS.get(field.name, "x")
        ext[field.encode_name] = "false" if "bool" in kinds else "0" if "int" in kinds else text
    ext.pop("topicList", None)
    ext.pop("filterGroups", None)
    body = msgspec.json.encode(BODIES[code]) if code in BODIES else b""
    return Command(int(code), ext, body, encoding=encoding)
