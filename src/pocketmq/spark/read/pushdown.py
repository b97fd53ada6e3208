"""Filters of a query, and the option `filter`: what narrows ranges, what brokers apply, and what remains.

    topic, queueId      = and IN            fewer queues are read            exact: need not be checked again
    queueOffset         = IN < <= > >=      shorter ranges                   exact, except IN
    tags                = and IN            the broker filters               exact: the decoder compares the texts
    storeTimestamp      = < <= > >=         shorter ranges of a batch, by the broker's search by time; checked again
    tags, keys and      = <> IN IS          the broker filters by SQL92      only of the option; see `filters.sql92`;
    properties          AND OR NOT                                               checked again

Spark applies what remains of its own filters, and tasks apply what remains of the option. Brokers accept tags or SQL92. SQL92 only
saves work: tasks check it again, as brokers ignore it for compaction topics, and may refuse it since the read was planned.

Filters are recognised by the names of their classes, so this module does not import Spark. An unknown filter, or one with a
value of another type, remains: then more is read than needed.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.model.names import is_retry
from pocketmq.spark.broker_facts import Metadata
from pocketmq.spark.filters.conditions import Condition, In, all_of, parts_of, sql92_of
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.schema import Name

log = logging.getLogger("pocketmq.spark")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL: Final = frozenset(Name) - {Name.KEYS, Name.TAGS}
_UNUSABLE_TAGS: Final = ("", "*")


class Pushed(msgspec.Struct, frozen=True):
    """Upper bounds for what is read; None if a column is not filtered. Store times go from `from_ms` to before `to_ms`."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    from_offset: int = 0
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def narrowed(self, wanted: QueueRange) -> QueueRange | None:
        """The part of a range that topic, queue and offset select; None if that is empty."""
        if self.topics is not None and wanted.queue.topic not in self.topics:
            return None
        if self.queue_ids is not None and wanted.queue.queue_id not in self.queue_ids:
            return None
        start = max(wanted.start, self.from_offset)
        end = wanted.end if self.to_offset is None else min(wanted.end, self.to_offset)
        return QueueRange(wanted.queue, start, end) if start < end else None

    @property
    def tag_expression(self) -> str | None:
        """The subscription expression for these tags; None if tags are not filtered."""
        return None if self.tags is None else " || ".join(sorted(self.tags))


def narrowed(ranges: Iterable[QueueRange], pushed: Pushed, metadata: Metadata) -> list[QueueRange]:
    """The parts of ranges that the pushed filters select."""
    left = [part for part in map(pushed.narrowed, ranges) if part is not None]
    if pushed.from_ms is not None:
        starts = metadata.offsets_at({part.queue: max(0, pushed.from_ms) for part in left})
        left = [QueueRange(part.queue, max(part.start, starts[part.queue]), part.end) for part in left]
    if pushed.to_ms is not None:
        ends = metadata.offsets_at({part.queue: max(0, pushed.to_ms) for part in left})
        left = [QueueRange(part.queue, part.start, min(part.end, ends[part.queue])) for part in left]
    return [part for part in left if len(part)]


class Split(NamedTuple):
    """The pushed filters, and those that Spark still has to apply."""

    pushed: Pushed
    remaining: list[Any]


def split_filters(filters: Iterable[Any], *, can_filter_tags: bool) -> Split:
    """Split filters. `can_filter_tags` is False if an option sets a filter: brokers accept only one."""
    pushed = Pushed()
    remaining = []
    for each in filters:
        narrower, is_exact = _narrowed(pushed, each, can_filter_tags)
        pushed = narrower
        if not is_exact:
            remaining.append(each)
    return Split(pushed, remaining)


def _narrowed(pushed: Pushed, each: Any, can_filter_tags: bool) -> tuple[Pushed, bool]:
    """`pushed` with one more filter, and whether that covers the filter exactly."""
    kind = type(each).__name__
    path: tuple[str, ...] = getattr(each, "attribute", ())
    if len(path) != 1 or path[0] not in _BY_NAME:
        return pushed, False
    name = _BY_NAME[path[0]]
    if kind == "IsNotNull":
        return pushed, name in _NEVER_NULL
    value = getattr(each, "value", None)
    values = _values(kind, value)
    match name:
        case Name.TOPIC if values is not None and all(type(one) is str for one in values):
            return _with(pushed, topics=_both(pushed.topics, values)), True
        case Name.QUEUE_ID if values is not None and all(type(one) is int for one in values):
            return _with(pushed, queue_ids=_both(pushed.queue_ids, values)), True
        case Name.TAGS if can_filter_tags and values and all(_is_usable_tag(one) for one in values):
            return _with_tags(pushed, values)
        case Name.QUEUE_OFFSET:
            return _with_offsets(pushed, kind, value)
        case Name.STORE_TIMESTAMP if (ms := _milliseconds(value)) is not None:
            return _with_times(pushed, kind, ms), False
    return pushed, False


_BY_NAME: Final[Mapping[str, Name]] = {name.value: name for name in Name}


