"""One client for each cluster in each process of Spark, kept from task to task.

    task ── borrow ──► the client of this process ── give back ──► kept ── nobody borrows it for a while ──► closed

Workers are reused over micro-batches, so that a task finds its connections open. A process that was forked off begins anew:
the clients of its parent are its parent's.
"""

import logging
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

import msgspec

from pocketmq.client.administration.reach import AdminSettings, Reach
from pocketmq.client.blocking import BlockingClient, Core
from pocketmq.client.calls.messages import is_hole, passes_over
from pocketmq.client.direct_pulls import DirectPulls, lines_for_pulls
from pocketmq.client.instance import Instance
from pocketmq.client.pulling import Pulling
from pocketmq.clock import SystemClock
from pocketmq.codes import ResponseCode
from pocketmq.errors import PocketMQError
from pocketmq.files import DiskFiles
from pocketmq.model.flags import PullFlag
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.spark.broker_facts import Answer, Bounds
from pocketmq.spark.client_settings import reading_settings
from pocketmq.spark.connection_options import Connection

log = logging.getLogger("pocketmq.spark")

PULL_SPARE_S: Final = 5.0
"""What a pull may take beyond the time that an answer may take: the largest ones are megabytes."""

C = TypeVar("C", bound=Core)
T = TypeVar("T")


class ReadingCore:
    """Asks brokers, and pulls, as one client of the cluster."""

    def __init__(self, settings: AdminSettings) -> None:
        self._settings = settings
        self._lines = lines_for_pulls(SystemClock(), connect_s=settings.connect_timeout_ms / 1000)
        self._pulls: dict[tuple[str, int], Pulling] = {}
        self._instance: Instance
        self.reach: Reach

    async def start(self) -> None:
        self._instance = Instance.join(self._settings)
        self.reach = Reach(self._instance, self._settings)

    async def stop(self) -> None:
        self._lines.close()
        await self._instance.leave()

    def puller(self, group: str) -> "GroupPuller":
        return GroupPuller(self, self.reach.group(group))

    async def bounds(self, queue: MessageQueue) -> Bounds:
        """What a queue holds, by its master."""
        wire_queue = self.reach.wire_queue(queue)
        await self._instance.routes.find(wire_queue.topic)
        low = await self.reach.brokers.offsets.smallest(wire_queue)
        # Asked second: a queue that was emptied in between ends where it begins, never before.
        return Bounds(low, max(low, await self.reach.brokers.offsets.largest(wire_queue)))

    async def pull_as(
        self, group: str, queue: MessageQueue, offset: int, subscription: Subscription, limit: int, max_bytes: int
    ) -> Answer:
        """One pull. `group` has its name of the wire, `queue` that of users.

        A group that an administrator reset is sent elsewhere, once. A task reads its range all the same: such an answer does not lead on.
        """
        pulls = self._pulling(group, max_bytes)
        wire_queue = self.reach.wire_queue(queue)
        await self._instance.routes.find(wire_queue.topic)
        pulled = await pulls.pull_records(wire_queue, offset, subscription, limit, timeout_s=self._pull_timeout_s)
        told = pulled.header
        next_offset = offset if pulled.code == ResponseCode.PULL_OFFSET_MOVED else told.next_begin_offset
        is_past = subscription.takes_all and passes_over(pulled.code, pulled.records, offset)
        bounds = Bounds(told.min_offset, told.max_offset)
        return Answer(pulled.records, next_offset, bounds, is_past, is_hole(pulled.code, next_offset, offset))

    async def direct_pulls(self, group: str, topics: Collection[str], max_bytes: int) -> DirectPulls | None:
        """For a thread that pulls these topics by itself; None where lines are encrypted, which only the loop does."""
        if self._settings.tls is not False:
            return None
        for topic in topics:
            await self._instance.routes.find(self.reach.topic(topic))
        pulls = self._pulling(self.reach.group(group), max_bytes)
        return DirectPulls(pulls, self._lines, timeout_s=self._pull_timeout_s)

    @property
    def _pull_timeout_s(self) -> float:
        return self._settings.call_timeout_ms / 1000 + PULL_SPARE_S

    def _pulling(self, group: str, max_bytes: int) -> Pulling:
        pulls = self._pulls.get((group, max_bytes))
        if pulls is None:
            pulls = self._pulls[group, max_bytes] = Pulling(
                self._instance, group, flags=PullFlag.SUBSCRIPTION, max_bytes=max_bytes, wait_ms=0
            )
        return pulls


