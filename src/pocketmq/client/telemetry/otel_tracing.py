"""Traces for OpenTelemetry: needs the extra `otel`. The program configures the exporter.

    span of the caller ─► create ─┬─► send        each attempt
                                  │   properties traceparent, tracestate ── broker ──► consumer
                                  └─► process     each delivery, to a consumer in any language

    tracing = OpenTelemetryTracing()
    Producer(…, hooks=[tracing])    PushConsumer(…, hooks=[tracing])

Names and attributes are those of version 1.44 of OpenTelemetry's conventions for messaging, and for RocketMQ in particular. Java's agent
reads and writes the same properties. For spans inside of a listener, use
`context_of(message)`: listeners run in threads and event loops without a current context.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pocketmq.client.hooks import ConsumeEvent, Hooks, SendEvent
from pocketmq.errors import MissingLibrary, install_command
from pocketmq.model import Message, StoredMessage
from pocketmq.model import properties as names
from pocketmq.protocol.trace_text import Outcome

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

TRACER: Final = "pocketmq.client"
SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
_PARENT: Final = "traceparent"
_SPANS: Final = "otel spans"


class OpenTelemetryTracing(Hooks):
    """Hooks that create spans with `tracer`, or with the global tracer provider. One serves all clients of a process.

    `namespace` is an attribute of all spans, for clients that have one.
    """

    def __init__(self, tracer: "Tracer | None" = None, *, namespace: str | None = None) -> None:
        self._api, self._propagator = _libraries()
        self._tracer = self._api.get_tracer(TRACER, schema_url=SCHEMA) if tracer is None else tracer
        self._common: dict[str, Any] = {} if namespace is None else {"messaging.rocketmq.namespace": namespace}

    def extra_properties(self, message: Message) -> Mapping[str, str] | None:
        """Create a span for the message and add its context, unless the message has a context."""
        if _PARENT in message.properties:
            return None
        attributes = self._attributes("create", message.topic, message)
        kind = self._api.SpanKind.PRODUCER
        with self._tracer.start_as_current_span(f"create {message.topic}", kind=kind, attributes=attributes):
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier)
        return carrier

    def before_send(self, event: SendEvent) -> None:
        spans = []
        host, _, port = event.address.rpartition(":")
        for message, message_id in zip(event.messages, event.message_ids, strict=True):
            span = self._tracer.start_span(
                f"send {event.queue.topic}",
                context=self._propagator.extract(message.properties),
                kind=self._api.SpanKind.CLIENT,
                attributes=self._attributes("send", event.queue.topic, message)
                | {
                    "messaging.message.id": message_id,
                    "messaging.message.body.size": len(message.body),
                    "messaging.destination.partition.id": str(event.queue.queue_id),
                    "server.address": host.strip("[]"),
                    "server.port": int(port),
                    "messaging.pocketmq.producer_group": event.group,
                    "messaging.pocketmq.attempt": event.attempt,
                },
            )
            spans.append(span)
        event.context[_SPANS] = spans

    def after_send(self, event: SendEvent) -> None:
        self._end(event.context, event.error, "")

    def before_consume(self, event: ConsumeEvent) -> None:
        event.context[_SPANS] = [
            self._tracer.start_span(
                f"process {event.queue.topic}",
                context=self._propagator.extract(message.properties),
                kind=self._api.SpanKind.CONSUMER,
                attributes=self._attributes("process", event.queue.topic, message)
                | {
                    "messaging.message.id": message.message_id,
                    "messaging.message.body.size": len(message.body),
                    "messaging.consumer.group.name": event.group,
                    "messaging.destination.partition.id": str(event.queue.queue_id),
                    "messaging.pocketmq.reconsume_times": message.reconsume_times,
                },
            )
            for message in event.messages
        ]

    def after_consume(self, event: ConsumeEvent) -> None:
        is_well = event.outcome in (None, Outcome.SUCCESS)
        self._end(event.context, event.error, "" if is_well else f"result of the listener: {event.outcome}")

    def _attributes(self, operation: str, topic: str, message: Message | StoredMessage) -> dict[str, Any]:
        return {
            "messaging.system": "rocketmq",
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": topic,
            **self._common,
            **_described(message),
        }

    def _end(self, context: dict[str, Any], error: BaseException | None, failure: str) -> None:
        for span in context.pop(_SPANS, ()):
            if error is not None:
                span.record_exception(error)
                span.set_attribute("error.type", type(error).__name__)
            if error is not None or failure:
                span.set_status(self._api.Status(self._api.StatusCode.ERROR, failure or str(error)))
            span.end()


def context_of(message: StoredMessage) -> "Context":
    """The context of a message, for `tracer.start_as_current_span("…", context=context_of(message))`."""
    context: Context = _libraries()[1].extract(message.properties)
    return context


def _libraries() -> tuple[Any, Any]:
    try:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        raise MissingLibrary(f"traces for OpenTelemetry need opentelemetry; run {install_command('otel')}") from None
    return trace, TraceContextTextMapPropagator()


def _described(message: Message | StoredMessage) -> dict[str, Any]:
    """The attributes that RocketMQ's part of the conventions has for a message."""
    properties = message.properties
    delay_level, at_ms = message.delay_level, properties.get(names.TIMER_DELIVER_MS, "")
    if properties.get(names.TRANSACTION_PREPARED):
        kind = "transaction"
    elif delay_level or any(name in properties for name in names.TIMER_PROPERTIES):
        kind = "delay"
    elif names.SHARDING_KEY in properties:
        kind = "fifo"
    else:
        kind = "normal"
    found = {
        "messaging.rocketmq.message.tag": message.tags,
        "messaging.rocketmq.message.keys": message.keys,
        "messaging.rocketmq.message.type": kind,
        "messaging.rocketmq.message.group": properties.get(names.SHARDING_KEY),
        "messaging.rocketmq.message.delay_time_level": delay_level,
        "messaging.rocketmq.message.delivery_timestamp": int(at_ms) if at_ms.isdigit() else None,
        "messaging.message.conversation_id": properties.get(names.CORRELATION_ID),
    }
    return {name: value for name, value in found.items() if value}
