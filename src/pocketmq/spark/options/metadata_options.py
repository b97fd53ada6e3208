"""Options of a batch that reads about topics, groups and queues instead of messages: `option("metadata", …)`."""

import json
from ast import literal_eval
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.spark.options.connection_options import CONNECTION_OPTIONS, FORBIDDEN, Connection, connection_of
from pocketmq.spark.options.options import (
    GROUP,
    MAX_JSON_CHARS,
    PATTERN,
    TEXT,
    TOPICS,
    Forbidden,
    Kind,
    Option,
    OptionTable,
    Use,
    at_most_one,
    choice,
)
from pocketmq.spark.options.read_options import READ_OPTIONS

KINDS: Final = ("topics", "queues", "groups", "losses", "dead-letters")
OPTION: Final = "metadata"
_SHARED: Final = (
    "rocketmqConsumer.idleTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
)


def _offsets(text: str) -> tuple[dict[str, Any], ...]:
    """PySpark 4.0 shows an offset as Python writes a dict, so that is read, too."""
    read = None
    for reads in (json.loads, literal_eval) if len(text) <= MAX_JSON_CHARS else ():
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            read = reads(text)
            break
    found = read if isinstance(read, list) else [read]
    if not found or not all(isinstance(one, dict) for one in found):
        raise ValueError("the JSON of an offset of a query, or a list of them")
    return tuple(found)


METADATA_OPTIONS: Final = OptionTable(
    [
        *CONNECTION_OPTIONS,
        Option(OPTION, "metadata", choice(*KINDS), None, Use.BATCH, "what to read", "queues"),
        Option("subscribe", "topics", TOPICS, None, Use.BATCH, "for topics, queues and groups: only these topics", "orders,payments"),
        Option("subscribePattern", "pattern", PATTERN, None, Use.BATCH, "for topics, queues and groups: only topics whose whole name matches this regular expression", "orders-.*"),
        Option("groupId", "group", GROUP, None, Use.BATCH, "for groups and dead-letters: only this group", "invoicing"),
        Option("offset", "offsets", Kind("JSON", _offsets), None, Use.BATCH, "for losses: an offset of a streaming query, as in `endOffset` of its progress, or a list of several, the newest last", '{"version":1,"queues":{"orders":{"broker-a":{"0":120}}},"seenMs":1767225600000}'),
        Option("batchFile", "batch_file", TEXT, None, Use.BATCH, "for losses: the `batchFile` of a streaming query", "/data/batch.json"),
        *(option._replace(use=Use.BATCH) for option in READ_OPTIONS.options if option.name in _SHARED),
    ],
    [*FORBIDDEN, Forbidden("topic", "name the topics by the option subscribe")],
)  # fmt: skip

_ONLY_FOR: Final = {
    "topics": ("subscribe", ("topics", "queues", "groups")),
    "pattern": ("subscribePattern", ("topics", "queues", "groups")),
    "group": ("groupId", ("groups", "dead-letters")),
    "offsets": ("offset", ("losses",)),
    "batch_file": ("batchFile", ("losses",)),
}


class MetadataOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one read of metadata, checked."""

    connection: Connection
    metadata: str
    topics: tuple[str, ...] | None
    pattern: str | None
    group: str | None
    offsets: tuple[dict[str, Any], ...] | None
    batch_file: str | None
    idle_timeout_ms: int
    fetch_retries: int
    fetch_interval_ms: int
    metadata_ttl_ms: int


def asks_for_metadata(given: Mapping[str, str]) -> bool:
    return any(key.lower() == OPTION for key in given)


def metadata_kind(given: Mapping[str, str]) -> str:
    """The kind of metadata that these options ask for; InvalidSetting if there is no such kind."""
    text = next(text for key, text in given.items() if key.lower() == OPTION)
    return str(METADATA_OPTIONS.check(OPTION, text))


def parse_metadata_options(given: Mapping[str, str], environ: Mapping[str, str]) -> MetadataOptions:
    """The options, as Spark passes them; InvalidSetting describes a wrong one."""
    values = METADATA_OPTIONS.read(given, Use.BATCH)
    kind = values["metadata"]
    for field, (name, kinds) in _ONLY_FOR.items():
        if values[field] is not None and kind not in kinds:
            raise InvalidSetting(f"the option {name} is for metadata = {' and '.join(kinds)}, not for {kind}")
    at_most_one(values, [("topics", "subscribe"), ("pattern", "subscribePattern")])
    at_most_one(values, [("offsets", "offset"), ("batch_file", "batchFile")])
    if kind == "losses" and values["offsets"] is None and values["batch_file"] is None:
        raise InvalidSetting("metadata = losses needs the option offset or batchFile: the offset of a streaming query")
    return MetadataOptions(connection=connection_of(values, environ), **values)
