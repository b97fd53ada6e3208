"""FastAPI with an outbox: the row of SQLAlchemy and the message are both there or neither, also after a crash.

Prints:
    200 409
    message: 1
"""

from typing import Annotated

from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import StaticPool

from pocketmq import LitePullConsumer, Producer, Server, StoredMessage
from pocketmq.integrations.fastapi import Clients

server = Server()
engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})


def is_ordered(message: StoredMessage) -> bool:
    """The broker calls this when a crash left a transaction open: was its row committed?"""
    with engine.begin() as rows:
        return rows.execute(text("SELECT id FROM orders WHERE id = :id"), {"id": message.keys[0]}).first() is not None


clients = Clients(producer=lambda: Producer(server.name_server, group="shop", check=is_ordered))
app = FastAPI(lifespan=clients)


@app.post("/orders/{order}")
def create_order(order: str, producer: Annotated[Producer, clients.depends("producer")]) -> None:
    try:
        with producer.transaction("orders") as outbox, engine.begin() as rows:
            outbox.send(order, keys=order)  # stored, and delivered after the commit
            rows.execute(text("INSERT INTO orders VALUES (:id)"), {"id": order})
    except IntegrityError:
        raise HTTPException(409, "this order exists") from None


with server, TestClient(app) as client:
    with engine.begin() as rows:
        rows.execute(text("CREATE TABLE orders (id TEXT PRIMARY KEY)"))
    print(*(client.post("/orders/1").status_code for _ in range(2)))
    with LitePullConsumer(server.name_server, group="shipping", start_at="first") as consumer:
        consumer.subscribe("orders")
        print("message:", *(message.body.decode() for message in consumer.poll(30)))
