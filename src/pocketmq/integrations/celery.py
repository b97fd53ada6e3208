"""Celery on RocketMQ: a transport for kombu. Importing this module makes the scheme `rocketmq://` known.

    import pocketmq.integrations.celery

    app = Celery("shop", broker="rocketmq://127.0.0.1:9876", backend="rpc://")

    queue of tasks              a topic; workers lease its messages (POP) and acknowledge them
    ETA, countdown              a timed message: no worker holds it before its time
    reject with requeue         the lease ends at once
    fanout, events, replies     the topic `kombu-broadcast`: each queue that ends with its connection reads it all, and
                                keeps what its bindings match

    publish ──► producer ──► topic ──► source: leases or broadcast ── reader thread ──► channel ── drain_events ──► callback

`rocketmq://KEY:SECRET@host:9876/NAMESPACE` signs requests, and puts all topics into a namespace.
"""

import re
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import Any, Final
from uuid import uuid4

from pocketmq.integrations import require

require("celery")

from kombu.transport import TRANSPORT_ALIASES, virtual  # noqa: E402
from kombu.utils.json import dumps  # noqa: E402

from pocketmq import __version__  # noqa: E402
from pocketmq.client import Credentials  # noqa: E402
from pocketmq.errors import NetworkError, UsageError  # noqa: E402
from pocketmq.integrations.kombu_queues import (  # noqa: E402
    AT_ONCE,
    BROADCAST_TOPIC,
    DIRECT,
    OPTIONS,
    QUEUES,
    WAIT_S,
    Arrived,
    BroadcastQueue,
    Changes,
    Reader,
    Servers,
    WorkQueue,
    give_back,
    timed,
)
from pocketmq.model import Message  # noqa: E402

GET_S: Final = 1.0
"""How long a message is looked for that no consumer waits for."""
OF_KOMBU: Final = {"max_retries", "interval_start", "interval_step", "interval_max", "interval_max_retry", "errback"}
OF_KOMBU_TOO: Final = {
    "confirm_publish",
    "polling_interval",
    "connect_retries_timeout",
    "client_properties",
    "wait_for_connection",
}


class QoS(virtual.QoS):  # type: ignore[misc]
    """Acknowledges leases. Messages that are not acknowledged at the end go to another worker at once."""

    def __init__(self, channel: "Channel", prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)
        self._settling: dict[str, Callable[[bool], None]] = {}

    def lease(self, delivery_tag: str, settle: Callable[[bool], None]) -> None:
        self._settling[delivery_tag] = settle

    def can_consume(self) -> bool:
        return not self.prefetch_count or len(self._settling) < self.prefetch_count

    def can_consume_max_estimate(self) -> int | None:
        """Leases count from the moment on that their messages leave the reader: it reads no message too many meanwhile."""
        return max(self.prefetch_count - len(self._settling), 0) if self.prefetch_count else None

    def ack(self, delivery_tag: str) -> None:
        self.settle(delivery_tag, give_back=False)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self.settle(delivery_tag, give_back=requeue)
        super().ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        self._flush()
        give_back(self._settling.values())
        self._settling.clear()
        self._delivered.clear()
        return []

    def settle(self, delivery_tag: str, *, give_back: bool) -> None:
        settle = self._settling.pop(delivery_tag, None)
        if settle is not None:
            settle(give_back)
        if self.channel.connection is not None:
            self.channel.connection.changes.notify()


