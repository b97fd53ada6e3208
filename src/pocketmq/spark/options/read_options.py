"""Every option of reading a topic, as a batch or as a stream. The names are those of Spark's Kafka connector."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from pocketmq.errors import InvalidExpression, InvalidSetting
from pocketmq.model import ExpressionType, MessageQueue, Subscription
from pocketmq.model.names import SPARK_SOURCE_GROUP
from pocketmq.model.sql92 import check_expression
from pocketmq.spark.filters.conditions import Condition
from pocketmq.spark.filters.parsing import parse_filter
from pocketmq.spark.options.connection_options import CONNECTION_OPTIONS, FORBIDDEN, Connection, connection_of
from pocketmq.spark.options.options import (
    DURATION,
    EARLIEST,
    GROUP,
    OFFSETS,
    PATTERN,
    QUEUES,
    SWITCH,
    TEXT,
    TIMES,
    TOPICS,
    Forbidden,
    Kind,
    Option,
    OptionTable,
    Use,
    at_most_one,
    choice,
    exactly_one,
    whole,
    words_or,
)

KIB: Final = 1024
MIB: Final = 1024 * KIB
_MAX_WAIT_MS: Final = 3_600_000
_MAX_PARTITIONS: Final = 100_000


def _condition(text: str) -> Condition:
    try:
        return parse_filter(text)
    except InvalidExpression as error:
        raise ValueError(f"a condition: {error}") from None


READ_OPTIONS: Final = OptionTable(
    [
        *CONNECTION_OPTIONS,
        # topics, queues and filters
        Option("subscribe", "topics", TOPICS, None, Use.READ, "the topics to read", "orders,payments"),
        Option("subscribePattern", "pattern", PATTERN, None, Use.READ, "a regular expression that must match the whole topic name; the query also finds topics that are created later", "orders-.*"),
        Option("assign", "queues", QUEUES, None, Use.READ, "the queues to read", '{"orders":{"broker-a":[0,1]}}'),
        Option("filterTags", "filter_tags", TEXT, None, Use.READ, "read only messages with one of these tags; the broker filters", "paid \\|\\| sent"),
        Option("filterSql", "filter_sql", TEXT, None, Use.READ, "read only messages whose properties match; the broker filters, if it has enabled SQL filters", "amount > 5"),
        Option("filter", "filter", Kind("condition", _condition), None, Use.READ, "read only messages for which this condition on columns and properties is true, in Spark's SQL; brokers apply what they evaluate as Spark does, and the connector the rest", "tags = 'paid' AND properties['city'] = 'Oslo'"),
        Option("includeProperties", "include_properties", SWITCH, True, Use.READ, "false omits the column properties, which saves a third of the time", "false", ("includeHeaders",)),
        # start and end
        Option("startingOffsets", "starting_offsets", words_or(OFFSETS, "earliest", "latest", "committed"), None, Use.READ, "where a new query starts: latest by default for a stream, earliest for a batch; committed is the committed offset of `groupId`; in JSON -2 is earliest and -1 latest. Queues that are added later start at their earliest offset", "earliest"),
        Option("startingTimestamp", "starting_timestamp", whole(0), None, Use.READ, "start with messages stored at this time or later, in milliseconds; overrides the two other options", "1767225600000"),
        Option("startingOffsetsByTimestamp", "starting_times", TIMES, None, Use.READ, "the same for each queue; overrides `startingOffsets`", '{"orders":{"broker-a":{"0":1767225600000}}}'),
        Option("startingOffsetsByTimestampStrategy", "starting_strategy", choice("error", "latest"), "error", Use.READ, "what to do if no message is that new", "latest"),
        Option("endingOffsets", "ending_offsets", words_or(OFFSETS, "latest"), None, Use.BATCH, "where a batch ends, by default at latest; in JSON -1 is latest", "latest"),
        Option("endingTimestamp", "ending_timestamp", whole(0), None, Use.BATCH, "end before messages stored at this time or later", "1767312000000"),
        Option("endingOffsetsByTimestamp", "ending_times", TIMES, None, Use.BATCH, "the same for each queue", '{"orders":{"broker-a":{"0":1767312000000}}}'),
        # batch and partition sizes
        Option("maxOffsetsPerTrigger", "max_offsets", whole(1), None, Use.STREAM, "maximum number of messages in a micro-batch, allocated to queues in proportion to their backlog", "1000000"),
        Option("maxBytesPerTrigger", "max_bytes", whole(1), None, Use.STREAM, "approximate maximum of bytes in a micro-batch, by the average message size", "268435456"),
        Option("minOffsetsPerTrigger", "min_offsets", whole(1), None, Use.STREAM, "wait until this many messages are available", "10000"),
        Option("maxTriggerDelay", "max_delay_ms", DURATION, 900_000, Use.STREAM, "the longest wait for `minOffsetsPerTrigger`, in milliseconds or with a unit", "15m"),
        Option("minPartitions", "min_partitions", whole(1, _MAX_PARTITIONS), None, Use.READ, "minimum number of partitions, if there are as many messages", "32"),
        Option("maxPartitions", "max_partitions", whole(1, _MAX_PARTITIONS), None, Use.READ, "maximum number of partitions, unless the two other options require more; by default the cores of the driver's machine: on a cluster, set it to the cores of all executors", "16"),
        Option("maxRecordsPerPartition", "max_records_per_partition", whole(1), None, Use.READ, "maximum number of messages in a partition", "500000"),
        # lost messages
        Option("failOnDataLoss", "fail_on_data_loss", SWITCH, None, Use.READ, "true means `onDataLoss` = fail, false means skip", "true"),
        Option("onDataLoss", "on_data_loss", choice("fail", "skip", "earliest"), "fail", Use.READ, "what to do if messages were deleted before they were read: fail with the exact ranges, skip them and record it, or start again at the earliest offset", "skip"),
        Option("retentionWarning", "retention_warning_ms", DURATION, 3_600_000, Use.STREAM, "log a warning if the next messages to read will be deleted within this time; 0 disables it", "1h"),
        Option("batchFile", "batch_file", TEXT, None, Use.STREAM, "a file on the driver that has the start and end offset of each batch, as JSON, before the batch runs: a `foreachBatch` function finds exact ranges and losses there", "/data/batch.json"),
        # published offsets
        Option("groupId", "group", GROUP, None, Use.READ, "the consumer group for pulls and for published offsets; the query never joins the group", "spark-orders"),
        Option("groupIdPrefix", "group_prefix", GROUP, SPARK_SOURCE_GROUP, Use.READ, "without `groupId`, the query pulls as a group of this name and a hash of what it reads, and publishes no offsets", "etl"),
        # pulling
        Option("pullBatchSize", "pull_messages", whole(1, 65_536), 16_384, Use.READ, "messages that a pull requests; brokers may return fewer, by their own settings", "1024"),
        Option("pullBatchBytes", "pull_bytes", whole(KIB, 64 * MIB), 4 * MIB, Use.READ, "bytes that a pull requests", "1048576"),
        Option("decodeBufferBytes", "buffer_bytes", whole(KIB, 64 * MIB), 3 * MIB, Use.READ, "bytes that are decoded at once; 1 to 4 MB is best", "4194304"),
        Option("verifyChecksums", "check_crc", SWITCH, False, Use.READ, "compare the checksum of every body, which detects damage between disk and Spark", "true"),
        Option("rocketmqConsumer.pollTimeoutMs", "poll_timeout_ms", whole(1, _MAX_WAIT_MS), 120_000, Use.READ, "how long a task tries to pull the next messages of its range", "60000"),
        Option("rocketmqConsumer.idleTimeoutMs", "idle_timeout_ms", whole(0, 24 * _MAX_WAIT_MS), 300_000, Use.READ, "how long a worker keeps an unused connection", "60000"),
        Option("fetchOffset.numRetries", "fetch_retries", whole(0, 1000), 3, Use.READ, "how often a batch, or a stream without a checkpoint, repeats a failed query for offsets", "10"),
        Option("fetchOffset.retryIntervalMs", "fetch_interval_ms", whole(0, _MAX_WAIT_MS), 1000, Use.READ, "the wait before such a query is repeated; a stream doubles it, up to 5 s", "500"),
        Option("fetchOffset.retryTimeout", "fetch_timeout_ms", DURATION, 300_000, Use.STREAM, "how long brokers may be unavailable before a stream with a checkpoint fails, in milliseconds or with a unit", "30m"),
        Option("latestOffset.minIntervalMs", "latest_interval_ms", whole(0, _MAX_WAIT_MS), 100, Use.STREAM, "minimum interval between two queries for new messages; Spark would repeat them ninety times a second", "1000"),
        Option("partition.metadata.cache.ttl.ms", "metadata_ttl_ms", whole(0, _MAX_WAIT_MS), 10_000, Use.READ, "how long the list of a topic's queues is cached", "60000"),
        Option("pushFilters", "push_filters", SWITCH, True, Use.BATCH, "accept the filters of the query on topic, queueId, queueOffset, storeTimestamp and tags; Spark offers them if `spark.sql.python.filterPushdown.enabled` = true", "false"),
    ],
    [
        *FORBIDDEN,
        Forbidden("rocketmq.group", "the query keeps its offsets in its checkpoint; to publish them, set groupId"),
        Forbidden("consumerGroup", "the query keeps its offsets in its checkpoint; to publish them, set groupId"),
        Forbidden("topic", "to read, name the topics by the option subscribe"),
    ],
)  # fmt: skip


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one read, checked; one field for each row of the table."""

    connection: Connection
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    queues: tuple[MessageQueue, ...] | None = None
    filter_tags: str | None = None
    filter_sql: str | None = None
    filter: Condition | None = None
    include_properties: bool = True
    starting_offsets: str | dict[MessageQueue, int]
    starting_timestamp: int | None = None
    starting_times: dict[MessageQueue, int] | None = None
    starting_strategy: str = "error"
    ending_offsets: str | dict[MessageQueue, int] = "latest"
    ending_timestamp: int | None = None
    ending_times: dict[MessageQueue, int] | None = None
    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000
    min_partitions: int | None = None
    max_partitions: int | None = None
    max_records_per_partition: int | None = None
    on_data_loss: str = "fail"
    retention_warning_ms: int = 3_600_000
    batch_file: str | None = None
    group: str | None = None
    group_prefix: str
    pull_messages: int
    pull_bytes: int
    buffer_bytes: int
    check_crc: bool = False
    poll_timeout_ms: int
    idle_timeout_ms: int
    fetch_retries: int
    fetch_interval_ms: int
    fetch_timeout_ms: int = 300_000
    latest_interval_ms: int = 100
    metadata_ttl_ms: int
    push_filters: bool = True

    @property
    def pull_group(self) -> str:
        """The group for pulls: `groupId`, or a name that depends only on what is read."""
        if self.group is not None:
            return self.group
        what = repr((self.topics, self.pattern, self.queues)).encode()
        return f"{self.group_prefix}-{sha256(what).hexdigest()[:12]}"


