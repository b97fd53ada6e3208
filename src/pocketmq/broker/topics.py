"""Topics of this broker: which there are, how each is set up, and what of them the name servers have not heard yet.

    an administrator ───────────── put ─────────────────────┐
    a send to an unknown topic ─── create_for_send ─────────┼─► row, version + 1 ─┬─► take_changed: tell the name servers
    a group that needs them ────── ensure_retry, ensure_dlq ┘                     └─► the version differs: save

A row is a `TopicConfig`, never changed in place. The version grows with every change, so whoever remembers a version knows
whether there is something to save. Deleting is not announced: the administrator tells the name servers himself.

Topics that are made by use are bounded: those of groups, for retries and dead letters, by `max_retry_topics`, all others by
`max_topics`, so that neither kind can take what the other needs. A heartbeat makes the retry topic of its group, as in Apache, until
half of the former are in use; from then on it is made when a message is first sent back.

Two differences from Apache: a topic without queues is not made, because nothing could ever be sent to it; and with automatic
creation switched off, no built-in topic serves as a template, not only TBW102.

Attributes: names with values that an administrator gives to a topic or a group.

    +message.type=FIFO      set it, or change it
    -message.type           remove it

A request brings changes, not the result: as one text, `+a=1,-b`, or as a map whose names have the sign in front. What Apache
knows and this broker cannot do is refused, so that no attribute is kept that means nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from pocketmq.broker.settings import BrokerSettings
from pocketmq.errors import ImpossibleRequest, InvalidName, InvalidParameter, InvalidSetting, TopicNotFound
from pocketmq.model import names
from pocketmq.model.delay import DELAY_LEVELS
from pocketmq.model.flags import Perm
from pocketmq.model.names import (
    GroupName,
    TopicName,
    dlq_topic,
    is_group_topic,
    is_retry,
    is_system_topic,
    parse_topic,
    retry_topic,
)
from pocketmq.protocol.bodies import topics as bodies
from pocketmq.protocol.bodies.body import DataVersion
from pocketmq.protocol.bodies.topics import MappedTopicTable, TopicConfig


class Attribute(NamedTuple):
    """What an attribute may be. One that is not changeable is given when its topic is made, or never."""

    values: tuple[str, ...]
    changeable: bool = True
    why: str = ""
    """Why a topic with another value cannot be served at all, though Apache knows it."""


TOPIC_ATTRIBUTES: dict[str, Attribute] = {
    "message.type": Attribute(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION")),
    "queue.type": Attribute(("SimpleCQ",), False, "each message of a batch is stored by itself"),
    "cleanup.policy": Attribute(("DELETE",), changeable=False),
}
GROUP_ATTRIBUTES: dict[str, Attribute] = {}


def parse_changes(text: str | None) -> dict[str, str]:
    """The changes in `+name=value,-name`: names with their sign, the value empty for what is removed."""
    changes: dict[str, str] = {}
    for word in text.split(",") if text else ():
        change, _, value = word.partition("=")
        if change in changes:
            raise ImpossibleRequest(f"attribute change {change!r} is there twice in {text!r}")
        changes[change] = value
    return changes


def altered(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """The attributes after `changes`; `current` is None for what is just being made."""
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
        raise ImpossibleRequest(f"attribute change {sign + name!r} begins neither with + (set) nor with - (remove)")
    if name not in known:
        raise ImpossibleRequest(f"attribute {name!r} is not supported; known are: {', '.join(known) or 'none'}")
    if exists and not known[name].changeable:
        raise ImpossibleRequest(f"attribute {name!r} can be given only when the topic is made")


def _check_value(attribute: Attribute, name: str, value: str) -> None:
    if value not in attribute.values:
        raise ImpossibleRequest(
            f"attribute {name!r} cannot be {value!r}; this broker supports: {', '.join(attribute.values)}"
            + (f", because {attribute.why}" if attribute.why else "")
        )


def unsupported(known: Mapping[str, Attribute], current: Mapping[str, str]) -> str | None:
    """The attribute, of those that another broker gave, with which a topic cannot be served here; None when it can."""
    for name, value in current.items():
        attribute = known.get(name)
        if attribute is not None and attribute.why and value not in attribute.values:
            return f"{name}={value}: this broker supports {', '.join(attribute.values)}, because {attribute.why}"
    return None


DEFAULT_QUEUES = 8
MAX_TOPICS = 100_000
MAX_RETRY_TOPICS = 50_000
MAX_QUEUES = 65_536
"""Queues that one topic may have; many requests walk over all of them."""

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
    """The topics that every broker has of itself."""
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
    """The topics by name. Told the wall time with every change, for the version."""

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
        """Topics of groups, for retries and dead letters."""
        self._changed: dict[str, TopicConfig] = {}
        self.version = DataVersion(timestamp=started_ms)
        self.alterations = 0
        """Grows when a topic that was there changes or goes. What is remembered of others stays true while new ones come."""

    def apply(self, settings: BrokerSettings, now_ms: int) -> None:
        """Go by these settings from now on; topics that are there stay."""
        self._auto_create = settings.auto_create_topic
        self._max_topics = settings.max_topics
        self._max_retry_topics = settings.max_retry_topics
        template = self._rows.get(names.AUTO_CREATE_TOPIC)
        if settings.auto_create_topic and (template is None or template.write_queue_nums != settings.default_queues):
            self._store(_topic(names.AUTO_CREATE_TOPIC, settings.default_queues, _ALL_PERMS), now_ms)
        if settings.trace_topic:
            self.ensure(_topic(names.TRACE_TOPIC, 1), now_ms)

    # looking up

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

    def is_order(self, topic: str) -> bool:
        """Whether an administrator made this an ordered topic."""
        found = self._rows.get(topic)
        return found is not None and found.order

    def is_system(self, topic: str) -> bool:
        """Whether the topic belongs to the broker, so that nobody may create, change or delete it."""
        return topic in self._built_in or is_system_topic(topic)

    def system_topics(self) -> list[str]:
        """Names of the topics that belong to the broker."""
        return sorted(self._built_in | names.SYSTEM_TOPICS)

    # changing

    def put(self, configs: Iterable[TopicConfig], now_ms: int) -> None:
        """Create or change topics, all or none. Their attributes are changes, `{"+name": "value", "-name": ""}`."""
        for row in [self._checked(config) for config in configs]:
            self._store(row, now_ms)

    def create_for_send(
        self, topic: TopicName, template: str, queues: int, now_ms: int, *, sys_flag: int = 0
    ) -> TopicConfig:
        """The topic that somebody sends to; made like `template` when it is new, with at most its queues."""
        if found := self._rows.get(topic):
            return found
        if is_retry(topic):
            return self._made_for_group(TopicConfig(topic, 1, 1, topic_sys_flag=sys_flag), now_ms)
        count = len(self._rows) - self.retry_topics
        if count >= self._max_topics:
            raise TopicNotFound(
                f"topic {topic} does not exist and is not made by sending to it: this broker has {count} topics, "
                f"max_topics is {self._max_topics}; create it as an administrator, or raise max_topics"
            )
        model = self._template(topic, template)
        queues = min(queues, model.write_queue_nums)
        if queues < 1:
            raise InvalidParameter(f"topic {topic} is new and cannot be made with {queues} queues; ask for at least 1")
        perm = model.perm & ~Perm.INHERIT
        row = TopicConfig(topic, queues, queues, perm, model.topic_filter_type, topic_sys_flag=sys_flag)
        return self._store(row, now_ms)

    def _template(self, topic: str, template: str) -> TopicConfig:
        found = self._rows.get(template)
        if not found:
            why = f"its template {template!r} is not there either"
        elif not found.perm & Perm.INHERIT:
            why = f"its template {template} does not pass its settings on"
        elif not self._auto_create and self.is_system(template):
            why = "automatic creation is switched off"
        else:
            return found
        raise TopicNotFound(f"topic {topic} does not exist and is not made by sending to it: {why}; create it first")

    def ensure(self, config: TopicConfig, now_ms: int) -> TopicConfig:
        """The topic of this name; `config`, when there is none yet."""
        return self._rows.get(config.topic_name) or self._store(config, now_ms)

    @property
    def makes_retry_topics_early(self) -> bool:
        """Whether a heartbeat makes the retry topic of its group, though nothing was sent back yet."""
        return self.retry_topics < self._max_retry_topics // 2

    def _made_for_group(self, config: TopicConfig, now_ms: int) -> TopicConfig:
        name = config.topic_name
        if found := self._rows.get(name):
            return found
        if self.retry_topics >= self._max_retry_topics:
            raise TopicNotFound(
                f"topic {name} does not exist and is not made: this broker has {self.retry_topics} topics for retries and "
                f"dead letters, max_retry_topics is {self._max_retry_topics}; delete groups that are not used, or raise it"
            )
        return self._store(config, now_ms)

    def ensure_retry(
        self, group: GroupName, queues: int, now_ms: int, *, order: bool | None = None, sys_flag: int = 0
    ) -> TopicConfig:
        """The topic where failed messages of `group` wait. It is ordered when a topic of the group is; None: as it was."""
        count = min(max(queues, 1), MAX_QUEUES)
        config = TopicConfig(retry_topic(group), count, count, topic_sys_flag=sys_flag, order=bool(order))
        row = self._made_for_group(config, now_ms)
        if order is not None and row.order != order:
            row = self._store(replace(row, order=order), now_ms)
        return row

    def ensure_dlq(self, group: GroupName, now_ms: int) -> TopicConfig:
        """The topic of the group's dead letters."""
        return self._made_for_group(TopicConfig(dlq_topic(group), 1, 1), now_ms)

    def mark_ordered(self, topics: Iterable[str], now_ms: int) -> None:
        """Name servers say that these topics are ordered; those that we have become so."""
        for topic in topics:
            row = self._rows.get(topic)
            if row and not row.order:
                self._store(replace(row, order=True), now_ms)

    def delete(self, topic: str, now_ms: int) -> bool:
        """Forget a topic; False when there is none. Its messages and offsets are for others to delete."""
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

    # telling and keeping

    def take_changed(self) -> list[TopicConfig]:
        """The topics that are new or changed since the last call, as they are now."""
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def registration(
        self, permission: int = Perm.READ_WRITE, topics: Collection[TopicConfig] | None = None
    ) -> MappedTopicTable:
        """What a name server is told: all topics, or only some; no more is allowed in them than the broker allows."""
        told = self._rows.values() if topics is None else topics
        restricted = permission & Perm.READ_WRITE != Perm.READ_WRITE
        return MappedTopicTable(
            self.version,
            {row.topic_name: replace(row, perm=row.perm & permission) if restricted else row for row in told},
        )

    def snapshot(self) -> bodies.TopicTable:
        """The value of topics.json."""
        return bodies.TopicTable(self.version, dict(self._rows))

    def restore(self, saved: bodies.TopicTable) -> None:
        """Take over the rows and the version that were saved; built-in topics that are not among them stay.

        InvalidSetting for a topic of Apache's that cannot be served: its messages would not be found.
        """
        for row in saved.topic_config_table.values():
            if why := unsupported(TOPIC_ATTRIBUTES, row.attributes or {}):
                raise InvalidSetting(
                    f"topic {row.topic_name} cannot be served, it has {why}. Delete it with the broker that made it, or take it "
                    "out of topics.json to start without it"
                )
        self._rows.update(saved.topic_config_table)
        self.retry_topics = sum(map(is_group_topic, self._rows))
        self._changed.clear()
        self.alterations += 1
        self.version = saved.data_version
