"""The runtime info of a broker, compared with that of the real one."""

import json
from collections.abc import Callable

import pytest
from tests.golden import captured, needs_golden
from tests.store.kit import ROOT
from tests.store.open_store import OpenStore, numbered

from pocketmq.broker.requests.flow import Cause, Kind, LogGate, WaitingRequest, WaitingRequests
from pocketmq.broker.settings import FlowSettings
from pocketmq.broker.stats import BrokerStats
from pocketmq.broker.stats.runtime_info import RuntimeInfo, delay_info, flow_info, readable_bytes
from pocketmq.codes import RequestCode
from pocketmq.errors import StoreBusy
from pocketmq.net.peer import Peer
from pocketmq.testing.fake_clock import START_MS


class Told:
    """A store with statistics, and its runtime info."""

    def __init__(self, opened: OpenStore, *additions: Callable[[], dict[str, str]]) -> None:
        self.opened = opened
        clock = opened.clock
        self.stats = BrokerStats("DefaultCluster", clock.monotonic(), clock.now_ms())
        self.info = RuntimeInfo(opened.store.facts, self.stats, clock, additions)

    def sample(self) -> None:
        self.opened.clock.advance_ms(10_000)
        clock, taken = self.opened.clock, self.opened.store.facts.messages_accepted
        self.stats.sample(clock.monotonic(), clock.now_ms(), taken)

    def __getitem__(self, key: str) -> str:
        return self.info.table()[key]


@pytest.fixture
def told() -> Told:
    return Told(OpenStore.small())


@needs_golden
def test_every_key_of_the_captured_broker_exists_with_its_type(told: Told) -> None:
    answers = [
        frame.command
        for frame in captured("mqadmin/5.3.3/wire/*.jsonl")
        if frame.answers == RequestCode.GET_BROKER_RUNTIME_INFO
    ]
    assert answers

    ours = told.info.table()
    for answer in answers:
        real: dict[str, str] = json.loads(answer.body)["table"]
        for key, text in real.items():
            if key.startswith("commitLogDiskRatio_"):
                key = f"commitLogDiskRatio_{ROOT}/commitlog"
            assert key in ours
            if are_numbers(text):
                assert are_numbers(ours[key]), key


def are_numbers(text: str) -> bool:
    try:
        [float(part) for part in text.split()]
    except ValueError:
        return False
    return True


