"""Where the messages of kombu's queues come from, for `pocketmq.integrations.celery`.

WorkQueue        leases the messages of a topic; all workers of the queue share them
BroadcastQueue   reads the messages of an exchange from the broadcast topic
Reader           a thread that takes messages from one of them while its channel has capacity
"""

import re
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from logging import getLogger
from threading import Condition, Thread
from typing import Any, Final, NamedTuple, Protocol
from uuid import uuid4

from kombu.utils.json import dumps, loads

from pocketmq.client import Admin, LitePullConsumer, OffsetStore, Producer, SimpleConsumer
from pocketmq.clock import SystemClock
from pocketmq.errors import ImpossibleRequest, LeaseLost, NoPermission, PocketMQError, WrongState
from pocketmq.model import Message, MessageQueue, StoredMessage

log = getLogger("pocketmq.celery")

BROADCAST_TOPIC: Final = "kombu-broadcast"
DIRECT: Final = "direct"
"""Stands for the exchange without a name."""
QUEUES: Final = 8
"""Queues of the topic of a queue of tasks, for each broker."""
WAIT_S: Final = 5.0
"""How long a request waits for messages."""
AT_ONCE: Final = 32
"""Messages of one request."""
LONGEST_DELAY_MS: Final = 3 * 86_400_000 - 60_000
"""The limit of brokers (`timerMaxDelaySec`). A task that is due later is sent again when this time is over."""
TOO_EARLY_MS: Final = 1_000
MISSING_S: Final = 10.0
"""How long a topic that is missing is not looked up again."""
OPTIONS: Final[Mapping[str, Any]] = {
    "name_servers": None,
    "visibility_timeout": 60,
    "max_run_s": 12 * 3600,
    "prefix": "",
    "client": {},
}
"""`broker_transport_options` and their defaults."""


class Arrived(NamedTuple):
    """A received message. `settle` acknowledges it, or with True gives it back."""

    payload: dict[str, Any]
    settle: Callable[[bool], None] | None


class Source(Protocol):
    """What a reader reads."""

    def take(self, limit: int, wait_s: float) -> list[Arrived]: ...

    def stop(self) -> None: ...


class Changes:
    """Wakes threads when a message arrived, or a channel has capacity."""

    def __init__(self) -> None:
        self._condition = Condition()
        self.count = 0

    def notify(self) -> None:
        with self._condition:
            self.count += 1
            self._condition.notify_all()

    def wait(self, since: int, timeout_s: float) -> None:
        """Return when there was a change after the count `since`, or after the time."""
        with self._condition:
            self._condition.wait_for(lambda: self.count != since, timeout_s)


class Servers:
    """The clients of one connection, and the names of topics and groups."""

    def __init__(self, address: str | None, given: dict[str, Any], client: dict[str, Any]) -> None:
        options = {**OPTIONS, **given}
        self.clock = SystemClock()
        self.lease_ms = round(options["visibility_timeout"] * 1000)
        self.max_run_ms = round(options["max_run_s"] * 1000)
        self._prefix = options["prefix"]
        self.client = {"name_servers": options["name_servers"] or address, **client, **options["client"]}
        self._producer: Producer | None = None
        self._known: set[str] = set()
        self._missing: dict[str, float] = {}
        """Until when a topic counts as missing, in monotonic seconds."""

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(**self.client)
            self._producer.start()
        return self._producer

    def name(self, text: str) -> str:
        """A topic or group. Characters that RocketMQ does not allow become `_` and their number: `a.b` is `a_2Eb`."""
        return re.sub(r"[^A-Za-z0-9_-]", lambda found: f"_{ord(found[0]):02X}", self._prefix + text)

    def check(self) -> None:
        """NetworkError if no name server answers."""
        with Admin(**self.client) as admin:
            admin.cluster.brokers()

    def exists(self, topic: str) -> bool:
        """Whether the topic exists. Known ones are not looked up again, and missing ones not for a while: each result of a task
        is for a queue without a topic.
        """
        now = self.clock.monotonic()
        if topic not in self._known and self._missing.get(topic, now) <= now:
            with Admin(**self.client) as admin:
                if topic in admin.topics.names():
                    self._known.add(topic)
            self._missing = {known: end for known, end in self._missing.items() if end > now}
            self._missing[topic] = now + MISSING_S
        return topic in self._known

    def create(self, topic: str, queues: int) -> None:
        """Create a topic, unless it exists. Without the permission, the first message creates it."""
        if topic in self._known:
            return
        with Admin(**self.client) as admin, suppress(NoPermission, ImpossibleRequest):  # another process was faster
            if topic not in admin.topics.names():
                admin.topics.create(topic, queues=queues)
        self._known.add(topic)

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.stop()


