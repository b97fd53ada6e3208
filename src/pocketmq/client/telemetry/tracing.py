"""Message traces in RocketMQ's format, which clients send to the trace topic for `mqadmin` and the console.

    one send, or one call of a listener ── hooks ──► TraceContext: its records ──► TraceBatches, at most 2048
                                                                                        │ 20 contexts, or 5 s
                 RMQ_SYS_TRACE_TOPIC ◄── one message for each topic, ≤ 128,000 bytes, keys ≤ 16 KiB

A trace message has the ids and keys of the messages it describes as its keys. A tracer has a client of its own, as in Java, so that
traces do not delay messages; all tracers of an event loop share it. When traces arrive faster than they are sent, new ones are
dropped and counted.
"""

import itertools
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from pocketmq.client.cluster.heartbeats import ProducerMember
from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.client.hooks import ConsumeEvent, DecisionEvent, Hooks, SendEvent
from pocketmq.client.producer.outbox import Outbox
from pocketmq.client.producer.results import SendResult, split_result
from pocketmq.client.settings import ClientSettings, ProducerSettings
from pocketmq.codes import TransactionState
from pocketmq.errors import PocketMQError
from pocketmq.model import Message, StoredMessage
from pocketmq.model import properties as names
from pocketmq.model.names import MAX_GROUP_CHARS, TRACE_GROUP_PREFIX, TRACE_TOPIC
from pocketmq.model.properties import KEY_SEPARATOR
from pocketmq.net import Repeating
from pocketmq.protocol.trace_text import (
    Decision,
    EndTransaction,
    Outcome,
    Pub,
    SubAfter,
    SubBefore,
    Trace,
    TracedType,
    encode_trace,
    trace_keys,
)

MAX_CONTEXTS: Final = 20
"""The number of contexts that are sent together."""
MAX_BODY_BYTES: Final = 128_000
MAX_KEYS_BYTES: Final = 16 * 1024
"""The limit for all properties of a message is 32 KiB."""
MAX_WAITING: Final = 2_048
FLUSH_SECONDS: Final = 5.0


class TraceContext(NamedTuple):
    """One send, or one call of a listener, with a record for each message."""

    topic: str
    """The topic of the traced messages."""
    records: Sequence[Trace]
    trace_topic: str = TRACE_TOPIC


class TraceMessage(NamedTuple):
    """A message for the trace topic."""

    topic: str
    body: bytes
    keys: str


class TraceBatches:
    """Contexts that wait to be sent, up to a limit. `dropped` counts the others. Times are monotonic seconds."""

    def __init__(self, now: float, *, max_waiting: int = MAX_WAITING) -> None:
        self._waiting: deque[TraceContext] = deque()
        self._max_waiting = max_waiting
        self._last_flush = now
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, context: TraceContext) -> bool:
        """Add a context; False if the limit is reached and it is dropped."""
        if len(self._waiting) >= self._max_waiting:
            self.dropped += 1
            return False
        if context.records:
            self._waiting.append(context)
        return True

    def is_due(self, now: float) -> bool:
        return len(self._waiting) >= MAX_CONTEXTS or (bool(self._waiting) and now >= self._last_flush + FLUSH_SECONDS)

    def take(self, now: float) -> list[TraceMessage]:
        """Remove the oldest contexts, at most 20, and return their messages."""
        self._last_flush = now
        count = min(MAX_CONTEXTS, len(self._waiting))
        return list(trace_messages([self._waiting.popleft() for _ in range(count)]))


def trace_messages(contexts: Sequence[TraceContext]) -> Iterator[TraceMessage]:
    """The trace messages of contexts, by topic."""
    by_topic: dict[tuple[str, str], list[Trace]] = {}
    for context in contexts:
        by_topic.setdefault((context.topic, context.trace_topic), []).extend(context.records)
    for (_, trace_topic), records in by_topic.items():
        yield from _split(trace_topic, records)


