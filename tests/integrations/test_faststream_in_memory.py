"""Handlers in memory: bodies, headers, replies, batches, routers, the AsyncAPI document and middlewares."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pydantic
import pytest
from fast_depends.msgspec import MsgSpecSerializer
from faststream import AckPolicy, BaseMiddleware, FastStream, Response
from faststream.exceptions import SubscriberNotFound
from faststream.specification import AsyncAPI
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from pocketmq.errors import InvalidSetting, UsageError
from pocketmq.integrations.faststream import (
    RocketBroker,
    RocketMessage,
    RocketPrometheusMiddleware,
    RocketPublisherRoute,
    RocketResponse,
    RocketRoute,
    RocketRouter,
    RocketTelemetryMiddleware,
    TestRocketBroker,
)


class Order(pydantic.BaseModel):
    number: int
    city: str = "Oslo"


class Invoice(msgspec.Struct):
    number: int
    cents: int


def in_memory(broker: RocketBroker, main: Callable[[RocketBroker], Awaitable[None]]) -> None:
    async def run() -> None:
        async with TestRocketBroker(broker) as test:
            await main(test)

    asyncio.run(run())


def test_a_body_is_decoded_to_the_type_of_the_handler_and_its_result_is_published() -> None:
    broker = RocketBroker(group="billing")

    @broker.subscriber("orders")
    @broker.publisher("invoices")
    async def bill(order: Order) -> dict[str, int]:
        return {"number": order.number, "cents": 100}

    @broker.subscriber("invoices")
    async def store(invoice: dict[str, int]) -> None: ...

    async def main(test: RocketBroker) -> None:
        await test.publish(Order(number=7), "orders")
        bill.mock.assert_called_once_with({"number": 7, "city": "Oslo"})
        store.mock.assert_called_once_with({"number": 7, "cents": 100})

    in_memory(broker, main)


def test_bodies_may_be_types_of_msgspec() -> None:
    broker = RocketBroker(group="billing", serializer=MsgSpecSerializer())
    found: list[Invoice] = []

    @broker.subscriber("invoices")
    async def store(invoice: Invoice) -> None:
        found.append(invoice)

    async def main(test: RocketBroker) -> None:
        await test.publish(Invoice(7, 100), "invoices")
        assert found == [Invoice(7, 100)]

    in_memory(broker, main)


def test_a_body_of_another_type_fails() -> None:
    broker = RocketBroker(group="billing")

    @broker.subscriber("orders")
    async def bill(order: Order) -> None: ...

    async def main(test: RocketBroker) -> None:
        with pytest.raises(pydantic.ValidationError, match="number"):
            await test.publish({"number": "seven"}, "orders")

    in_memory(broker, main)


@pytest.mark.parametrize("body", ["text", b"\xff\x00", {"a": 1}, [1, 2], 5, None])
def test_a_request_returns_what_the_handler_returns(body: Any) -> None:
    broker = RocketBroker(group="echo")

    @broker.subscriber("echo")
    async def echo(message: RocketMessage) -> Any:
        return await message.decode()

    async def main(test: RocketBroker) -> None:
        reply = await test.request(body, "echo", correlation_id="one")
        assert await reply.decode() == body
        assert reply.correlation_id == "one"

    in_memory(broker, main)


def test_a_request_without_a_subscriber_fails() -> None:
    async def main(test: RocketBroker) -> None:
        with pytest.raises(SubscriberNotFound, match="'nobody'"):
            await test.request(b"1", "nobody")

    in_memory(RocketBroker(group="echo"), main)


def test_headers_are_properties_without_those_of_rocketmq() -> None:
    broker = RocketBroker(group="billing")
    seen: list[tuple[dict[str, str], str | None, list[str]]] = []

    @broker.subscriber("orders")
    async def bill(body: str, message: RocketMessage) -> None:
        seen.append((message.headers, message.raw_message.tags, message.raw_message.keys))

    async def main(test: RocketBroker) -> None:
        await test.publish("1", "orders", headers={"city": "Oslo"}, correlation_id="c", tags="paid", keys=["1", "a"])
        assert seen == [({"content-type": "text/plain", "correlation_id": "c", "city": "Oslo"}, "paid", ["1", "a"])]

    in_memory(broker, main)


def test_a_response_chooses_headers_and_the_key_of_a_published_message() -> None:
    broker = RocketBroker(group="billing")
    seen: list[Any] = []

    @broker.subscriber("orders")
    @broker.publisher("invoices", headers={"from": "publisher"}, tags="new")
    async def bill(body: str) -> Response:
        return RocketResponse("invoice", headers={"city": "Oslo"}, keys="17")

    @broker.subscriber("invoices")
    async def store(body: str, message: RocketMessage) -> None:
        seen.append(
            (message.headers["from"], message.headers["city"], message.raw_message.keys, message.raw_message.tags)
        )

    async def main(test: RocketBroker) -> None:
        await test.publish("1", "orders")
        assert seen == [("publisher", "Oslo", ["17"], "new")]

    in_memory(broker, main)


def test_a_batch_is_one_call_of_the_handler() -> None:
    broker = RocketBroker(group="billing")
    publisher = broker.publisher("invoices", batch=True)
    calls: list[list[int]] = []
    stored: list[int] = []

    @publisher
    @broker.subscriber("orders", batch_size=10)
    async def bill(orders: list[Order]) -> list[int]:
        calls.append([order.number for order in orders])
        return calls[-1]

    @broker.subscriber("invoices")
    async def store(number: int) -> None:
        stored.append(number)

    async def main(test: RocketBroker) -> None:
        results = await test.publish_batch(Order(number=1), Order(number=2), topic="orders")
        await publisher.publish(8, 9)
        assert (calls, stored, len(results)) == ([[1, 2]], [1, 2, 8, 9], 2)

    in_memory(broker, main)


def test_only_messages_with_a_chosen_tag_arrive_and_each_group_gets_one() -> None:
    broker = RocketBroker()
    seen: list[str] = []

    def handler(name: str, **options: Any) -> None:
        async def handle(body: str) -> None:
            seen.append(f"{name} {body}")

        broker.subscriber("orders", **options)(handle)

    handler("billing", group="billing", tags="paid || refunded")
    handler("shipping", group="shipping")

    async def main(test: RocketBroker) -> None:
        await test.publish("1", "orders", tags="paid")
        await test.publish("2", "orders", tags="new")
        assert sorted(seen) == ["billing 1", "shipping 1", "shipping 2"]

    in_memory(broker, main)


def test_a_router_gives_its_topics_a_prefix() -> None:
    seen: list[str] = []

    async def bill(order: str) -> str:
        return f"invoice {order}"

    async def store(invoice: str) -> None:
        seen.append(invoice)

    router = RocketRouter(
        "shop-",
        handlers=[RocketRoute(bill, "orders", publishers=[RocketPublisherRoute("invoices")])],
    )
    router.subscriber("invoices")(store)
    broker = RocketBroker(group="billing", routers=[router])

    async def main(test: RocketBroker) -> None:
        await test.publish("1", "shop-orders")
        assert seen == ["invoice 1"]

    in_memory(broker, main)


def test_middlewares_see_what_is_consumed_and_published() -> None:
    seen: list[str] = []

    class Watch(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen.append(f"consume {msg.body!r}")
            return await call_next(msg)

        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            seen.append(f"publish {cmd.destination}")
            return await call_next(cmd)

    broker = RocketBroker(group="billing", middlewares=[Watch])

    @broker.subscriber("orders")
    async def bill(order: str) -> None: ...

    async def main(test: RocketBroker) -> None:
        await test.publish("1", "orders")
        assert seen == ["publish orders", "consume b'1'"]

    in_memory(broker, main)


def test_the_document_describes_topics_and_bodies() -> None:
    broker = RocketBroker("10.0.0.1:9876", group="billing", description="orders of the shop")

    @broker.subscriber("orders")
    @broker.publisher("invoices", description="what to pay")
    async def bill(order: Order) -> Order:
        """Bills an order."""
        return order

    found = AsyncAPI(broker, title="shop").to_specification().to_jsonable()

    assert found["servers"]["development"]["host"] == "10.0.0.1:9876"
    assert found["servers"]["development"]["protocol"] == "rocketmq"
    assert {channel["address"] for channel in found["channels"].values()} == {"orders", "invoices"}
    assert "Order" in found["components"]["schemas"]
    assert found["channels"]["orders:Bill"]["description"] == "Bills an order."


def test_a_trace_goes_from_publish_to_the_handler() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    broker = RocketBroker(group="billing", middlewares=[RocketTelemetryMiddleware(tracer_provider=provider)])

    @broker.subscriber("orders")
    async def bill(order: str) -> None: ...

    @broker.subscriber("batches", batch_size=5)
    async def bill_many(orders: list[str]) -> None: ...

    async def main(test: RocketBroker) -> None:
        await test.publish("1", "orders", tags="paid")
        await test.publish_batch("1", "2", topic="batches")

    in_memory(broker, main)

    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert {"orders create", "orders publish", "orders process", "batches process"} <= set(spans)
    one = spans["orders process"]
    assert one.context is not None
    assert spans["orders publish"].context is not None
    assert one.context.trace_id == spans["orders publish"].context.trace_id
    assert one.attributes is not None
    assert one.attributes["messaging.system"] == "rocketmq"
    assert one.attributes["messaging.destination.name"] == "orders"
    many = spans["batches process"].attributes
    assert many is not None
    assert many["messaging.batch.message_count"] == 2


def test_prometheus_counts_messages_of_a_topic() -> None:
    registry = CollectorRegistry()
    broker = RocketBroker(group="billing", middlewares=[RocketPrometheusMiddleware(registry=registry, app_name="shop")])

    @broker.subscriber("orders")
    async def bill(order: str) -> None: ...

    async def main(test: RocketBroker) -> None:
        await test.publish("1", "orders")

    in_memory(broker, main)

    labels = {"app_name": "shop", "broker": "rocketmq", "handler": "orders"}
    assert registry.get_sample_value("faststream_received_messages_total", labels) == 1
    labels = {"app_name": "shop", "broker": "rocketmq", "destination": "orders", "status": "success"}
    assert registry.get_sample_value("faststream_published_messages_total", labels) == 1


@pytest.mark.parametrize(
    ("policy", "raises"),
    [(AckPolicy.ACK, True), (AckPolicy.NACK_ON_ERROR, True), (AckPolicy.ACK_FIRST, True), (AckPolicy.MANUAL, True)],
)
def test_in_memory_an_error_of_the_handler_is_an_error_of_publish(policy: AckPolicy, raises: bool) -> None:
    broker = RocketBroker(group="billing", ack_policy=policy)

    @broker.subscriber("orders")
    async def bill(order: str) -> None:
        raise ValueError("no price")

    async def main(test: RocketBroker) -> None:
        with pytest.raises(ValueError, match="no price"):
            await test.publish("1", "orders")

    in_memory(broker, main)


def test_the_log_names_the_group_of_the_broker() -> None:
    subscriber = RocketBroker(group="billing").subscriber("orders")

    assert subscriber.get_log_context(None) == {"topic": "orders", "group": "billing", "message_id": ""}


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        InvalidSetting, match="subscriber\\(\\) has no option 'retries'; options of the consumer: broadcast"
    ):
        RocketBroker(group="billing").subscriber("orders", retries=3)  # type: ignore[call-arg]


def test_several_messages_need_a_batch_publisher() -> None:
    broker = RocketBroker(group="billing")

    async def main(test: RocketBroker) -> None:
        with pytest.raises(UsageError, match="publish\\(\\) takes one message, not 2"):
            await broker.publisher("orders").publish(1, 2)

    in_memory(broker, main)


def test_an_application_takes_the_broker() -> None:
    assert FastStream(RocketBroker(group="billing")).brokers
