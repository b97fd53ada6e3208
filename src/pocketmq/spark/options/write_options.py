"""Every option of writing to a topic, from a batch or from a stream."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.spark.options.connection_options import CONNECTION_OPTIONS, FORBIDDEN, Connection, connection_of
from pocketmq.spark.options.options import (
    GROUP,
    SWITCH,
    TEXT,
    TOPIC,
    Forbidden,
    Option,
    OptionTable,
    Use,
    choice,
    whole,
)

KIB: Final = 1024
MIB: Final = 1024 * KIB
_MAX_WAIT_MS: Final = 3_600_000

SPARKS_OWN: Final = frozenset(
    {
        "checkpointlocation",
        "queryname",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
    }
)
"""Options of a streaming write for Spark itself, which passes them to the sink as well."""

WRITE_OPTIONS: Final = OptionTable(
    [
        *CONNECTION_OPTIONS,
        Option("topic", "topic", TOPIC, None, Use.WRITE, "the topic to write to; overrides the column `topic`", "orders"),
        Option("deliveryGuarantee", "guarantee", choice("at-least-once", "effectively-once"), None, Use.WRITE, "effectively-once, the default of a stream, finds messages that an earlier attempt wrote and does not write them again; a batch needs `writeId` for it", "at-least-once"),
        Option("writeId", "write_id", TEXT, None, Use.BATCH_WRITE, "a name for this write: running it again with the same name and the same rows writes nothing twice", "orders-2026-01-01"),
        Option("writeBatch", "write_batch", whole(0), None, Use.BATCH_WRITE, "the number of this write among those of `writeId`: in `foreachBatch`, the batch id", "17"),
        Option("groupId", "group", GROUP, "spark-rocketmq-sink", Use.WRITE, "the producer group", "etl"),
        Option("reservedProperties", "reserved_properties", choice("fail", "drop"), "fail", Use.WRITE, "what to do with properties whose names RocketMQ reserves, as in rows that were read from a topic: fail, or drop them", "drop"),
        Option("sendBatchBytes", "batch_bytes", whole(KIB, MIB), 512 * KIB, Use.WRITE, "messages of one topic are sent in batches up to this size", "1048576"),
        Option("maxInFlightBatches", "max_in_flight", whole(1, 10_000), 32, Use.WRITE, "maximum number of batches without a response", "64"),
        Option("sendTimeoutMs", "send_timeout_ms", whole(1, _MAX_WAIT_MS), 10_000, Use.WRITE, "timeout for sending a batch, including all attempts", "30000"),
        Option("sendRetries", "send_retries", whole(0, 1000), 5, Use.WRITE, "retries after a failed attempt; an attempt without a response may have stored the message", "2"),
        Option("retryWhenBusy", "retry_when_busy", SWITCH, True, Use.WRITE, "retry when a broker is busy, after the time that it requests", "false"),
    ],
    [
        *FORBIDDEN,
        Forbidden("subscribe", "to write, name the topic by the option topic or a column topic"),
    ],
)  # fmt: skip


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one write, checked; one field for each row of the table."""

    connection: Connection
    topic: str | None
    guarantee: str
    write_id: str | None = None
    write_batch: int | None = None
    group: str
    reserved_properties: str
    batch_bytes: int
    max_in_flight: int
    send_timeout_ms: int
    send_retries: int
    retry_when_busy: bool

    @property
    def is_effectively_once(self) -> bool:
        return self.guarantee == "effectively-once"


def parse_write_options(given: Mapping[str, str], *, streaming: bool, environ: Mapping[str, str]) -> WriteOptions:
    """The options of a write, as Spark passes them; InvalidSetting describes a wrong one."""
    own = {key: text for key, text in given.items() if not (streaming and key.lower() in SPARKS_OWN)}
    values = WRITE_OPTIONS.read(own, Use.STREAM_WRITE if streaming else Use.BATCH_WRITE)
    values["guarantee"] = _guarantee(values, streaming=streaming)
    connection = connection_of(values, environ)
    return WriteOptions(connection=connection, **values)


def _guarantee(values: dict[str, Any], *, streaming: bool) -> str:
    chosen: str | None = values["guarantee"]
    named = streaming or values["write_id"] is not None
    if values.get("write_batch") is not None and not named:
        raise InvalidSetting("writeBatch needs the option writeId, the name of the write that it numbers")
    if chosen is None:
        return "effectively-once" if named else "at-least-once"
    if chosen == "effectively-once" and not named:
        raise InvalidSetting(
            "deliveryGuarantee = effectively-once in a batch needs the option writeId, which names the write"
        )
    if chosen == "at-least-once" and values.get("write_id") is not None:
        raise InvalidSetting("writeId has no effect with deliveryGuarantee = at-least-once")
    return chosen
