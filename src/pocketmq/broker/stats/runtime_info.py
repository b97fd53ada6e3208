"""Runtime information of a broker: a table of texts (code 28) under RocketMQ's names. Tools parse many of them as numbers.

    facts of the store ─┐
    statistics ─────────┼─► table ◄── additions of other parts: waiting requests, delays, timers, conflicts …
    the clock ──────────┘

Keys of parts that add none are zero.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pocketmq.broker.requests.flow import Kind, LogGate, WaitingRequests
from pocketmq.broker.settings import FlowSettings
from pocketmq.broker.stats.broker_stats import BrokerStats
from pocketmq.clock import Clock
from pocketmq.codes import VERSION
from pocketmq.store.readable_store import StoreFacts

Addition = Callable[[], Mapping[str, str]]
"""Returns the keys that a part adds."""

_NO_POOL: Final = 2**31 - 1
"""RocketMQ's number of free buffers without a transient pool."""

_POOLS: Final = ("send", "pull", "litePull", "query", "ack")
_ZEROS: Final = (
    *(f"{pool}ThreadPoolQueue{what}" for pool in _POOLS for what in ("Size", "Capacity", "HeadWaitTimeMills")),
    *("EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity", "pageCacheLockTimeMills"),
    *(
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
        "dispatchMaxBuffer",
        "startAcceptSendRequestTimeStamp",
    ),
)
_FRACTIONS: Final = ("timerEnqueueTps", "timerDequeueTps")


class RuntimeInfo:
    """Created when the broker starts, because its run time begins then."""

    def __init__(self, facts: StoreFacts, stats: BrokerStats, clock: Clock, additions: Iterable[Addition] = ()) -> None:
        self._facts = facts
        self._stats = stats
        self._clock = clock
        self._additions = tuple(additions)
        self._started_ms = clock.now_ms()

    def table(self) -> dict[str, str]:
        table = dict.fromkeys(_ZEROS, "0") | dict.fromkeys(_FRACTIONS, "0.0")
        for part in (self._broker(), self._store(), self._disk(), self._totals(), self._speeds(), self._times()):
            table |= part
        for addition in self._additions:
            table |= addition()
        return table

    def _broker(self) -> dict[str, str]:
        return {
            "bootTimestamp": str(self._started_ms),
            "brokerActive": "true",
            "brokerVersion": str(int(VERSION)),
            "brokerVersionDesc": VERSION.name,
            # By the wall clock, as in RocketMQ: with bootTimestamp it gives the current time.
            "runtime": _run_time(max(0, self._clock.now_ms() - self._started_ms) // 1000),
        }

    def _store(self) -> dict[str, str]:
        facts = self._facts
        buffers, earliest_ms = facts.free_pool_buffers, facts.earliest_ms
        count, size = facts.messages_accepted, facts.bytes_accepted
        return {
            "commitLogMinOffset": str(facts.log_start),
            "commitLogMaxOffset": str(facts.log_end),
            "dispatchBehindBytes": str(facts.behind_bytes),
            "queuesBehindBytes": str(facts.unreadable_bytes),  # ours: without keys, which are indexed later
            "earliestMessageTimeStamp": str(-1 if earliest_ms is None else earliest_ms),
            "remainHowManyDataToFlush": readable_bytes(facts.unsynced_bytes),
            "remainTransientStoreBufferNumbs": str(_NO_POOL if buffers is None else buffers),
            "putMessageTimesTotal": str(count),
            "putMessageSizeTotal": str(size),
            "putMessageAverageSize": str(size / count if count else 0.0),
            "putMessageFailedTimes": str(self._stats.failed_puts),
        }

    def _disk(self) -> dict[str, str]:
        disk = self._facts.disk
        ratio = f"{disk.used_ratio:.2f}"
        return {
            "commitLogDirCapacity": f"Total : {readable_bytes(disk.total)}, Free : {readable_bytes(disk.free)}.",
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{self._facts.log_folder}": ratio,
            "consumeQueueDiskRatio": ratio,
        }

    def _totals(self) -> dict[str, str]:
        stats, table = self._stats, {}
        totals = (("Put", stats.days.put, stats.put_total), ("Get", stats.days.got, stats.get_total))
        for way, mornings, now in totals:
            table[f"msg{way}TotalYesterdayMorning"] = str(mornings.yesterday)
            table[f"msg{way}TotalTodayMorning"] = str(mornings.today)
            table[f"msg{way}TotalTodayNow"] = str(now)
        return table

    def _speeds(self) -> dict[str, str]:
        """Each over the last ten seconds, the last minute and the last ten minutes."""
        rates = self._stats.rates()
        transferred = _joined(rate.transferred for rate in rates)
        return {
            "putTps": _joined(rate.stored for rate in rates),
            "getTransferredTps": transferred,
            "getTransferedTps": transferred,  # 4.9's spelling; its mqadmin fails without it
            "getFoundTps": _joined(rate.found for rate in rates),
            "getMissTps": _joined(rate.missed for rate in rates),
            "getTotalTps": _joined(rate.found + rate.missed for rate in rates),
        }

    def _times(self) -> dict[str, str]:
        puts, gets = self._stats.put_times, self._stats.get_times
        return {
            "putMessageDistributeTime": puts.shown(),
            "putMessageEntireTimeMax": str(int(puts.longest_ms)),
            "putLatency99": f"{puts.percentile_ms(0.99):.2f}",
            "putLatency999": f"{puts.percentile_ms(0.999):.2f}",
            "getMessageEntireTimeMax": str(int(gets.longest_ms)),
        }


def flow_info(waiting: WaitingRequests, gate: LogGate, settings: FlowSettings, now: float) -> dict[str, str]:
    """Keys of flow control: waiting requests, the longest wait, and rejections by cause."""
    table = {"pageCacheLockTimeMills": str(gate.busy_ms(now))}
    for pool, kind, most in (
        ("sendThreadPoolQueue", Kind.SEND, settings.max_waiting_sends),
        ("pullThreadPoolQueue", Kind.PULL, settings.max_waiting_pulls),
        ("heartbeatThreadPoolQueue", Kind.HEARTBEAT, settings.max_waiting_heartbeats),
    ):
        table[f"{pool}Size"] = str(waiting.count(kind))
        table[f"{pool}Capacity"] = str(most)
        table[f"{pool}HeadWaitTimeMills"] = str(waiting.head_wait_ms(kind, now))
    table["EndTransactionQueueSize"] = str(waiting.count(Kind.TRANSACTION))
    table["EndTransactionThreadPoolQueueCapacity"] = str(settings.max_waiting_transactions)
    for (kind, cause), count in waiting.refused.items():
        table[f"refused{kind.name.title()}{cause.name.title().replace('_', '')}"] = str(count)
    return table


def delay_info(progress: Mapping[int, tuple[int, int]]) -> dict[str, str]:
    """Keys of delayed messages: delivered and stored messages of each level."""
    return {f"scheduleMessageOffset_{level}": f"{done},{most}" for level, (done, most) in progress.items()}


def readable_bytes(count: int) -> str:
    """`0 B`, `1.5 KiB`, `252.0 GiB`."""
    if count < 1024:
        return f"{count} B"
    size, units = count / 1024, iter("KMGTP")
    unit = next(units)
    while size >= 1024 and unit != "P":
        size, unit = size / 1024, next(units)
    return f"{size:.1f} {unit}iB"


def _joined(rates: Iterable[float]) -> str:
    return " ".join(str(float(rate)) for rate in rates)


def _run_time(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
