"""Traces from producer to consumer, through a real broker."""

import sys
import threading
from collections.abc import Iterator

import pytest

from pocketmq import Message, Producer, PushConsumer, Server
from pocketmq.client.telemetry.otel_tracing import OpenTelemetryTracing, context_of
from pocketmq.errors import MessageIllegal, MissingLibrary
from pocketmq.model.message import StoredMessage

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as attributes
from opentelemetry.trace import SpanKind, StatusCode, Tracer


class Spans:
    """A tracer and its ended spans."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer: Tracer = provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._kept.get_finished_spans() if span.name == name]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def spans() -> Spans:
    return Spans()


def test_one_trace_connects_the_caller_and_the_listener(server: Server, spans: Spans) -> None:
    tracing = OpenTelemetryTracing(spans.tracer)
    done = threading.Event()

    def listen(message: StoredMessage) -> None:
        with spans.tracer.start_as_current_span("in the listener", context=context_of(message)):
            done.set()

    with Producer(server.name_server, hooks=[tracing]) as producer:
        with spans.tracer.start_as_current_span("caller"):
            sent = producer.send("traced", b"1", tags="new", keys="42")
        consumer = PushConsumer(server.name_server, group="tracers", start_at="first", hooks=[tracing])
        consumer.on("traced")(listen)
        with consumer:
            assert done.wait(20)

    [caller], [create] = spans.named("caller"), spans.named("create traced")
    [send], [process], [inner] = (
        spans.named("send traced"),
        spans.named("process traced"),
        spans.named("in the listener"),
    )
    assert create.parent is not None
    assert create.parent.span_id == caller.context.span_id
    for child in (send, process, inner):
        assert child.parent is not None
        assert child.parent.span_id == create.context.span_id
        assert child.context.trace_id == caller.context.trace_id
    assert (create.kind, send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER)
    assert send.attributes is not None
    assert send.attributes["messaging.message.id"] == sent.message_id
    assert send.attributes["messaging.rocketmq.message.tag"] == "new"
    assert process.attributes is not None
    assert process.attributes["messaging.consumer.group.name"] == "tracers"


def test_attributes_have_the_names_of_the_conventions(server: Server, spans: Spans) -> None:
    """Those of OpenTelemetry that are not deprecated, and our own below `messaging.pocketmq`."""
    done = threading.Event()
    tracing = OpenTelemetryTracing(spans.tracer, namespace="shop")
    with Producer(server.name_server, group="makers", hooks=[tracing]) as producer:
        producer.send("named", b"123", tags="new", keys=["42", "43"], sharding_key="ann", properties={"own": "kept"})
        producer.send("named-later", b"1", delay_level=1)
    consumer = PushConsumer(server.name_server, group="readers", start_at="first", hooks=[tracing])
    consumer.on("named")(lambda message: done.set())
    with consumer:
        assert done.wait(20)

    [send], [process] = spans.named("send named"), spans.named("process named")
    assert send.attributes is not None
    assert process.attributes is not None
    sent, processed = dict(send.attributes), dict(process.attributes)
    deprecated = {attributes.MESSAGING_ROCKETMQ_CLIENT_GROUP, attributes.MESSAGING_OPERATION}
    known = {text for name, text in vars(attributes).items() if name.startswith("MESSAGING_")} - deprecated
    known |= {"server.address", "server.port"}
    ours = {"messaging.pocketmq.producer_group", "messaging.pocketmq.attempt", "messaging.pocketmq.reconsume_times"}
    assert (set(sent) | set(processed)) - known <= ours
    same = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": "named",
        "messaging.message.body.size": 3,
        "messaging.rocketmq.namespace": "shop",
        "messaging.rocketmq.message.tag": "new",
        "messaging.rocketmq.message.keys": ("42", "43"),
        "messaging.rocketmq.message.type": "fifo",
        "messaging.rocketmq.message.group": "ann",
    }
    assert sent.items() >= (same | {"messaging.operation.name": "send", "messaging.operation.type": "send"}).items()
    assert f"{sent['server.address']}:{sent['server.port']}" == server.broker_address
    assert processed.items() >= (same | {"messaging.operation.name": "process"}).items()
    assert processed["messaging.consumer.group.name"] == "readers"
    [later] = spans.named("send named-later")
    assert later.attributes is not None
    assert later.attributes["messaging.rocketmq.message.type"] == "delay"
    assert later.attributes["messaging.rocketmq.message.delay_time_level"] == 1


def test_a_context_that_another_instrumentation_wrote_is_continued(server: Server, spans: Spans) -> None:
    """Java's agent writes the same properties."""
    done = threading.Event()
    carried = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=1"}
    with Producer(server.name_server) as producer:
        producer.send("from-java", b"1", properties=carried)
    consumer = PushConsumer(
        server.name_server, group="pythons", start_at="first", hooks=[OpenTelemetryTracing(spans.tracer)]
    )
    consumer.on("from-java")(lambda message: done.set())
    with consumer:
        assert done.wait(20)

    [process] = spans.named("process from-java")
    assert f"{process.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert process.parent is not None
    assert f"{process.parent.span_id:016x}" == "b7ad6b7169203331"
    assert process.context.trace_state.get("vendor") == "1"


@pytest.mark.parametrize("way", ["send", "submit", "one way", "many"])
def test_every_method_of_sending_adds_the_context_without_changing_the_message(
    server: Server, spans: Spans, way: str
) -> None:
    message = Message("traced-ways", b"1", properties={"own": "kept"})

    with Producer(server.name_server, hooks=[OpenTelemetryTracing(spans.tracer)]) as producer:
        if way == "send":
            producer.send(message)
        elif way == "submit":
            producer.submit(message).result(10)
        elif way == "one way":
            producer.send_one_way(message)
        else:
            producer.send_many([message, message])

    creates, sends = spans.named("create traced-ways"), spans.named("send traced-ways")
    assert len(creates) == len(sends) == (2 if way == "many" else 1)
    assert {span.parent.span_id for span in sends if span.parent} == {span.context.span_id for span in creates}
    assert message.properties == {"own": "kept"}


def test_a_send_that_fails_is_a_span_with_the_error(spans: Spans) -> None:
    with (
        Server(settings={"maxMessageSize": 1000}) as strict,
        Producer(strict.name_server, hooks=[OpenTelemetryTracing(spans.tracer)]) as producer,
        pytest.raises(MessageIllegal),
    ):
        producer.send("large", bytes(2000))

    [send] = spans.named("send large")
    assert send.status.status_code is StatusCode.ERROR
    assert send.attributes is not None
    assert send.attributes["error.type"] == "MessageIllegal"


def test_a_message_that_has_a_context_keeps_it(spans: Spans) -> None:
    carried = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

    assert OpenTelemetryTracing(spans.tracer).extra_properties(Message("t", b"", properties=carried)) is None
    assert spans.named("create t") == []


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(MissingLibrary, match=r"-m pip install .*opentelemetry-sdk"):
        OpenTelemetryTracing()
