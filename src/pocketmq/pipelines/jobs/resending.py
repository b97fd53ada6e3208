"""What backfill and replay share when they send to topics: settings, the check of the target, and one piece of the way.

A known stretch of messages, done piece by piece: what backfill and replay have in common.

    queue 0 ├────┼────┼────┤            what is done is fixed when it is begun: ranges, and in how many pieces
    queue 1 ├──┼──┼──┤                  each piece takes a part of every queue, so that queues go on side by side
             p0  p1  p2

A note beside the checkpoint says how many pieces are done. One that was under way when the run was killed is done again: it has the
same messages in the same partitions, so its sink finds out what of it is there.

Rows that were read from topics, as rows that can be sent again: filtered and changed as the user says.

topic or lake ── where ── select, or the message as it was ──► value, topic, keys, tags, properties, shardingKey
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from pocketmq.clock import Clock
from pocketmq.errors import InvalidSetting, PipelineFailed, PocketMQError, TopicNotFound, WrongState
from pocketmq.model import properties as names
from pocketmq.model.names import DLQ_PREFIX
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.pipelines.archive.form import schema_of
from pocketmq.pipelines.core.checkpoint import Notes
from pocketmq.pipelines.core.connector_options import of_reads, of_writes
from pocketmq.pipelines.core.libraries import Column, DataFrame, Observation, SparkSession, functions, told
from pocketmq.pipelines.core.plan import admin_of
from pocketmq.pipelines.core.progress import Progress
from pocketmq.pipelines.core.rows import PAST
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.core.settings import DEFAULT_MAX_MESSAGES, JobSettings, Time
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.options.write_options import parse_write_options
from pocketmq.spark.write.sink_rows import Written

MESSAGES_PER_S = 50_000
"""About what one broker of PocketMQ takes from a Spark on the same two cores."""


class SendingSettings(JobSettings, frozen=True, kw_only=True, rename="kebab"):
    """What a pipeline is told that sends a known stretch of messages."""

    checkpoint: Annotated[
        str, Meta(min_length=1, description="The folder that says how far it is; another one does all of it again.")
    ]
    to: Annotated[str | None, Meta(description="The topic to send to.")] = None
    where: Annotated[
        str | None, Meta(description="Only messages for which this SQL is true, such as \"tags = 'paid'\".")
    ] = None
    select: Annotated[
        list[str],
        Meta(
            description="A column to send, in SQL, such as 'upper(string(value)) AS value'; may be repeated. As they were, if not told.",
            extra={"split": False},
        ),
    ] = msgspec.field(default_factory=list)
    since: Annotated[Time | None, Meta(description="Only messages stored at this time or later.")] = None
    until: Annotated[Time | None, Meta(description="Only messages stored before this time.")] = None
    rate: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="At most so many messages a second.")] = None
    max_messages: Annotated[int, Meta(ge=1, description="At most so many messages in a piece of the way.")] = (
        DEFAULT_MAX_MESSAGES
    )
    on_data_loss: Annotated[
        Literal["fail", "skip"], Meta(description="When messages of the stretch are gone: fail, or go on without them.")
    ] = "fail"

    def check_times(self) -> None:
        if self.since is not None and self.until is not None and self.until <= self.since:
            raise InvalidSetting(
                f"--until {self.until.text} is not behind --since {self.since.text}: nothing lies between them"
            )

    @property
    def plan_notes(self) -> tuple[str, ...]:
        """What a dry run cannot check."""
        is_sql = self.where is not None or self.select
        return ("only Spark can read --where and --select: a mistake in them is found when it runs",) if is_sql else ()

    @property
    def times(self) -> dict[str, str]:
        """Options of a read for the time."""
        given = {"startingTimestamp": self.since, "endingTimestamp": self.until}
        told = {name: str(int(moment)) for name, moment in given.items() if moment is not None}
        return {**told, **({"startingOffsetsByTimestampStrategy": "latest"} if self.since is not None else {})}

    def writing(self, name: str, number: int) -> dict[str, str]:
        """Options of the write of a piece: what of it is in the topic already is found out by them."""
        numbered = {"writeId": name, "writeBatch": str(number), "reservedProperties": "drop"}
        return of_writes(self.options, {**numbered, **({"topic": self.to} if self.to else {}), **self.address})

    def reading_ranges(self, ranges: Sequence[QueueRange], partitions: int) -> dict[str, str]:
        """Options of the read of a piece, in the same partitions whenever it is read."""
        own = {"onDataLoss": self.on_data_loss, **range_options(ranges, partitions), **self.address}
        return of_reads(self.options, own)

    def pieces(self, ranges: Iterable[QueueRange]) -> "Stretches":
        cores = os.cpu_count() or 1
        return stretches(ranges, max_messages=self.max_messages, rate=self.rate, partitions=cores)

    @property
    def messages_per_s(self) -> int:
        """What a plan counts on."""
        return min(self.rate or MESSAGES_PER_S, MESSAGES_PER_S)


def range_options(ranges: Sequence[QueueRange], partitions: int) -> dict[str, str]:
    """Options of a read of just these ranges, in so many partitions."""
    return {
        "assign": _json(_nested([one.queue for one in ranges])),
        "startingOffsets": _json(_places({one.queue: one.start for one in ranges})),
        "endingOffsets": _json(_places({one.queue: one.end for one in ranges})),
        "maxPartitions": str(partitions),
    }


def read_piece(spark: SparkSession, settings: SendingSettings, piece: "Piece") -> DataFrame:
    options = settings.reading_ranges(piece.ranges, piece.partitions)
    return spark.read.format("rocketmq").schema(schema_of(properties=True)).options(**options).load()


def send_piece(messages: DataFrame, settings: SendingSettings, name: str, number: int) -> int:
    """Send messages, all or those that an earlier attempt did not; how many there were."""
    rows = message_rows(messages, where=settings.where, select=settings.select, to=settings.to)
    counted = rows.observe(observation := Observation("sent"), functions.count("*").alias("rows"))
    counted.write.format("rocketmq").options(**settings.writing(name, number)).mode("append").save()
    return int(observation.get["rows"])


def check_reading(options: Mapping[str, str], settings: SendingSettings) -> None:
    """InvalidSetting for options that cannot be, of the read of all of it and of its pieces."""
    parse_read_options(options, streaming=False, environ=os.environ)
    settings.reading_ranges((), 1)


def check_target(settings: SendingSettings) -> None:
    """TopicNotFound, with what to do, where the target is not there: rows can be found out only in a topic that is."""
    parse_write_options(settings.writing("any", 0), streaming=False, environ=os.environ)
    if settings.to is None:
        return
    with admin_of(settings.connection) as admin:
        if not admin.topics.exists(settings.to):
            raise TopicNotFound(
                f"the topic {settings.to!r} is not there: `pocketmq topic create {settings.to}` makes it"
            )


def _nested(queues: Sequence[MessageQueue]) -> dict[str, dict[str, list[int]]]:
    told: dict[str, dict[str, list[int]]] = {}
    for queue in sorted(set(queues)):
        told.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
    return told


def _places(places: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    told: dict[str, dict[str, dict[str, int]]] = {}
    for queue, place in sorted(places.items()):
        told.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = place
    return told


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


NOTE: Final = "stretches.json"
VERSION: Final = 1
PACED_S: Final = 5
"""With a bound on the rate no piece is longer than so many seconds of it: within a piece it is as fast as it can be."""


class Piece(NamedTuple):
    """A part of the way: its number, what of each queue it takes, and in how many partitions."""

    number: int
    ranges: Sequence[QueueRange]
    partitions: int


Do = Callable[[Piece], int]
"""Does a piece; returns how many rows came of it."""


class Stretches(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, and how much of it is."""

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
        """The ranges of a piece; queues that it has nothing of are left out."""
        cut = [QueueRange(one.queue, self.place(one, number), self.place(one, number + 1)) for one in self.ranges]
        return [one for one in cut if len(one)]

    def place(self, whole: QueueRange, number: int) -> int:
        """Where a piece begins in one of the ranges."""
        return whole.start + len(whole) * number // self.pieces


