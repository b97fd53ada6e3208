"""Users and access rules of RocketMQ 5, and access keys of RocketMQ 4."""

from pocketmq.protocol.bodies.body import Body


class UserInfo(Body, frozen=True):
    """A user. An update leaves None fields unchanged. Types are `Super` and `Normal`, states `enable` and `disable`."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class AclPolicyEntry(Body, frozen=True):
    """One rule: actions on a resource such as `Topic:*` that are allowed or denied, and source addresses."""

    resource: str | None = None
    actions: tuple[str, ...] | None = None
    source_ips: tuple[str, ...] | None = None
    decision: str | None = None


class AclPolicy(Body, frozen=True):
    policy_type: str | None = None
    entries: tuple[AclPolicyEntry, ...] | None = None


class AclInfo(Body, frozen=True):
    """All rules for a subject such as `User:alice`."""

    subject: str | None = None
    policies: tuple[AclPolicy, ...] | None = None


class AccessKey(Body, frozen=True):
    """An access key of RocketMQ 4: its default rights, and exceptions such as `topic=PUB|SUB`."""

    access_key: str | None = None
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] | None = None
    group_perms: tuple[str, ...] | None = None


class AccessKeys(Body, frozen=True):
    """All access keys of a broker, and the addresses that need none."""

    global_white_addrs: tuple[str, ...] | None = None
    plain_access_configs: tuple[AccessKey, ...] | None = None
