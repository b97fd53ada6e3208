"""One client per cluster in each process of Spark, kept between tasks.

    task ── borrow ──► the client of this process ── return ──► kept ── unused for a while ──► closed

Workers are reused for many micro-batches, so tasks find open connections. A forked process starts with no clients: those of its
parent belong to the parent.

Client settings come from the options of a connection and from the secrets that only this process reads.
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

from pocketmq import system
from pocketmq.client.admin.targets import AdminSettings, Targets
from pocketmq.client.blocking import BlockingClient, Core
from pocketmq.client.cluster.instance import Instance
from pocketmq.client.consumer.direct_pulls import DirectPulls, connections_for_pulls
from pocketmq.client.consumer.pulling import Pulling
from pocketmq.client.received import is_hole, passes_over
from pocketmq.client.settings import DEFAULT_INSTANCE, ClientOptions, ProducerOptions
from pocketmq.clock import SystemClock
from pocketmq.codes import PullFlag, ResponseCode
from pocketmq.errors import PocketMQError, RemoteError, TopicNotFound, UsageError
from pocketmq.files import DiskFiles, Files
from pocketmq.model import MessageQueue, Subscription
from pocketmq.net.tls import client_context
from pocketmq.protocol.signing import Credentials
from pocketmq.spark.broker_facts import Answer, Bounds
from pocketmq.spark.options.connection_options import Connection
from pocketmq.spark.options.write_options import WriteOptions

_NO_BOUND: Final = 2**31 - 1
"""The largest that the options of a producer may be."""


def reading_settings(connection: Connection, environ: Mapping[str, str], files: Files) -> AdminSettings:
    """For the client that queries brokers and pulls."""
    return AdminSettings(name_servers=connection.name_servers, **_client_options(connection, environ, files))


def producer_options(options: WriteOptions, environ: Mapping[str, str], files: Files) -> ProducerOptions:
    """For the producer of a sink. The sink itself retries, and limits the batches in flight."""
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
"""Extra time for a pull, beyond the timeout of other requests: the largest responses have megabytes."""

C = TypeVar("C", bound=Core)
T = TypeVar("T")


class ReadingCore:
    """Queries brokers and pulls as one client of the cluster."""

    def __init__(self, settings: AdminSettings) -> None:
        self._settings = settings
        self._connections = connections_for_pulls(SystemClock(), connect_s=settings.connect_timeout_ms / 1000)
        self._pulls: dict[tuple[str, int], Pulling] = {}

    @cached_property
    def targets(self) -> Targets:
        """The requests to the cluster. The first use joins the cluster on the current event loop, that of `start`."""
        return Targets(Instance.join(self._settings), self._settings)

    async def start(self) -> None:
        _ = self.targets

    async def stop(self) -> None:
        self._connections.close()
        await self.targets.instance.leave()

    def puller(self, group: str) -> "GroupPuller":
        return GroupPuller(self, self.targets.group(group))

    async def bounds(self, queue: MessageQueue) -> Bounds:
        """The bounds of a queue at its master."""
        wire_queue = self.targets.wire_queue(queue)
        await self.targets.instance.routes.find(wire_queue.topic)
        low = await self.targets.brokers.offsets.smallest(wire_queue)
        # Requested second, so that a queue that was emptied in between ends where it begins, never before.
        return Bounds(low, max(low, await self.targets.brokers.offsets.largest(wire_queue)))

    async def is_deleted(self, queue: MessageQueue) -> bool:
        """Whether the broker of a queue does not have its topic. A deletion reaches brokers first, and name servers a moment later.
        False while the broker is away, or does not report it to this account.
        """
        targets = self.targets
        try:
            master = await targets.master(queue.broker_name)
            await targets.brokers.topics.config(master.address, targets.topic(queue.topic))
        except TopicNotFound:
            return True
        except UsageError:
            return False  # no such broker is registered now
        except RemoteError as error:
            if error.retriable:
                raise
            log.info(
                "Broker %s did not report whether it has topic %s: %s; assuming that it has it",
                queue.broker_name,
                queue.topic,
                error,
            )
        return False

    async def direct_pulls(self, group: str, topics: Collection[str], max_bytes: int) -> DirectPulls | None:
        """For a thread that pulls these topics itself; None for encrypted connections, which need the event loop."""
        if self._settings.tls is not False:
            return None
        for topic in topics:
            await self.targets.instance.routes.find(self.targets.topic(topic))
        pulls = self.pulling(self.targets.group(group), max_bytes)
        return DirectPulls(pulls, self._connections, timeout_s=self.pull_timeout_s)

    @property
    def pull_timeout_s(self) -> float:
        return self._settings.call_timeout_ms / 1000 + PULL_SPARE_S

    def pulling(self, group: str, max_bytes: int) -> Pulling:
        pulls = self._pulls.get((group, max_bytes))
        if pulls is None:
            pulls = self._pulls[group, max_bytes] = Pulling(
                self.targets.instance, group, flags=PullFlag.SUBSCRIPTION, max_bytes=max_bytes, wait_ms=0
            )
        return pulls


class GroupPuller:
    """Pulls as a consumer group; see `broker_facts.Puller`."""

    def __init__(self, core: ReadingCore, wire_group: str) -> None:
        self._core = core
        self._group = wire_group

    async def pull(
        self, queue: MessageQueue, offset: int, subscription: Subscription, max_messages: int, max_bytes: int
    ) -> Answer:
        """A response that redirects the group, because an administrator reset its offset, leaves the offset unchanged: a task
        reads its range all the same.
        """
        core, wire_queue = self._core, self._core.targets.wire_queue(queue)
        pulls = core.pulling(self._group, max_bytes)
        await core.targets.instance.routes.find(wire_queue.topic)
        pulled = await pulls.pull_records(wire_queue, offset, subscription, max_messages, timeout_s=core.pull_timeout_s)
        header = pulled.header
        next_offset = offset if pulled.code == ResponseCode.PULL_OFFSET_MOVED else header.next_begin_offset
        skips = subscription.matches_all and passes_over(pulled.code, pulled.records, offset)
        bounds = Bounds(header.min_offset, header.max_offset)
        return Answer(pulled.records, next_offset, bounds, skips, is_hole(pulled.code, next_offset, offset))

    async def bounds(self, queue: MessageQueue) -> Bounds:
        return await self._core.bounds(queue)

    async def is_deleted(self, queue: MessageQueue) -> bool:
        return await self._core.is_deleted(queue)


class SharedClient(BlockingClient[C]):
    """A client of this process, with the number of its users."""

    def __init__(self, make: Callable[[], C]) -> None:
        super().__init__(make, "connection of the Spark connector")
        self.users = 0
        self.closing: threading.Timer | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start `work` on the client's event loop."""
        return self._portal.submit(work)


