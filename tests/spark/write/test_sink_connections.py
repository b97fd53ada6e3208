"""Writes share a producer if their connection options are equal."""

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, new_topic, options

from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.spark.options.write_options import parse_write_options
from pocketmq.spark.write.sink_task import borrow_producer


def producer(broker: Broker, **given: str | int) -> AsyncProducer:
    parsed = parse_write_options(options(broker, **given), streaming=False, environ={})
    with borrow_producer(parsed, 60_000) as held:
        return held.core()


def test_writes_with_other_names_numbers_topics_and_guarantees_share_a_producer(broker: Broker) -> None:
    topic = new_topic(broker)

    first = producer(broker, topic=topic, writeId="each", writeBatch=0)

    assert producer(broker, topic=topic, writeId="each", writeBatch=1) is first
    assert producer(broker, topic="another", writeId="another") is first
    assert producer(broker) is first


@pytest.mark.parametrize("given", [{"groupId": "own"}, {"sendTimeoutMs": 7_000}, {"rocketmq.instanceName": "own"}])
def test_other_connection_options_need_another_producer(broker: Broker, given: dict[str, str | int]) -> None:
    assert producer(broker, **given) is not producer(broker)
