"""When a task may search for rows of an earlier attempt: brokers that lag, that do not report, and that stay behind."""

import gc
import logging
import threading
import weakref
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options
from tests.spark.write.test_writer import QUERY, Killed, batches, in_topic, killed_after, sink, write_rows

from pocketmq import Admin, Credentials, Server
from pocketmq.client.cluster.calls import StateCalls
from pocketmq.errors import CallTimedOut, SystemBusy
from pocketmq.spark.broker_facts import LogState
from pocketmq.spark.options.write_options import parse_write_options
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.shared_clients import READING
from pocketmq.spark.write import sink_task
from pocketmq.spark.write.sink_offsets import ENTERING_TIMEOUT_S, MAX_LAUNCHES, POLL_S, QueueWait, queue_wait_of
from pocketmq.store.log.transient_pool import TransientPool
from pocketmq.testing import FakeClock

ACCOUNTS = """
[[account]]
access_key = "etl"
secret = "the secret of etl"
topics = { "*" = ["Pub", "Sub"] }
groups = { "*" = ["Sub"] }

[[account]]
access_key = "owner"
secret = "the secret of the owner"
admin = true
"""


class Looks:
    """Brokers whose log progress changes with each query; the last value stays. Time passes during sleeps."""

    def __init__(self, *looks: Mapping[str, tuple[int, int]]) -> None:
        self._looks = [{broker: LogState(*state) for broker, state in look.items()} for look in looks]
        self.clock = FakeClock()
        self._wait = QueueWait(self.clock, self._sleep)
        self.asked: list[set[str]] = []
        self.slept: list[float] = []

    def log_states(self, brokers: Collection[str]) -> dict[str, LogState]:
        look = self._looks[min(len(self.asked), len(self._looks) - 1)]
        self.asked.append(set(brokers))
        return {broker: state for broker, state in look.items() if broker in brokers}

    def wait(self, *brokers: str, launch: str | None = None) -> None:
        self._wait.wait(self, brokers, launch)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance_ms(round(seconds * 1000))


def test_brokers_without_a_backlog_are_queried_once() -> None:
    looks = Looks({"a": (700, 700), "b": (0, 0)})

    looks.wait("a", "b")

    assert looks.asked == [{"a", "b"}]
    assert looks.slept == []


def test_the_backlog_of_a_broker_is_waited_for_and_only_it_is_queried_again() -> None:
    looks = Looks({"a": (700, 300), "b": (50, 50)}, {"a": (700, 699)}, {"a": (700, 700)})

    looks.wait("a", "b")

    assert looks.asked == [{"a", "b"}, {"a"}, {"a"}]
    assert looks.slept == [POLL_S, POLL_S]


def test_messages_that_arrive_during_the_wait_are_not_waited_for() -> None:
    looks = Looks({"a": (700, 300)}, {"a": (5000, 600)}, {"a": (9000, 800)})

    looks.wait("a")

    assert len(looks.asked) == 3


def test_a_new_master_with_a_shorter_log_ends_the_wait() -> None:
    looks = Looks({"a": (700, 300)}, {"a": (400, 400)})

    looks.wait("a")

    assert len(looks.asked) == 2


def test_a_broker_that_does_not_report_is_not_waited_for() -> None:
    looks = Looks({"a": (700, 700)})

    looks.wait("a", "secretive")

    assert looks.slept == []


def test_a_broker_that_stays_behind_fails_the_task_and_is_named() -> None:
    looks = Looks({"a": (700, 690), "slow": (900, 300), "c": (1, 1)})

    with pytest.raises(SystemBusy, match=r"broker slow has 600 bytes of its log .* after 120 s .*at-least-once"):
        looks.wait("a", "slow", "c")

    assert looks.clock.monotonic() == pytest.approx(ENTERING_TIMEOUT_S, abs=POLL_S)


def test_first_attempts_query_once_per_launch_and_later_ones_always() -> None:
    looks = Looks({"a": (700, 700), "b": (50, 50)})

    for brokers, launch in (
        ("a", "run 1"),
        ("a", "run 1"),
        ("ab", "run 1"),
        ("ab", None),
        ("ab", "run 1"),
        ("a", "run 2"),
    ):
        looks.wait(*brokers, launch=launch)

    assert looks.asked == [{"a"}, {"b"}, {"a", "b"}, {"a"}]


def test_a_launch_with_a_broker_that_stayed_behind_queries_again() -> None:
    looks = Looks({"slow": (900, 300)})
    for _ in range(2):
        with pytest.raises(SystemBusy):
            looks.wait("slow", launch="run 1")


def test_a_launch_queries_a_broker_that_does_not_report_once() -> None:
    looks = Looks({})

    for _ in range(3):
        looks.wait("secretive", launch="run 1")

    assert looks.asked == [{"secretive"}]


def test_the_number_of_remembered_launches_is_limited() -> None:
    looks = Looks({})
    for number in range(MAX_LAUNCHES + 1):
        looks.wait("a", launch=f"run {number}")
    questions = len(looks.asked)

    looks.wait("a", launch="run 1")
    looks.wait("a", launch="run 0")

    assert len(looks.asked) == questions + 1