def test_a_new_broker_reports_zeros(told: Told) -> None:
    assert told["msgPutTotalTodayNow"] == "0"
    assert told["putTps"] == "0.0 0.0 0.0"
    assert told["earliestMessageTimeStamp"] == "-1"
    assert told["putMessageAverageSize"] == "0.0"
    assert told["remainHowManyDataToFlush"] == "0 B"
    assert told["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
    assert told["bootTimestamp"] == str(START_MS)
    assert told["brokerVersionDesc"] == "V5_3_3"


def test_stored_messages_are_reported_by_the_store(told: Told) -> None:
    told.opened.send(*numbered(20))
    told.stats.sent("T").count += 20

    told.sample()

    end = told.opened.store.end
    assert told["commitLogMaxOffset"] == told["putMessageSizeTotal"] == str(end)
    assert told["putMessageTimesTotal"] == "20"
    assert float(told["putMessageAverageSize"]) == end / 20
    assert told["msgPutTotalTodayNow"] == "20"
    assert told["putTps"] == "2.0 2.0 2.0"
    assert told["earliestMessageTimeStamp"] == str(START_MS)
    assert told["remainHowManyDataToFlush"] == f"{end / 1024:.1f} KiB"
    assert told["dispatchBehindBytes"] == str(end)
    assert told["queuesBehindBytes"] == "0"
    assert told["runtime"] == "[ 0 days, 0 hours, 0 minutes, 10 seconds ]"


def test_messages_from_before_the_start_are_not_reported_as_new(told: Told) -> None:
    told.opened.send(*numbered(20))

    again = Told(told.opened.reopen())
    again.opened.tick()

    assert again["putMessageTimesTotal"] == again["putMessageSizeTotal"] == "0"
    assert int(again["commitLogMaxOffset"]) > 2000
    assert again["dispatchBehindBytes"] == "0"


def test_totals_of_the_morning_are_those_of_midnight(told: Told) -> None:
    told.stats.sent("T").count += 7
    told.stats.pulled("g", "T").count += 5
    told.opened.clock.step_ms(86_400_000)

    told.sample()
    told.stats.sent("T").count += 1

    assert told["msgPutTotalYesterdayMorning"] == "0"
    assert told["msgPutTotalTodayMorning"] == "7"
    assert told["msgPutTotalTodayNow"] == "8"
    assert told["msgGetTotalTodayMorning"] == "5"


def test_pulls_are_reported_as_found_and_missed(told: Told) -> None:
    tally = told.stats.pulled("g", "T")
    tally.count += 40
    tally.joined += 30
    told.stats.missed += 20
    told.stats.get_times.record(0.044)

    told.sample()

    assert told["getTransferredTps"] == told["getTransferedTps"] == "4.0 4.0 4.0"
    assert told["getFoundTps"] == "1.0 1.0 1.0"
    assert told["getMissTps"] == "2.0 2.0 2.0"
    assert told["getTotalTps"] == "3.0 3.0 3.0"
    assert told["getMessageEntireTimeMax"] == "44"


def test_the_disk_is_reported(told: Told) -> None:
    told.opened.disk.resize(1024 * 1024)

    disk = told.opened.disk.usage(ROOT)

    assert told["commitLogDiskRatio"] == told["consumeQueueDiskRatio"] == f"{disk.used_ratio:.2f}"
    assert told["commitLogDirCapacity"] == f"Total : 1.0 MiB, Free : {readable_bytes(disk.free)}."


def test_a_transient_pool_reports_its_free_buffers() -> None:
    assert Told(OpenStore.small())["remainTransientStoreBufferNumbs"] == "2147483647"
    assert Told(OpenStore.small(transient_pool=True))["remainTransientStoreBufferNumbs"] == "4"


def test_other_parts_add_their_keys_and_override_values() -> None:
    told = Told(OpenStore.small(), lambda: {"timerReadBehind": "3"}, lambda: delay_info({1: (5, 7)}))

    assert told["timerReadBehind"] == "3"
    assert told["scheduleMessageOffset_1"] == "5,7"


def test_flow_control_reports_waiting_requests_and_their_waiting_times() -> None:
    settings = FlowSettings()
    waiting, gate = WaitingRequests(settings), LogGate(settings)
    gate.refused(StoreBusy("too much is not synced"), 10.0)
    waiting.put(Kind.SEND, WaitingRequest(Peer(), None, (0, b"", b""), 10.0), "busy")

    table = flow_info(waiting, gate, settings, 10.5)

    assert table["sendThreadPoolQueueSize"] == "1"
    assert table["sendThreadPoolQueueHeadWaitTimeMills"] == "500"
    assert table["sendThreadPoolQueueCapacity"] == "10000"
    assert table["pullThreadPoolQueueSize"] == "0"
    assert table["pageCacheLockTimeMills"] == "500"


def test_flow_control_reports_refusals_with_their_causes() -> None:
    settings = FlowSettings()
    waiting = WaitingRequests(settings)
    waiting.refusal(Kind.SEND, Cause.TIMEOUT, "it waited")
    waiting.refusal(Kind.SEND, Cause.TIMEOUT, "it waited")
    waiting.refusal(Kind.PULL, Cause.LOG_BUSY, "the disk")

    table = flow_info(waiting, LogGate(settings), settings, 10.5)

    assert {name: told for name, told in table.items() if name.startswith("refused")} == {
        "refusedSendTimeout": "2",
        "refusedPullLogBusy": "1",
    }


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (252 << 30, "252.0 GiB"),
        (1 << 60, "1024.0 PiB"),
    ],
)
def test_sizes_are_reported_with_units(count: int, text: str) -> None:
    assert readable_bytes(count) == text
