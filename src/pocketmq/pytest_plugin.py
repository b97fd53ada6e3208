"""Fixtures for pytest, there by themselves wherever PocketMQ is installed: a real broker for a test.

    def test_orders(rocketmq):
        producer = make_producer(rocketmq.name_server)

Nothing of the broker is imported before a test asks for one of them.
"""

from collections.abc import Iterator

import pytest

import pocketmq


@pytest.fixture
def rocketmq() -> Iterator["pocketmq.Server"]:
    """A name server and a broker for this test alone, empty; gone with everything in it when the test ends."""
    with pocketmq.Server() as server:
        yield server


@pytest.fixture(scope="session")
def rocketmq_session() -> Iterator["pocketmq.Server"]:
    """A name server and a broker for all tests together; each should use topics and groups of its own."""
    with pocketmq.Server() as server:
        yield server
