"""Statistics of a consumer by topic, and texts of its running info, which `mqadmin consumerStatus` shows.

    counts since the start ── a sample every 10 s, for an hour ──► rates of the last minute, failures of the last hour

Times are monotonic seconds.
"""

import sys
import threading
import traceback
from collections import deque
from typing import Final

from pocketmq.client.consumer.settings import GroupSettings
from pocketmq.protocol.bodies.clients import ConsumeStatus

SAMPLE_S: Final = 10.0
_MINUTE: Final = 6
_HOUR: Final = 360
"""Numbers of samples."""


class _Counts:
    """Counts of one topic since the start. The order of the fields is that of a sample."""

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
    """Statistics of one consumer since `now`."""

    def __init__(self, now: float) -> None:
        self._start = now
        self._topics: dict[str, _Counts] = {}

    def record_pull(self, topic: str, messages: int, took_s: float) -> None:
        """A pull was answered. Only pulls with messages count: brokers hold the others on purpose."""
        counts = self._topics.get(topic) or self._new(topic)
        if messages:
            counts.pulls += 1
            counts.pulled += messages
            counts.pull_s += took_s

    def record_consumed(self, topic: str, ok: int, failed: int, took_s: float) -> None:
        """Listeners returned for messages."""
        counts = self._topics.get(topic) or self._new(topic)
        counts.ok += ok
        counts.failed += failed
        counts.consume_s += took_s

    def sample(self, now: float) -> None:
        """Call it every `SAMPLE_S`."""
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


def shown_settings(settings: GroupSettings) -> dict[str, str]:
    """The options of a consumer for its running info."""
    return {name: shown(getattr(settings, name)) for name in settings.__struct_fields__ if name not in _SECRET}


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def thread_stacks() -> str:
    """The stacks of all threads of this process."""
    frames = sys._current_frames()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}" for ident, frame in frames.items()
    )
