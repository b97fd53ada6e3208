"""Test with a real broker: PocketMQ has the pytest fixture `rocketmq`. Run this file with pytest, or as a program.

Prints:
    all tests passed
"""

import pytest

from pocketmq import LitePullConsumer, Message, Producer, Server


def place_order(producer: Producer, what: str) -> None:
    """What is to be tested."""
    producer.send(Message("orders", what.encode(), tags="new"))


def test_an_order_is_announced_with_its_tag(rocketmq: Server) -> None:
    with Producer(rocketmq.name_server) as producer:
        place_order(producer, "tea")

    with LitePullConsumer(rocketmq.name_server, group="tests", start_at="first") as consumer:
        consumer.subscribe("orders")
        [message] = consumer.poll(30)

    assert (message.body, message.tags) == (b"tea", "new")


if __name__ == "__main__":
    failed = pytest.main(["-o", "addopts=", "--assert=plain", "-p", "no:terminal", "-p", "no:cacheprovider", __file__])
    print("a test failed" if failed else "all tests passed")
