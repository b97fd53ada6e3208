"""Middlewares that describe messages to OpenTelemetry and Prometheus.

Names and attributes of spans and metrics are FastStream's; those of `pocketmq.client` follow the newest conventions of OpenTelemetry.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from faststream._internal.constants import EMPTY
from faststream.message import StreamMessage
from faststream.opentelemetry import TelemetryMiddleware, TelemetrySettingsProvider
from faststream.prometheus import ConsumeAttrs, MetricsSettingsProvider
from faststream.prometheus.middleware import PrometheusMiddleware

from pocketmq.integrations.faststream.messages import RocketPublishCommand
from pocketmq.model import StoredMessage

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

SYSTEM = "rocketmq"


def _all(message: StreamMessage[Any]) -> list[StoredMessage]:
    raw = message.raw_message
    return raw if isinstance(raw, list) else [raw]


class RocketSpanAttributes(TelemetrySettingsProvider[Any, RocketPublishCommand]):
    """The attributes of spans."""

    def __init__(self) -> None:
        self.messaging_system = SYSTEM

    def get_consume_attrs_from_message(self, msg: StreamMessage[Any]) -> dict[str, Any]:
        messages = _all(msg)
        first = messages[0]
        found = {
            "messaging.system": SYSTEM,
            "messaging.destination.name": first.topic,
            "messaging.destination_publish.name": first.topic,
            "messaging.destination.partition.id": str(first.queue_id),
            "messaging.message.id": msg.message_id,
            "messaging.message.conversation_id": msg.correlation_id,
            "messaging.message.body.size": sum(len(each.body) for each in messages),
            "messaging.rocketmq.message.tag": first.tags,
            "messaging.rocketmq.message.keys": first.keys,
        }
        if isinstance(msg.raw_message, list):
            found["messaging.batch.message_count"] = len(messages)
        return {name: value for name, value in found.items() if value not in (None, [])}

    def get_consume_destination_name(self, msg: StreamMessage[Any]) -> str:
        return str(_all(msg)[0].topic)

    def get_publish_attrs_from_cmd(self, cmd: RocketPublishCommand) -> dict[str, Any]:
        found = {
            "messaging.system": SYSTEM,
            "messaging.destination.name": cmd.destination,
            "messaging.message.conversation_id": cmd.correlation_id,
            "messaging.rocketmq.message.tag": cmd.options.get("tags"),
        }
        return {name: value for name, value in found.items() if value is not None}

    def get_publish_destination_name(self, cmd: RocketPublishCommand) -> str:
        return cmd.destination


class RocketTelemetryMiddleware(TelemetryMiddleware[RocketPublishCommand]):
    """Spans and metrics for OpenTelemetry. The context of a trace is a header, so a property of the message."""

    def __init__(
        self,
        *,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
        meter: "Meter | None" = None,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: RocketSpanAttributes(),
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            meter=meter,
            include_messages_counters=True,
        )


class RocketMetricAttributes(MetricsSettingsProvider[Any, RocketPublishCommand]):
    """The labels of metrics."""

    def __init__(self) -> None:
        self.messaging_system = SYSTEM

    def get_consume_attrs_from_message(self, msg: StreamMessage[Any]) -> ConsumeAttrs:
        messages = _all(msg)
        return {
            "message_size": sum(len(each.body) for each in messages),
            "destination_name": messages[0].topic,
            "messages_count": len(messages),
        }

    def get_publish_destination_name_from_cmd(self, cmd: RocketPublishCommand) -> str:
        return cmd.destination


class RocketPrometheusMiddleware(PrometheusMiddleware[Any, RocketPublishCommand]):
    """Counters and histograms for Prometheus in `registry`."""

    def __init__(
        self,
        *,
        registry: "CollectorRegistry",
        app_name: str = EMPTY,
        metrics_prefix: str = "faststream",
        received_messages_size_buckets: Sequence[float] | None = None,
        custom_labels: dict[str, str | Callable[[Any], str]] | None = None,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: RocketMetricAttributes(),
            registry=registry,
            app_name=app_name,
            metrics_prefix=metrics_prefix,
            received_messages_size_buckets=received_messages_size_buckets,
            custom_labels=custom_labels,
        )