class Channel(virtual.Channel):  # type: ignore[misc]
    """A channel of kombu: its queues, and what arrived for them."""

    QoS = QoS
    supports_fanout = True

    def __init__(self, connection: "Transport", **options: Any) -> None:
        super().__init__(connection, **options)
        self.servers = connection.servers
        self._readers: dict[str, list[Reader]] = {}
        self._without_ack: set[str] = set()
        """Queues whose messages are done when they are delivered."""
        self._work: dict[str, WorkQueue] = {}
        """Also of queues that are read without a consumer."""

    # queues

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        **options: Any,
    ) -> Any:
        """A queue that is exclusive or deleted with its connection reads broadcasts; any other is a topic."""
        name = queue or f"amq.gen-{uuid4()}"
        if exclusive or auto_delete or not durable:
            self.connection.private.setdefault(name, [])
            return super().queue_declare(name, passive=False)
        return super().queue_declare(name, passive=passive, **options)

    def _new_queue(self, queue: str, **options: Any) -> None:
        if queue not in self.connection.private:
            self.servers.create(self.servers.name(queue), QUEUES)

    def _has_queue(self, queue: str, **options: Any) -> bool:
        return queue in self.connection.private or self.servers.exists(self.servers.name(queue))

    def _queue_bind(self, exchange: str, routing_key: str, pattern: Any, queue: str) -> None:
        kind = self.state.exchanges[exchange]["type"]
        if queue in self.connection.private:
            match = {
                "fanout": lambda key: True,
                "direct": lambda key: key == routing_key,
                "topic": lambda key: re.match(pattern, key) is not None,
            }[kind]
            self._read_broadcast(queue, exchange, match)
        elif kind == "fanout":
            raise UsageError(
                f"queue {queue!r} is durable, but a fanout exchange ({exchange!r}) needs one that ends with its connection; "
                "declare it with auto_delete=True, as Celery's Broadcast does"
            )

    def _read_broadcast(self, queue: str, exchange: str, matches: Callable[[str], bool]) -> None:
        """Read an exchange for a queue from now on, also before there is a consumer."""
        sources = self.connection.private[queue]
        if exchange not in (known for known, _ in sources):
            source = BroadcastQueue(self.servers, exchange, matches)
            sources.append((exchange, Reader(source, self.connection.changes, lambda: AT_ONCE)))

    def _delete(self, queue: str, *bindings: Any, **options: Any) -> None:
        for _, reader in self.connection.private.pop(queue, ()):
            reader.stop()

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **options: Any) -> None:
        super().queue_delete(queue, if_unused, if_empty, **options)
        self._delete(queue)

    def _purge(self, queue: str) -> int:
        """Acknowledge all waiting messages of a queue. Those with a later ETA stay."""
        if queue in self.connection.private:
            return 0
        source, count = WorkQueue(self.servers, queue), 0
        try:
            while found := source.take(AT_ONCE, GET_S):
                for each in found:
                    if each.settle is not None:
                        each.settle(False)
                count += len(found)
        finally:
            source.stop()
        return count

    # publishing

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **options: Any) -> None:
        if message["properties"].get("priority"):
            raise UsageError(
                f"priority={message['properties']['priority']} is not possible: RocketMQ has no priorities; remove it, and route "
                "urgent tasks to a queue of their own"
            )
        self._inplace_augment_message(message, exchange, routing_key)
        queues = self._queues_of(exchange, routing_key)
        for queue in queues:
            self.servers.producer.send(timed(self.servers.name(queue), message, self.servers.clock.now_ms()))
        if not queues:
            topic = self.servers.name(BROADCAST_TOPIC)
            self.servers.create(topic, 1)
            self.servers.producer.send(Message(topic, dumps(message), tags=exchange or DIRECT))

    def _queues_of(self, exchange: str, routing_key: str) -> list[str]:
        """The queues of tasks that a message is for; none for a broadcast."""
        if not exchange:
            return [routing_key] if self._is_work_queue(routing_key) else []
        if exchange not in self.state.exchanges or self.state.exchanges[exchange]["type"] == "fanout":
            return []
        found = self.typeof(exchange).lookup(self.get_table(exchange), exchange, routing_key, None)
        return [queue for queue in found if queue not in self.connection.private]

    def _is_work_queue(self, queue: str) -> bool:
        """Whether a queue is a topic. Replies go to queues of other processes, which are not."""
        return queue not in self.connection.private and self.servers.exists(self.servers.name(queue))

    # consuming

    def basic_consume(self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **options: Any) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        (self._without_ack.add if no_ack else self._without_ack.discard)(queue)
        self._readers_of(queue)

    def _readers_of(self, queue: str) -> list[Reader]:
        """The readers of a queue, which start now if there are none. Without a binding, its own name is the routing key."""
        if queue in self.connection.private:
            if not self.connection.private[queue]:
                self._read_broadcast(queue, "", lambda key: key == queue)
            return [reader for _, reader in self.connection.private[queue]]
        if queue not in self._readers:
            source = self._work_queue(queue)
            self._readers[queue] = [Reader(source, self.connection.changes, partial(self._capacity, queue))]
        return self._readers[queue]

    def _capacity(self, queue: str) -> int:
        """How many messages of a queue may come; -1 if nothing consumes it."""
        if queue not in self._active_queues:
            return -1
        limit = self.qos.can_consume_max_estimate()
        return AT_ONCE if limit is None else int(limit)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        for reader in self._readers.get(queue or "", ()):
            reader.release()  # its consumer keeps the leases of messages that were delivered

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.connection.changes.notify()

    def drain_one(self) -> bool:
        """Deliver one waiting message, if there is one that the prefetch limit allows."""
        for queue in list(self._active_queues):
            if queue in self.connection.private or self.qos.can_consume():
                for reader in self._readers_of(queue):
                    if reader.waiting:
                        self._deliver_one(queue, reader)
                        return True
        return False

    def _deliver_one(self, queue: str, reader: Reader) -> None:
        payload = reader.waiting[0].payload
        tag = self._tag(reader.waiting[0])
        reader.waiting.popleft()  # after the lease counts
        if queue in self._without_ack:
            self.qos.settle(tag, give_back=False)
        self.connection.changes.notify()  # there may be capacity for others
        self.connection._deliver(payload, queue)

    def _tag(self, arrived: Arrived) -> str:
        """Each delivery has its own tag, also of the same message."""
        tag = arrived.payload["properties"]["delivery_tag"] = uuid4().hex
        if arrived.settle is not None:
            self.qos.lease(tag, arrived.settle)
        return tag

    def basic_get(self, queue: str, no_ack: bool = False, **options: Any) -> Any:
        message = super().basic_get(queue, no_ack, **options)
        if no_ack and message is not None:
            self.qos.settle(message.delivery_tag, give_back=False)
        return message

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """One message without a consumer, for `basic_get`."""
        arrived = self._next_private(queue) if queue in self.connection.private else self._next_leased(queue)
        if arrived is None:
            raise Empty
        self._tag(arrived)
        return arrived.payload

    def _next_leased(self, queue: str) -> Arrived | None:
        found = self._work_queue(queue).take(1, GET_S)
        return found[0] if found else None

    def _next_private(self, queue: str) -> Arrived | None:
        since, readers = self.connection.changes.count, self._readers_of(queue)
        if not any(reader.waiting for reader in readers):
            self.connection.changes.wait(since, GET_S)
        return next((reader.waiting.popleft() for reader in readers if reader.waiting), None)

    def _work_queue(self, queue: str) -> WorkQueue:
        if queue not in self._work:
            self._work[queue] = WorkQueue(self.servers, queue)
        return self._work[queue]

    def close(self) -> None:
        if not self.closed:
            for consumer_tag in list(self._consumers):
                self.basic_cancel(consumer_tag)
            self.qos.restore_unacked_once()
            for readers in self._readers.values():
                for reader in readers:
                    reader.stop()
            self._readers.clear()
            for source in self._work.values():
                source.stop()
            self._work.clear()
        super().close()