def subscription_of(topic: str, filter_tags: str | None, filter_sql: str | None) -> Subscription:
    """The subscription to a topic by the two filter options; InvalidExpression for an invalid one."""
    if filter_sql is not None:
        try:
            check_expression(filter_sql)
        except InvalidExpression as error:
            raise InvalidExpression(f"filterSql = {filter_sql!r} is wrong: {error}") from None
        return Subscription.parse(topic, filter_sql, ExpressionType.SQL92)
    return Subscription.parse(topic, filter_tags)


def options_with(options: Mapping[str, Any], topic: str | None, where: str | None) -> dict[str, str]:
    """`options` as Spark passes them, with `topic` as `subscribe`, and with `where` as `filter`. InvalidSetting for a condition
    that is wrong, or if an option is given twice.
    """
    given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    names = {name.lower() for name in given}
    for name, argument, value in (("subscribe", "topic", topic), ("filter", "where", where)):
        if value is None:
            continue
        if name in names:
            raise InvalidSetting(f"the argument {argument} is the option {name}; give one of them")
        given[name] = value
    if where is not None:
        READ_OPTIONS.check("filter", where)
    return given


def parse_read_options(given: Mapping[str, str], *, streaming: bool, environ: Mapping[str, str]) -> ReadOptions:
    """The options of a read, as Spark passes them; InvalidSetting describes a wrong one."""
    use = Use.STREAM if streaming else Use.BATCH
    values = READ_OPTIONS.read(given, use)
    set_by_user = READ_OPTIONS.set_fields(given)
    exactly_one(values, [("topics", "subscribe"), ("pattern", "subscribePattern"), ("queues", "assign")])
    at_most_one(values, [("filter_tags", "filterTags"), ("filter_sql", "filterSql"), ("filter", "filter")])
    if values["starting_offsets"] is None:
        values["starting_offsets"] = "latest" if streaming else "earliest"
    _check_positions(values, streaming=streaming)
    _check_amounts(values, set_by_user)
    values["on_data_loss"] = _on_data_loss(values, set_by_user)
    connection = connection_of(values, environ)
    subscription_of("any", values["filter_tags"], values["filter_sql"])  # refused here, not by the first task
    return ReadOptions(connection=connection, **values)


