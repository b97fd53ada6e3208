"""The broker in a process of its own."""

from pathlib import Path

import pytest

from pocketmq import Admin
from pocketmq.demo.servers import make_topics, running_broker
from pocketmq.demo.shop import TOPICS
from pocketmq.errors import NetworkError, ProgramFailed


def test_a_broker_has_the_topics_of_the_shop_and_keeps_them(tmp_path: Path) -> None:
    for _ in range(2):
        with running_broker(tmp_path, {}) as name_servers, Admin(name_servers) as admin:
            make_topics(name_servers)
            queues = {topic: len(admin.topics.describe(topic).queues) for topic in TOPICS}

    assert queues == TOPICS


def test_the_broker_stops_at_the_end_of_the_block(tmp_path: Path) -> None:
    with running_broker(tmp_path, {}) as name_servers:
        pass

    with pytest.raises(NetworkError), Admin(name_servers, connect_timeout_ms=500) as admin:
        admin.topics.names()


def test_a_broker_that_cannot_start_reports_the_reason(tmp_path: Path) -> None:
    with (
        running_broker(tmp_path, {}),
        pytest.raises(ProgramFailed, match="the broker did not start"),
        running_broker(tmp_path, {}),
    ):
        raise AssertionError("two brokers share a folder")
