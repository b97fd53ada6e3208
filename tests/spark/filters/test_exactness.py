"""A filter selects exactly the rows that Spark selects: random conditions over unusual rows, on a real Spark and a
real broker.
"""

import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, new_topic, options, queue

from pocketmq import Admin, Message, Producer, PullConsumer, Server, read_arrow
from pocketmq.errors import InvalidSetting
from pocketmq.spark.filters.conditions import parts_of, sql92_of
from pocketmq.spark.filters.parsing import parse_filter
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.pyspark_versions import DOUBLED_QUOTES, has
from pocketmq.spark.read.metadata import borrowed_metadata
from pocketmq.spark.read.pushdown import planned_filter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    "Oslo",
    "oslo",
    "OSLO ",
    "5",
    "05",
    "5.0",
    "-1",
    "10",
    "true",
    "it's",
    "Zürich",
    "Zu\u0308rich",
    "北京",
    "🚀",
    "null",
    "a b",
    "%",
]
KEYS = ["city", "City", "n", "größe", "order id", "IN", "a.b"]
ROWS = 160
CONDITIONS = 400
Row = tuple[int, int]


def rows_of(seed: random.Random, topic: str) -> Iterator[Message]:
    for number in range(ROWS):
        properties = {key: seed.choice(TEXTS) for key in KEYS if seed.random() < 0.6}
        tags = seed.choice([None, "paid", "Paid", "sent", "AaAa", "BBBB", "AaBB"])  # the last three have one hash
        keys = seed.choice(["", "k1", "k1 k2"])
        yield Message(topic, b"%d" % number, tags=tags, keys=keys, properties=properties)


@pytest.fixture(scope="module")
def filled(broker: Broker) -> str:
    topic = new_topic(broker)
    fill_rows(broker, topic)
    return topic


def fill_rows(broker: Broker, topic: str) -> None:
    messages = list(rows_of(random.Random(7), topic))
    with Producer(broker.name_server, group="filling") as producer:
        for number in range(2):
            producer.send_many(messages[number::2], queue=queue(broker, topic, number))
    with PullConsumer(broker.name_server, group="seen") as seen:
        deadline = monotonic() + 10
        while sum(seen.max_offset(queue(broker, topic, number)) for number in range(2)) < ROWS:
            assert monotonic() < deadline, "the rows do not arrive"


def text(seed: random.Random, value: str) -> str:
    in_double_quotes = (seed.random() < 0.2 and "'" not in value) or ("'" in value and not has(DOUBLED_QUOTES))
    return f'"{value}"' if in_double_quotes else "'" + value.replace("'", "''") + "'"


def time_literal(seed: random.Random, times: list[datetime]) -> str:
    return f"TIMESTAMP '{seed.choice(times).astimezone(UTC):%Y-%m-%d %H:%M:%S.%fZ}'"


def leaf(seed: random.Random, topic: str, times: list[datetime]) -> str:
    column = seed.choice(
        ["property"] * 6 + ["tags"] * 3 + ["keys", "topic", "queueId", "queueOffset", "storeTimestamp", "msgId"]
    )
    operand = f"properties[{text(seed, seed.choice([*KEYS, 'TAGS', 'missing']))}]" if column == "property" else column
    if seed.random() < 0.15:
        return f"{operand} IS {seed.choice(['', 'NOT '])}NULL"

    def value() -> str:
        if column in ("queueId", "queueOffset"):
            return str(seed.choice([-1, 0, 1, 2, 17, 40, 79, 80, 2**40]))
        if column == "storeTimestamp":
            return time_literal(seed, times)
        near = {
            "tags": ["paid", "Paid", "sent", "AaAa", "BBBB", " paid", ""],
            "keys": ["k1", "k1 k2"],
            "topic": [topic, "other"],
        }
        return text(seed, seed.choice(near.get(column, TEXTS)))

    shape = seed.random()
    if shape < 0.2:
        return f"{operand} {seed.choice(['', 'NOT '])}IN ({', '.join(value() for _ in range(seed.randint(1, 4)))})"
    if shape < 0.35:
        return f"{operand} {seed.choice(['', 'NOT '])}BETWEEN {value()} AND {value()}"
    operator = seed.choice(["=", "=", "==", "<>", "!=", "<", "<=", ">", ">="])
    return f"{value()} {operator} {operand}" if shape < 0.45 else f"{operand} {operator} {value()}"


def condition(seed: random.Random, topic: str, times: list[datetime], depth: int = 3) -> str:
    if depth == 0 or seed.random() < 0.3:
        return leaf(seed, topic, times)
    if seed.random() < 0.25:
        return f"NOT ({condition(seed, topic, times, depth - 1)})"
    inner = [condition(seed, topic, times, depth - 1) for _ in range(seed.randint(2, 3))]
    return (
        f"({seed.choice([' AND ', ' OR ']).join(inner)})"
        if seed.random() < 0.7
        else seed.choice([" AND ", " OR "]).join(inner)
    )


