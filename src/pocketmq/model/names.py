"""Names of topics and groups. They are checked once, at the edge; a `TopicName` or `GroupName` is always valid.

    %RETRY%group            the group's failed messages, which wait for their next attempt
    %RETRY%group_topic      the same for messages of one topic that were popped; also %RETRY%group+topic
    %DLQ%group              the group's dead letters
    namespace%topic         a topic in a namespace; prefixes come first: %RETRY%namespace%group

A valid name contains only letters, digits, `%`, `|`, `_` and `-`, so it can never leave a folder when it becomes part of a path.

Also suggestions for unknown arguments: `tag=` is refused with "did you mean 'tags'?".
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NewType

from pocketmq.errors import InvalidName, UsageError

TopicName = NewType("TopicName", str)
GroupName = NewType("GroupName", str)

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_PREFIX = "rmq_sys_"
LMQ_PREFIX = "%LMQ%"

AUTO_CREATE_TOPIC = TopicName("TBW102")
SCHEDULE_TOPIC = TopicName("SCHEDULE_TOPIC_XXXX")
TIMER_TOPIC = TopicName("rmq_sys_wheel_timer")
HALF_TOPIC = TopicName("RMQ_SYS_TRANS_HALF_TOPIC")
OP_HALF_TOPIC = TopicName("RMQ_SYS_TRANS_OP_HALF_TOPIC")
CHECK_MAX_TIME_TOPIC = TopicName("TRANS_CHECK_MAX_TIME_TOPIC")
TRACE_TOPIC = TopicName("RMQ_SYS_TRACE_TOPIC")
SELF_TEST_TOPIC = TopicName("SELF_TEST_TOPIC")
BENCHMARK_TOPIC = TopicName("BenchmarkTest")
OFFSET_MOVED_TOPIC = TopicName("OFFSET_MOVED_EVENT")

TRANSACTION_CHECK_GROUP = GroupName("CID_RMQ_SYS_TRANS")
INNER_PRODUCER_GROUP = GroupName("CLIENT_INNER_PRODUCER")
TOOLS_GROUP = GroupName("TOOLS_CONSUMER")

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRACE_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""Topics of the broker itself, as are all names that start with `rmq_sys_`."""

UNSENDABLE_TOPICS = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)
"""Topics that only the broker writes to."""

SYSTEM_GROUPS = frozenset(
    {
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        TOOLS_GROUP,
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        INNER_PRODUCER_GROUP,
        "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
        TRANSACTION_CHECK_GROUP,
    }
)
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
TRACE_GROUP_PREFIX = "_INNER_TRACE_PRODUCER"
SPARK_SOURCE_GROUP = "spark-rocketmq-source"

MAX_TOPIC_CHARS = 127
MAX_LONG_TOPIC_CHARS = 255
"""Retry, dead-letter and light topics contain a group name and may be longer."""
MAX_GROUP_CHARS = 120
MACHINE_ROOM_MARK = "@"
"""Separates a machine room from a broker name."""
REMEMBERED_TOPICS = 4096
"""The size of the cache of valid topic names: every message has a topic, and there are few."""
_OF_SPARK = re.compile(rf".+-[0-9a-f]{{12}}-(odd|even)|{SPARK_SOURCE_GROUP}-[0-9a-f]{{12}}")
"""Groups of Spark sinks, and of Spark sources without `groupId`."""
_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")
_POP_RETRY_MARK = "+"
"""Separates group and topic in the newer name of a retry topic for messages that were popped: `%RETRY%group+topic`."""


@lru_cache(maxsize=REMEMBERED_TOPICS)
def parse_topic(text: str) -> TopicName:
    """`text` as a topic name. InvalidName if it is not one."""
    try:
        longest = MAX_LONG_TOPIC_CHARS if text.startswith((RETRY_PREFIX, DLQ_PREFIX, LMQ_PREFIX)) else MAX_TOPIC_CHARS
    except (AttributeError, TypeError):
        raise InvalidName(f"the topic name {text!r:.40} is {type(text).__name__}, not text") from None
    plain = text.replace(_POP_RETRY_MARK, "_", 1) if text.startswith(RETRY_PREFIX) else text
    _checked("topic", plain, longest)
    return TopicName(text)


def is_topic(name: str) -> bool:
    """Whether `name` is a valid topic name."""
    try:
        parse_topic(name)
    except InvalidName:
        return False
    return True


def parse_broker(text: str) -> str:
    """`text` as a broker name. The rules of topic names apply, with an optional machine room in front: `room@name`."""
    machine_room, mark, name = text.rpartition(MACHINE_ROOM_MARK)
    for part in (machine_room, name) if mark else (name,):
        _checked("broker", part, MAX_TOPIC_CHARS)
    return text


