"""Topics of this broker: their configuration, and which changes are not registered yet.

    an administrator ───────────── put ─────────────────────┐
    a send to an unknown topic ─── create_for_send ─────────┼─► row, version + 1 ─┬─► pop_changed: register
    a group that needs them ────── ensure_retry, ensure_dlq ┘                     └─► the version differs: save

A row is a `TopicConfig` and is never changed in place. The version increases with every change, so a saved version
shows whether there is something to save. Deletions are not registered: the administrator's tool reports them.

Topics that clients create are limited: retry and dead-letter topics by `max_retry_topics`, all others by `max_topics`.
A heartbeat creates the retry topic of its group, as in Apache RocketMQ, until half of that limit is used. From then on
it is created when a message is first sent back.

Two differences from Apache RocketMQ: a topic without queues is not created, because it could not be used; and with
automatic creation off, no built-in topic serves as a template, not only TBW102.

Attributes are named values that an administrator sets for a topic or a group:

    +message.type=FIFO      set or change it
    -message.type           remove it

A request contains changes, not the result: as one text, `+a=1,-b`, or as a map whose names begin with the sign.
Attributes of Apache RocketMQ that this broker does not support are rejected.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from pocketmq.broker.settings import MAX_QUEUES, BrokerSettings
from pocketmq.codes import Perm
from pocketmq.errors import ImpossibleRequest, InvalidName, InvalidParameter, InvalidSetting, TopicNotFound
from pocketmq.model import (
    DELAY_LEVELS,
    GroupName,
    TopicName,
    dlq_topic,
    is_group_topic,
    is_retry,
    is_system_topic,
    names,
    parse_topic,
    retry_topic,
)
from pocketmq.protocol.bodies import topics as bodies
from pocketmq.protocol.bodies.topics import DataVersion, MappedTopicTable, TopicConfig


class Attribute(NamedTuple):
    """The allowed values of an attribute. One that is not changeable can only be set when its topic is created."""

    values: tuple[str, ...]
    changeable: bool = True
    why: str = ""
    """Why topics with other values of Apache RocketMQ cannot be served."""


TOPIC_ATTRIBUTES: dict[str, Attribute] = {
    "message.type": Attribute(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION")),
    "queue.type": Attribute(("SimpleCQ",), False, "each message of a batch is stored by itself"),
    "cleanup.policy": Attribute(("DELETE",), changeable=False),
}
GROUP_ATTRIBUTES: dict[str, Attribute] = {}


def parse_changes(text: str | None) -> dict[str, str]:
    """The changes in `+name=value,-name`: names with their sign; the value is empty for a removal."""
    changes: dict[str, str] = {}
    for word in text.split(",") if text else ():
        change, _, value = word.partition("=")
        if change in changes:
            raise ImpossibleRequest(f"attribute change {change!r} is repeated in {text!r}")
        changes[change] = value
    return changes


def altered(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """The attributes after `changes`. A new topic or group has no `current` attributes."""
    result = dict(current or {})
    for change, value in changes.items():
        sign, name = change[:1], change[1:]
        _check(known, sign, name, exists=current is not None)
        if sign == "+" and f"-{name}" in changes:
            raise ImpossibleRequest(f"attribute {name!r} is both set and removed; do one of them")
        if sign == "+":
            _check_value(known[name], name, value)
            result[name] = value
        elif result.pop(name, None) is None:
            raise ImpossibleRequest(f"attribute {name!r} cannot be removed: it is not set")
    return result


def _check(known: Mapping[str, Attribute], sign: str, name: str, *, exists: bool) -> None:
    if sign not in ("+", "-"):
        raise ImpossibleRequest(f"attribute change {sign + name!r} must begin with + (set) or - (remove)")
    if name not in known:
        raise ImpossibleRequest(f"attribute {name!r} is not supported; known are: {', '.join(known) or 'none'}")
    if exists and not known[name].changeable:
        raise ImpossibleRequest(f"attribute {name!r} can only be set when the topic is created")


def _check_value(attribute: Attribute, name: str, value: str) -> None:
    if value not in attribute.values:
        raise ImpossibleRequest(
            f"attribute {name!r} cannot be {value!r}; this broker supports: {', '.join(attribute.values)}"
            + (f", because {attribute.why}" if attribute.why else "")
        )


def unsupported(known: Mapping[str, Attribute], current: Mapping[str, str]) -> str | None:
    """The first attribute with which a topic of another broker cannot be served here; None if it can."""
    for name, value in current.items():
        attribute = known.get(name)
        if attribute is not None and attribute.why and value not in attribute.values:
            return f"{name}={value}: this broker supports {', '.join(attribute.values)}, because {attribute.why}"
    return None


DEFAULT_QUEUES = 8
MAX_TOPICS = 100_000
MAX_RETRY_TOPICS = 50_000
DEFAULT_CLIENT_QUEUES = 4
"""Queues that clients request for a new topic: they may know of queues without messages."""

Announced = Callable[[], asyncio.Future[None] | None]
"""Registers new topics. The future is done when the name servers know them; None if there is nothing to wait for."""

_ALL_PERMS = Perm.READ_WRITE | Perm.INHERIT
_KNOWN_PERMS = _ALL_PERMS | Perm.PRIORITY


def built_in_topics(
    cluster: str,
    broker_name: str,
    *,
    auto_create: bool = True,
    default_queues: int = DEFAULT_QUEUES,
    trace: bool = False,
) -> list[TopicConfig]:
    """The topics that exist on every broker."""
    topics = [
        _topic(names.SELF_TEST_TOPIC, 1),
        _topic(names.BENCHMARK_TOPIC, 1024),
        _topic(cluster, 16, _ALL_PERMS),
        _topic(broker_name, 1, _ALL_PERMS),
        _topic(names.OFFSET_MOVED_TOPIC, 1),
        _topic(names.SCHEDULE_TOPIC, len(DELAY_LEVELS)),
        _topic(names.reply_topic(cluster), 1),
        _topic(f"{names.SYSTEM_PREFIX}REVIVE_LOG_{cluster}", 8),
        _topic(f"{names.SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{broker_name}", 1, Perm.INHERIT),
        _topic(names.HALF_TOPIC, 1),
        _topic(names.OP_HALF_TOPIC, 1),
        _topic(names.TIMER_TOPIC, 1),
    ]
    if auto_create:
        topics.append(_topic(names.AUTO_CREATE_TOPIC, default_queues, _ALL_PERMS))
    if trace:
        topics.append(_topic(names.TRACE_TOPIC, 1))
    return topics


def _topic(name: str, queues: int, perm: int = Perm.READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queues, queues, perm)


class TopicTable:
    """The topics by name. Changes receive the wall time, for the version."""

    def __init__(
        self,
        cluster: str,
        broker_name: str,
        *,
        auto_create: bool = True,
        default_queues: int = DEFAULT_QUEUES,
        trace: bool = False,
        max_topics: int = MAX_TOPICS,
        max_retry_topics: int = MAX_RETRY_TOPICS,
        started_ms: int = 0,
    ) -> None:
        built_in = built_in_topics(
            cluster, broker_name, auto_create=auto_create, default_queues=default_queues, trace=trace
        )
        self._rows = {topic.topic_name: topic for topic in built_in}
        self._built_in = frozenset(self._rows)
        self._auto_create = auto_create
        self._max_topics = max_topics
        self._max_retry_topics = max_retry_topics
        self.retry_topics = 0
        """The number of retry and dead-letter topics."""
        self._changed: dict[str, TopicConfig] = {}
        self.version = DataVersion(timestamp=started_ms)
        self.alterations = 0
        """Increases when an existing topic changes or is deleted, but not with new topics: caches of topics use it."""

    def apply(self, settings: BrokerSettings, now_ms: int) -> None:
        """Use these settings from now on; existing topics stay."""
        self._auto_create = settings.auto_create_topic
        self._max_topics = settings.max_topics
        self._max_retry_topics = settings.max_retry_topics
        template = self._rows.get(names.AUTO_CREATE_TOPIC)
        if settings.auto_create_topic and (template is None or template.write_queue_nums != settings.default_queues):
            self._store(_topic(names.AUTO_CREATE_TOPIC, settings.default_queues, _ALL_PERMS), now_ms)
        if settings.trace_topic:
            self.ensure(_topic(names.TRACE_TOPIC, 1), now_ms)

    # queries

    def get(self, topic: str) -> TopicConfig | None:
        return self._rows.get(topic)

    def require(self, topic: str) -> TopicConfig:
        """The topic, or TopicNotFound."""
        if found := self._rows.get(topic):
            return found
        raise TopicNotFound(f"topic {topic} does not exist on this broker; create it first")

    def __contains__(self, topic: str) -> bool:
        return topic in self._rows

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def groups_last(self) -> list[TopicConfig]:
        """Retry and dead-letter topics last: a name server that reaches its limit accepts the first topics."""
        return sorted(self, key=lambda row: is_group_topic(row.topic_name))

    def is_order(self, topic: str) -> bool:
        found = self._rows.get(topic)
        return found is not None and found.order

    def is_system(self, topic: str) -> bool:
        """Whether the topic belongs to the broker, so that clients cannot create, change or delete it."""
        return topic in self._built_in or is_system_topic(topic)

    def system_topics(self) -> list[str]:
        """Names of the topics that belong to the broker."""
        return sorted(self._built_in | names.SYSTEM_TOPICS)

    # changing

    def put(self, configs: Iterable[TopicConfig], now_ms: int) -> None:
        """Create or change topics, all or none. Attributes are changes, such as `{"+name": "value", "-name": ""}`."""
        for row in [self._checked(config) for config in configs]:
            self._store(row, now_ms)

    def create_for_send(
        self, topic: TopicName, template: str, queues: int, now_ms: int, *, sys_flag: int = 0
    ) -> TopicConfig:
        """The topic of a send. A new one is created like `template`, with at most its number of queues."""
        if found := self._rows.get(topic):
            return found
        if is_retry(topic):
            return self._ensure_group_topic(TopicConfig(topic, 1, 1, topic_sys_flag=sys_flag), now_ms)
        count = len(self._rows) - self.retry_topics
        if count >= self._max_topics:
            raise TopicNotFound(
                f"topic {topic} does not exist and cannot be created by a send: this broker has {count} topics, "
                f"the limit is {self._max_topics} (maxTopics); create it as an administrator, or raise the limit"
            )
        model = self._template(topic, template)
        queues = min(queues, model.write_queue_nums)
        if queues < 1:
            raise InvalidParameter(
                f"topic {topic} is new and cannot be created with {queues} queues; request at least 1"
            )
        perm = model.perm & ~Perm.INHERIT
        row = TopicConfig(topic, queues, queues, perm, model.topic_filter_type, topic_sys_flag=sys_flag)
        return self._store(row, now_ms)

    def _template(self, topic: str, template: str) -> TopicConfig:
        found = self._rows.get(template)
        if not found:
            why = f"its template {template!r} does not exist either"
        elif not found.perm & Perm.INHERIT:
            why = f"its template {template} has no inherit permission"
        elif not self._auto_create and self.is_system(template):
            why = "autoCreateTopicEnable is off"
        else:
            return found
        raise TopicNotFound(f"topic {topic} does not exist and cannot be created by a send: {why}; create it first")

    def ensure(self, config: TopicConfig, now_ms: int) -> TopicConfig:
        """The topic with this name; `config` if there is none yet."""
        return self._rows.get(config.topic_name) or self._store(config, now_ms)

    @property
    def creates_retry_topics_early(self) -> bool:
        """Whether a heartbeat creates the retry topic of its group."""
        return self.retry_topics < self._max_retry_topics // 2

    def _ensure_group_topic(self, config: TopicConfig, now_ms: int) -> TopicConfig:
        name = config.topic_name
        if found := self._rows.get(name):
            return found
        if self.retry_topics >= self._max_retry_topics:
            raise TopicNotFound(
                f"topic {name} does not exist and cannot be created: this broker has {self.retry_topics} retry and dead-letter "
                f"topics, the limit is {self._max_retry_topics} (maxRetryTopics); delete unused groups, or raise the limit"
            )
        return self._store(config, now_ms)

    def ensure_retry(
        self, group: GroupName, queues: int, now_ms: int, *, order: bool | None = None, sys_flag: int = 0
    ) -> TopicConfig:
        """The retry topic of `group`. It is ordered if a topic of the group is; None leaves it unchanged."""
        count = min(max(queues, 1), MAX_QUEUES)
        config = TopicConfig(retry_topic(group), count, count, topic_sys_flag=sys_flag, order=bool(order))
        row = self._ensure_group_topic(config, now_ms)
        if order is not None and row.order != order:
            row = self._store(replace(row, order=order), now_ms)
        return row

    def ensure_pop_retry(self, name: TopicName, now_ms: int) -> TopicConfig:
        """The retry topic of a group for the messages of one topic that it pops."""
        return self._ensure_group_topic(TopicConfig(name, 1, 1), now_ms)

    def ensure_dlq(self, group: GroupName, now_ms: int) -> TopicConfig:
        """The dead-letter topic of `group`."""
        return self._ensure_group_topic(TopicConfig(dlq_topic(group), 1, 1), now_ms)

    def adopt(self, topic: str, queues: int, now_ms: int) -> None:
        """Create the row of a topic that has messages in `queues` queues."""
        is_user_topic = names.group_of(topic) is None and not self.is_system(topic)
        count = min(max(queues, DEFAULT_CLIENT_QUEUES if is_user_topic else 1), MAX_QUEUES)
        self.ensure(TopicConfig(topic, count, count), now_ms)

    def mark_ordered(self, topics: Iterable[str], now_ms: int) -> None:
        """Mark these topics as ordered, as the name servers' order config says."""
        for topic in topics:
            row = self._rows.get(topic)
            if row and not row.order:
                self._store(replace(row, order=True), now_ms)

    def delete(self, topic: str, now_ms: int) -> bool:
        """Delete a topic; False if there is none. The caller deletes its messages and offsets."""
        if not topic:
            raise InvalidName("the topic name is empty")
        self._refuse_system(topic)
        if self._rows.pop(topic, None) is None:
            return False
        self.retry_topics -= is_group_topic(topic)
        self._changed.pop(topic, None)
        self.alterations += 1
        self.version = self.version.next_version(now_ms)
        return True

    def _checked(self, config: TopicConfig) -> TopicConfig:
        name = parse_topic(config.topic_name)
        self._refuse_system(name)
        for queues in (config.read_queue_nums, config.write_queue_nums):
            if not 0 <= queues <= MAX_QUEUES:
                raise InvalidParameter(f"topic {name} cannot have {queues} queues; 0 to {MAX_QUEUES} are allowed")
        if config.perm & ~_KNOWN_PERMS:
            raise InvalidParameter(f"topic {name}: permission {config.perm} has unknown bits; 2 write, 4 read, 6 both")
        found = self._rows.get(name)
        current = found.attributes if found else None
        return replace(config, attributes=altered(TOPIC_ATTRIBUTES, current, config.attributes))

    def _refuse_system(self, topic: str) -> None:
        if self.is_system(topic):
            raise InvalidName(f"topic {topic} belongs to the broker itself; choose another name")

    def _store(self, row: TopicConfig, now_ms: int) -> TopicConfig:
        name = row.topic_name
        before = self._rows.get(name)
        if before != row:
            self.alterations += before is not None
            self.retry_topics += before is None and is_group_topic(name)
            self._rows[name] = self._changed[name] = row
            self.version = self.version.next_version(now_ms)
        return row

    # registering and saving

    def pop_changed(self) -> list[TopicConfig]:
        """The new and changed topics since the last call."""
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def registration(
        self, permission: int = Perm.READ_WRITE, topics: Collection[TopicConfig] | None = None
    ) -> MappedTopicTable:
        """The table for a name server: all topics, or some. Permissions are limited by the broker's permission."""
        rows = self._rows.values() if topics is None else topics
        restricted = permission & Perm.READ_WRITE != Perm.READ_WRITE
        return MappedTopicTable(
            self.version,
            {row.topic_name: replace(row, perm=row.perm & permission) if restricted else row for row in rows},
        )

    def snapshot(self) -> bodies.TopicTable:
        """The value of topics.json."""
        return bodies.TopicTable(self.version, dict(self._rows))

    def restore(self, saved: bodies.TopicTable) -> None:
        """Restore the saved rows and version; built-in topics that are not among them stay.

        InvalidSetting for a topic of Apache RocketMQ that cannot be served: its messages would not be found.
        """
        for row in saved.topic_config_table.values():
            if why := unsupported(TOPIC_ATTRIBUTES, row.attributes or {}):
                raise InvalidSetting(
                    f"topic {row.topic_name} cannot be served: it has {why}. Delete it with the broker that created it, or remove "
                    "it from topics.json to start without it"
                )
        self._rows.update(saved.topic_config_table)
        self.retry_topics = sum(map(is_group_topic, self._rows))
        self._changed.clear()
        self.alterations += 1
        self.version = saved.data_version
