"""Subscription groups of this broker: their configuration, and the topics that they may not read.

    an administrator ──────────────── put ────────┐
    a heartbeat, a pull, a retry ──── ensure ─────┴──► row, version + 1 ──► version differs: save

    forbidden:  group ──► topic ──► bits of `Perm` that are removed; only the read bit is ever checked

A row is a `SubscriptionGroupConfig` and is never changed in place. Connected members are in `members`.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from pocketmq.broker.settings import MAX_QUEUES, BrokerSettings
from pocketmq.broker.topics import GROUP_ATTRIBUTES, altered
from pocketmq.codes import Perm
from pocketmq.errors import GroupNotFound, InvalidName, InvalidParameter
from pocketmq.model.names import TOOLS_GROUP, TRANSACTION_CHECK_GROUP, parse_group, parse_topic
from pocketmq.protocol.bodies import clients as bodies
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import DataVersion

MAX_GROUPS = 100_000
MAX_FORBIDDEN = 100_000
"""Limit on forbidden pairs of group and topic."""

BUILT_IN_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_CHECK_GROUP,
)
"""Groups that exist on every broker."""


class GroupTable:
    """The groups by name. Changes receive the wall time, for the version."""

    def __init__(
        self,
        *,
        auto_create: bool = True,
        max_groups: int = MAX_GROUPS,
        max_forbidden: int = MAX_FORBIDDEN,
        started_ms: int = 0,
    ) -> None:
        self._rows = {name: SubscriptionGroupConfig(name) for name in BUILT_IN_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}  # the inner ones are replaced, never changed
        self._auto_create = auto_create
        self._max_groups = max_groups
        self._max_forbidden = max_forbidden
        self.version = DataVersion(timestamp=started_ms)

    def apply(self, settings: BrokerSettings) -> None:
        self._auto_create = settings.auto_create_group
        self._max_groups = settings.max_groups

    # queries

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group if it exists; `ensure` also creates it."""
        return self._rows.get(group)

    def __contains__(self, group: str) -> bool:
        return group in self._rows

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    # changing

    def ensure(self, group: str, now_ms: int) -> SubscriptionGroupConfig:
        """The group, created if it is new and automatic creation is on; else GroupNotFound."""
        if found := self._rows.get(group):
            return found
        if not self._auto_create:
            raise GroupNotFound(
                f"group {group} does not exist on this broker, and autoCreateSubscriptionGroup is off; create it first"
            )
        if len(self._rows) >= self._max_groups:
            raise GroupNotFound(
                f"group {group} does not exist and cannot be created: this broker has {len(self._rows)} groups, "
                f"the limit is {self._max_groups} (maxGroups); create it as an administrator, or raise the limit"
            )
        try:
            return self._store(SubscriptionGroupConfig(parse_group(group)), now_ms)
        except InvalidName as error:
            raise GroupNotFound(str(error)) from None

    def put(self, configs: Iterable[SubscriptionGroupConfig], now_ms: int) -> None:
        """Create or change groups, all or none. Attributes are changes, such as `{"+name": "value", "-name": ""}`."""
        for row in [self._checked(config) for config in configs]:
            self._store(row, now_ms)

    def delete(self, group: str, now_ms: int) -> bool:
        """Delete a group and its forbidden topics; False if there is none. The caller deletes its offsets."""
        forbidden = self._forbidden.pop(group, None)
        found = self._rows.pop(group, None)
        if found or forbidden:
            self.version = self.version.next_version(now_ms)
        return found is not None

    def _checked(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        name = parse_group(config.group_name)
        if config.retry_queue_nums > MAX_QUEUES:
            raise InvalidParameter(
                f"group {name} cannot have {config.retry_queue_nums} retry queues; at most {MAX_QUEUES} are allowed"
            )
        found = self._rows.get(name)
        current = found.attributes if found else None
        return replace(config, attributes=altered(GROUP_ATTRIBUTES, current, config.attributes))

    def _store(self, row: SubscriptionGroupConfig, now_ms: int) -> SubscriptionGroupConfig:
        if self._rows.get(row.group_name) != row:
            self._rows[row.group_name] = row
            self.version = self.version.next_version(now_ms)
        return row

    # forbidden topics

    def may_read(self, group: str, topic: str) -> bool:
        """Whether the group may read the topic. Called for every pull."""
        topics = self._forbidden.get(group)
        return topics is None or not topics.get(topic, 0) & Perm.READ

    def set_readable(self, group: str, topic: str, readable: bool, now_ms: int) -> None:
        """Forbid or allow a group to read a topic. Neither needs to exist."""
        topics = self._forbidden.get(parse_group(group), {})
        before = topics.get(parse_topic(topic), 0)
        bits = before & ~Perm.READ if readable else before | Perm.READ
        if bits == before:
            return
        if not before and sum(map(len, self._forbidden.values())) >= self._max_forbidden:
            raise InvalidParameter(
                f"topic {topic} cannot be forbidden to group {group}: the limit is {self._max_forbidden} pairs; allow others first"
            )
        left = {name: old for name, old in topics.items() if name != topic} | ({topic: bits} if bits else {})
        if left:
            self._forbidden[group] = left
        else:
            del self._forbidden[group]
        self.version = self.version.next_version(now_ms)

    # saving

    def snapshot(self) -> bodies.GroupTable:
        """The value of subscriptionGroup.json."""
        return bodies.GroupTable(self.version, dict(self._forbidden), dict(self._rows))

    def restore(self, saved: bodies.GroupTable) -> None:
        """Restore the saved rows and version; built-in groups that are not among them stay."""
        self._rows.update(saved.subscription_group_table)
        self._forbidden = {group: topics for group, topics in saved.forbidden_table.items() if topics}
        self.version = saved.data_version
