"""Values of options: what each kind accepts, and the errors for the rest."""

from typing import Any

import pytest

from pocketmq.model.queue import MessageQueue
from pocketmq.spark.options.options import (
    DURATION,
    GROUP,
    OFFSETS,
    PATTERN,
    QUEUES,
    SWITCH,
    TEXT,
    TIMES,
    TOPIC,
    TOPICS,
    Kind,
    choice,
    whole,
    words_or,
)

ORDERS_0 = MessageQueue("orders", "broker-a", 0)
ORDERS_10 = MessageQueue("orders", "broker-a", 10)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (whole(1), "1", 1),
        (whole(0, 10), "10", 10),
        (whole(-5), "-5", -5),
        (choice("fail", "skip"), "SKIP", "skip"),
        (SWITCH, "True", True),
        (SWITCH, "false", False),
        (TEXT, "Keeps Case", "Keeps Case"),
        (DURATION, "1500", 1500),
        (DURATION, "500ms", 500),
        (DURATION, "30s", 30_000),
        (DURATION, "15m", 900_000),
        (DURATION, "15 min", 900_000),
        (DURATION, "2h", 7_200_000),
        (DURATION, "1D", 86_400_000),
        (TOPIC, "orders", "orders"),
        (TOPICS, "b, a ,b,", ("b", "a")),
        (GROUP, "spark-orders", "spark-orders"),
        (PATTERN, "orders-.*", "orders-.*"),
        (QUEUES, '{"orders":{"broker-a":[10,0,0]}}', (ORDERS_0, ORDERS_10)),
        (OFFSETS, '{"orders":{"broker-a":{"0":-2,"10":7}}}', {ORDERS_0: -2, ORDERS_10: 7}),
        (TIMES, '{"orders":{"broker-a":{"0":1767225600000}}}', {ORDERS_0: 1767225600000}),
        (words_or(OFFSETS, "latest"), "LATEST", "latest"),
        (words_or(OFFSETS, "latest"), '{"orders":{"broker-a":{"0":1}}}', {ORDERS_0: 1}),
    ],
)
def test_a_value_is_parsed(kind: Kind, text: str, value: Any) -> None:
    assert kind.read(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (whole(1), "0", "a whole number of at least 1"),
        (whole(0, 10), "11", "a whole number of at least 0 and at most 10"),
        (whole(1), "1.5", "whole number"),
        (whole(1), "", "whole number"),
        (whole(1), "1_000", "whole number"),
        (whole(1), "9" * 30, "whole number"),
        (choice("fail", "skip"), "ignore", "one of fail, skip"),
        (SWITCH, "yes", "true or false"),
        (TEXT, "", "valid: it is empty"),
        (DURATION, "soon", "a duration such as"),
        (DURATION, "-5s", "a duration such as"),
        (TOPIC, "a b", "a topic: topic name 'a b' contains ' '"),
        (TOPIC, "%LMQ%x", "light message queues"),
        (TOPICS, " , ", "a list of topics"),
        (TOPICS, "a,../x", "a topic"),
        (GROUP, "a/b", "a group"),
        (PATTERN, "(", "a regular expression"),
        (QUEUES, "{}", "at least one queue"),
        (QUEUES, '{"orders":{"broker-a":[]}}', "at least one queue"),
        (QUEUES, '{"orders":[0]}', "JSON such as"),
        (QUEUES, '{"orders":{"broker-a":["0"]}}', "JSON such as"),
        (QUEUES, '{"orders":{"broker-a":[-1]}}', "JSON such as"),
        (QUEUES, '{"orders":{"":[1]}}', "JSON such as"),
        (OFFSETS, "[]", "JSON such as"),
        (OFFSETS, "not json", "JSON such as"),
        (OFFSETS, "[" * 100_000, "JSON such as"),
        (OFFSETS, '{"orders":{"broker-a":{"0":-3}}}', "at least -2"),
        (OFFSETS, '{"orders":{"broker-a":{"0":true}}}', "a number of at least"),
        (OFFSETS, '{"orders":{"broker-a":{"0":"7"}}}', "a number of at least"),
        (OFFSETS, '{"orders":{"broker-a":{"x":7}}}', "JSON such as"),
        (OFFSETS, '{"orders":{"broker-a":[7]}}', "JSON such as"),
        (OFFSETS, '{"orders":{"broker-a":{}}}', "at least one queue"),
        (TIMES, '{"orders":{"broker-a":{"0":-1}}}', "at least 0"),
        (words_or(OFFSETS, "earliest", "latest"), "first", "earliest, latest or JSON such as"),
    ],
)
def test_an_impossible_value_is_refused_with_the_expected_form(kind: Kind, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        kind.read(text)

    assert told in str(caught.value)
