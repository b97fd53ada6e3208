"""A turn that fails at any step, by any exception: it is rolled back completely and answered, and the next one is
stored.

Each sweep lets the first, the second, … call of a turn fail, of Python functions and of C functions, until a turn has no more of
them. (Allocations are made to fail one by one in `tests/store/test_turns_without_memory.py`; msgspec does not survive that.)
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.broker.running import Client, RunningBroker, damage, in_virtual_time, request, running, sending

import pocketmq
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import ConnectionLost
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.command import Command
from pocketmq.store.settings import FlushMode
from pocketmq.testing.disk.drive import FaultyFile

pytestmark = [
    pytest.mark.usefixtures("twin"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # a generator that cannot be closed
    pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer is there already"),
]
DONE = ResponseCode.SUCCESS
SEND = RequestCode.SEND_MESSAGE_V2
SOURCE = str(Path(pocketmq.__file__).parent)
BLOCKING = {"slow_write_ms": 50_000}
"""Every write to the log would block, so that a thread makes it; the time is that of no other store."""
MOST_STEPS = 6_000
AT_LEAST = 400
"""Calls of a turn, or a few less: some fail without a trace."""


@contextmanager
def failing_call(number: int) -> Iterator[None]:
    """In the block, exactly the call with this number raises MemoryError before it is executed."""
    left = number

    def look(frame: FrameType, event: str, what: object) -> None:
        nonlocal left
        if event not in ("call", "c_call") or not _is_ours(frame.f_code.co_filename):
            return
        if left == 0:
            sys.setprofile(None)
            raise MemoryError(f"call {number}: {what} in {frame.f_code.co_qualname}, line {frame.f_lineno}")
        left -= 1

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


def _is_ours(path: str) -> bool:
    """The disk and the network of the kit do not fail, because they would keep their locks. Passing work to threads
    has other tests.
    """
    is_ours = path.startswith(SOURCE) and not path.startswith(f"{SOURCE}/testing/")
    return is_ours and not path.endswith(("/store/worker.py", "/store/flushing.py"))


def singles(bodies: list[bytes]) -> list[Command]:
    return [request(SEND, sending(queue_id=number % 2), body) for number, body in enumerate(bodies)]


def delayed(bodies: list[bytes]) -> list[Command]:
    return [request(SEND, sending(properties={"DELAY": "18"}), bodies[0]), *singles(bodies[1:])]


def batch(bodies: list[bytes]) -> list[Command]:
    packed = encode_batch([(0, body, b"") for body in bodies])
    return [request(RequestCode.SEND_BATCH_MESSAGE, sending(), packed)]


class Sweep:
    """Turns of one kind, each with another call that fails."""

    def __init__(self, broker: RunningBroker, make: Callable[[list[bytes]], list[Command]]) -> None:
        self._broker = broker
        self._make = make
        self._client: Client | None = None
        self.acknowledged: list[bytes] = []
        self.refused: list[bytes] = []
        self.in_doubt: list[bytes] = []
        self.failed_turns = 0

    async def run(self, step: int = 1) -> None:
        number = 0
        while await self._turn(number):
            number += step
            assert number < MOST_STEPS, "a turn that always fails"
        for number in range(3):
            assert not await self._turn(MOST_STEPS * 100 + number), "turns work again"

    async def _turn(self, number: int) -> bool:
        """Whether a turn was disturbed when this call of it failed."""
        client = await self._connected()
        bodies = [b"%d-%d" % (number, part) for part in range(3)]
        commands = self._make(bodies)
        frames, answers = self._broker.frames_of(client, *commands)
        line = self._broker.peer_of(client).connection
        with failing_call(number):
            try:
                line._turn(frames)
                self._broker.turns.handle_deferred()
            except MemoryError:  # a line that cannot even close itself
                line.abort(ConnectionLost("no memory"))
        await asyncio.sleep(0.15)
        _, silent = await asyncio.wait(answers, timeout=10)
        assert not silent, f"call {number} failed without an error"
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        disturbed = False
        for at, outcome in enumerate(outcomes):
            group = bodies if len(commands) == 1 else [bodies[at]]
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, ConnectionLost), outcome
                self.in_doubt += group
                self._client = None
            elif outcome.code in (DONE, ResponseCode.FLUSH_DISK_TIMEOUT):  # stored, whether synced or not
                self.acknowledged += group
                continue
            else:
                self.refused += group
            disturbed = True
        self.failed_turns += disturbed
        queues = self._broker.store._parts.queues
        assert all(queue.next_offset == queue.max_offset for queue in queues), number
        return disturbed or number < AT_LEAST

    async def _connected(self) -> Client:
        if self._client is None or not self._client.peer.is_open:
            self._client = await self._broker.connect()
            await self._ready(self._client)
        return self._client

    async def _ready(self, client: Client) -> None:
        """After a failed write the log may be repaired first."""
        for _ in range(100):
            codes = [(await client.send(b"warm", queue_id=queue_id)).code for queue_id in (0, 1)]
            if codes == [DONE, DONE]:
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the broker does not take sends any more")


def all_bodies(broker: RunningBroker) -> list[bytes]:
    return [
        body
        for queue in list(broker.store._parts.queues)
        for body in broker.bodies(queue.topic, queue.queue_id)
        if body != b"warm"
    ]


@pytest.mark.parametrize("make", [singles, delayed, batch])
@pytest.mark.parametrize(
    "store",
    [
        {},
        {"log_file_bytes": 4096, "max_message_bytes": 1024},
        {"transient_pool": True},
        {"flush": FlushMode.SYNC},
        {"slow_write_ms": 0},
        BLOCKING,
        BLOCKING | {"log_file_bytes": 4096, "max_message_bytes": 1024},
    ],
    ids=["usual", "rolling", "pool", "sync", "thread", "blocking", "blocking and rolling"],
)
def test_a_turn_with_a_failing_call_is_rolled_back_completely(
    make: Callable[[list[bytes]], list[Command]],
    store: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    if store.items() >= BLOCKING.items():
        write_at = FaultyFile.write_at

        def blocks(file: FaultyFile, offset: int, data: bytes, *, wait: bool = True) -> None:
            """A part may be written."""
            write_at(file, offset, data if wait else data[: len(data) // 2])
            if not wait:
                raise BlockingIOError

        monkeypatch.setattr(FaultyFile, "write_at", blocks)
    sweeps: list[Sweep] = []

    @in_virtual_time
    async def sweep() -> None:
        async with running(store=store) as broker:
            swept = Sweep(broker, make)
            sweeps.append(swept)
            await swept.run()
            await asyncio.sleep(1)
            stored = all_bodies(broker)
            assert swept.failed_turns > 20
            assert len(stored) == len(set(stored))
            assert set(swept.acknowledged) <= set(stored)
            assert set(swept.refused) & set(stored) == set()
            assert set(stored) <= {*swept.acknowledged, *swept.in_doubt}
            disks.append(broker.disk)

    disks: list[Any] = []
    sweep()
    assert damage(disks[0], **store_sizes(store)) == []


def store_sizes(store: dict[str, Any]) -> dict[str, int]:
    return {name: value for name, value in store.items() if name == "log_file_bytes"}