class WorkQueue:
    """Leases the messages of a queue. All workers of the queue are members of one group."""

    def __init__(self, servers: Servers, queue: str) -> None:
        self._servers = servers
        self._topic = servers.name(queue)
        self._late: deque[tuple[StoredMessage, float | None]] = deque()
        """What a broker that was away does not know yet: done (None), or the seconds until the message returns."""
        servers.create(self._topic, QUEUES)
        self._consumer = SimpleConsumer(
            group=self._topic,
            instance_name=uuid4().hex,  # several connections of a process may read a queue
            start_at="first",
            invisible_ms=servers.lease_ms,
            max_hold_ms=max(servers.max_run_ms, servers.lease_ms),
            auto_renew=True,
            **servers.client,
        )
        self._consumer.subscribe(self._topic)
        self._consumer.start()

    def take(self, limit: int, wait_s: float) -> list[Arrived]:
        self._settle_late()
        received = self._consumer.receive(min(limit, AT_ONCE), wait_s=wait_s)
        return [arrived for message in received if (arrived := self._arrived(message)) is not None]

    def _arrived(self, message: StoredMessage) -> Arrived | None:
        """A task that is due. One that nothing can read returns after its lease, and is a dead letter after the last attempt."""
        try:
            payload = _payload(message.body)
            due_ms = _due_ms(payload)
        except ValueError as error:
            log.error(
                "message %s of topic %s is not one of kombu (%s); it returns, and is a dead letter after its last attempt",
                message.message_id,
                message.topic,
                error,
            )
            self._settle(message, self._servers.lease_ms / 1000)
            return None
        if due_ms is not None and due_ms > self._servers.clock.now_ms() + TOO_EARLY_MS:
            self._send_again(message, payload)
            return None
        payload["properties"]["delivery_info"]["redelivered"] = message.reconsume_times > 0
        return Arrived(payload, lambda give_back: self._settle(message, 0 if give_back else None))

    def _send_again(self, message: StoredMessage, payload: dict[str, Any]) -> None:
        """Brokers keep messages for a limited time, and this one is due after it."""
        try:
            self._servers.producer.send(timed(self._topic, payload, self._servers.clock.now_ms()))
        except PocketMQError as error:
            log.warning("cannot send task %s, which is due later, again: %s; retrying", message.message_id, error)
            self._settle(message, self._servers.lease_ms / 1000)
        else:
            self._settle(message, None)

    def _settle(self, message: StoredMessage, returns_s: float | None) -> None:
        """Acknowledge a message, or let it return after so many seconds; later, if the broker is away."""
        try:
            if returns_s is None:
                self._consumer.ack(message)
            else:
                self._consumer.change_invisible(message, returns_s)
        except LeaseLost as error:
            log.warning("a task ran longer than its lease, and may run again: %s", error)
        except PocketMQError as error:
            log.warning("cannot acknowledge or return message %s: %s; retrying", message.message_id, error)
            self._late.append((message, returns_s))

    def _settle_late(self) -> None:
        """Before others are received, so that a task that is done does not run again when its broker is back."""
        for _ in range(len(self._late)):
            self._settle(*self._late.popleft())

    def stop(self) -> None:
        self._settle_late()
        self._consumer.stop()


class NoOffsets(OffsetStore):
    """A queue that ends with its connection begins at the end of the topic, each time."""

    async def load(self, queue: MessageQueue) -> int | None:
        return None

    async def save(self, offsets: Any, *, wait: bool) -> None:
        """There is nothing to keep."""