def _check_positions(values: dict[str, Any], *, streaming: bool) -> None:
    if values["starting_offsets"] == "committed" and values["group"] is None:
        raise InvalidSetting(
            "startingOffsets = committed needs the option groupId: the group with the committed offsets"
        )
    if streaming:
        return
    if values["ending_offsets"] is None:
        values["ending_offsets"] = "latest"
    ending = values["ending_offsets"]
    if isinstance(ending, dict) and EARLIEST in ending.values():
        raise InvalidSetting("endingOffsets cannot be -2 (earliest): the batch would be empty")
    starting = values["starting_offsets"]
    if starting == "latest" or (isinstance(starting, dict) and -1 in starting.values()):
        raise InvalidSetting("startingOffsets cannot be latest in a batch: the batch would be empty")
    start_ms, end_ms = values["starting_timestamp"], values["ending_timestamp"]
    if start_ms is not None and end_ms is not None and end_ms < start_ms:
        raise InvalidSetting(f"endingTimestamp = {end_ms} is before startingTimestamp = {start_ms}")
    _check_queues("startingOffsets", starting, "endingOffsets", ending)
    times = values["starting_times"], values["ending_times"]
    _check_queues("startingOffsetsByTimestamp", times[0], "endingOffsetsByTimestamp", times[1])