def machine_room_of_broker(broker_name: str) -> str | None:
    """The machine room of a broker named `room@name`, else None. As in Java, a trailing `@` does not count."""
    parts = broker_name.rstrip(MACHINE_ROOM_MARK).split(MACHINE_ROOM_MARK)
    return parts[0] if len(parts) == 2 else None


def parse_group(text: str) -> GroupName:
    """`text` as a group name. InvalidName if it is not one."""
    return GroupName(_checked("group", text, MAX_GROUP_CHARS))


def _checked(kind: str, text: str, longest: int) -> str:
    if not text:
        raise InvalidName(f"the {kind} name is empty")
    if len(text) > longest:
        raise InvalidName(f"{kind} name {text[:40]!r}… has {len(text)} characters; at most {longest} are allowed")
    if not _ALLOWED.fullmatch(text):
        bad = _ALLOWED.sub("", text)[0]
        raise InvalidName(
            f"{kind} name {text!r} contains {bad!r}; only letters, digits, '%', '|', '_' and '-' are allowed"
        )
    return text


def retry_topic(group: GroupName) -> TopicName:
    return TopicName(RETRY_PREFIX + group)


def dlq_topic(group: GroupName) -> TopicName:
    return TopicName(DLQ_PREFIX + group)


def reply_topic(cluster: str) -> TopicName:
    """The topic for replies of request-reply in `cluster`."""
    return TopicName(cluster + "_REPLY_TOPIC")


def is_retry(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dlq(topic: str) -> bool:
    return topic.startswith(DLQ_PREFIX)


def group_of(topic: str) -> GroupName | None:
    """The group of a retry or dead-letter topic; None for other topics."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            return GroupName(topic[len(prefix) :])
    return None


def is_group_topic(topic: str) -> bool:
    """Whether it is a retry or dead-letter topic."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_internal_group(group: str) -> bool:
    """Whether it is a group without consumers, used internally by RocketMQ, by tracing or by Spark.

    The offsets of Spark's sinks record where a batch begins, not what was consumed, and would look like a growing lag.
    """
    bare = group.rpartition("%")[2]  # without a namespace
    return is_system_group(bare) or bare.startswith(TRACE_GROUP_PREFIX) or _OF_SPARK.fullmatch(bare) is not None


def wrap(namespace: str | None, name: str) -> str:
    """The name on the wire of `name` in `namespace`. Wrapped names and system names stay as they are.

    As in Java, only groups with the system prefix are system groups here; DEFAULT_CONSUMER and similar are wrapped.
    """
    prefix, bare = _split_prefix(name)
    if not namespace or not bare or is_system_topic(bare) or bare.startswith((SYSTEM_GROUP_PREFIX, namespace + "%")):
        return name
    return f"{prefix}{namespace}%{bare}"


def unwrap(namespace: str | None, name: str) -> str:
    """`name` without `namespace`. Prefixes such as %RETRY% stay."""
    if not namespace:
        return name
    prefix, bare = _split_prefix(name)
    return prefix + bare.removeprefix(namespace + "%")


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


_OTHER_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "timeout": ("timeout_s", "send_timeout_ms", "pull_timeout_ms", "call_timeout_ms"),
    "timeout_ms": ("timeout_s", "send_timeout_ms", "pull_timeout_ms", "call_timeout_ms"),
    "timeout_s": ("send_timeout_ms", "pull_timeout_ms", "call_timeout_ms"),
    "headers": ("properties",),
    "filter": ("tags",),
    "selector": ("tags",),
    "expression": ("sql",),
    "threads": ("workers",),
    "bootstrap_servers": ("name_servers",),
    "from_where": ("start_at",),
    "consume_from_where": ("start_at",),
    "auto_offset_reset": ("start_at",),
    "retries": ("max_reconsume_times",),
    "max_retries": ("retries", "max_reconsume_times"),
    "max_attempts": ("retries", "max_reconsume_times"),
    "concurrency": ("workers",),
    "batch_size": ("pull_batch", "batch_bytes"),
    "message_model": ("broadcast",),
    "access_key": ("credentials",),
    "acl": ("credentials",),
    "ssl": ("tls",),
}
"""Argument names of other libraries, or with another unit, and our names for them."""
_SIMILAR: Final = 0.65
"""`namesrv` resembles `name_servers` by 0.74; `workers` resembles `retries`, which means something else, by 0.57."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """`did you mean 'tags'?`, or the list of all names if none is similar."""
    known = sorted(known)
    near = [word for word in _OTHER_WORDS.get(name, ()) if word in known] or difflib.get_close_matches(
        name, known, 1, _SIMILAR
    )
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"


def refuse_unknown(what: str, unknown: Iterable[str], known: Iterable[str]) -> None:
    """Raise UsageError for the first unknown argument, if any."""
    for name in unknown:
        raise UsageError(f"{what} has no argument {name!r}; {suggestion(name, known)}")