class GroupPuller:
    """Pulls as a group; see `broker_facts.Puller`."""

    def __init__(self, core: ReadingCore, wire_group: str) -> None:
        self._core = core
        self._group = wire_group

    async def pull(
        self, queue: MessageQueue, offset: int, subscription: Subscription, max_messages: int, max_bytes: int
    ) -> Answer:
        return await self._core.pull_as(self._group, queue, offset, subscription, max_messages, max_bytes)

    async def bounds(self, queue: MessageQueue) -> Bounds:
        return await self._core.bounds(queue)


class Held(BlockingClient[C]):
    """A client of this process, and who uses it."""

    def __init__(self, make: Callable[[], C]) -> None:
        super().__init__(make, "connection of the Spark connector")
        self.users = 0
        self.closing: threading.Timer | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """The future of what `work` comes to."""
        return self._portal.submit(work)


class Connections(Generic[C]):
    """The clients of a process by what they were made from."""

    def __init__(self, make: Callable[[Any], C]) -> None:
        self._make = make
        self._lock = threading.Lock()  # guards what is held, and the counts of its users
        self._held: dict[msgspec.Struct, Held[C]] = {}
        self._left_to_the_parent: list[object] = []
        os.register_at_fork(after_in_child=self._begin_anew)

    @contextmanager
    def borrow(self, key: msgspec.Struct, idle_timeout_ms: int) -> Iterator[Held[C]]:
        """The client for `key`, started if there is none; kept for `idle_timeout_ms` after the last one gave it back."""
        held = self._take(key)
        try:
            yield held
        finally:
            self._give_back(key, held, idle_timeout_ms)

    def __len__(self) -> int:
        return len(self._held)

    def close_idle(self) -> None:
        """Those that nobody uses, instead of later."""
        with self._lock:
            idle = [(key, held) for key, held in self._held.items() if not held.users]
        for key, held in idle:
            self._close(key, held)

    def _take(self, key: msgspec.Struct) -> Held[C]:
        with self._lock:
            held = self._held.get(key)
            if held is None:
                held = Held(lambda: self._make(key))
                held.start()
                self._held[key] = held
            if held.closing is not None:
                held.closing.cancel()
                held.closing = None
            held.users += 1
            return held

    def _give_back(self, key: msgspec.Struct, held: Held[C], idle_timeout_ms: int) -> None:
        with self._lock:
            held.users -= 1
            if held.users or self._held.get(key) is not held:
                return
            held.closing = threading.Timer(idle_timeout_ms / 1000, self._close, (key, held))
            held.closing.daemon = True
            held.closing.start()

    def _close(self, key: msgspec.Struct, held: Held[C]) -> None:
        with self._lock:
            if held.users or self._held.get(key) is not held:
                return  # borrowed again in the meantime
            del self._held[key]
            if held.closing is not None:
                held.closing.cancel()
        try:
            held.stop()
        except PocketMQError as error:
            log.warning("an idle connection could not be closed: %s", error)

    def _begin_anew(self) -> None:
        """In the child of a fork: a thread that the child does not have may have held the lock."""
        self._left_to_the_parent.append(
            self._held
        )  # kept for ever: when collected, it would close what the parent uses
        self._lock = threading.Lock()
        self._held = {}


def _reading_core(connection: Connection) -> ReadingCore:
    return ReadingCore(reading_settings(connection, os.environ, DiskFiles()))


READING: Final = Connections(_reading_core)
"""By `Connection`."""
