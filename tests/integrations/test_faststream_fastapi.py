"""FastStream's router for FastAPI: one application for requests and messages."""

from typing import Annotated

from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

import pocketmq
from pocketmq.integrations.faststream.fastapi import RocketRouter


def test_a_request_publishes_and_a_handler_uses_the_dependencies_of_fastapi(rocketmq: pocketmq.Server) -> None:
    router = RocketRouter(rocketmq.name_server, group="billing")
    seen: list[str] = []

    def store() -> list[str]:
        return seen

    @router.post("/orders")
    async def order(what: str) -> str:
        return (await router.broker.publish(what, "orders")).message_id

    @router.subscriber("orders", start_at="first")
    @router.publisher("invoices")
    async def bill(order: str, orders: Annotated[list[str], Depends(store)]) -> str:
        orders.append(order)
        return f"invoice of {order}"

    app = FastAPI()
    app.include_router(router)

    with (
        TestClient(app) as client,
        pocketmq.LitePullConsumer(rocketmq.name_server, group="test", start_at="first") as consumer,
    ):
        consumer.subscribe("invoices")
        assert client.post("/orders", params={"what": "tea"}).status_code == 200
        [invoice] = consumer.poll(30)
        assert "orders" in client.get("/asyncapi").text

    assert (seen, invoice.body) == (["tea"], b"invoice of tea")
