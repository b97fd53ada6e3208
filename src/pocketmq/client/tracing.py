"""Tracing: what happens to messages, written to the trace topic in RocketMQ's own records, where `mqadmin` and consoles find it.

    hooks ──► a record for each message ──► trace batches ── 20 of them, or 5 s ──► messages to RMQ_SYS_TRACE_TOPIC

A tracer has a client of its own, as Java's has, so that traces never stand in the way of messages; all tracers of a loop share
it. When traces come faster than they go they are dropped and counted: watching never makes anybody wait.
"""

import itertools
import logging
from collections.abc import Sequence
from enum import StrEnum

from pocketmq.client.hooks import ConsumeEvent, DecisionEvent, HookList, Hooks, SendEvent
from pocketmq.client.instance import Instance, Surroundings
from pocketmq.client.outgoing import Packer
from pocketmq.client.results import SendResult, split_result
from pocketmq.client.room import Room
from pocketmq.client.sending import Sender
from pocketmq.client.settings import ClientSettings, ProducerSettings
from pocketmq.client.trace_batches import TraceBatches, TraceContext
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError
from pocketmq.model import properties as names
from pocketmq.model.flags import TransactionState
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.message_id import UniqueIds
from pocketmq.model.names import MAX_GROUP_CHARS, TRACE_GROUP_PREFIX
from pocketmq.net.peer import Peer
from pocketmq.net.repeating import Repeating
from pocketmq.protocol.api.transactions import CheckTransactionState
from pocketmq.protocol.trace_text import (
    Decision,
    EndTransaction,
    Outcome,
    Pub,
    SubAfter,
    SubBefore,
    Trace,
    TracedType,
)

log = logging.getLogger("pocketmq.client")

LOOK_S = 0.5
"""How often it is looked whether there is something to send."""
INSTANCE_PREFIX = "PID_CLIENT_INNER_TRACE_PRODUCER_"
_DECISIONS = {
    TransactionState.COMMIT: Decision.COMMIT,
    TransactionState.ROLLBACK: Decision.ROLLBACK,
    TransactionState.UNKNOWN: Decision.UNKNOWN,
}
_REQUEST_ID = "trace request id"
_numbers = itertools.count(1)


class Traced(StrEnum):
    """Whose messages are traced; the word stands in the group of the tracer."""

    SENDS = "PRODUCE"
    CONSUMPTION = "CONSUME"


class Tracer(Hooks):
    """Writes traces for one producer or consumer. Give it to its hooks, start it before and stop it after."""

    def __init__(self, settings: ClientSettings, group: str, traced: Traced, around: Surroundings) -> None:
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
        self._around = around
        self._clock: Clock = around.clock
        self._batches = TraceBatches(self._clock.monotonic(), max_waiting=settings.max_waiting_traces)
        self._instance: Instance | None = None
        self._ids: UniqueIds | None = None
        self._round = Repeating("tracing", LOOK_S, self._send_due, log)
        self._complaint = ""

    @property
    def dropped(self) -> int:
        """Traces for which there was no room."""
        return self._batches.dropped

    # the life of a member

    @property
    def wire_group(self) -> str:
        return self._settings.group

    @property
    def decides_transactions(self) -> bool:
        return False

    def topic_forgotten(self, topic: str) -> None:
        """Nothing is kept."""

    def check_transaction(
        self, peer: Peer, header: CheckTransactionState, message: StoredMessage, broker_name: str | None
    ) -> None:
        """Nobody asks a tracer."""

    def start(self) -> None:
        instance = Instance.join(self._settings, self._around)
        self._instance, self._ids = instance, instance.unique_ids
        self._packer = Packer(self._settings, instance.unique_ids, self._clock)
        self._sender = Sender(instance, self._settings, HookList(), Room(1, 1))
        instance.add_producer(self)
        self._round.start()

    async def stop(self) -> None:
        """Send what waits, as far as it goes. Harmless when done twice."""
        instance, self._instance = self._instance, None
        if instance is None:
            return
        await self._round.stop()
        while len(self._batches) and await self._send_some():
            pass
        await instance.remove_producer(self)
        await instance.leave()

    # what is traced

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
        assert self._ids is not None, "a tracer is started before what it traces"
        messages = _traced(event)
        request_id = event.notes[_REQUEST_ID] = self._ids.next(event.started_ms)
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
                request_id=event.notes[_REQUEST_ID],
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

    # how it gets there

    async def _send_due(self) -> None:
        while self._batches.is_due(self._clock.monotonic()):
            await self._send_some()

    async def _send_some(self) -> bool:
        """Whether it went well; what could not be sent is dropped."""
        for traces in self._batches.take(self._clock.monotonic()):
            message = Message(traces.topic, traces.body, keys=traces.keys)
            try:
                await self._sender.deliver(self._packer.pack(message))
            except PocketMQError as error:
                self._complain(error)
                return False
        return True

    def _complain(self, error: PocketMQError) -> None:
        complaint = type(error).__name__
        if complaint != self._complaint:
            self._complaint = complaint
            log.warning("traces cannot be sent, and are dropped: %s", error)


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
