"""Replays: one at a time for each group; they can be stopped, and report failures."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.console.site import BATCH, Replays, ReplayState
from pocketmq.errors import ImpossibleRequest, NetworkError
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import FakeClock

QUEUE = MessageQueue("%DLQ%g", "broker-a", 0)


class ToldLetters:
    """A number of dead letters. Sending them can fail, or wait until the test continues."""

    def __init__(self, many: int) -> None:
        self.many = many
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.reading_fails = False

    async def ranges(self, group: str) -> list[tuple[MessageQueue, int, int]]:
        return [(QUEUE, 0, self.many)]

    async def in_queue(self, group: str, queue: MessageQueue, begin: int, end: int) -> list[int]:
        if self.reading_fails:
            raise NetworkError("away")
        return list(range(begin, end))

    async def resend(self, letters: list[int], *, topic: str | None) -> Any:
        await self.may_go_on.wait()
        failed = [(letter, "bad") for letter in letters if letter % 10 == 0]
        return SimpleNamespace(sent=[letter for letter in letters if letter % 10], failed=failed)


def replays_of(letters: ToldLetters) -> Replays:
    admin: Any = SimpleNamespace(dead_letters=letters)
    return Replays(admin, FakeClock())


def test_all_dead_letters_are_processed_and_failures_counted_with_some_reasons() -> None:
    async def story() -> None:
        replays = replays_of(ToldLetters(200))
        replay = await replays.begin("g", None)
        assert replay.task is not None
        await replay.task
        assert (replay.state, replay.sent, replay.failed, replay.total) == (ReplayState.DONE, 180, 20, 200)
        assert replay.reasons == ["bad"] * 5

    asyncio.run(story())


def test_a_group_has_at_most_one_running_replay_and_it_can_be_stopped() -> None:
    async def story() -> None:
        letters = ToldLetters(1_000)
        letters.may_go_on.clear()
        replays = replays_of(letters)
        replay = await replays.begin("g", "elsewhere")
        with pytest.raises(ImpossibleRequest, match="a replay of g is already running"):
            await replays.begin("g", None)
        await asyncio.sleep(0)
        replays.end(replay.number)
        letters.may_go_on.set()
        assert replay.task is not None
        await replay.task
        assert replay.state is ReplayState.STOPPED
        assert replay.processed <= BATCH

    asyncio.run(story())


def test_a_failed_replay_shows_the_reason() -> None:
    async def story() -> None:
        letters = ToldLetters(5)
        letters.reading_fails = True
        replays = replays_of(letters)
        replay = await replays.begin("g", None)
        assert replay.task is not None
        await replay.task
        assert (replay.state, replay.problem) == (
            ReplayState.FAILED,
            "away. Check that name server and brokers are running.",
        )
        await replays.stop()

    asyncio.run(story())
