"""Blocking consumers: they may be configured before their start, as the async ones."""

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from pocketmq.client.consumer.blocking_consumers import LitePullConsumer, PullConsumer, PushConsumer
from pocketmq.client.producer.blocking_producer import Producer
from pocketmq.embedded import Server
from pocketmq.errors import InvalidExpression, InvalidName, UsageError, WrongState
from pocketmq.model.message import StoredMessage

DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def send(server: Server, topic: str, body: bytes) -> None:
    with Producer(server.name_server, group="PG") as producer:
        producer.send(topic, body)


def ignore(message: StoredMessage) -> None:
    pass


def topics_of(consumer: PushConsumer) -> set[str]:
    """Those that it reads, once it runs."""
    found = consumer.running_info().subscription_set
    return {one.topic for one in found if not one.topic.startswith("%RETRY%")}


def test_a_push_consumer_may_be_unsubscribed_before_its_start(server: Server) -> None:
    consumer = PushConsumer(server.name_server, group="push-before")
    consumer.on("Unwanted")(ignore)
    consumer.subscribe("Wanted", ignore)

    consumer.unsubscribe("Unwanted")
    consumer.unsubscribe("NeverHeardOf")

    with consumer:
        assert topics_of(consumer) == {"Wanted"}


def test_a_push_consumer_without_listeners_does_not_start(server: Server) -> None:
    consumer = PushConsumer(server.name_server, group="push-none")
    consumer.on("Unwanted")(ignore)
    consumer.unsubscribe("Unwanted")

    with pytest.raises(UsageError, match="needs a listener"):
        consumer.start()


def test_subscribing_before_the_start_replaces_the_listener(server: Server) -> None:
    send(server, "Replaced", b"1")
    seen, handled = [], threading.Event()
    consumer = PushConsumer(server.name_server, group="push-replaced", start_at="first")
    consumer.on("Replaced")(ignore)

    def handle(message: StoredMessage) -> None:
        seen.append(message.body)
        handled.set()

    consumer.subscribe("Replaced", handle)
    with pytest.raises(InvalidExpression):
        consumer.subscribe("Replaced", ignore, sql=" ")
    with pytest.raises(UsageError, match="already"):
        consumer.on("Replaced")(ignore)

    with consumer:
        assert handled.wait(DEADLINE_S)
    assert seen == [b"1"]


def test_a_lite_pull_consumer_may_be_configured_before_its_start(server: Server) -> None:
    send(server, "LiteBefore", b"1")
    consumer = LitePullConsumer(server.name_server, group="lite-before", start_at="first")

    consumer.subscribe("Unwanted")
    consumer.subscribe("LiteBefore", tags="*")
    consumer.unsubscribe("Unwanted")

    with consumer:
        assert [message.body for message in consumer.poll(DEADLINE_S)] == [b"1"]
        assert {queue.topic for queue in consumer.queues()} == {"LiteBefore"}


def test_queues_may_be_assigned_before_the_start(server: Server) -> None:
    send(server, "AssignBefore", b"1")
    with PullConsumer(server.name_server, group="look") as looking:
        queues = looking.queues("AssignBefore")
    consumer = LitePullConsumer(server.name_server, group="assign-before", start_at="first")

    consumer.assign(queues)
    with pytest.raises(WrongState, match="uses `assign`"):
        consumer.subscribe("AssignBefore")

    with consumer:
        assert [message.body for message in consumer.poll(DEADLINE_S)] == [b"1"]


def test_mistakes_are_reported_before_the_start_and_leave_nothing_running(server: Server) -> None:
    consumer = PushConsumer(server.name_server, group="push-wrong")
    consumer.on("Right")(ignore)

    with pytest.raises(InvalidName):
        consumer.subscribe("no such name!", ignore)
    with pytest.raises(InvalidName):
        consumer.unsubscribe("no such name!")
    with pytest.raises(UsageError, match="not by both"):
        consumer.subscribe("Other", ignore, tags="a", sql="b = 1")
    with pytest.raises(UsageError, match=r"must be one text, for example tags='a \|\| b'"):
        consumer.subscribe("Other", ignore, tags=["a", "b"])  # type: ignore[arg-type]

    with consumer:
        assert topics_of(consumer) == {"Right"}


@pytest.mark.parametrize(
    "tell",
    [
        lambda consumer: consumer.on("T")(ignore),
        lambda consumer: consumer.subscribe("T", ignore),
        lambda consumer: consumer.unsubscribe("T"),
    ],
)
def test_a_stopped_consumer_cannot_be_configured(server: Server, tell: Callable[[PushConsumer], object]) -> None:
    consumer = PushConsumer(server.name_server, group="push-stopped")
    consumer.stop()

    with pytest.raises(WrongState, match="was stopped"):
        tell(consumer)


def test_a_consumer_reports_its_state(server: Server) -> None:
    consumer = PullConsumer(server.name_server, group="life")
    assert (consumer.is_new, consumer.is_running) == (True, False)

    with consumer:
        assert (consumer.is_new, consumer.is_running) == (False, True)
    assert (consumer.is_new, consumer.is_running) == (False, False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_configuration_before_and_after_a_fork_applies_in_the_child(server: Server) -> None:
    consumer = PushConsumer(server.name_server, group="told-twice")
    consumer.subscribe("Before", ignore)
    consumer.subscribe("Unwanted", ignore)

    child = os.fork()
    if not child:
        code = 1
        try:
            consumer.on("After")(ignore)
            consumer.unsubscribe("Unwanted")
            with consumer:
                code = 0 if topics_of(consumer) == {"Before", "After"} else 2
        finally:
            os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
