"""Celery on a server: kombu's queues in this process, then real workers that are asked, told to revoke, and killed."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Consumer, Exchange, Queue
from kombu.exceptions import EncodeError
from tests.integrations.programs import Program, started

import pocketmq
import pocketmq.integrations.celery
from pocketmq.errors import NetworkError, UsageError
from pocketmq.integrations.kombu_queues import LONGEST_DELAY_MS, Servers, timed

PATIENCE_S = 30.0
TASKS = Queue("tasks", Exchange("tasks"), routing_key="tasks")


@contextmanager
def connected(server: pocketmq.Server, **options: Any) -> Iterator[Any]:
    with Connection(f"rocketmq://{server.name_server}", transport_options=options) as connection:
        yield connection


def drain(connection: Any, found: list[Any], count: int) -> None:
    while len(found) < count:
        connection.drain_events(timeout=PATIENCE_S)


def leased(name_server: str) -> int:
    """How many tasks workers hold."""
    with pocketmq.Admin(name_server) as admin:
        return admin.offsets.lag("tasks").leased


# kombu


def test_an_acknowledged_message_is_done_and_a_rejected_one_returns(rocketmq: pocketmq.Server) -> None:
    found: list[tuple[str, bool]] = []

    def receive(body: str, message: Any) -> None:
        found.append((body, message.delivery_info["redelivered"]))
        if body == "again" and len(found) < 3:
            message.requeue()
        else:
            message.ack()

    with connected(rocketmq, visibility_timeout=1) as connection:
        producer = connection.Producer()
        producer.publish("once", exchange=TASKS.exchange, routing_key="tasks", declare=[TASKS])
        producer.publish("again", exchange=TASKS.exchange, routing_key="tasks", declare=[TASKS])
        with Consumer(connection, [TASKS], callbacks=[receive]):
            drain(connection, found, 3)
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=1.2)

    assert sorted(found) == [("again", False), ("again", True), ("once", False)]


def test_prefetch_limits_messages_without_ack(rocketmq: pocketmq.Server) -> None:
    found: list[Any] = []
    with connected(rocketmq) as connection:
        producer = connection.Producer()
        for number in range(5):
            producer.publish(number, routing_key="tasks", declare=[TASKS], exchange=TASKS.exchange)
        consumer = Consumer(connection, [TASKS], callbacks=[lambda body, message: found.append(message)])
        consumer.qos(prefetch_count=2)
        with consumer:
            drain(connection, found, 2)
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.5)
            for message in found:
                message.ack()
            drain(connection, found, 4)


def test_messages_that_a_closed_connection_held_return_at_once(rocketmq: pocketmq.Server) -> None:
    found: list[Any] = []
    with connected(rocketmq, visibility_timeout=600) as first:
        first.Producer().publish("one", routing_key="tasks", declare=[TASKS], exchange=TASKS.exchange)
        with Consumer(first, [TASKS], callbacks=[lambda body, message: found.append(body)]):
            drain(first, found, 1)
    with connected(rocketmq) as second, Consumer(second, [TASKS], callbacks=[lambda body, _: found.append(body)]):
        drain(second, found, 2)

    assert found == ["one", "one"]


def test_a_fanout_reaches_every_queue_and_only_from_its_binding_on(rocketmq: pocketmq.Server) -> None:
    news = Exchange("news", type="fanout")
    found: list[str] = []

    def queue(name: str) -> Queue:
        return Queue(name, news, auto_delete=True, durable=False)

    with connected(rocketmq) as one, connected(rocketmq) as two, connected(rocketmq) as sender:
        sender.Producer().publish("too early", exchange=news)
        with (
            Consumer(one, [queue("a.b")], callbacks=[lambda body, message: found.append(f"one {body}")]),
            Consumer(two, [queue("c")], callbacks=[lambda body, message: found.append(f"two {body}")]),
        ):
            sender.Producer().publish("hello", exchange=news)
            drain(one, found, 1)
            drain(two, found, 2)

    assert sorted(found) == ["one hello", "two hello"]


def test_a_message_can_be_read_without_a_consumer(rocketmq: pocketmq.Server) -> None:
    with connected(rocketmq) as connection, connected(rocketmq) as other:
        for number in range(2):
            connection.Producer().publish(number, routing_key="tasks", declare=[TASKS], exchange=TASKS.exchange)
        first = TASKS(connection.channel()).get()
        second = TASKS(other.channel()).get()  # the first one took no more than it returned
        assert sorted([first.payload, second.payload]) == [0, 1]
        first.ack()
        second.ack()
        assert TASKS(connection.channel()).get() is None


def test_a_message_that_is_not_of_kombu_stops_no_worker(
    rocketmq: pocketmq.Server, caplog: pytest.LogCaptureFixture
) -> None:
    found: list[Any] = []

    def receive(body: str, message: Any) -> None:
        found.append(body)
        message.ack()

    bodies = [b"no json", b"\xff", b"[1]", b"{}", b'{"body": "", "properties": {}}', b'{"body": "", "headers": 1}']
    bodies += [
        b'{"body": "", "properties": {"delivery_info": {}, "body_encoding": "rot13"}}',
        b'{"body": "e", "properties": {"delivery_info": {}, "body_encoding": "base64"}}',
    ]
    late = b'{"body": "", "headers": {"eta": "noon"}, "properties": {"delivery_info": {}}}'
    with connected(rocketmq) as connection, pocketmq.Producer(rocketmq.name_server) as raw:
        producer = connection.Producer()
        producer.publish("before", exchange=TASKS.exchange, routing_key="tasks", declare=[TASKS])
        for body in (*bodies, late):
            raw.send("tasks", body)
        producer.publish("after", exchange=TASKS.exchange, routing_key="tasks", declare=[TASKS])
        with Consumer(connection, [TASKS], callbacks=[receive]):
            drain(connection, found, 2)
            while caplog.text.count("is not one of kombu") < len(bodies) + 1:
                with suppress(socket.timeout):
                    connection.drain_events(timeout=0.1)

    assert sorted(found) == ["after", "before"]


def test_a_broadcast_that_is_not_of_kombu_stops_no_worker(rocketmq: pocketmq.Server) -> None:
    found: list[Any] = []
    news = Exchange("news", type="fanout")
    with connected(rocketmq) as connection, pocketmq.Producer(rocketmq.name_server) as raw:
        queue = Queue("reader", news, auto_delete=True)
        with Consumer(connection, [queue], callbacks=[lambda body, message: found.append(body)], no_ack=True):
            raw.send("kombu-broadcast", b"no json", tags="news")
            connection.Producer().publish("after", exchange=news)
            drain(connection, found, 1)

    assert found == ["after"]


def test_a_consumer_without_acks_gets_a_message_once(rocketmq: pocketmq.Server) -> None:
    found: list[Any] = []
    with connected(rocketmq) as connection:
        producer = connection.Producer()
        for number in (1, 2):
            producer.publish(number, exchange=TASKS.exchange, routing_key="tasks", declare=[TASKS])
        got = connection.SimpleQueue("tasks", no_ack=True).get(timeout=PATIENCE_S)
        found.append(got.payload)
        with Consumer(connection, [TASKS], callbacks=[lambda body, message: found.append(body)], no_ack=True):
            drain(connection, found, 2)
        assert leased(rocketmq.name_server) == 0

    assert sorted(found) == [1, 2]


def test_an_ack_while_the_broker_restarts_is_repeated(tmp_path: Path) -> None:
    found: list[Any] = []
    with pocketmq.Server(data=tmp_path) as first:
        address, broker = first.name_server, first.broker_address
        connection = Connection(f"rocketmq://{address}", transport_options={"visibility_timeout": 30})
        for number in (1, 2):
            connection.Producer().publish(
                number, exchange=TASKS.exchange, routing_key="tasks", declare=[TASKS] if number == 1 else []
            )
        consumer = Consumer(connection, [TASKS], callbacks=[lambda body, message: found.append(message)])
        consumer.qos(prefetch_count=1)
        consumer.consume()
        drain(connection, found, 1)
    found[0].ack()
    ports = [int(each.rsplit(":", 1)[1]) for each in (address, broker)]
    with pocketmq.Server(data=tmp_path, name_server_port=ports[0], broker_port=ports[1]):
        drain(connection, found, 2)
        found[1].ack()
        assert leased(address) == 0
        connection.close()
    assert sorted(message.payload for message in found) == [1, 2]


def test_a_simple_queue_waits_for_a_message(rocketmq: pocketmq.Server) -> None:
    with connected(rocketmq) as connection, connection.SimpleQueue("simple") as queue:
        queue.put({"number": 1})
        message = queue.get(timeout=PATIENCE_S)
        assert message.payload == {"number": 1}
        message.ack()


def test_a_purge_removes_the_waiting_messages(rocketmq: pocketmq.Server) -> None:
    with connected(rocketmq) as connection:
        for number in range(3):
            connection.Producer().publish(number, routing_key="tasks", declare=[TASKS], exchange=TASKS.exchange)
        assert TASKS(connection.channel()).purge() == 3
        assert TASKS(connection.channel()).get() is None


def test_a_durable_queue_cannot_be_bound_to_a_fanout(rocketmq: pocketmq.Server) -> None:
    with (
        connected(rocketmq) as connection,
        pytest.raises(UsageError, match="queue 'q' is durable, but a fanout exchange"),
    ):
        Queue("q", Exchange("news", type="fanout"))(connection.channel()).declare()


def test_a_priority_is_refused(rocketmq: pocketmq.Server) -> None:
    with (
        connected(rocketmq) as connection,
        pytest.raises(UsageError, match="priority=5 is not possible: RocketMQ has no"),
    ):
        connection.Producer().publish("one", routing_key="tasks", declare=[TASKS], priority=5)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(
        UsageError, match="broker_transport_options has no 'visibility' for RocketMQ; possible are name_ser"
    ):
        Connection("rocketmq://127.0.0.1:1", transport_options={"visibility": 5}).transport  # noqa: B018


def test_a_server_that_is_away_is_an_error_of_the_connection() -> None:
    connection = Connection("rocketmq://127.0.0.1:1", transport_options={"client": {"connect_timeout_ms": 200}})

    with pytest.raises(NetworkError):
        connection.transport.establish_connection()
    assert NetworkError in connection.transport.connection_errors


def test_an_address_names_the_account_and_the_namespace() -> None:
    servers = Connection("rocketmq://key:secret@10.0.0.1:9876/shop").transport.servers

    assert servers.client == {
        "name_servers": "10.0.0.1:9876",
        "credentials": pocketmq.Credentials("key", "secret"),
        "namespace": "shop",
    }


@pytest.mark.parametrize(("queue", "topic"), [("celery", "celery"), ("a.b", "a_2Eb"), ("celery@host", "celery_40host")])
def test_a_queue_may_have_any_name(queue: str, topic: str) -> None:
    assert Servers(None, {}, {}).name(queue) == topic
    assert Servers(None, {"prefix": "x-"}, {}).name(queue) == f"x-{topic}"


def test_a_missing_topic_is_not_looked_up_for_each_message(rocketmq: pocketmq.Server) -> None:
    servers = Servers(rocketmq.name_server, {}, {})
    servers.create("there", 1)

    assert (servers.exists("there"), servers.exists("missing")) == (True, False)
    servers.client = {"name_servers": "127.0.0.1:1"}  # a look-up would fail
    assert (servers.exists("there"), servers.exists("missing")) == (True, False)
    servers.create("there", 1)


def test_an_eta_beyond_the_limit_of_brokers_is_sent_again_at_the_limit() -> None:
    now_ms = 1_700_000_000_000
    eta = datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(days=10)
    message = timed("celery", {"headers": {"eta": eta.isoformat(), "id": "1"}}, now_ms)

    assert message.properties["TIMER_DELIVER_MS"] == str(now_ms + LONGEST_DELAY_MS)
    assert message.keys == ["1"]


# Celery

PROGRAM = """
import os, time
from celery import Celery
import pocketmq.integrations.celery

