"""The common base of backfill and replay: a fixed range of messages, processed piece by piece.

    queue 0 ├────┼────┼────┤            the ranges and the number of pieces are fixed at the start
    queue 1 ├──┼──┼──┤                  each piece has a part of every queue, so that queues progress in parallel
             p0  p1  p2

A file beside the checkpoint has the number of finished pieces. If a run is killed, its unfinished piece is run again: it has the same
messages in the same partitions, so the sink finds those that were written.

Messages can be filtered and changed before they are sent:

    topic or lake ── where ── select, or unchanged ──► value, topic, keys, tags, properties, shardingKey
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from pocketmq.clock import Clock
from pocketmq.errors import InvalidSetting, PipelineFailed, PocketMQError, TopicNotFound, WrongState
from pocketmq.model import DLQ_PREFIX, MessageQueue, QueueRange
from pocketmq.model import properties as names
from pocketmq.pipelines.core.checkpoint import StateFiles
from pocketmq.pipelines.core.libraries import Column, DataFrame, Observation, SparkSession, error_text, functions
from pocketmq.pipelines.core.plan import admin_of
from pocketmq.pipelines.core.progress import Progress
from pocketmq.pipelines.core.rows import PAST
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.core.settings import DEFAULT_MAX_MESSAGES, JobSettings, Time, of_reads, of_writes
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.options.write_options import parse_write_options
from pocketmq.spark.schema import Name
from pocketmq.spark.source import spark_schema
from pocketmq.spark.write.sink_rows import Written

MESSAGES_PER_S = 50_000
"""About the rate of one PocketMQ broker and Spark on the same two cores."""


class SendingSettings(JobSettings, frozen=True, kw_only=True, rename="kebab"):
    """The settings of a pipeline that sends a fixed range of messages."""

    checkpoint: Annotated[
        str, Meta(min_length=1, description="The folder of the checkpoint; with a new one, everything is sent again.")
    ]
    to: Annotated[str | None, Meta(description="The topic to send to.")] = None
    where: Annotated[
        str | None, Meta(description="Only messages for which this SQL is true, for example \"tags = 'paid'\".")
    ] = None
    select: Annotated[
        list[str],
        Meta(
            description="A column to send, in SQL, for example 'upper(string(value)) AS value'; may be repeated.  [default: unchanged]",
            extra={"split": False},
        ),
    ] = msgspec.field(default_factory=list)
    since: Annotated[Time | None, Meta(description="Only messages stored at this time or later.")] = None
    until: Annotated[Time | None, Meta(description="Only messages stored before this time.")] = None
    rate: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="Maximum number of messages per second.")] = (
        None
    )
    max_messages: Annotated[int, Meta(ge=1, description="Maximum number of messages in a piece.")] = (
        DEFAULT_MAX_MESSAGES
    )
    on_data_loss: Annotated[
        Literal["fail", "skip"], Meta(description="If messages of the range were deleted: fail, or skip them.")
    ] = "fail"

    def check_times(self) -> None:
        if self.since is not None and self.until is not None and self.until <= self.since:
            raise InvalidSetting(
                f"--until {self.until.text} is not after --since {self.since.text}: the range is empty"
            )

    @property
    def plan_remarks(self) -> tuple[str, ...]:
        """What a dry run cannot check."""
        is_sql = self.where is not None or self.select
        return (
            ("only Spark can check --where and --select: a mistake in them shows when the pipeline runs",)
            if is_sql
            else ()
        )

    @property
    def times(self) -> dict[str, str]:
        """Read options for the times."""
        times = {"startingTimestamp": self.since, "endingTimestamp": self.until}
        options = {name: str(int(moment)) for name, moment in times.items() if moment is not None}
        return {**options, **({"startingOffsetsByTimestampStrategy": "latest"} if self.since is not None else {})}

    def writing(self, name: str, number: int) -> dict[str, str]:
        """Write options for a piece; by their id and number the sink finds rows that were written before."""
        numbered = {"writeId": name, "writeBatch": str(number), "reservedProperties": "drop"}
        return of_writes(self.options, {**numbered, **({"topic": self.to} if self.to else {}), **self.address})

    def reading_ranges(self, ranges: Sequence[QueueRange], partitions: int) -> dict[str, str]:
        """Read options for a piece, with the same partitions each time."""
        own = {"onDataLoss": self.on_data_loss, **range_options(ranges, partitions), **self.address}
        return of_reads(self.options, own)

    def pieces(self, ranges: Iterable[QueueRange]) -> "Pieces":
        cores = os.cpu_count() or 1
        return cut(ranges, max_messages=self.max_messages, rate=self.rate, partitions=cores)

    @property
    def messages_per_s(self) -> int:
        """The rate for a plan."""
        return min(self.rate or MESSAGES_PER_S, MESSAGES_PER_S)


def range_options(ranges: Sequence[QueueRange], partitions: int) -> dict[str, str]:
    """Options for a read of exactly these ranges, in this number of partitions."""
    return {
        "assign": _json(_nested([one.queue for one in ranges])),
        "startingOffsets": _json(_nested_offsets({one.queue: one.start for one in ranges})),
        "endingOffsets": _json(_nested_offsets({one.queue: one.end for one in ranges})),
        "maxPartitions": str(partitions),
    }


def read_piece(
    spark: SparkSession, settings: SendingSettings, piece: "Piece", columns: Iterable[Name] = tuple(Name)
) -> DataFrame:
    options = settings.reading_ranges(piece.ranges, piece.partitions)
    return spark.read.format("rocketmq").schema(spark_schema(columns)).options(**options).load()


def send_piece(messages: DataFrame, settings: SendingSettings, name: str, number: int) -> int:
    """Send messages, without those that an earlier attempt sent; returns the number of all of them."""
    rows = message_rows(messages, where=settings.where, select=settings.select, to=settings.to)
    counted = rows.observe(observation := Observation("sent"), functions.count("*").alias("rows"))
    counted.write.format("rocketmq").options(**settings.writing(name, number)).mode("append").save()
    return int(observation.get["rows"])


def check_reading(options: Mapping[str, str], settings: SendingSettings) -> None:
    """InvalidSetting for invalid options of the read, as a whole and by pieces."""
    parse_read_options(options, streaming=False, environ=os.environ)
    settings.reading_ranges((), 1)


def check_target(settings: SendingSettings) -> None:
    """TopicNotFound, with advice, if the target is missing: sent rows can be found only in an existing topic."""
    parse_write_options(settings.writing("any", 0), streaming=False, environ=os.environ)
    if settings.to is None:
        return
    with admin_of(settings.connection) as admin:
        if not admin.topics.exists(settings.to):
            raise TopicNotFound(
                f"topic {settings.to!r} does not exist; `pocketmq topic create {settings.to}` creates it"
            )


def _nested(queues: Sequence[MessageQueue]) -> dict[str, dict[str, list[int]]]:
    nested: dict[str, dict[str, list[int]]] = {}
    for queue in sorted(set(queues)):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
    return nested


def _nested_offsets(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in sorted(offsets.items()):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return nested


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


STATE_FILE: Final = "pieces.json"
VERSION: Final = 1
PACED_S: Final = 5
"""With a rate limit, no piece is longer than so many seconds of it: within a piece the rate is not limited."""


class Piece(NamedTuple):
    """One piece: its number, its range of each queue, and its number of partitions."""

    number: int
    ranges: Sequence[QueueRange]
    partitions: int


Do = Callable[[Piece], int]
"""Processes a piece; returns the number of rows."""


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """All ranges, and how many of the pieces are done."""

    ranges: tuple[QueueRange, ...]
    pieces: int
    partitions: int
    done: int = 0
    rows: int = 0
    version: int = VERSION

    @property
    def messages(self) -> int:
        return sum(map(len, self.ranges))

    def piece(self, number: int) -> list[QueueRange]:
        """The ranges of a piece, without queues from which it has no messages."""
        parts = [QueueRange(one.queue, self.start(one, number), self.start(one, number + 1)) for one in self.ranges]
        return [one for one in parts if len(one)]

    def start(self, whole: QueueRange, number: int) -> int:
        """The start of a piece in one of the ranges."""
        return whole.start + len(whole) * number // self.pieces


def cut(ranges: Iterable[QueueRange], *, max_messages: int, rate: int | None, partitions: int) -> Pieces:
    """These ranges in pieces of about `max_messages` at most."""
    kept = tuple(sorted(one for one in ranges if len(one)))
    size = max_messages if rate is None else min(max_messages, rate * PACED_S)
    total = sum(map(len, kept))
    return Pieces(ranges=kept, pieces=-(-total // size), partitions=partitions)


def pause_s(messages: int, elapsed_s: float, rate: int | None) -> float:
    """The wait that keeps `messages` in total below `rate` per second."""
    return 0.0 if rate is None else max(0.0, messages / rate - elapsed_s)


def run_pieces(
    query: str, files: StateFiles, begin: Callable[[], Pieces], do: Do, run: Run, rate: int | None = None
) -> Summary:
    """Process the remaining pieces of the saved state, or begin with a new one."""
    state = _read(files)
    if state is None:
        state = begin()
        files.write(STATE_FILE, msgspec.json.encode(state).decode())
    before, clock = state.done, run.clock
    began = clock.monotonic()
    messages = 0
    while state.done < state.pieces and not run.stopping.is_set():
        piece_began = clock.monotonic()
        ranges = state.piece(state.done)
        rows = _done(do, Piece(state.done, ranges, state.partitions)) if ranges else 0
        messages += sum(map(len, ranges))
        state = msgspec.structs.replace(state, done=state.done + 1, rows=state.rows + rows)
        files.write(STATE_FILE, msgspec.json.encode(state).decode())
        run.report(_progress(query, state, messages, began, piece_began, clock))
        if state.done < state.pieces:
            run.stopping.wait(pause_s(messages, clock.monotonic() - began, rate))
    facts: dict[str, Any] = {"rows_written": state.rows}
    if before and before == state.pieces:
        facts["note"] = "an earlier run finished all of it; use another --checkpoint to run it again"
    return Summary(
        ended="caught up" if state.done == state.pieces else "stopped",
        messages=messages,
        batches=state.done - before,
        took_ms=round((clock.monotonic() - began) * 1000),
        facts=facts,
    )


def _read(files: StateFiles) -> Pieces | None:
    text = files.read(STATE_FILE)
    if text is None:
        return None
    try:
        state = msgspec.json.decode(text, type=Pieces)
    except msgspec.MsgspecError as error:
        raise WrongState(f"{STATE_FILE} of the checkpoint is damaged: {error}; use another --checkpoint") from None
    if state.version != VERSION:
        raise WrongState(f"{STATE_FILE} of the checkpoint has version {state.version}; use another --checkpoint")
    return state


def _done(do: Do, piece: Piece) -> int:
    try:
        return do(piece)
    except PocketMQError:
        raise
    except Exception as error:  # from Spark, which has many types
        raise PipelineFailed(error_text(error)) from error


def _progress(query: str, state: Pieces, messages: int, began: float, piece_began: float, clock: Clock) -> Progress:
    now = clock.monotonic()
    per_s = messages / (now - began) if now > began else 0.0
    behind = sum(one.end - state.start(one, state.done) for one in state.ranges)
    return Progress(
        query=query,
        batch=state.done - 1,
        messages=messages,
        per_s=round(per_s, 1),
        behind=behind,
        eta_s=round(behind / per_s, 1) if per_s else None,
        took_ms=round((now - piece_began) * 1000),
    )


_UNCHANGED: Final = (Written.VALUE, Written.KEYS, Written.TAGS)


def message_rows(
    messages: DataFrame, *, where: str | None = None, select: Sequence[str] = (), to: str | None = None
) -> DataFrame:
    """The rows to send. Without `to`, each message goes to the topic that it was first sent to, also a dead letter."""
    chosen = messages if where is None else messages.where(where)
    if select:
        shaped = chosen.selectExpr(*select)
    else:
        columns = [*map(functions.col, _UNCHANGED), *_of_properties(chosen)]
        shaped = chosen.select(*columns, *([] if to else [_first_topic(chosen).alias(Written.TOPIC)]))
    _check(shaped, to)
    return shaped


def _of_properties(messages: DataFrame) -> list[Column]:
    if "properties" not in messages.columns:
        return []
    properties = functions.col("properties")
    return [
        properties.alias(Written.PROPERTIES),
        properties.getItem(names.SHARDING_KEY).alias(Written.SHARDING_KEY),
    ]


def _first_topic(messages: DataFrame) -> Column:
    topic = functions.col("topic")
    if "properties" not in messages.columns:
        return topic
    properties = functions.col("properties")
    died = functions.coalesce(properties.getItem(names.RETRY_TOPIC), properties.getItem(names.REAL_TOPIC), topic)
    refused = functions.coalesce(properties.getItem(PAST["topic"]), topic)  # a pipeline moved it to a dead-letter topic
    return functions.when(topic.startswith(DLQ_PREFIX), died).otherwise(refused)


def _check(rows: DataFrame, to: str | None) -> None:
    """InvalidSetting for columns that cannot be sent."""
    for column in rows.columns:
        if column not in list(Written):
            near = get_close_matches(column, list(Written), 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"the columns are {', '.join(Written)}."
            raise InvalidSetting(
                f"--select has a column {column!r}, which cannot be sent; {hint} Name it by `… AS {near[0] if near else 'value'}`"
            )
    if Written.VALUE not in rows.columns:
        raise InvalidSetting("--select lacks the column value, which is the body: `… AS value`")
    if to is None and Written.TOPIC not in rows.columns:
        raise InvalidSetting("--select lacks the column topic: use --to, or `… AS topic`")
