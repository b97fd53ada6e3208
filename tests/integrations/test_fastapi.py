"""Clients of an application: their life, their dependencies, and an outbox whose process is killed in the middle."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.integrations.programs import program

import pocketmq
from pocketmq.errors import UsageError, WrongState
from pocketmq.integrations.fastapi import Clients


def test_both_kinds_of_clients_live_as_long_as_the_application(rocketmq: pocketmq.Server) -> None:
    made: list[Any] = []

    def remember(client: Any) -> Any:
        made.append(client)
        return client

    clients = Clients(
        producer=lambda: remember(pocketmq.AsyncProducer(rocketmq.name_server)),
        blocking=lambda: remember(pocketmq.Producer(rocketmq.name_server)),
    )
    app = FastAPI(lifespan=clients)

    @app.post("/async")
    async def send(producer: Annotated[pocketmq.AsyncProducer, clients.depends("producer")]) -> str:
        return (await producer.send("orders", b"1")).status.name

    @app.post("/plain")
    def send_blocking(producer: Annotated[pocketmq.Producer, clients.depends("blocking")]) -> str:
        return producer.send("orders", b"2").status.name

    for _ in range(2):
        with TestClient(app) as client:
            assert client.post("/async").json() == client.post("/plain").json() == "SEND_OK"
            assert all(each.is_running for each in made[-2:])
        assert not any(each.is_running for each in made)

    assert len(made) == 4


def test_starlette_and_another_lifespan(rocketmq: pocketmq.Server) -> None:
    @asynccontextmanager
    async def around(app: Any) -> AsyncIterator[dict[str, str]]:
        yield {"colour": "red"}

    clients = Clients(around, producer=lambda: pocketmq.AsyncProducer(rocketmq.name_server))

    async def send(request: Request) -> PlainTextResponse:
        await clients.of(request)["producer"].send("orders", b"1")
        return PlainTextResponse(request.state.colour)

    with TestClient(Starlette(routes=[Route("/", send)], lifespan=clients)) as client:
        assert client.get("/").text == "red"


def test_a_client_that_cannot_start_stops_the_others(rocketmq: pocketmq.Server) -> None:
    started: list[pocketmq.AsyncProducer] = []

    def producer() -> pocketmq.AsyncProducer:
        started.append(pocketmq.AsyncProducer(rocketmq.name_server))
        return started[0]

    clients = Clients(producer=producer, consumer=lambda: pocketmq.AsyncPushConsumer(rocketmq.name_server, group="g"))

    with pytest.raises(UsageError, match="needs a listener before its start"), TestClient(FastAPI(lifespan=clients)):
        pass
    assert not started[0].is_running


def test_wrong_uses_are_one_sentence() -> None:
    producer = pocketmq.AsyncProducer("127.0.0.1:9876")
    with pytest.raises(
        UsageError, match="must be a function that makes a client, because a client can be started only"
    ):
        Clients(producer=producer)  # type: ignore[arg-type]
    clients = Clients(producer=lambda: producer)
    with pytest.raises(UsageError, match="there is no client 'consumer'; there are producer"):
        clients.depends("consumer")
    app = FastAPI(lifespan=clients)

    @app.get("/")
    async def root(producer: Annotated[Any, clients.depends("producer")]) -> None: ...

    with pytest.raises(WrongState, match="in tests use `with TestClient"):
        TestClient(app).get("/")


OUTBOX = """
import os, signal, sys
from typing import Annotated
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text
from pocketmq import Producer
from pocketmq.integrations.fastapi import Clients

name_server, duty = sys.argv[1:]
engine = create_engine("sqlite:///shop.db")

def is_ordered(message):
    with engine.begin() as rows:
        return rows.execute(text("SELECT id FROM orders WHERE id = :id"), {"id": message.keys[0]}).first() is not None

clients = Clients(producer=lambda: Producer(name_server, group="shop", check=is_ordered))
app = FastAPI(lifespan=clients)

@app.post("/orders/{order}")
def create_order(order: str, producer: Annotated[Producer, clients.depends("producer")]) -> None:
    with producer.transaction("orders") as outbox:
        with engine.begin() as rows:
            outbox.send(order, keys=order)
            rows.execute(text("INSERT INTO orders VALUES (:id)"), {"id": order})
            if duty == "die-before":
                os.kill(os.getpid(), signal.SIGKILL)
        if duty == "die-after":
            os.kill(os.getpid(), signal.SIGKILL)

with engine.begin() as rows:
    rows.execute(text("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)"))
with TestClient(app) as client:
    if duty != "check":
        client.post(f"/orders/{duty}")
    print("ready", flush=True)
    signal.sigwait([signal.SIGTERM])
"""


def test_after_a_kill_there_is_a_message_for_each_row_and_no_other(tmp_path: Path) -> None:
    soon = {"transactionTimeOut": 300, "transactionCheckInterval": 300}
    with (
        pocketmq.Server(settings=soon) as server,
        pocketmq.Admin(server.name_server) as admin,
        pocketmq.LitePullConsumer(server.name_server, group="shipping", start_at="first") as consumer,
    ):
        admin.topics.create("orders")
        consumer.subscribe("orders")
        for duty in ("die-before", "die-after"):
            with program(OUTBOX, tmp_path, server.name_server, duty) as killed:
                assert killed.wait() == -9
        assert len(admin.transactions.undecided().found) == 2

        with program(OUTBOX, tmp_path, server.name_server, "check") as alive:
            alive.wait_for("ready")
            [message] = consumer.poll(30)
            while admin.transactions.undecided().found:
                assert consumer.poll(0.05) == []
            assert consumer.poll(0.2) == []

    assert message.body == b"die-after"
