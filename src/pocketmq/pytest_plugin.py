"""Pytest fixtures with a real broker, available wherever PocketMQ is installed.

    def test_orders(rocketmq):
        producer = make_producer(rocketmq.name_server)

The broker is imported with the first use of a fixture.
"""

from collections.abc import Iterator

import pytest

import pocketmq


@pytest.fixture
def rocketmq() -> Iterator["pocketmq.Server"]:
    """An empty name server and broker for one test, deleted at its end."""
    with pocketmq.Server() as server:
        yield server


@pytest.fixture(scope="session")
def rocketmq_session() -> Iterator["pocketmq.Server"]:
    """A name server and a broker for all tests; each test should use its own topics and groups."""
    with pocketmq.Server() as server:
        yield server
