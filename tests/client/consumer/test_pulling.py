"""Pulls of clients with keys: accepted by a broker that requires signatures, as fast as others, and refused with its
words.
"""

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq import Admin, LitePullConsumer, Producer, PullConsumer, PushConsumer, Server
from pocketmq.client.consumer.pulling import Pulling
from pocketmq.errors import NoPermission
from pocketmq.model.message import Message
from pocketmq.net.address import Address
from pocketmq.protocol.signing import Credentials

OWNER = Credentials("owner", "the secret of the owner")
ORDERS = Credentials("orders", "100% secret")
ACCOUNTS = """
[[account]]
access_key = "owner"
secret = "the secret of the owner"
admin = true

[[account]]
access_key = "orders"
secret = "100% secret"
topics = { "orders" = ["Pub", "Sub"] }
groups = { "workers" = ["Sub"] }
"""
COUNT = 500


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """With messages in the topic `orders`."""
    accounts = tmp_path / "accounts.toml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    with Server(tmp_path / "data", accounts=accounts) as server:
        with Admin(server.name_server, credentials=OWNER) as admin:
            admin.topics.create("orders", queues=2)
        with Producer(server.name_server, credentials=ORDERS) as producer:
            producer.send_many([Message("orders", b"%d" % number) for number in range(COUNT)])
        yield server


@pytest.fixture
def left_at_once(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each pull of a run, whether it was sent at once."""
    noted: list[bool] = []
    send = Pulling.send

    def noting(self: Pulling, *arguments: Any, **more: Any) -> bool:
        noted.append(send(self, *arguments, **more))
        return noted[-1]

    monkeypatch.setattr(Pulling, "send", noting)
    return noted


def test_a_signed_push_consumer_pulls_in_runs_and_commits(server: Server, left_at_once: list[bool]) -> None:
    bodies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    consumer = PushConsumer(server.name_server, group="workers", credentials=ORDERS, start_at="first")
    consumer.on("orders")(lambda message: bodies.put(message.body))

    with consumer:
        delivered = {bodies.get(timeout=30) for _ in range(COUNT)}

    assert delivered == {b"%d" % number for number in range(COUNT)}
    assert sum(left_at_once) >= COUNT // 32
    with Admin(server.name_server, credentials=OWNER) as admin:
        assert admin.offsets.lag("workers").of_topic("orders").messages == 0


def test_signed_pull_consumers_get_the_same_answers(server: Server) -> None:
    deadline = time.monotonic() + 30
    with LitePullConsumer(server.name_server, group="workers", credentials=ORDERS, start_at="first") as lite:
        lite.subscribe("orders")
        polled: set[bytes] = set()
        while len(polled) < COUNT and time.monotonic() < deadline:
            polled |= {message.body for message in lite.poll(1)}
    with PullConsumer(server.name_server, group="workers", credentials=ORDERS) as consumer:
        pulled: set[bytes] = set()
        for place in consumer.queues("orders"):
            offset = 0
            while (result := consumer.pull(place, offset, max_messages=32)).messages:
                pulled |= {message.body for message in result.messages}
                offset = result.next_offset

    assert polled == pulled == {b"%d" % number for number in range(COUNT)}


def test_a_forbidden_pull_is_refused_in_the_words_of_the_broker(server: Server) -> None:
    with PullConsumer(server.name_server, group="strangers", credentials=ORDERS) as consumer:
        (place, _) = consumer.queues("orders")
        for _ in range(3):  # the first one has to wait for the line, the others leave at once
            with pytest.raises(NoPermission, match="User:orders has no permission to access Group:strangers"):
                consumer.pull(place, 0)
    wrong = PullConsumer(server.name_server, group="workers", credentials=Credentials("orders", "another secret"))
    with wrong, pytest.raises(NoPermission, match="check signature failed"):
        wrong.queues("orders")


def test_signed_sends_of_waiting_threads_bypass_the_loop(server: Server) -> None:
    with Producer(server.name_server, credentials=ORDERS) as producer:
        results = [producer.send("orders", b"x") for _ in range(3)]

        assert all(result.is_ok for result in results)
        assert producer._direct is not None
        assert producer._direct.connections.open_connections() == {Address.parse(server.broker_address): 1}
