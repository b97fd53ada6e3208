"""A large broker: thousands of topics, groups and connections, and a long log. A send costs the same.

One process is measured before and after. The bounds are generous: they tell a cost that grows from one that does not.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from conformance.broker_line import BrokerLine
from tests.broker.flood import DEADLINE_S, Flood
from tests.broker.usage import ON_LINUX, anonymous_mib, cpu_s
from tests.cli.program import Program, Start, programs, ready

from pocketmq.codes import RequestCode
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.clients import ConsumerData, HeartbeatData
from pocketmq.protocol.bodies.topics import TopicConfig, TopicConfigList

TOPICS = 10_000
GROUPS = 1_000
GROUPS_PER_LINE = 50
CONNECTIONS = 1_000
LOG_MIB = 32
SENDS = 6_000

pytestmark = ON_LINUX


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    settings = ("autoCreateTopicEnable=true", "vipChannelEnable=false", "mappedFileSizeCommitLog=8388608")
    options = [word for setting in settings for word in ("--set", setting)]
    with programs(tmp_path, "broker", "--json", "--port", "0", "--data", "data", *options) as starter:
        yield starter


class Grown:
    """A broker in a process of its own, with its memory and CPU use."""

    def __init__(self, process: Program) -> None:
        self.port: int = ready(process)["port"]
        self.start_s = cpu_s(process)
        """Of the processor: other tests run at the same time."""
        self.process = process
        self._floods = 0
        # Registration sends every topic, and would wait for a name server.
        threading.Thread(target=self._hear).start()

    def _hear(self) -> None:
        assert self.process.stderr is not None
        for _ in self.process.stderr:
            pass

    def send_cost_us(self) -> float:
        """Processor time of the broker for one send: the least of two tries."""
        costs = []
        for _ in range(2):
            self._floods += 1
            before = cpu_s(self.process)
            flood = Flood(self.port, f"flood{self._floods}", SENDS)
            assert len(flood.end()) == SENDS
            costs.append(cpu_s(self.process) - before)
        return min(costs) / SENDS * 1e6

    def stop(self) -> float:
        """Stop it cleanly; returns the duration."""
        began = time.monotonic()
        self.process.terminate()
        assert self.process.wait(DEADLINE_S) == 0
        return time.monotonic() - began

    @property
    def mib(self) -> float:
        return anonymous_mib(self.process)


def is_flat(before_us: float, after_us: float) -> bool:
    return after_us <= 2 * before_us + 20


def test_ten_thousand_topics_cost_memory_each_but_do_not_slow_a_send(start: Start) -> None:
    broker = Grown(start())
    before_us, before_mib = broker.send_cost_us(), broker.mib
    with BrokerLine(broker.port) as line:
        for first in range(0, TOPICS, 1000):
            topics = tuple(TopicConfig(f"topic{number}", 4, 4) for number in range(first, first + 1000))
            body = TopicConfigList(topics).encode()
            line.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
        for number in range(0, TOPICS, 100):
            line.send(f"topic{number}", number % 4, b"used", {})
        began = time.monotonic()
        line.send("one-more", 0, b"made", {})
        line.max_offset("T", 0)
        behind_a_save_s = time.monotonic() - began
    after_us, after_mib = broker.send_cost_us(), broker.mib
    stop_s = broker.stop()
    again = Grown(start())

    assert is_flat(before_us, after_us), (before_us, after_us)
    assert after_mib - before_mib <= 60
    assert behind_a_save_s <= 1
    assert stop_s <= 10
    assert again.start_s <= 5
    with BrokerLine(again.port) as line:
        assert [message.body for message in line.read_queue("topic9900", 0)] == [b"used"]
    again.process.kill()
    again.process.wait()
    assert Grown(start()).start_s <= 10, "after a kill"


def test_a_thousand_groups_with_members_do_not_slow_a_send(start: Start) -> None:
    broker = Grown(start())
    before_us, before_mib = broker.send_cost_us(), broker.mib
    with ExitStack() as lines:
        for first in range(0, GROUPS, GROUPS_PER_LINE):
            line = lines.enter_context(BrokerLine(broker.port))
            groups = tuple(
                ConsumerData(f"group{number}", subscription_data_set=(Subscription("T", sub_version=1),))
                for number in range(first, first + GROUPS_PER_LINE)
            )
            line.call(RequestCode.HEART_BEAT, body=HeartbeatData(f"client{first}", (), groups).encode())
        after_us, after_mib = broker.send_cost_us(), broker.mib

    assert is_flat(before_us, after_us), (before_us, after_us)
    assert after_mib - before_mib <= 30
    assert broker.stop() <= 5


def test_a_thousand_idle_connections_do_not_slow_a_send(start: Start) -> None:
    broker = Grown(start())
    before_us, before_mib = broker.send_cost_us(), broker.mib
    with ExitStack() as lines:
        for _ in range(CONNECTIONS):
            lines.enter_context(BrokerLine(broker.port))
        after_us, after_mib = broker.send_cost_us(), broker.mib
        stop_s = broker.stop()

    assert is_flat(before_us, after_us), (before_us, after_us)
    assert after_mib - before_mib <= 30
    assert stop_s <= 5


def test_a_long_log_needs_no_more_memory_or_time(start: Start) -> None:
    broker = Grown(start())
    before_us, before_mib = broker.send_cost_us(), broker.mib
    with BrokerLine(broker.port) as line:
        for _ in range(LOG_MIB):
            line.send("large", 0, bytes(1 << 20), {})
    after_us, after_mib = broker.send_cost_us(), broker.mib
    broker.stop()
    again = Grown(start())

    assert is_flat(before_us, after_us), (before_us, after_us)
    assert after_mib - before_mib <= 30
    assert again.start_s <= 3
