"""Who may do what: users and rules of release 5, and the access keys of release 4."""

from pocketmq.protocol.bodies.body import Body


class UserInfo(Body, frozen=True):
    """A user; what is None stays as it is in an update. Types are `Super` and `Normal`, states `enable` and `disable`."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class AclPolicyEntry(Body, frozen=True):
    """One rule: which actions on a resource such as `Topic:*` are allowed, or denied, from which addresses."""

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
    """An access key of release 4: what it may do by default, and `topic=PUB|SUB` where that differs."""

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
