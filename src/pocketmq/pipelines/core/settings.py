"""Settings of pipelines: fields for the settings file, which command line flags override.

    JobSettings            the cluster, and Spark
    └─ StreamSettings      topics, start, batch size, checkpoint
       └─ … of a pipeline  its own settings

A field is a key of the file and a flag of the command, both with `-` for `_`; its description is the help of both.

Durations, sizes and times have the same format in a file and on the command line. Their value is a plain number. `str` returns its
digits, because py4j passes a number to Java as `str` formats it; `text` is for people.

Connector options that a user sets by --option apply to the connection, to reads or to writes. Options that the pipeline sets itself, does
not use or does not know are refused before Spark starts.

A pipeline is data, from which the command line is made:

    settings ── check(settings) ──────────►            finds mistakes before Spark starts, which takes a while
             ├─ plan(settings) ───────────► Plan       a dry run that changes nothing
             ├─ examine(settings) ────────► Examination   its checks that need Spark, if any
             └─ run(spark, settings, run) ► Summary    starts its queries and follows them: `run.follow(query)`
"""

import os
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from pocketmq.errors import InvalidSetting, UsageError
from pocketmq.model.human import (
    DURATION_UNITS_MS,
    SIZE_UNITS,
    local_time,
    parse_duration_ms,
    parse_size,
    parse_time,
    time_ms,
)
from pocketmq.pipelines.core.checkpoint import batch_file, is_local
from pocketmq.pipelines.core.libraries import SparkSession
from pocketmq.pipelines.core.plan import Plan
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.spark.options.options import OptionTable, Use
from pocketmq.spark.options.read_options import READ_OPTIONS, ReadOptions, parse_read_options
from pocketmq.spark.options.write_options import WRITE_OPTIONS


class Duration(int):
    """Milliseconds, written as `500ms`, `30s`, `10m`, `2h` or `7d`."""

    word = "DURATION"

    @classmethod
    def read(cls, text: str, now_ms: int) -> "Duration":
        return cls(parse_duration_ms(text))

    @property
    def text(self) -> str:
        return _in_units(self, ("d", "h", "m", "s", "ms"), DURATION_UNITS_MS)


class Size(int):
    """Bytes, written as `500KB`, `128MiB` or `1GB`."""

    word = "SIZE"

    @classmethod
    def read(cls, text: str, now_ms: int) -> "Size":
        return cls(parse_size(text))

    @property
    def text(self) -> str:
        return _in_units(self, ("GiB", "GB", "MiB", "MB", "KiB", "KB", "B"), SIZE_UNITS)


class Time(int):
    """Milliseconds since 1970, written as `2026-03-01T12:00` (local time without a zone), or as a duration before now: `2h`."""

    word = "TIME"

    @classmethod
    def read(cls, text: str, now_ms: int) -> "Time":
        ms = time_ms(parse_time(text), now_ms)
        if ms < 0:
            raise UsageError(f"{text!r} is before 1970; times of messages start there")
        return cls(ms)

    @property
    def text(self) -> str:
        return local_time(self)


KINDS: Final = (Duration, Size, Time)


def _in_units(value: int, units: tuple[str, ...], sizes: Mapping[str, int]) -> str:
    """In the largest unit that divides it, so that the text reads back as the same number."""
    unit = next((unit for unit in units if value and value % sizes[unit.lower()] == 0), units[-1])
    return f"{value // sizes[unit.lower()]}{unit}"


def reading(now_ms: int) -> Callable[[type, Any], Any]:
    """A decoder hook for msgspec: these kinds from TOML and flags. A plain number is milliseconds, or bytes."""

    def read(kind: type, value: Any) -> Any:
        if kind not in KINDS:
            raise TypeError(f"a setting cannot be {kind}; the kinds are {KINDS}")
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return kind(value)
        return kind.read(str(value), now_ms)  # `str` formats a TOML time in the same form

    return read