def _milliseconds(value: Any) -> int | None:
    """A time as Spark's filters have it, or as the option `filter` has it, in microseconds."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(milliseconds=1)
    return value // 1000 if type(value) is int else None


def _values(kind: str, value: Any) -> frozenset[Any] | None:
    """The values that a column may have, by a filter that lists them; None for other filters."""
    match kind:
        case "EqualTo" | "EqualNullSafe" if value is not None:
            return frozenset({value})
        case "In" if isinstance(value, tuple | list):
            return frozenset(one for one in value if one is not None)
    return None


def _is_usable_tag(tag: Any) -> bool:
    """Whether a subscription can express this tag: brokers strip blanks and control characters around a tag."""
    return type(tag) is str and tag not in _UNUSABLE_TAGS and "||" not in tag and min(tag[0], tag[-1]) > " "


def _with_tags(pushed: Pushed, values: frozenset[str]) -> tuple[Pushed, bool]:
    tags = _both(pushed.tags, values)
    # A subscription cannot express "no tag"; the earlier filter stays, and Spark finds that nothing matches both.
    return (_with(pushed, tags=tags), True) if tags else (pushed, False)


def _with_offsets(pushed: Pushed, kind: str, value: Any) -> tuple[Pushed, bool]:
    values = _values(kind, value)
    if values is not None and values and all(type(one) is int for one in values):
        narrower = _from_offset(_to_offset(pushed, max(values) + 1), min(values))
        return narrower, len(values) == 1
    if type(value) is not int:
        return pushed, False
    match kind:
        case "GreaterThan":
            return _from_offset(pushed, value + 1), True
        case "GreaterThanOrEqual":
            return _from_offset(pushed, value), True
        case "LessThan":
            return _to_offset(pushed, value), True
        case "LessThanOrEqual":
            return _to_offset(pushed, value + 1), True
    return pushed, False


def _with_times(pushed: Pushed, kind: str, ms: int) -> Pushed:
    """Bounds that exclude nothing that matches: store times have milliseconds, filters have microseconds."""
    from_ms = ms if pushed.from_ms is None else max(pushed.from_ms, ms)
    to_ms = ms + 1 if pushed.to_ms is None else min(pushed.to_ms, ms + 1)
    match kind:
        case "GreaterThan" | "GreaterThanOrEqual":
            return _with(pushed, from_ms=from_ms)
        case "LessThan" | "LessThanOrEqual":
            return _with(pushed, to_ms=to_ms)
        case "EqualTo" | "EqualNullSafe":
            return _with(pushed, from_ms=from_ms, to_ms=to_ms)
    return pushed


def _from_offset(pushed: Pushed, offset: int) -> Pushed:
    return _with(pushed, from_offset=max(pushed.from_offset, offset))


def _to_offset(pushed: Pushed, offset: int) -> Pushed:
    return _with(pushed, to_offset=offset if pushed.to_offset is None else min(pushed.to_offset, offset))


def _both(known: frozenset[Any] | None, more: frozenset[Any]) -> frozenset[Any]:
    return more if known is None else known & more


def _with(pushed: Pushed, **changes: Any) -> Pushed:
    return msgspec.structs.replace(pushed, **changes)


class FilterPlan(msgspec.Struct, frozen=True):
    """How a read filters: by its ranges, at brokers by tags or SQL92, and in its tasks."""

    pushed: Pushed = Pushed()
    tags: str | None = None
    sql: str | None = None
    condition: Condition | None = None
    """What tasks apply, besides `tags`."""


class SqlQueries(Protocol):
    """Queries to brokers."""

    def brokers_without_sql(self, queues: Sequence[MessageQueue]) -> list[str]:
        """The brokers of these queues that do not filter by SQL92."""


def can_filter_tags(options: ReadOptions) -> bool:
    """Whether brokers can filter by tags of the query: they accept only one filter, and an option may have set it."""
    return options.filter_tags is None and options.filter_sql is None


def planned_filter(
    options: ReadOptions, offered: Sequence[Any], queues: Sequence[MessageQueue], brokers: SqlQueries
) -> FilterPlan:
    """The plan for the options of a read and the filters that Spark offers. `queues` are those that are read.

    InvalidSetting if `filterSql` is set and a broker does not accept SQL92.
    """
    parts = parts_of(options.filter)
    pushed, remaining = split_filters([*offered, *parts], can_filter_tags=can_filter_tags(options))
    left = [part for part in parts if any(part is one for one in remaining)]
    if options.filter_sql is not None:
        if refusing := brokers.brokers_without_sql(queues):
            raise InvalidSetting(
                f"the option filterSql: {_named(refusing)} not filter by SQL92; set enablePropertyFilter=true there, "
                "or use the option filter, which the connector can apply itself"
            )
        return FilterPlan(pushed, sql=options.filter_sql)
    by_tasks = FilterPlan(pushed, pushed.tag_expression or options.filter_tags, condition=all_of(left))
    by_sql = [part for part in left if sql92_of(part) is not None]
    of_tags = [] if pushed.tags is None else [In((Name.TAGS.value,), tuple(sorted(pushed.tags)))]
    wanted = all_of([*of_tags, *by_sql]) if by_sql else None
    sql = None if wanted is None else sql92_of(wanted)  # None beyond a limit, or for a tag that SQL92 cannot express
    if sql is None or any(is_retry(queue.topic) for queue in queues):  # brokers do not filter retry topics by SQL92
        return by_tasks
    if refusing := brokers.brokers_without_sql(queues):
        log.warning(
            "The filter is applied after reading: %s not filter by SQL92 (enablePropertyFilter is false)",
            _named(refusing),
        )
        return by_tasks
    log.info("Brokers filter by SQL92: %s", sql)
    return msgspec.structs.replace(by_tasks, sql=sql)


def _named(brokers: Sequence[str]) -> str:
    return f"broker {brokers[0]} does" if len(brokers) == 1 else f"brokers {', '.join(brokers)} do"