def test_a_filter_selects_the_same_rows_as_spark(spark: "SparkSession", broker: Broker, filled: str) -> None:
    seed = random.Random(11)
    address = options(broker)
    frame = spark.read.format("rocketmq").options(**address, subscribe=filled).load()
    times = [row[0].replace(tzinfo=UTC) if row[0].tzinfo is None else row[0] for row in stored(broker, filled)]
    conditions = [condition(seed, filled, times) for _ in range(CONDITIONS)]
    judged = frame.selectExpr(
        "queueId", "queueOffset", *(f"({each}) IS TRUE AS c{at}" for at, each in enumerate(conditions))
    )
    by_spark: list[set[Row]] = [set() for _ in conditions]
    for row in judged.collect():
        for at in range(len(conditions)):
            if row[2 + at]:
                by_spark[at].add((row[0], row[1]))

    wrong = [each for at, each in enumerate(conditions) if selected(broker, filled, each) != by_spark[at]]

    assert wrong == []
    assert sum(0 < len(rows) < ROWS for rows in by_spark) > CONDITIONS // 3, (
        "the conditions select too little or too much"
    )


def test_the_conditions_of_this_test_cover_each_way_to_filter(broker: Broker, filled: str) -> None:
    seed = random.Random(11)
    times = [row[0] for row in stored(broker, filled)]
    conditions = [condition(seed, filled, times) for _ in range(CONDITIONS)]
    plans = []
    for each in conditions:
        read = parse_read_options(options(broker, subscribe=filled, filter=each), streaming=False, environ={})
        with borrowed_metadata(read) as metadata:
            plans.append(planned_filter(read, (), [queue(broker, filled, 0)], metadata))

    assert sum(plan.sql is not None for plan in plans) > 30
    assert sum(plan.tags is not None for plan in plans) > 3
    assert sum(plan.sql is not None and plan.condition is not None for plan in plans) > 10


def test_a_broker_without_sql92_gives_the_same_result(
    broker: Broker, filled: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seed = random.Random(5)
    conditions = [condition(seed, filled, [datetime(2026, 1, 1, tzinfo=UTC)]) for _ in range(40)]
    with Server(data=tmp_path, settings={"enablePropertyFilter": False}) as server:
        other = Broker.of(server)
        with Admin(other.name_server) as admin:
            admin.topics.create(filled, queues=2)
        fill_rows(other, filled)
        for each in (one for one in conditions if "msgId" not in one and "storeTimestamp" not in one):
            assert selected(other, filled, each) == selected(broker, filled, each), each

        with pytest.raises(
            InvalidSetting, match=r"broker broker-a does not filter by SQL92; set enablePropertyFilter=true"
        ):
            read_arrow(filled, options={**options(other), "filterSql": "a = 'b'"})
    assert "The filter is applied after reading: broker broker-a does not filter by SQL92" in caplog.text


def stored(broker: Broker, topic: str) -> list[tuple[datetime]]:
    table = read_arrow(topic, columns=["storeTimestamp"], options=options(broker)).read_all()
    return [(moment,) for moment in sorted(set(table.column(0).to_pylist()))[:5]]


def selected(broker: Broker, topic: str, each: str) -> set[Row]:
    table = read_arrow(topic, columns=["queueId", "queueOffset"], where=each, options=options(broker)).read_all()
    rows: list[Any] = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert len(set(rows)) == len(rows)
    return set(rows)


def test_each_operator_of_a_broker_selects_the_same_rows_as_spark(broker: Broker, filled: str) -> None:
    """The broker's answer compared with the masks, which the test above compares with Spark."""
    values = [*TEXTS, "", "x"]
    leaves = [
        f"properties['{key}'] {operator} '{value.replace(chr(39), chr(39) * 2)}'"
        for key, operator, value in itertools.product(["city", "n", "missing"], ["=", "<>"], values)
    ]
    leaves += [f"tags {word} ('paid', 'AaAa')" for word in ("IN", "NOT IN")]
    leaves += [f"{name} IS {word}NULL" for name in ("tags", "keys", "properties['n']") for word in ("", "NOT ")]
    pushed = 0
    for each in leaves:
        (part,) = parts_of(parse_filter(each))
        if (sql := sql92_of(part)) is None:
            continue
        pushed += 1
        by_broker = read_arrow(
            filled, columns=["queueId", "queueOffset"], options={**options(broker), "filterSql": sql}
        )
        by_mask = read_arrow(
            filled, columns=["queueId", "queueOffset", "tags", "keys", "properties"], options=options(broker)
        )
        assert by_broker.read_all().num_rows == masked(by_mask, each), each
    assert pushed > 80


def masked(reader: Any, each: str) -> int:
    from pocketmq.spark.filters.masks import mask_of
    from pocketmq.spark.schema import Name

    mask = mask_of(parse_filter(each))
    return sum(
        batch.filter(mask({Name(name): batch.column(name) for name in batch.schema.names})).num_rows for batch in reader
    )


@pytest.mark.skipif(has(DOUBLED_QUOTES), reason="newer versions read the text as the option does")
def test_a_text_that_pyspark_4_0_reads_in_another_way_is_refused(
    spark: "SparkSession", broker: Broker, filled: str
) -> None:
    def read(condition: str) -> int:
        return (
            spark.read.format("rocketmq").options(**options(broker), subscribe=filled, filter=condition).load().count()
        )

    assert read("""properties['n'] = "it's\"""") > 0
    with pytest.raises(Exception, match=r"PySpark 4\.0 reads 'it''s' as its"):
        read("properties['n'] = 'it''s'")