class BroadcastQueue:
    """Reads the messages of an exchange from the broadcast topic. Members of a group have the same subscription, so each exchange
    has its own group.
    """

    def __init__(self, servers: Servers, exchange: str, matches: Callable[[str], bool]) -> None:
        self._matches = matches
        topic = servers.name(BROADCAST_TOPIC)
        servers.create(topic, 1)
        self._consumer = LitePullConsumer(
            group=f"{topic}-{servers.name(exchange or DIRECT)}",
            broadcast=True,
            offset_store=NoOffsets(),
            instance_name=uuid4().hex,
            start_at="last",
            **servers.client,
        )
        self._consumer.subscribe(topic, tags=exchange or DIRECT)
        self._consumer.start()

    def take(self, limit: int, wait_s: float) -> list[Arrived]:
        found = []
        for message in self._consumer.poll(wait_s):
            try:
                payload = _payload(message.body)
            except ValueError as error:
                log.error(
                    "skipped message %s of topic %s: not one of kombu (%s)", message.message_id, message.topic, error
                )
                continue
            if self._matches(_routing_key(payload)):
                found.append(Arrived(payload, None))
        return found

    def stop(self) -> None:
        self._consumer.stop()


def _payload(body: bytes) -> dict[str, Any]:
    """The message of kombu in a body. ValueError if it is something else."""
    payload = loads(body.decode())
    if not isinstance(payload, dict) or not isinstance(payload.get("body"), str):
        raise ValueError("it has no body of kombu")
    properties = payload.get("properties")
    if not isinstance(properties, dict) or not isinstance(properties.get("delivery_info"), dict):
        raise ValueError("it has no delivery_info")
    encoding = properties.get("body_encoding")
    if encoding not in (None, "", "base64"):
        raise ValueError(f"its body has the unknown encoding {encoding!r}")
    if encoding:
        b64decode(payload["body"])
    if not isinstance(payload.get("headers") or {}, dict):
        raise ValueError("its headers are not an object")
    return payload


def _routing_key(payload: dict[str, Any]) -> str:
    return str(payload["properties"]["delivery_info"].get("routing_key") or "")


def _due_ms(payload: dict[str, Any]) -> int | None:
    """The time of a task with an ETA."""
    eta = (payload.get("headers") or {}).get("eta")
    if not isinstance(eta, str):
        return None
    due = datetime.fromisoformat(eta)
    return round((due if due.tzinfo else due.replace(tzinfo=UTC)).timestamp() * 1000)


def timed(topic: str, payload: dict[str, Any], now_ms: int) -> Message:
    """The message of a payload, delivered at its ETA."""
    due_ms = _due_ms(payload)
    at_ms = None if due_ms is None or due_ms <= now_ms else min(due_ms, now_ms + LONGEST_DELAY_MS)
    task_id = (payload.get("headers") or {}).get("id")
    return Message(topic, dumps(payload), keys=task_id or (), deliver_at_ms=at_ms)


class Reader:
    """A thread that takes messages from a source while the channel has capacity for them. Below 0, it does not want any."""

    def __init__(self, source: Source, changes: Changes, capacity: Callable[[], int]) -> None:
        self.waiting: deque[Arrived] = deque()
        self._source = source
        self._changes = changes
        self._capacity = capacity
        self._is_stopped = False
        Thread(target=self._read, name="pocketmq kombu reader", daemon=True).start()

    def _read(self) -> None:
        while not self._is_stopped:
            since, capacity = self._changes.count, self._capacity()
            if self.waiting or capacity <= 0:
                self._changes.wait(since, WAIT_S)
                continue
            try:
                found = self._source.take(min(capacity, AT_ONCE), WAIT_S)
            except WrongState:
                return  # it was stopped meanwhile
            except PocketMQError as error:
                log.warning("cannot receive: %s; retrying", error)
                self._changes.wait(since, 1.0)
                continue
            if self._capacity() < 0:
                give_back(each.settle for each in found)  # its consumer was cancelled meanwhile
            elif found:
                self.waiting.extend(found)
                self._changes.notify()

    def stop(self) -> None:
        """Stop, and give back what the channel has not delivered. Acknowledge before what it has delivered."""
        self._is_stopped = True
        self._changes.notify()
        self.release()
        self._source.stop()

    def release(self) -> None:
        """Give back the waiting messages."""
        waiting = []
        while self.waiting:
            waiting.append(self.waiting.popleft())
        give_back(each.settle for each in waiting)


def give_back(settling: Iterable[Callable[[bool], None] | None]) -> None:
    """End the leases of messages at once. Where that fails, they end by themselves."""
    for settle in settling:
        if settle is not None:
            with suppress(PocketMQError):
                settle(True)
