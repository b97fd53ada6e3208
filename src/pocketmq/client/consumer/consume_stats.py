"""How fast a consumer goes, by topic: what administrators are told with its running info.

    counts since the start ── a sample every 10 s, for an hour ──► rates of the last minute, failures of the last hour

Told the time, as monotonic seconds.

What a consumer tells about itself when an administrator asks: the numbers that `mqadmin consumerStatus` shows.
"""

import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterable
from typing import Final

from pocketmq.client.consumer.flow_limits import PauseCounts
from pocketmq.client.consumer.offsets import Offsets
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.settings import RebalanceSettings
from pocketmq.clock import Clock
from pocketmq.codes import VERSION
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.clients import ConsumeType
from pocketmq.protocol.bodies.running_info import (
    CLIENT_VERSION,
    CONSUME_ORDERLY,
    CONSUME_TYPE,
    CONSUMER_START_TIMESTAMP,
    NAMESERVER_ADDR,
    THREADPOOL_CORE_SIZE,
    ConsumerRunningInfo,
    ConsumeStatus,
)

SAMPLE_S: Final = 10.0
_MINUTE: Final = 6
_HOUR: Final = 360
"""Samples."""


class _Counts:
    """Of one topic, since the start. The order of the fields is that of a sample."""

    __slots__ = ("consume_s", "failed", "ok", "pull_s", "pulled", "pulls", "samples")

    def __init__(self, start: float) -> None:
        self.pulls = 0
        self.pulled = 0
        self.pull_s = 0.0
        self.ok = 0
        self.failed = 0
        self.consume_s = 0.0
        self.samples: deque[tuple[float, ...]] = deque(maxlen=_HOUR + 1)
        self.sample(start)

    def sample(self, now: float) -> None:
        self.samples.append((now, self.pulls, self.pulled, self.pull_s, self.ok, self.failed, self.consume_s))


class ConsumeStats:
    """The numbers of one consumer, from `now` on."""

    def __init__(self, now: float) -> None:
        self._start = now
        self._topics: dict[str, _Counts] = {}

    def note_pull(self, topic: str, messages: int, took_s: float) -> None:
        """A pull was answered. Only those that found something say how fast pulls are; others were held on purpose."""
        counts = self._topics.get(topic) or self._new(topic)
        if messages:
            counts.pulls += 1
            counts.pulled += messages
            counts.pull_s += took_s

    def note_consumed(self, topic: str, ok: int, failed: int, took_s: float) -> None:
        """Listeners are done with messages."""
        counts = self._topics.get(topic) or self._new(topic)
        counts.ok += ok
        counts.failed += failed
        counts.consume_s += took_s

    def sample(self, now: float) -> None:
        """To be called every `SAMPLE_S`."""
        for counts in self._topics.values():
            counts.sample(now)

    def forget(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def status(self, topic: str, now: float) -> ConsumeStatus:
        """Times in milliseconds, rates per second."""
        counts = self._topics.get(topic)
        if counts is None:
            return ConsumeStatus()
        counts.sample(now)
        newest = counts.samples[-1]
        oldest = counts.samples[max(0, len(counts.samples) - 1 - _MINUTE)]
        seconds, pulls, pulled, pull_s, ok, failed, consume_s = (
            new - old for new, old in zip(newest, oldest, strict=True)
        )
        failed_in_an_hour = newest[5] - counts.samples[0][5]
        counts.samples.pop()
        return ConsumeStatus(
            pull_rt=_ratio(pull_s * 1000, pulls),
            pull_tps=_ratio(pulled, seconds),
            consume_rt=_ratio(consume_s * 1000, ok + failed),
            consume_ok_tps=_ratio(ok, seconds),
            consume_failed_tps=_ratio(failed, seconds),
            consume_failed_msgs=int(failed_in_an_hour),
        )

    def _new(self, topic: str) -> _Counts:
        counts = self._topics[topic] = _Counts(self._start)
        return counts


def _ratio(amount: float, of: float) -> float:
    return amount / of if of > 0 else 0.0


_SECRET = frozenset({"credentials", "tls", "name_servers", "rpc_hook", "offset_store"})


def running_info(
    settings: RebalanceSettings,
    core_workers: int,
    name_servers: str,
    consume_type: ConsumeType,
    subscriptions: Iterable[Subscription],
    owned: Iterable[ProcessQueue],
    offsets: Offsets,
    stats: ConsumeStats,
    pauses: PauseCounts,
    clock: Clock,
    *,
    started_ms: int,
    stacks: bool,
) -> ConsumerRunningInfo:
    """All of it. With `stacks`, also what every thread of this process is doing."""
    now, now_ms = clock.monotonic(), clock.now_ms()
    wanted = tuple(subscriptions)
    return ConsumerRunningInfo(
        properties={
            NAMESERVER_ADDR: name_servers + ";",
            CONSUME_TYPE: consume_type.value,
            CONSUME_ORDERLY: _text(getattr(settings, "ordered", False)),
            THREADPOOL_CORE_SIZE: str(core_workers),
            CONSUMER_START_TIMESTAMP: str(started_ms),
            CLIENT_VERSION: VERSION.name,
            **{name: _text(getattr(settings, name)) for name in settings.__struct_fields__ if name not in _SECRET},
            **{f"pauses: {cause}": str(count) for cause, count in pauses.snapshot().items()},
        },
        subscription_set=wanted,
        mq_table={one.queue: one.info(_committed(offsets, one.queue), now, now_ms) for one in owned},
        status_table={one.topic: stats.status(one.topic, now) for one in wanted},
        jstack=_stacks() if stacks else None,
    )


def _committed(offsets: Offsets, queue: MessageQueue) -> int:
    offset = offsets.get(queue)
    return -1 if offset is None else offset


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _stacks() -> str:
    frames = sys._current_frames()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}" for ident, frame in frames.items()
    )