class SharedClients(Generic[C]):
    """The clients of a process, by the options that they were created from."""

    def __init__(self, make: Callable[[Any], C]) -> None:
        self._make = make
        self._lock = (
            threading.Lock()
        )  # guards the two below and user counts; acquired before the lock of BlockingClient
        self._clients: dict[msgspec.Struct, SharedClient[C]] = {}
        self._clients_of_parent: list[object] = []
        system.after_fork_in_child(self._reset_after_fork)

    @contextmanager
    def borrow(self, key: msgspec.Struct, idle_timeout_ms: int) -> Iterator[SharedClient[C]]:
        """The client for `key`, started on first use, and kept for `idle_timeout_ms` after its last user. 0 closes it at once."""
        client = self._acquire(key)
        try:
            yield client
        finally:
            self._release(key, client, idle_timeout_ms)

    def __len__(self) -> int:
        return len(self._clients)

    def close_idle(self) -> None:
        """Close unused clients at once."""
        with self._lock:
            idle = [(key, client) for key, client in self._clients.items() if not client.users]
        for key, client in idle:
            self._close(key, client)

    def _acquire(self, key: msgspec.Struct) -> SharedClient[C]:
        with self._lock:
            client = self._clients.get(key)
            if client is None:
                client = SharedClient(lambda: self._make(key))
                client.start()
                self._clients[key] = client
            if client.closing is not None:
                client.closing.cancel()
                client.closing = None
            client.users += 1
            return client

    def _release(self, key: msgspec.Struct, client: SharedClient[C], idle_timeout_ms: int) -> None:
        with self._lock:
            client.users -= 1
            if client.users or self._clients.get(key) is not client:
                return
            if idle_timeout_ms:
                client.closing = threading.Timer(idle_timeout_ms / 1000, self._close, (key, client))
                client.closing.daemon = True
                client.closing.start()
                return
        self._close(key, client)

    def _close(self, key: msgspec.Struct, client: SharedClient[C]) -> None:
        with self._lock:
            if client.users or self._clients.get(key) is not client:
                return  # borrowed again in the meantime
            del self._clients[key]
            if client.closing is not None:
                client.closing.cancel()
        try:
            client.stop()
        except PocketMQError as error:
            log.warning("Closing an idle client failed: %s; it is not used again", error)

    def _reset_after_fork(self) -> None:
        """In a forked child. The lock may have been locked by a thread that the child does not have."""
        self._clients_of_parent.append(self._clients)  # never collected, which would close the parent's connections
        self._lock = threading.Lock()
        self._clients = {}


def _reading_core(connection: Connection) -> ReadingCore:
    return ReadingCore(reading_settings(connection, os.environ, DiskFiles()))


READING: Final = SharedClients(_reading_core)
"""By `Connection`."""
