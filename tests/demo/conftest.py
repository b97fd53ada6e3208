"""A broker with the topics of the shop, for a test alone."""

from collections.abc import Iterator

import pytest

from pocketmq import Server
from pocketmq.demo.servers import make_topics

SOON = {"transactionTimeOut": 300, "transactionCheckInterval": 300}


@pytest.fixture
def shop() -> Iterator[str]:
    """The address of its name server."""
    with Server(settings=SOON) as server:
        make_topics(server.name_server)
        yield server.name_server
