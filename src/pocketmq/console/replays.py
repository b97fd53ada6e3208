"""Replays: all dead letters of a group sent once more, in the background, page by page; anybody can see how far it is, and stop it.

running ──► done · stopped · failed        one of a group at a time; the last few are remembered
"""

import asyncio
import logging
from enum import StrEnum
from typing import Final

from pocketmq.client.admin import AsyncAdmin
from pocketmq.clock import Clock
from pocketmq.console.words import sentence
from pocketmq.errors import ImpossibleRequest, PocketMQError

log = logging.getLogger("pocketmq.console")

AT_ONCE: Final = 64
"""Letters that are read and sent before it is looked whether to go on."""
MAX_REMEMBERED: Final = 50
MAX_REASONS: Final = 5


class ReplayState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class Replay:
    """One of them. `total` is what was there when it began: what dies later is not sent."""

    def __init__(self, number: int, group: str, topic: str | None, total: int, started_ms: int) -> None:
        self.number = number
        self.group = group
        self.topic = topic
        self.total = total
        self.started_ms = started_ms
        self.sent = 0
        self.failed = 0
        self.reasons: list[str] = []
        """Why some could not be sent; the first few."""
        self.state = ReplayState.RUNNING
        self.problem = ""
        self.task: asyncio.Task[None] | None = None

    @property
    def handled(self) -> int:
        return self.sent + self.failed


class Replays:
    """Those that run, and the last that ran."""

    def __init__(self, admin: AsyncAdmin, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._all: dict[int, Replay] = {}
        self._next = 1

    async def stop(self) -> None:
        tasks = [replay.task for replay in self._all.values() if replay.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def of_group(self, group: str) -> list[Replay]:
        """The newest first."""
        return [replay for replay in reversed(self._all.values()) if replay.group == group]

    def get(self, number: int) -> Replay | None:
        return self._all.get(number)

    async def begin(self, group: str, topic: str | None) -> Replay:
        """ImpossibleRequest while one of this group runs: letters would be sent twice."""
        if any(replay.state is ReplayState.RUNNING for replay in self.of_group(group)):
            raise ImpossibleRequest(f"dead letters of {group} are being sent already; wait, or stop that first")
        ranges = await self._admin.dead_letters.ranges(group)
        replay = Replay(self._next, group, topic, sum(end - begin for _, begin, end in ranges), self._clock.now_ms())
        self._next += 1
        self._all[replay.number] = replay
        for number in [number for number, one in self._all.items() if one.state is not ReplayState.RUNNING]:
            if len(self._all) > MAX_REMEMBERED:
                del self._all[number]
        replay.task = asyncio.create_task(self._run(replay), name=f"replay {replay.number}")
        return replay

    def end(self, number: int) -> None:
        """Stop after the letters that are under way."""
        replay = self._all.get(number)
        if replay is not None and replay.state is ReplayState.RUNNING:
            replay.state = ReplayState.STOPPED

    async def _run(self, replay: Replay) -> None:
        try:
            await self._send_all(replay)
        except PocketMQError as error:
            replay.state, replay.problem = ReplayState.FAILED, sentence(error)
            log.warning("the replay of dead letters of %s failed: %s", replay.group, error)

    async def _send_all(self, replay: Replay) -> None:
        for queue, begin, end in await self._admin.dead_letters.ranges(replay.group):
            offset = begin
            while offset < end and replay.handled < replay.total:
                if replay.state is not ReplayState.RUNNING:
                    return
                until = min(end, offset + AT_ONCE)
                letters = await self._admin.dead_letters.in_queue(replay.group, queue, offset, until)
                outcome = await self._admin.dead_letters.resend(letters, topic=replay.topic)
                replay.sent += len(outcome.sent)
                replay.failed += len(outcome.failed)
                replay.reasons = (replay.reasons + [why for _, why in outcome.failed])[:MAX_REASONS]
                offset = until
        replay.state = ReplayState.DONE
