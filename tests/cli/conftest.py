"""A server that all tests of a module share: each uses topics and groups of its own."""

from collections.abc import Iterator

import pytest
from tests.cli.running_cluster import RunningCluster

import pocketmq


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with pocketmq.Server() as server:
        yield RunningCluster(server)


@pytest.fixture
def own_cluster() -> Iterator[RunningCluster]:
    """One for a test alone, empty."""
    with pocketmq.Server() as server:
        yield RunningCluster(server)