class Transport(virtual.Transport):  # type: ignore[misc]
    """A connection of kombu."""

    Channel = Channel
    default_port = 9876
    driver_type = "rocketmq"
    driver_name = "pocketmq"
    connection_errors = (*virtual.Transport.connection_errors, NetworkError)
    channel_errors = virtual.Transport.channel_errors
    implements = virtual.Transport.implements.extend(exchange_type=frozenset(["direct", "topic", "fanout"]))

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        given = dict(client.transport_options)
        self.servers = Servers(_address(client), _known_options(given), _client_options(client))
        self.changes = Changes()
        self.private: dict[str, list[tuple[str, Reader]]] = {}
        """Queues that end with the connection, with the exchanges that they read."""

    def driver_version(self) -> str:
        return __version__

    def establish_connection(self) -> Any:
        self.servers.check()
        return super().establish_connection()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        clock = self.servers.clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        while True:
            since = self.changes.count
            if any(channel.drain_one() for channel in list(self.channels)):
                return
            left_s = WAIT_S if deadline is None else deadline - clock.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self.changes.wait(since, min(left_s, WAIT_S))

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        for sources in list(self.private.values()):
            for _, reader in sources:
                reader.stop()
        self.private.clear()
        self.servers.close()


def _address(client: Any) -> str | None:
    return f"{client.hostname}:{client.port or Transport.default_port}" if client.hostname else None


def _known_options(given: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in given.items() if name not in OF_KOMBU | OF_KOMBU_TOO}
    for name in found:
        if name not in OPTIONS:
            raise UsageError(
                f"broker_transport_options has no {name!r} for RocketMQ; possible are {', '.join(OPTIONS)}"
            )
    return found


def _client_options(client: Any) -> dict[str, Any]:
    """Options of PocketMQ's clients from a URL and `broker_use_ssl`."""
    found: dict[str, Any] = {}
    if client.userid:
        found["credentials"] = Credentials(client.userid, client.password or "")
    if client.ssl:
        found["tls"] = client.ssl
    namespace = (client.virtual_host or "").strip("/")
    if namespace:
        found["namespace"] = namespace
    return found


TRANSPORT_ALIASES["rocketmq"] = f"{__name__}:Transport"