_FLAGS: Final = {
    "rocketmq.namesrv.addr": "--namesrv, or --target for the other cluster,",
    "subscribe": "--topic",
    "subscribePattern": "--topic",
    "assign": "--topic",
    "startingOffsets": "--starting or --starting-offsets",
    "startingTimestamp": "--since",
    "endingOffsets": "--ending-offsets",
    "endingTimestamp": "--until",
    "maxOffsetsPerTrigger": "--max-messages",
    "onDataLoss": "--on-data-loss",
    "failOnDataLoss": "--on-data-loss",
    "groupId": "--group",
}
"""The flag of the pipeline for an option."""
_RIVALS: Final = {
    "subscribe": ("subscribePattern", "assign"),
    "assign": ("subscribe", "subscribePattern"),
    "onDataLoss": ("failOnDataLoss",),
    "maxPartitions": ("minPartitions", "maxRecordsPerPartition"),
}
"""Options that exclude others."""
_ONCE: Final = ("topic", "writeId", "writeBatch", "deliveryGuarantee", "reservedProperties")
"""Options that a pipeline sets for each of its writes, so that they are effectively once."""


def of_connection(options: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Options of the connection. `own` are those that the pipeline sets, here as in the other functions."""
    _refuse_unknown(options)
    chosen = _chosen(options, READ_OPTIONS, own)
    return {**own, **{name: text for name, text in chosen.items() if READ_OPTIONS.named(name, Use.ALL)}}


def of_reads(options: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Options for a read."""
    _refuse_unknown(options)
    return {
        **own,
        **_chosen(options, READ_OPTIONS, [*own, *(rival for name in own for rival in _RIVALS.get(name, ()))]),
    }


def of_writes(options: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Options for a write."""
    _refuse_unknown(options)
    return {**own, **_chosen(options, WRITE_OPTIONS, [*own, *_ONCE])}


def check_used(options: Mapping[str, str], *uses: Mapping[str, str]) -> None:
    """InvalidSetting for an option that is in none of `uses`, and so would have no effect."""
    for key in options:
        if not any(key in use for use in uses):
            what = "reads" if READ_OPTIONS.named(key) is not None else "writes"
            raise InvalidSetting(
                f"the option {key} has no effect: it applies to {what} of topics, which this pipeline does not do"
            )


def _chosen(options: Mapping[str, str], table: OptionTable, reserved: Collection[str]) -> dict[str, str]:
    found = {}
    for key, text in options.items():
        name = table.named(key)
        if name is not None and name in reserved:
            advice = f"use {_FLAGS[name]}" if name in _FLAGS else "the pipeline sets it itself"
            raise InvalidSetting(f"the option {name} cannot be set: {advice}")
        if name is not None:
            found[key] = text
    return found


def _refuse_unknown(options: Mapping[str, str]) -> None:
    for key, text in options.items():
        if READ_OPTIONS.named(key) is None and WRITE_OPTIONS.named(key) is None:
            near = get_close_matches(key.lower(), [option.name.lower() for option in WRITE_OPTIONS.options], 1, 0.8)
            is_of_writes = bool(near) and READ_OPTIONS.named(near[0]) is None
            table, use = (WRITE_OPTIONS, Use.BATCH_WRITE) if is_of_writes else (READ_OPTIONS, Use.BATCH)
            table.read({key: text}, use)  # raises with a hint


DEFAULT_NAME_SERVER = "127.0.0.1:9876"
DEFAULT_MAX_MESSAGES = 500_000
_FILTERS = ("filtertags", "filtersql", "filter")


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The settings of every pipeline."""

    namesrv: Annotated[
        str, Meta(description="The name servers of the cluster.", extra={"variable": "NAMESRV_ADDR", "short": "-n"})
    ] = DEFAULT_NAME_SERVER
    options: Annotated[
        dict[str, str],
        Meta(
            description="A connector option for all reads and writes, for example rocketmq.tls.enable=true.",
            extra={"flag": "option"},
        ),
    ] = {}
    master: Annotated[
        str | None, Meta(description="The Spark cluster, for example spark://host:7077.  [default: local[*]]")
    ] = None
    remote: Annotated[str | None, Meta(description="A Spark Connect server, for example sc://host:15002.")] = None
    spark: Annotated[
        dict[str, str], Meta(description="A Spark setting, for example spark.executor.memory=4g; may be repeated.")
    ] = {}

    @property
    def connection(self) -> dict[str, str]:
        """The connector options for the connection."""
        return of_connection(self.options, self.address)

    @property
    def session(self) -> dict[str, str]:
        """The settings of Spark, with those that a pipeline adds."""
        return self.spark

    @property
    def is_filtered(self) -> bool:
        """Whether an option filters messages: then a gap in the offsets does not mean that messages are lost."""
        return any(name.lower() in _FILTERS for name in self.options)

    @property
    def address(self) -> dict[str, str]:
        return {"rocketmq.namesrv.addr": self.namesrv}


class StreamSettings(JobSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of a pipeline that reads topics as a stream."""

    topics: Annotated[
        list[str], Meta(min_length=1, description="A topic to read; may be repeated.", extra={"flag": "topic"})
    ]
    checkpoint: Annotated[
        str, Meta(min_length=1, description="The folder of the checkpoint; each pipeline needs its own.")
    ]
    starting: Annotated[
        Literal["earliest", "latest", "committed"],
        Meta(description="Where a new checkpoint starts; committed is the committed offset of --group."),
    ] = "earliest"
    group: Annotated[
        str | None, Meta(description="Publish offsets as this consumer group, so that lag tools see them.")
    ] = None
    max_messages: Annotated[int, Meta(ge=1, description="Maximum number of messages in a micro-batch.")] = (
        DEFAULT_MAX_MESSAGES
    )
    on_data_loss: Annotated[
        Literal["fail", "skip", "earliest"],
        Meta(description="If messages were deleted before they were read: fail, skip them, or start at the earliest."),
    ] = "fail"
    continuous: Annotated[
        bool,
        Meta(
            description="Continue until stopped; --once ends when all available messages are processed.",
            extra={"off": "once"},
        ),
    ] = False
    every: Annotated[Duration, Meta(description="With --continuous: the interval between micro-batches.")] = Duration(
        5_000
    )
    metrics_port: Annotated[
        Annotated[int, Meta(ge=0, le=65535)] | None,
        Meta(description="Expose Prometheus metrics on this loopback port.", extra={"word": "PORT"}),
    ] = None

    @property
    def reading(self) -> dict[str, str]:
        """The connector options for the stream."""
        return of_reads(self.options, self.own_reading)

    @property
    def read_options(self) -> ReadOptions:
        """The same, parsed; InvalidSetting describes a wrong one."""
        return parse_read_options(self.reading, streaming=True, environ=os.environ)

    def check_reading(self) -> None:
        """InvalidSetting for an invalid or unused option, of a pipeline that only reads from this cluster."""
        _ = self.read_options
        check_used(self.options, self.reading)

    @property
    def own_reading(self) -> dict[str, str]:
        """The options that flags set."""
        own = {
            "subscribe": ",".join(self.topics),
            "startingOffsets": self.starting,
            "maxOffsetsPerTrigger": str(self.max_messages),
            "onDataLoss": self.on_data_loss,
        }
        if is_local(self.checkpoint_folder):
            own["batchFile"] = str(batch_file(self.checkpoint_folder))
        return {**own, **({"groupId": self.group} if self.group else {}), **self.address}

    @property
    def checkpoint_folder(self) -> str:
        return self.checkpoint


S = TypeVar("S", bound=JobSettings)
Examination = Callable[[SparkSession], tuple[str, ...]]
"""Finds mistakes with Spark, without changing anything. Returns remarks for the plan."""


class Job(NamedTuple, Generic[S]):
    """A ready pipeline. `summary` is its text in the list of pipelines, `description` more text for its help."""

    name: str
    summary: str
    settings: type[S]
    plan: Callable[[S], Plan]
    run: Callable[[SparkSession, S, Run], Summary]
    description: str = ""
    check: Callable[[S], None] = lambda settings: None
    """Raises for a missing topic, or for settings that exclude one another."""
    examine: Callable[[S], Examination | None] = lambda settings: None
    """The checks of a dry run that need Spark, if there are any. The run makes the same checks."""
