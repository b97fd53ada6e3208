"""Delay levels. A delayed message waits in the queue of its level, so each queue is ordered by due time."""

import re
from typing import Final

from pocketmq.errors import InvalidSetting

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d+)([smhd])")


class DelayLevels:
    """The level table: level n, from 1, delays by `ms(n)` milliseconds."""

    def __init__(self, text: str) -> None:
        self._ms = [_parse_level(word) for word in text.split()]
        if not self._ms:
            raise InvalidSetting("the delay level table is empty; give at least one level such as '1s'")

    def __len__(self) -> int:
        return len(self._ms)

    def clamp(self, level: int) -> int:
        """`level`, or the last level if it is larger."""
        return min(level, len(self._ms))

    def ms(self, level: int) -> int:
        """The delay of `level`; 0 for a level below 1."""
        return self._ms[self.clamp(level) - 1] if level > 0 else 0

    def due_ms(self, level: int, store_ms: int) -> int:
        """When a message stored at `store_ms` with `level` is due: the tags code of its queue entry."""
        return store_ms + self.ms(level)


def _parse_level(word: str) -> int:
    match = _LEVEL.fullmatch(word)
    if not match:
        raise InvalidSetting(f"delay level {word!r} is not a number followed by s, m, h or d, such as '30s'")
    return int(match[1]) * _UNIT_MS[match[2]]


DELAY_LEVELS = DelayLevels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
"""RocketMQ's table."""

MAX_DELAY_LEVEL: Final = len(DELAY_LEVELS)


def delay_level_fault(level: object, *, least: int = 0) -> str | None:
    """The error text for a delay level that RocketMQ's table does not have; None for a valid one."""
    if type(level) is int and least <= level <= MAX_DELAY_LEVEL:
        return None
    nearest = min(max(level, least), MAX_DELAY_LEVEL) if type(level) is int else 1
    return (
        f"delay_level = {level!r} must be a whole number from {least} to {MAX_DELAY_LEVEL} (1 is 1 s, {MAX_DELAY_LEVEL} is 2 h), "
        f"for example delay_level={nearest}"
    )


def queue_of_level(level: int) -> int:
    """The queue of SCHEDULE_TOPIC_XXXX where messages of `level` wait."""
    return level - 1
