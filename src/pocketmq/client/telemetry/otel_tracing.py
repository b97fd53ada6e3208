"""Traces for OpenTelemetry: needs the extra `otel`. The program configures the exporter.

    span of the caller ─► create ─┬─► send        each attempt
                                  │   properties traceparent, tracestate ── broker ──► consumer
                                  └─► process     each delivery, to a consumer in any language

    tracing = OpenTelemetryTracing()
    Producer(…, hooks=[tracing])    PushConsumer(…, hooks=[tracing])

Names and attributes are those of OpenTelemetry's conventions for messaging. For spans inside of a listener, use
`context_of(message)`: listeners run in threads and event loops without a current context.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pocketmq.client.hooks import ConsumeEvent, Hooks, SendEvent
from pocketmq.errors import MissingLibrary, install_command
from pocketmq.model import Message, StoredMessage
from pocketmq.protocol.trace_text import Outcome

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

TRACER: Final = "pocketmq.client"
_PARENT: Final = "traceparent"
_SPANS: Final = "otel spans"


class OpenTelemetryTracing(Hooks):
    """Hooks that create spans with `tracer`, or with the global tracer provider. One serves all clients of a process."""

    def __init__(self, tracer: "Tracer | None" = None) -> None:
        self._api, self._propagator = _libraries()
        self._tracer = self._api.get_tracer(TRACER) if tracer is None else tracer

    def extra_properties(self, message: Message) -> Mapping[str, str] | None:
        """Create a span for the message and add its context, unless the message has a context."""
        if _PARENT in message.properties:
            return None
        attributes = _attributes("create", message.topic) | _names(message)
        kind = self._api.SpanKind.PRODUCER
        with self._tracer.start_as_current_span(f"create {message.topic}", kind=kind, attributes=attributes):
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier)
        return carrier

    def before_send(self, event: SendEvent) -> None:
        spans = []
        for message, message_id in zip(event.messages, event.message_ids, strict=True):
            span = self._tracer.start_span(
                f"send {event.queue.topic}",
                context=self._propagator.extract(message.properties),
                kind=self._api.SpanKind.CLIENT,
                attributes=_attributes("send", event.queue.topic)
                | _names(message)
                | {
                    "messaging.message.id": message_id,
                    "messaging.message.body.size": len(message.body),
                    "messaging.rocketmq.client_group": event.group,
                    "messaging.destination.partition.id": str(event.queue.queue_id),
                    "server.address": event.address,
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
                attributes=_attributes("process", event.queue.topic)
                | _names(message)
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


def _attributes(operation: str, topic: str) -> dict[str, str]:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _names(message: Message | StoredMessage) -> dict[str, str]:
    names = {"messaging.rocketmq.message.tag": message.tags, "messaging.rocketmq.message.keys": " ".join(message.keys)}
    return {name: text for name, text in names.items() if text}