def _split(topic: str, records: Sequence[Trace]) -> Iterator[TraceMessage]:
    """Messages up to the limits of size. A record above them gets a message of its own."""
    draft = _Draft()
    for record in records:
        text = encode_trace((record,))
        keys = trace_keys((record,))
        if not draft.fits(text, keys):
            yield draft.message(topic)
            draft = _Draft()
        draft.add(text, keys)
    if draft.texts:
        yield draft.message(topic)


class _Draft:
    """A trace message to which records are added."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._body_bytes = 0
        self._keys: dict[str, None] = {}
        self._keys_bytes = 0

    def fits(self, text: bytes, keys: Sequence[str]) -> bool:
        if not self.texts:
            return True
        grown = self._keys_bytes + sum(_key_bytes(key) for key in keys if key not in self._keys)
        return self._body_bytes + len(text) <= MAX_BODY_BYTES and grown <= MAX_KEYS_BYTES

    def add(self, text: bytes, keys: Sequence[str]) -> None:
        """Add a record, with the keys up to the limit: a single record may exceed it."""
        self.texts.append(text)
        self._body_bytes += len(text)
        for key in keys:
            size = _key_bytes(key)
            if key not in self._keys and self._keys_bytes + size <= MAX_KEYS_BYTES:
                self._keys[key] = None
                self._keys_bytes += size

    def message(self, topic: str) -> TraceMessage:
        return TraceMessage(topic, b"".join(self.texts), KEY_SEPARATOR.join(self._keys))


def _key_bytes(key: str) -> int:
    return len(key.encode()) + len(KEY_SEPARATOR)


log = logging.getLogger("pocketmq.client")

CHECK_S = 0.5
"""The interval of checks for due contexts."""
INSTANCE_PREFIX = "PID_CLIENT_INNER_TRACE_PRODUCER_"
_DECISIONS = {
    TransactionState.COMMIT: Decision.COMMIT,
    TransactionState.ROLLBACK: Decision.ROLLBACK,
    TransactionState.UNKNOWN: Decision.UNKNOWN,
}
_REQUEST_ID = "trace request id"
_numbers = itertools.count(1)


class Traced(StrEnum):
    """The kind of traced client. The value is a part of the group of the tracer."""

    SENDS = "PRODUCE"
    CONSUMPTION = "CONSUME"


class Tracer(Hooks, ProducerMember):
    """Sends traces of one producer or consumer. It is a hook of that client; start it before the client, and stop it after."""

    def __init__(self, settings: ClientSettings, group: str, traced: Traced, dependencies: Dependencies) -> None:
        name = f"{TRACE_GROUP_PREFIX}-{group}-{traced}-{next(_numbers)}"
        self._settings = ProducerSettings(
            name_servers=settings.name_servers,
            credentials=settings.credentials,
            tls=settings.tls,
            client_ip=settings.client_ip,
            call_timeout_ms=settings.call_timeout_ms,
            connect_timeout_ms=settings.connect_timeout_ms,
            heartbeat_ms=settings.heartbeat_ms,
            route_poll_ms=settings.route_poll_ms,
            stop_timeout_ms=settings.stop_timeout_ms,
            instance_name=INSTANCE_PREFIX + _joined(settings.name_servers),
            group=name[-MAX_GROUP_CHARS:],
        )
        self._topic = settings.trace_topic
        self._dependencies = dependencies
        self._clock = dependencies.clock
        self._batches = TraceBatches(self._clock.monotonic(), max_waiting=settings.max_waiting_traces)
        self._instance: Instance | None = None
        self._outbox: Outbox | None = None
        self._round = Repeating("tracing", CHECK_S, self._send_due, log)
        self._logged_error = ""

    @property
    def dropped(self) -> int:
        """The number of dropped contexts."""
        return self._batches.dropped

    @property
    def wire_group(self) -> str:
        return self._settings.group

    def start(self) -> None:
        instance = self._instance = Instance.join(self._settings, self._dependencies)
        self._outbox = Outbox(instance, self._settings)
        instance.add_producer(self)
        self._round.start()

    async def stop(self) -> None:
        """Send the waiting contexts until an error, and leave the cluster. May be called twice."""
        instance, self._instance = self._instance, None
        if instance is None:
            return
        await self._round.stop()
        while len(self._batches) and await self._send_some():
            pass
        await instance.remove_producer(self)
        await instance.leave()

    # hooks

    def after_send(self, event: SendEvent) -> None:
        result = event.result
        if result is None or not result.trace_on:
            return
        cost_ms = int(event.cost_ms / len(event.messages))
        results = [result] if len(event.messages) == 1 else split_result(result, event.message_ids)
        records = [_pub(event, message, own, cost_ms) for message, own in zip(event.messages, results, strict=True)]
        self._batches.add(TraceContext(event.queue.topic, records, self._topic))

    def after_decision(self, event: DecisionEvent) -> None:
        record = EndTransaction(
            time_ms=event.at_ms,
            region=None,
            group=event.group,
            topic=event.topic,
            message_id=event.message_id,
            tags=event.message.tags,
            keys=" ".join(event.message.keys),
            store_host=event.address,
            message_type=TracedType.COMMITTED,
            transaction_id=event.transaction_id,
            decision=_DECISIONS[event.state],
            from_check=event.from_check,
        )
        self._batches.add(TraceContext(event.topic, [record], self._topic))

    def before_consume(self, event: ConsumeEvent) -> None:
        assert self._instance is not None, "a tracer is started before its client"
        messages = _traced(event)
        request_id = event.context[_REQUEST_ID] = self._instance.unique_ids.next(event.started_ms)
        records: Sequence[Trace] = [
            SubBefore(
                time_ms=event.started_ms,
                region=message.properties.get(names.REGION),
                group=event.group,
                request_id=request_id,
                message_id=message.message_id,
                retry_times=message.reconsume_times,
                keys=" ".join(message.keys),
            )
            for message in messages
        ]
        self._batches.add(TraceContext(event.queue.topic, records, self._topic))

    def after_consume(self, event: ConsumeEvent) -> None:
        messages = _traced(event)
        outcome = Outcome.SUCCESS if event.outcome is None else event.outcome
        records: Sequence[Trace] = [
            SubAfter(
                request_id=event.context[_REQUEST_ID],
                message_id=message.message_id,
                cost_ms=int(event.cost_ms / len(messages)),
                success=outcome is Outcome.SUCCESS,
                keys=" ".join(message.keys),
                outcome=outcome,
                time_ms=self._clock.now_ms(),
                group=event.group,
            )
            for message in messages
        ]
        self._batches.add(TraceContext(event.queue.topic, records, self._topic))

    # sending

    async def _send_due(self) -> None:
        while self._batches.is_due(self._clock.monotonic()):
            await self._send_some()

    async def _send_some(self) -> bool:
        """Send one batch. After an error, False: the rest of the batch is dropped."""
        assert self._outbox is not None, "made by the start"
        for traces in self._batches.take(self._clock.monotonic()):
            message = Message(traces.topic, traces.body, keys=traces.keys)
            try:
                await self._outbox.deliver(self._outbox.packer.pack(message))
            except PocketMQError as error:
                self._log_once(error)
                return False
        return True

    def _log_once(self, error: PocketMQError) -> None:
        name = type(error).__name__
        if name != self._logged_error:
            self._logged_error = name
            log.warning("Sending message traces failed; they are dropped until it succeeds: %s", error)


def _pub(event: SendEvent, message: Message, result: SendResult, cost_ms: int) -> Pub:
    return Pub(
        time_ms=event.started_ms,
        region=result.region,
        group=event.group,
        topic=result.queue.topic,
        message_id=result.message_id,
        tags=message.tags,
        keys=message.properties.get(names.KEYS, ""),
        store_host=event.address,
        body_bytes=event.body_bytes if len(event.messages) == 1 else len(message.body),
        cost_ms=cost_ms,
        message_type=event.kind,
        offset_id=result.offset_id,
        success=True,
    )


def _traced(event: ConsumeEvent) -> list[StoredMessage]:
    return [message for message in event.messages if message.properties.get(names.TRACE_ON) != "false"]


def _joined(name_servers: str | Sequence[str] | None) -> str:
    if name_servers is None:
        return ""
    return name_servers if isinstance(name_servers, str) else ";".join(name_servers)
