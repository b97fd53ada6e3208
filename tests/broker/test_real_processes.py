"""Brokers in real processes, on a real disk and over real sockets: killed at any moment, stopped under load, and at rest."""

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from conformance.broker_line import PRODUCER_GROUP, BrokerLine
from tests.broker.flood import DEADLINE_S, QUEUES, Flood, Stored
from tests.broker.usage import ON_LINUX, anonymous_mib, cpu_s
from tests.cli.program import Program, Start, ended, programs, ready

from pocketmq.clock import SystemClock
from pocketmq.codes import RequestCode, SysFlag, TransactionState
from pocketmq.protocol.api.messages import EndTransaction

KILLS = 3


def until(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(0.005)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with programs(tmp_path, "broker", "--json", "--port", "0", "--data", "data") as starter:
        yield lambda *args, **variables: starter(
            *("--set", "autoCreateTopicEnable=true", "--set", "vipChannelEnable=false", *args), **variables
        )


def kill(process: Program) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(DEADLINE_S)


def assert_all_there(line: BrokerLine, acknowledged: list[Stored]) -> None:
    queues = {queue_id: line.read_queue("T", queue_id) for queue_id in range(QUEUES)}
    for queue_id, messages in queues.items():
        assert [message.queue_offset for message in messages] == list(range(len(messages)))
        assert len({message.body for message in messages}) == len(messages), f"queue {queue_id} has one twice"
    for stored in acknowledged:
        assert queues[stored.queue_id][stored.offset].body == stored.body


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_after_a_kill_every_acknowledged_message_exists_once_and_in_order(start: Start, flush: str) -> None:
    random = Random(flush)
    acknowledged: list[Stored] = []

    for life in range(KILLS):
        process = start("--flush", flush)
        flood = Flood(ready(process)["port"], f"life{life}")
        enough = random.randint(1, 1500)
        until(lambda flood=flood, enough=enough: len(flood.acknowledged) >= enough)  # type: ignore[misc]
        kill(process)
        acknowledged += flood.end()
        assert flood.refused == 0

    with BrokerLine(ready(start("--flush", flush))["port"]) as line:
        assert_all_there(line, acknowledged)
        newest = acknowledged[-1]
        assert [message.body for message in line.find_by_key("T", newest.body.decode(), 0, 2**62)] == [newest.body]


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_broker_stopped_under_load_ends_quickly_and_loses_nothing(start: Start, flush: str) -> None:
    process = start("--flush", flush)
    flood = Flood(ready(process)["port"], "load")
    until(lambda: len(flood.acknowledged) > 200)

    process.terminate()
    began = time.monotonic()
    ended(process)
    took_s = time.monotonic() - began
    acknowledged = flood.end()

    assert process.returncode == 0
    assert took_s < 5
    with BrokerLine(ready(start("--flush", flush))["port"]) as line:
        assert_all_there(line, acknowledged)
        found = sum(line.max_offset("T", queue_id) for queue_id in range(QUEUES))
        assert len(acknowledged) == found, "what was stored was also acknowledged"


def saved_offsets(folder: Path) -> dict[str, Any]:
    path = folder / "data" / "config" / "consumerOffset.json"
    try:
        table: dict[str, Any] = json.loads(path.read_bytes())["offsetTable"]
    except FileNotFoundError:
        return {}
    return table


def test_offsets_committed_an_interval_before_a_kill_survive(start: Start, tmp_path: Path) -> None:
    process = start("--set", "flushConsumerOffsetInterval=100")
    with BrokerLine(ready(process)["port"]) as line:
        for number in range(50):
            line.send("T", 0, b"%d" % number, {})
        line.pull("T", 0, 0)
        line.commit("T", 0, 30)
        until(lambda: saved_offsets(tmp_path).get("T@CG_conformance", {}).get("0") == 30)
        line.commit("T", 0, 40)
    kill(process)

    with BrokerLine(ready(start())["port"]) as line:
        assert line.committed("T", 0) in (30, 40)


def test_delayed_timed_and_half_messages_survive_a_kill_and_are_on_time(start: Start) -> None:
    process = start("--flush", "sync")
    with BrokerLine(ready(process)["port"]) as line:
        line.send("T", 0, b"made", {})
        sent_ms = SystemClock().now_ms()
        line.send("T", 0, b"delayed", {"DELAY": "1"})
        line.send("T", 0, b"timed", {"TIMER_DELAY_MS": "1500"})
        half = line.send(
            "T",
            0,
            b"half",
            {"TRAN_MSG": "true", "PGROUP": PRODUCER_GROUP, "UNIQ_KEY": "K"},
            sys_flag=SysFlag.TRANSACTION_PREPARED,
        )
    kill(process)

    with BrokerLine(ready(start("--flush", "sync"))["port"]) as line:
        decision = EndTransaction(
            PRODUCER_GROUP, half.queue_offset, int(half.msg_id[-16:], 16), TransactionState.COMMIT, "K"
        )
        line.call(RequestCode.END_TRANSACTION, decision)
        until(lambda: line.max_offset("T", 0) >= 4)
        arrived = {message.body: message.store_ms for message in line.read_queue("T", 0)}

    assert arrived.keys() == {b"made", b"delayed", b"timed", b"half"}
    assert arrived[b"delayed"] - sent_ms >= 1_000
    assert arrived[b"timed"] - sent_ms >= 1_500


def test_a_second_broker_on_the_same_folder_exits_without_effect(start: Start) -> None:
    first = start()
    with BrokerLine(ready(first)["port"]) as line:
        second = start()

        log = ended(second)
        line.send("T", 0, b"unharmed", {})

        assert second.returncode != 0
        assert f"in use by process {first.pid}" in log
        assert [message.body for message in line.read_queue("T", 0)] == [b"unharmed"]


def test_a_broker_whose_port_is_in_use_exits_and_releases_its_folder(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = start("--port", port)
        log = ended(failed)

    assert failed.returncode != 0
    assert str(port) in log
    with BrokerLine(ready(start("--port", port))["port"]) as line:
        line.send("T", 0, b"one", {})


@ON_LINUX
def test_an_idle_broker_needs_little_memory_and_cpu(start: Start) -> None:
    process = start()
    with BrokerLine(ready(process)["port"]) as line:
        for number in range(100):
            line.send("T", number % QUEUES, bytes(1000), {})
        until(lambda: line.max_offset("T", 3) == 25)
        before = cpu_s(process)
        time.sleep(2)
        used_s = cpu_s(process) - before

    assert used_s <= 0.2
    assert anonymous_mib(process) <= 60