def test_each_client_has_its_own_cache() -> None:
    class Client:
        pass

    one, other = Client(), Client()
    kept = weakref.ref(queue_wait_of(one))

    assert queue_wait_of(one) is kept()
    assert queue_wait_of(other) is not kept()
    del one
    gc.collect()
    assert kept() is None


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The bytes of the transient pool are written, and can be read, after this is set."""
    is_quick = threading.Event()
    is_quick.set()
    write = TransientPool._write

    def written(pool: TransientPool, portions: Any) -> Any:
        is_quick.wait(30)
        return write(pool, portions)

    monkeypatch.setattr(TransientPool, "_write", written)
    yield is_quick
    is_quick.set()


@pytest.mark.parametrize("attempt", [0, 1])
def test_rows_that_are_stored_but_not_visible_are_not_written_again(
    slow_disk: threading.Event, monkeypatch: pytest.MonkeyPatch, attempt: int
) -> None:
    rows = [letter * 700 for letter in "abcdefgh"]
    states: list[LogState] = []
    ask = ClientMetadata.log_states

    def watched(metadata: ClientMetadata, brokers: Collection[str]) -> dict[str, LogState]:
        """The disk is fast again once a query has shown that the broker is behind."""
        told = ask(metadata, brokers)
        states.extend(told.values())
        if states[-1].entered < states[-1].end:
            slow_disk.set()
        return told

    monkeypatch.setattr("pocketmq.spark.write.sink_task.IN_FLIGHT_S", 0.0)
    with Server(settings={"transientStorePoolEnable": True}) as server:
        broker = Broker.of(server)
        topic = new_topic(broker)
        once = sink(broker, topic=topic, sendBatchBytes=1024)
        slow_disk.clear()
        with pytest.raises(Killed):
            write_rows(killed_after(rows[:6]), once, QUERY, 0)
        monkeypatch.setattr(ClientMetadata, "log_states", watched)

        write_rows(batches(rows), once, QUERY, 0, attempt=attempt)

        assert in_topic(broker, topic, len(rows)) == Counter(rows)
    assert states[0].entered < states[0].end


@contextmanager
def asking(broker: Broker, topic: str) -> Iterator[ClientMetadata]:
    """The connection of a task, which knows where the topic is."""
    connection = sink(broker, topic=topic).connection
    with READING.borrow(connection, 60_000) as client:
        asked = ClientMetadata(client, retries=0, retry_interval_ms=0, ttl_ms=60_000)
        asked.queues(topic)
        yield asked


def test_a_busy_broker_reports_complete_queues_although_its_keys_are_not_indexed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Mapping[str, str]] = []
    real = StateCalls.runtime_info

    async def without_keys(calls: StateCalls, target: Any) -> Mapping[str, str]:
        told.append({**await real(calls, target), "dispatchBehindBytes": "5000"})
        return told[-1]

    monkeypatch.setattr(StateCalls, "runtime_info", without_keys)
    topic = new_topic(broker)
    fill(broker, topic, ["a"])

    with asking(broker, topic) as asked:
        [state] = asked.log_states([broker.name]).values()

    behind = told[0].get("queuesBehindBytes", "5000")
    assert state == LogState(int(told[0]["commitLogMaxOffset"]), int(told[0]["commitLogMaxOffset"]) - int(behind))
    assert told[0].get("queuesBehindBytes") in {"0", None}  # Apache does not tell of them apart


@pytest.mark.parametrize(
    "told", [{}, {"commitLogMaxOffset": "10"}, {"commitLogMaxOffset": "x", "dispatchBehindBytes": ""}]
)
def test_a_broker_without_numbers_is_omitted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, told: dict[str, str]
) -> None:
    async def runtime_info(*_: object) -> dict[str, str]:
        return told

    topic = new_topic(broker)
    monkeypatch.setattr(StateCalls, "runtime_info", runtime_info)

    with asking(broker, topic) as asked:
        assert asked.log_states([broker.name]) == {}


def test_an_unreachable_broker_is_a_failure(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(*_: object) -> dict[str, str]:
        raise CallTimedOut("no answer")

    topic = new_topic(broker)
    monkeypatch.setattr(StateCalls, "runtime_info", lost)

    with asking(broker, topic) as asked, pytest.raises(CallTimedOut):
        asked.log_states([broker.name])


def test_an_account_without_permission_to_query_can_still_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "accounts.toml").write_text(ACCOUNTS, "utf-8")
    monkeypatch.setenv("ETL_KEY", "etl")
    monkeypatch.setenv("ETL_SECRET", "the secret of etl")
    keys = {"rocketmq.accessKeyEnv": "ETL_KEY", "rocketmq.secretKeyEnv": "ETL_SECRET"}
    owner = Credentials("owner", "the secret of the owner")

    with Server(accounts=tmp_path / "accounts.toml") as server:
        with Admin(server.name_server, credentials=owner) as admin:
            admin.topics.create("invoices", queues=2)
        given = {**options(Broker.of(server), topic="invoices"), **keys}
        once = parse_write_options(given, streaming=True, environ={})
        with caplog.at_level(logging.INFO, "pocketmq.spark"):
            for number in range(3):
                sink_task.write_rows(batches(["a", "b"]), once, QUERY, number, 0, launch="run 1")
            sink_task.write_rows(batches(["a", "b"]), once, QUERY, 2, 0, attempt=1, launch="run 1")
        with Admin(server.name_server, credentials=owner) as admin:
            written = admin.topics.describe("invoices").messages

    assert written == 6
    assert caplog.text.count("did not report its log state") == 2  # the first of all, and the later attempt
