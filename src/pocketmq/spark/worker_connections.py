"""One client for each cluster in each process of Spark, kept from task to task.

    task ── borrow ──► the client of this process ── give back ──► kept ── nobody borrows it for a while ──► closed

Workers are reused over micro-batches, so that a task finds its connections open. A process that was forked off begins anew:
the clients of its parent are its parent's.

From the options of a connection to the settings of a client, with the secrets that only this process looks up.
"""

import logging
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property
from ssl import SSLContext
from typing import Any, Final, Generic, TypeVar

import msgspec

from pocketmq.client.admin.reach import AdminSettings, Reach
from pocketmq.client.blocking import BlockingClient, Core
from pocketmq.client.cluster.instance import Instance
from pocketmq.client.cluster.message_calls import is_hole, passes_over
from pocketmq.client.consumer.direct_pulls import DirectPulls, connections_for_pulls
from pocketmq.client.consumer.pulling import Pulling
from pocketmq.client.settings import DEFAULT_INSTANCE, ClientOptions, ProducerOptions
from pocketmq.clock import SystemClock
from pocketmq.codes import ResponseCode
from pocketmq.errors import PocketMQError
from pocketmq.files import DiskFiles, Files
from pocketmq.model.flags import PullFlag
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.net.tls import client_context
from pocketmq.protocol.signing import Credentials
from pocketmq.spark.broker_facts import Answer, Bounds
from pocketmq.spark.options.connection_options import Connection
from pocketmq.spark.options.write_options import WriteOptions

_NO_BOUND: Final = 2**62


def reading_settings(connection: Connection, environ: Mapping[str, str], files: Files) -> AdminSettings:
    """For the client that asks brokers and pulls."""
    return AdminSettings(name_servers=connection.name_servers, **_client_options(connection, environ, files))


def producer_options(options: WriteOptions, environ: Mapping[str, str], files: Files) -> ProducerOptions:
    """For the producer of a sink, which decides itself what is sent again, and bounds what is on its way by batches."""
    return ProducerOptions(
        **_client_options(options.connection, environ, files),  # type: ignore[typeddict-item]
        group=options.group,
        send_timeout_ms=options.send_timeout_ms,
        retries=0,
        max_in_flight_messages=_NO_BOUND,
        max_in_flight_bytes=_NO_BOUND,
    )


def _client_options(connection: Connection, environ: Mapping[str, str], files: Files) -> ClientOptions:
    return ClientOptions(
        namespace=connection.namespace,
        credentials=_credentials(connection, environ, files),
        tls=_tls(connection),
        client_ip=connection.client_ip,
        instance_name=connection.instance_name or DEFAULT_INSTANCE,
        call_timeout_ms=connection.call_timeout_ms,
        connect_timeout_ms=connection.connect_timeout_ms,
    )


def _credentials(connection: Connection, environ: Mapping[str, str], files: Files) -> Credentials | None:
    if connection.access_key is None or connection.secret_key is None:
        return None
    token = connection.security_token
    return Credentials(
        connection.access_key.read(environ, files),
        connection.secret_key.read(environ, files),
        None if token is None else token.read(environ, files),
    )


def _tls(connection: Connection) -> bool | SSLContext:
    if not connection.tls:
        return False
    return client_context(
        connection.tls_ca_file,
        cert=connection.tls_cert_file,
        key=connection.tls_key_file,
        verify=connection.tls_verify,
    )


log = logging.getLogger("pocketmq.spark")

PULL_SPARE_S: Final = 5.0
"""What a pull may take beyond the time that an answer may take: the largest ones are megabytes."""

C = TypeVar("C", bound=Core)
T = TypeVar("T")


class ReadingCore:
    """Asks brokers, and pulls, as one client of the cluster."""

    def __init__(self, settings: AdminSettings) -> None:
        self._settings = settings
        self._lines = connections_for_pulls(SystemClock(), connect_s=settings.connect_timeout_ms / 1000)
        self._pulls: dict[tuple[str, int], Pulling] = {}

    @cached_property
    def reach(self) -> Reach:
        """How the cluster is asked; joins it on the loop of the first use, which is that of `start`."""
        return Reach(Instance.join(self._settings), self._settings)

    async def start(self) -> None:
        _ = self.reach

    async def stop(self) -> None:
        self._lines.close()
        await self.reach.instance.leave()

    def puller(self, group: str) -> "GroupPuller":
        return GroupPuller(self, self.reach.group(group))

    async def bounds(self, queue: MessageQueue) -> Bounds:
        """What a queue holds, by its master."""
        wire_queue = self.reach.wire_queue(queue)
        await self.reach.instance.routes.find(wire_queue.topic)
        low = await self.reach.brokers.offsets.smallest(wire_queue)
        # Asked second: a queue that was emptied in between ends where it begins, never before.
        return Bounds(low, max(low, await self.reach.brokers.offsets.largest(wire_queue)))

    async def direct_pulls(self, group: str, topics: Collection[str], max_bytes: int) -> DirectPulls | None:
        """For a thread that pulls these topics by itself; None where lines are encrypted, which only the loop does."""
        if self._settings.tls is not False:
            return None
        for topic in topics:
            await self.reach.instance.routes.find(self.reach.topic(topic))
        pulls = self.pulling(self.reach.group(group), max_bytes)
        return DirectPulls(pulls, self._lines, timeout_s=self.pull_timeout_s)

    @property
    def pull_timeout_s(self) -> float:
        return self._settings.call_timeout_ms / 1000 + PULL_SPARE_S

    def pulling(self, group: str, max_bytes: int) -> Pulling:
        pulls = self._pulls.get((group, max_bytes))
        if pulls is None:
            pulls = self._pulls[group, max_bytes] = Pulling(
                self.reach.instance, group, flags=PullFlag.SUBSCRIPTION, max_bytes=max_bytes, wait_ms=0
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
        """A group that an administrator reset is sent elsewhere, once. A task reads its range all the same: such an answer does not
        lead on.
        """
        core, wire_queue = self._core, self._core.reach.wire_queue(queue)
        pulls = core.pulling(self._group, max_bytes)
        await core.reach.instance.routes.find(wire_queue.topic)
        pulled = await pulls.pull_records(wire_queue, offset, subscription, max_messages, timeout_s=core.pull_timeout_s)
        told = pulled.header
        next_offset = offset if pulled.code == ResponseCode.PULL_OFFSET_MOVED else told.next_begin_offset
        is_past = subscription.takes_all and passes_over(pulled.code, pulled.records, offset)
        bounds = Bounds(told.min_offset, told.max_offset)
        return Answer(pulled.records, next_offset, bounds, is_past, is_hole(pulled.code, next_offset, offset))

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
        self._lock = threading.Lock()  # guards the two below and counts of users; taken first, before BlockingClient's
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