app = Celery("shop", broker=os.environ["BROKER"], backend="rpc://")
app.conf.update(
    broker_transport_options={"visibility_timeout": 1}, worker_send_task_events=True, task_track_started=True,
    broker_connection_retry_on_startup=True, task_acks_late=True, worker_prefetch_multiplier=1,
)

@app.task
def add(one, two):
    return one + two

@app.task
def slow(name):
    print(f"{name} begins", flush=True)
    if os.environ.get("DUTY") == "hang":
        time.sleep(3600)
    print(f"{name} ends", flush=True)
"""


@pytest.fixture
def shop(rocketmq: pocketmq.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "shop.py").write_text(PROGRAM)
    monkeypatch.setenv("BROKER", f"rocketmq://{rocketmq.name_server}")
    app = Celery("shop", broker=f"rocketmq://{rocketmq.name_server}", backend="rpc://", set_as_current=False)
    app.conf.broker_transport_options = {"visibility_timeout": 1}
    yield app
    app.close()


@contextmanager
def worker(folder: Path, name: str) -> Iterator[Program]:
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "shop",
        "worker",
        "-n",
        name,
        "--concurrency",
        "1",
        "-l",
        "INFO",
        "-E",
    ]
    with started(command, folder) as running:
        running.wait_for(" ready.")
        yield running


def test_tasks_run_now_and_later_and_workers_answer(shop: Any, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    with worker(tmp_path, "one@host") as running:
        with shop.connection() as connection:
            receiver = shop.events.Receiver(connection, handlers={"*": events.append})
            with receiver.consumer_context() as (listening, _, _):
                assert shop.send_task("shop.add", (1, 2)).get(timeout=PATIENCE_S) == 3
                later = shop.send_task("shop.add", (3, 4), countdown=1)
                assert later.get(timeout=PATIENCE_S) == 7
                while not any(event["type"] == "task-succeeded" for event in events):
                    listening.drain_events(timeout=PATIENCE_S)

        assert shop.control.inspect(timeout=5, limit=1).ping() == {"one@host": {"ok": "pong"}}
        revoked = shop.send_task("shop.slow", ("never",), countdown=1)
        shop.control.revoke(revoked.id, reply=True, timeout=5, limit=1)
        running.wait_for(f"Discarding revoked task: shop.slow[{revoked.id}]")

    assert "never begins" not in running.said


def test_a_task_of_a_killed_worker_runs_again(shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUTY", "hang")
    with worker(tmp_path, "one@host") as first:
        shop.send_task("shop.slow", ("seven",))
        first.wait_for("seven begins")
        first.kill()
    monkeypatch.setenv("DUTY", "work")
    with worker(tmp_path, "two@host") as second:
        second.wait_for("seven ends")


def test_a_task_that_cannot_be_encoded_is_one_sentence(shop: Any) -> None:
    with pytest.raises(EncodeError, match="Object of type object is not JSON serializable"):
        shop.send_task("shop.add", (object(),))