def _check_queues(start_name: str, starts: Any, end_name: str, ends: Any) -> None:
    """InvalidSetting if a queue ends before it starts, where both are set per queue."""
    if not isinstance(starts, dict) or not isinstance(ends, dict):
        return
    for queue in sorted(starts.keys() & ends.keys()):
        if 0 <= ends[queue] < starts[queue]:
            raise InvalidSetting(
                f"{end_name} ends {queue} at {ends[queue]}, before {start_name} starts it at {starts[queue]}"
            )


def _check_amounts(values: dict[str, Any], given: frozenset[str]) -> None:
    smallest, largest = values.get("min_offsets"), values.get("max_offsets")
    if smallest is not None and largest is not None and smallest > largest:
        raise InvalidSetting(f"minOffsetsPerTrigger = {smallest} is above maxOffsetsPerTrigger = {largest}")
    if "max_delay_ms" in given and smallest is None:
        raise InvalidSetting("maxTriggerDelay has no effect without minOffsetsPerTrigger")
    fewest, most = values["min_partitions"], values["max_partitions"]
    if fewest is not None and most is not None and fewest > most:
        raise InvalidSetting(f"minPartitions = {fewest} is above maxPartitions = {most}")


def _on_data_loss(values: dict[str, Any], given: frozenset[str]) -> str:
    fails = values.pop("fail_on_data_loss")
    chosen: str = values["on_data_loss"]
    if fails is None:
        return chosen
    if "on_data_loss" in given and fails != (chosen == "fail"):
        raise InvalidSetting(
            f"failOnDataLoss = {str(fails).lower()} contradicts onDataLoss = {chosen}; set one of them"
        )
    return chosen if "on_data_loss" in given else ("fail" if fails else "skip")
