"""Every page of a busy cluster: members of every kind, a running and a stopped query, and failures."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest
from starlette.testclient import TestClient
from tests.cli.program import programs, ready
from tests.console.example_cluster import fill
from tests.console.visitor import HOST, Visitor, text_of, visitor

import pocketmq
from pocketmq.console import group_progress
from pocketmq.console.app import make_app
from pocketmq.console.rendering import Templates
from pocketmq.console.settings import ConsoleSettings
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.signing import Credentials

QUICK = ConsoleSettings(watched_s=0.2, rest_factor=1, cache_s=0.01, page_timeout_s=2)
PATHS = (
    "/",
    "/topics",
    "/topics?all=1",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages?queue=broker-a:0",
    "/topics/payments/messages?key=huge",
    "/groups",
    "/groups?all=1",
    "/groups/concurrent",
    "/groups/ordered",
    "/groups/broadcasting",
    "/groups/sql",
    "/groups/payments-worker",
    "/groups/spark-orders",
    "/groups/concurrent/reset?topic=orders&to=latest",
    "/letters",
    "/letters/payments-worker",
    "/letters/payments-worker/broker-a:0:0",
    "/delayed",
    "/transactions",
    "/clients",
    "/clients?all=1",
    "/brokers",
    "/brokers/broker-a",
    "/pipelines",
    "/doctor",
    "/doctor?run=1&topic=orders&group=concurrent",
    "/doctor?run=1&topic=orders&group=sql",
)


SINK = "spark-rocketmq-sink-0123456789ab-odd"
"""Where a batch of a Spark sink begins: its offset stays, and would look like a lag."""


class Members:
    """Four groups with a member each, and three groups that queries publish to."""

    def __init__(self, name_server: str, folder: Path) -> None:
        self.name_server = name_server
        self._over = threading.Event()
        self.stop_one_query = threading.Event()
        self._query = threading.Thread(target=self._move_on)
        self._consumers = [
            self._consumer("concurrent", tags="new || changed"),
            self._consumer("ordered", ordered=True),
            self._consumer("broadcasting", broadcast=True, local_offsets=folder),
            self._consumer("sql", sql="shop = 'eu'"),
        ]

    def _consumer(self, group: str, tags: str | None = None, sql: str | None = None, **options: object) -> object:
        made = pocketmq.PushConsumer(self.name_server, group=group, start_at="first", **options)  # type: ignore[arg-type]
        made.on("orders", tags=tags, sql=sql)(lambda message: None)
        return made

    def __enter__(self) -> Self:
        with pocketmq.Admin(self.name_server) as admin:
            for group in ("spark-stopped", SINK):
                admin.groups.create(group)
        self._stack = ExitStack()
        for consumer in self._consumers:
            self._stack.enter_context(consumer)  # type: ignore[arg-type]
        self._query.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._query.join()
        self._stack.close()

    def _move_on(self) -> None:
        """As Spark queries with groupId do: one runs, the other stops on request."""
        with pocketmq.Admin(self.name_server) as admin, pocketmq.Producer(self.name_server) as producer:
            queue = MessageQueue("orders", "broker-a", 0)
            place = 0
            while not self._over.wait(0.3):
                place += 1
                producer.send("orders", b"another", queue=queue)
                places = {MessageQueue("orders", "broker-a", at): 0 for at in range(4)} | {queue: place}
                admin.offsets.reset("spark-orders", "orders", places)
                if not self.stop_one_query.is_set():
                    admin.offsets.reset("spark-stopped", "orders", places)
                    admin.offsets.reset(SINK, "orders", places)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    with pocketmq.Server() as server:
        fill(server.name_server)
        with Members(server.name_server, tmp_path_factory.mktemp("offsets")) as made:
            yield made


@pytest.fixture(scope="module")
def busy(members: Members) -> Iterator[Visitor]:
    with visitor(QUICK, members.name_server) as made:
        made.wait_for("/groups/sql", "shop = 'eu'")
        yield made


def test_running_and_stopped_queries_are_shown_differently(
    busy: Visitor, members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_progress, "PATIENCE_S", 0.1)
    busy.wait_for_row("/pipelines", r"spark-stopped running ")
    members.stop_one_query.set()

    busy.wait_for_row("/pipelines", r"spark-orders running \S+ .* spark-stopped stopped 0 ")

    assert SINK not in busy.get("/pipelines")


def test_internal_groups_are_hidden_unless_they_are_requested(busy: Visitor) -> None:
    busy.wait_for("/groups?all=1", SINK)

    assert SINK not in busy.get("/groups")
    assert SINK not in busy.get("/")
    assert f"{SINK} internal" in text_of(busy.get("/groups?all=1"))
    assert SINK not in busy.get("/topics/orders")
    assert "Show 1 internal groups" in text_of(busy.get("/topics/orders"))
    assert f"{SINK} internal" in text_of(busy.get("/topics/orders?all=1"))


def test_internal_producers_are_hidden_unless_they_are_requested(busy: Visitor, members: Members) -> None:
    with pocketmq.Producer(members.name_server, group="shop", trace=True) as producer:
        producer.send("orders", b"x")
        busy.wait_for("/clients?all=1", "_INNER_TRACE_PRODUCER")
        busy.wait_for("/clients", "shop")

        assert "_INNER_TRACE_PRODUCER" not in busy.get("/clients")


@pytest.mark.parametrize("path", PATHS)
def test_a_page_of_a_cluster_in_use_answers(busy: Visitor, path: str) -> None:
    page = text_of(busy.get(path))

    assert "Loading …" not in page or path.startswith("/doctor")


def test_a_group_shows_its_members_with_their_subscriptions(busy: Visitor) -> None:
    for group, words in {
        "concurrent": "orders (new || changed)",
        "ordered": "orders (*)",
        "broadcasting": "orders (*)",
        "sql": "orders (SQL92: shop = 'eu')",
    }.items():
        page = text_of(busy.get(f"/groups/{group}"))
        assert words in page
        assert "No members online" not in page


FAILING = [path for path in PATHS if not path.startswith("/doctor")]


def test_pages_answer_without_broker_and_name_server(tmp_path: Path) -> None:
    with ExitStack() as running:
        name_server = running.enter_context(pocketmq.Server()).name_server
        fill(name_server)
        with visitor(QUICK, name_server, {"call_timeout_ms": 300, "connect_timeout_ms": 300}) as console:
            with Members(name_server, tmp_path):
                console.wait_for_row("/groups", r"concurrent .* ordered .*")
            running.close()
            console.wait_for("/", "The cluster does not answer")

            for path in FAILING:
                answer = console.client.get(path)
                assert answer.status_code in (200, 503), path
                assert 'class="is-grey"' in answer.text, path


def test_pages_answer_when_the_broker_was_killed_and_the_name_server_still_lists_it(tmp_path: Path) -> None:
    with programs(tmp_path) as start:
        name_server = ready(start("nameserver", "--port", 0, "--json"))["address"]
        broker = start("broker", "--namesrv", name_server, "--port", 0, "--data", tmp_path / "data", "--json")
        ready(broker)
        with visitor(QUICK, name_server, {"call_timeout_ms": 300, "connect_timeout_ms": 300}) as console:
            console.wait_for("/brokers", "broker-a")
            broker.kill()
            console.wait_for("/", "The cluster does not answer")

            for path in FAILING:
                answer = console.client.get(path)
                assert answer.status_code in (200, 404, 503), path
                assert 'class="is-grey"' in answer.text, path


def test_pages_report_missing_permissions_of_the_account(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts.toml"
    accounts.write_text(
        '[[account]]\naccess_key = "operator"\nsecret = "a long secret"\nadmin = true\n'
        '[[account]]\naccess_key = "console"\nsecret = "another long secret"\ntopics = { "orders" = ["Sub"] }\n'
    )
    accounts.chmod(0o600)
    allowed = {"credentials": Credentials("console", "another long secret")}
    with (
        pocketmq.Server(accounts=accounts) as server,
        visitor(QUICK, server.name_server, allowed) as console,  # type: ignore[arg-type]
    ):
        console.wait_for("/", "The console has no permission to read the cluster. User:console has no permission")

        for path in FAILING:
            answer = console.client.get(path)
            assert answer.status_code in (200, 403, 503), path
            assert "has no permission" in text_of(answer.text), path


def test_a_fault_of_the_console_is_a_sentence_and_is_logged(
    name_server: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Templates, "page", lambda *_: 1 / 0)

    with TestClient(
        make_app(ConsoleSettings(), name_server, {}), base_url=HOST, raise_server_exceptions=False
    ) as client:
        answer = client.get("/topics")

    assert answer.status_code == 500
    assert "Unexpected error while rendering /topics" in answer.text
    assert "ZeroDivisionError" in caplog.text
