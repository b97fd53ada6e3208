"""Queues on a disk in memory."""

import pytest
from tests.store.queue_kit import queues_on

from pocketmq.store.queues.queues import Queues
from pocketmq.testing import FaultyFiles


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def queues(disk: FaultyFiles) -> Queues:
    return queues_on(disk)