def stretches(ranges: Iterable[QueueRange], *, max_messages: int, rate: int | None, partitions: int) -> Stretches:
    """These ranges in pieces of at most about `max_messages`."""
    kept = tuple(sorted(one for one in ranges if len(one)))
    size = max_messages if rate is None else min(max_messages, rate * PACED_S)
    total = sum(map(len, kept))
    return Stretches(ranges=kept, pieces=-(-total // size), partitions=partitions)


def pause_s(messages: int, elapsed_s: float, rate: int | None) -> float:
    """How long to wait, so that `messages` in all are not more than `rate` a second."""
    return 0.0 if rate is None else max(0.0, messages / rate - elapsed_s)


def run_pieces(
    query: str, notes: Notes, begin: Callable[[], Stretches], do: Do, run: Run, rate: int | None = None
) -> Summary:
    """Do what is left to do of what was noted, or begin it."""
    state = _read(notes)
    if state is None:
        state = begin()
        notes.write(NOTE, msgspec.json.encode(state).decode())
    before, clock = state.done, run.clock
    began = clock.monotonic()
    messages = 0
    while state.done < state.pieces and not run.stopping.is_set():
        piece_began = clock.monotonic()
        ranges = state.piece(state.done)
        rows = _done(do, Piece(state.done, ranges, state.partitions)) if ranges else 0
        messages += sum(map(len, ranges))
        state = msgspec.structs.replace(state, done=state.done + 1, rows=state.rows + rows)
        notes.write(NOTE, msgspec.json.encode(state).decode())
        run.report(_progress(query, state, messages, began, piece_began, clock))
        if state.done < state.pieces:
            run.stopping.wait(pause_s(messages, clock.monotonic() - began, rate))
    facts: dict[str, Any] = {"rows_written": state.rows}
    if before and before == state.pieces:
        facts["note"] = "all of it was done by an earlier run; give another --checkpoint to do it again"
    return Summary(
        ended="caught up" if state.done == state.pieces else "stopped",
        messages=messages,
        batches=state.done - before,
        took_ms=round((clock.monotonic() - began) * 1000),
        facts=facts,
    )


def _read(notes: Notes) -> Stretches | None:
    text = notes.read(NOTE)
    if text is None:
        return None
    try:
        state = msgspec.json.decode(text, type=Stretches)
    except msgspec.MsgspecError as error:
        raise WrongState(f"the note {NOTE} of the checkpoint is damaged: {error}; give another --checkpoint") from None
    if state.version != VERSION:
        raise WrongState(f"the note {NOTE} of the checkpoint is of version {state.version}; give another --checkpoint")
    return state


def _done(do: Do, piece: Piece) -> int:
    try:
        return do(piece)
    except PocketMQError:
        raise
    except Exception as error:  # of Spark, which has many kinds
        raise PipelineFailed(told(error)) from error


def _progress(query: str, state: Stretches, messages: int, began: float, piece_began: float, clock: Clock) -> Progress:
    now = clock.monotonic()
    per_s = messages / (now - began) if now > began else 0.0
    behind = sum(one.end - state.place(one, state.done) for one in state.ranges)
    return Progress(
        query=query,
        batch=state.done - 1,
        messages=messages,
        per_s=round(per_s, 1),
        behind=behind,
        eta_s=round(behind / per_s, 1) if per_s else None,
        took_ms=round((now - piece_began) * 1000),
    )


_AS_IT_WAS: Final = (Written.VALUE, Written.KEYS, Written.TAGS)


def message_rows(
    messages: DataFrame, *, where: str | None = None, select: Sequence[str] = (), to: str | None = None
) -> DataFrame:
    """What is to be sent. Without `to` each message goes to the topic that it was sent to at first, a dead letter as well."""
    chosen = messages if where is None else messages.where(where)
    if select:
        shaped = chosen.selectExpr(*select)
    else:
        columns = [*map(functions.col, _AS_IT_WAS), *_of_properties(chosen)]
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
    refused = functions.coalesce(properties.getItem(PAST["topic"]), topic)  # by a pipeline, to a dead-letter topic
    return functions.when(topic.startswith(DLQ_PREFIX), died).otherwise(refused)


def _check(rows: DataFrame, to: str | None) -> None:
    """InvalidSetting for columns that cannot be sent, before anything is."""
    for column in rows.columns:
        if column not in list(Written):
            near = get_close_matches(column, list(Written), 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(Written)}"
            raise InvalidSetting(
                f"--select gives a column {column!r}, which cannot be sent; {hint} Name it by `… AS {near[0] if near else 'value'}`"
            )
    if Written.VALUE not in rows.columns:
        raise InvalidSetting("--select gives no column value, which becomes the body: `… AS value`")
    if to is None and Written.TOPIC not in rows.columns:
        raise InvalidSetting("--select gives no column topic: name the topic by --to, or by `… AS topic`")
